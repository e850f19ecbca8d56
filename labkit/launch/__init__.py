"""Ranks as real processes: how they start, what is recorded of them, and how they end."""
