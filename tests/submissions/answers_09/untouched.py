# base: student
"""The notebook as it was handed out."""
