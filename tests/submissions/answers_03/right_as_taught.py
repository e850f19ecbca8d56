# base: solution
"""Right in the lesson's own style: every exercise as the solution has it."""
