"""What the pages for students and for instructors share: the head, safe text, the words for an exercise's state."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from labkit.grading.plain_text import plain_text

WORDS = {"passed": "works", "failed": "not yet", "not_done": "not started", "not_graded": "not graded"}
MARKS = {"passed": "✓", "failed": "✗", "not_done": "○", "not_graded": "–"}


def shown(text: str, limit: int = 4000) -> str:
    """Return a text fit to stand in HTML: no control characters, no markup, at most `limit` characters."""
    return escape(plain_text(text, limit), quote=True)


def page(title: str, styles: Iterable[str], parts: Iterable[str], main: str = "<main>") -> bytes:
    """Return one HTML file that needs nothing else, for any width, light or dark.

    Args:
        title: As HTML.
        styles: Names of the style sheets beside this module.
        parts: What stands in it, as HTML; empty ones are left out.
        main: The tag around them.
    """
    style = "\n".join(Path(__file__).with_name(name).read_text(encoding="utf-8") for name in styles)
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{title}</title>",
        f"<style>{style}</style></head><body>{main}",
        *(part for part in parts if part),
        "</main></body></html>\n",
    ]
    return "\n".join(lines).encode("utf-8", "replace")
