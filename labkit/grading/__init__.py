"""Grading: a submission is read, rebuilt, run, tried on hidden cases in sandboxes, scored and reported."""
