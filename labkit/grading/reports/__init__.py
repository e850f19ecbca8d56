"""What comes out: feedback for a student, pages and tables for a class, notes for CI."""
