"""What runs in a rank, beside the learner's functions: it hands over inputs and brings back what came of them.

A driver knows no answer and judges nothing. One module a lesson.
"""
