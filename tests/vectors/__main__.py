"""Writes the cases anew from Python."""

from tests.vectors import RULES, as_text

RULES.write_text(as_text(), encoding="utf-8")
