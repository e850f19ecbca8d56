"""What a student made, fit to be shown."""

from __future__ import annotations

import re
from pathlib import Path

MAX_TEXT = 8000
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def plain_text(text: str, limit: int = MAX_TEXT) -> str:
    """Return a text without control characters, of at most `limit` characters."""
    clean = _CONTROL.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))
    return clean if len(clean) <= limit else clean[:limit] + f"\n[cut: {len(clean) - limit} more characters]"


def shown(path: str | Path) -> str:
    """Return a path on one line whatever characters it has: what cannot be printed is written as Python writes it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(path))
