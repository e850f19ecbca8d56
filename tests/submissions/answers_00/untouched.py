# base: student
"""Nothing done."""
