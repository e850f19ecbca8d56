# base: student
"""Nothing written."""
