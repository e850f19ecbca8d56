"""How pages for students and for instructors are written: templates beside this module, and the words they share."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from labkit.grading.plain_text import plain_text

WORDS = {
    "passed": "works",
    "failed": "not yet",
    "not_done": "not started",
    "not_graded": "not graded",
    "to_read": "to be read",
    "read": "read",
}
MARKS = {"passed": "✓", "failed": "✗", "not_done": "○", "not_graded": "–", "to_read": "✎", "read": "✎"}


def page(template: str, **values: Any) -> bytes:
    """Return one HTML file that needs nothing else, for any width, light or dark.

    Args:
        template: The name of a file beside this module.
        values: What it shows.
    """
    return fragment(template, **values).encode("utf-8", "replace")


def fragment(template: str, **values: Any) -> Markup:
    """Return a piece of HTML from a template beside this module."""
    return Markup(_environment().get_template(template).render(values))


@cache
def _environment() -> Environment:
    """Return the templates; whatever they print is without control characters, without markup and of bounded length."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: plain_text(value) if type(value) is str else value,
    )
    environment.filters["cut"] = _cut
    environment.globals.update(words=WORDS, marks=MARKS)
    return environment


def _cut(text: str, limit: int = 4000) -> str:
    """Return at most `limit` characters of a text, and how many are missing."""
    return plain_text(str(text), limit)
