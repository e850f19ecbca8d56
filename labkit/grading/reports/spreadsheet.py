"""What every CSV of ours holds to: text in a cell stays text."""

from __future__ import annotations

_STARTS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def inert(text: str) -> str:
    """Return text that a spreadsheet will not take for a formula (source: OWASP, "CSV Injection")."""
    return f"'{text}" if text.startswith(_STARTS_A_FORMULA) else text
