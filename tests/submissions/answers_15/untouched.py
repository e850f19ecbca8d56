# base: student
"""As it was handed out."""
