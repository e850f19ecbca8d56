# base: solution
"""Every answer as the lesson's own solution has it."""
