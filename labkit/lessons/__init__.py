"""Lessons: one source each, from which the notebook, the executed solution and the slides are made."""
