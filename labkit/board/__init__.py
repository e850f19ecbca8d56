"""The class board: a small server that shows a room's progress, and the learner's side that opts in to it."""
