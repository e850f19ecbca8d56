"""What every CSV of ours holds to: text in a cell stays text."""

from __future__ import annotations

import re

_FORMULA = re.compile("(?:^|(?<=[;\t\r\n]))(?=[=+\\-@\uff1d\uff0b\uff0d\uff20\t\r\n])")
"""Where one could begin: at the front, and behind what parts fields in spreadsheets of other countries; the signs are
also those of full width, which some of them take for the same."""


def inert(text: str) -> str:
    """Return text that a spreadsheet will not take for a formula (source: OWASP, "CSV Injection")."""
    return _FORMULA.sub("'", text)
