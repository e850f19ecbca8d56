# base: solution
"""Every exercise as the solution does it."""
