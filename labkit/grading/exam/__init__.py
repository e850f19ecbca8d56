"""The incident exam: each student gets another run that failed, and names the rank, the cause and the fix."""
