# base: solution
"""The lesson's own answers."""
