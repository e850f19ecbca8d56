"""What an instructor hands out: the student release, Gradescope autograder, nbgrader assignment."""
