"""The gradebook: attempts, marks, deadlines and adjustments in a database; rows are added, none is changed."""
