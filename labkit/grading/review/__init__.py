"""Reading what students wrote: answers to one question side by side, points by key press, into the gradebook."""
