# base: student
"""As it is handed out."""
