# base: student
"""Handed in as it was handed out."""
