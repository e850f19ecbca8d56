"""Undoing one slip of a wrong answer, to say in which line it may lie (trials.py, told.py)."""
