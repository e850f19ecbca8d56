"""The sentences that ask something of an answer, and what holds each: rules/NN.toml.

A table names an exercise. Its keys are the sentences of the docstrings in the learner's exercise cell, word for word,
and those of the lesson's text that ask something of the answer. The value says what holds the sentence:

* a list: wrong answers of the exercise's wrong.py that break it, each of which a check must name;
* {allows = [...]}: it leaves a choice, and these right answers of wrong.py make it;
* "form": it says of what type and shape a result is, and a result of another form is refused;
* "given": it asks nothing: it says what the answer is given, what happens elsewhere, or why.

`python -m tests.checks.stated_rules 05` prints the sentences of a lesson that no table has, as a table to fill in.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import nbformat

from labkit.checks.rooms import exercises
from tests.checks.lesson_cells import slug_of

HERE = Path(__file__).parent / "rules"
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
KINDS = ("form", "given")
_BREAK = re.compile(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) )|\n(?=\s*[\w*, ]{1,40}: )|(?<=[.?!])\s+(?=[A-Z`(\"'\d])")
_HEAD = re.compile(r"^(?:Args|Returns|Yields|Raises|Attributes):\s*")
_BULLET = re.compile(r"^(?:[*-]|\d+\.)\s+")


def tables(number: str) -> dict[str, dict[str, Any]]:
    """Return what holds each sentence of a lesson, exercise by exercise; "05" names the lesson."""
    return tomllib.loads((HERE / f"{number}.toml").read_text(encoding="utf-8"))


def sentences(text: str) -> list[str]:
    """Return the sentences of a docstring or a text, without line breaks and bullets."""
    found = (_HEAD.sub("", " ".join(_BULLET.sub("", each.strip()).split())) for each in _BREAK.split(text))
    return [each for each in found if each]


def asked(number: str) -> dict[str, list[str]]:
    """Return the sentences of the docstrings in a lesson's exercise cells, as a learner gets them, by exercise."""
    found: dict[str, list[str]] = {}
    for cell in _cells(number):
        slug = cell.metadata.get("labkit", {}).get("exercise")
        if cell.cell_type == "code" and slug in exercises(slug_of(number)):
            found.setdefault(slug, []).extend(each for text in _docstrings(cell.source) for each in sentences(text))
    return found


def prose(number: str) -> str:
    """Return the text of a lesson's learner's notebook, without line breaks."""
    return " ".join(" ".join(cell.source for cell in _cells(number) if cell.cell_type == "markdown").split())


@cache
def _cells(number: str) -> list[Any]:
    read: Any = nbformat.read
    return list(read(next(NOTEBOOKS.glob(f"{number}_*.ipynb")), as_version=4).cells)


def _docstrings(source: str) -> list[str]:
    nodes = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.FunctionDef | ast.ClassDef)]
    return [text for text in map(ast.get_docstring, sorted(nodes, key=lambda node: node.lineno)) if text]


def _missing(number: str) -> str:
    has = tables(number) if (HERE / f"{number}.toml").exists() else {}
    lines = []
    for slug, found in asked(number).items():
        left = [each for each in found if each not in has.get(slug, {})]
        lines += [f"\n[{slug}]", *(f"{_quoted(each)} = []" for each in dict.fromkeys(left))] if left else []
    return "\n".join(lines).lstrip()


def _quoted(text: str) -> str:
    return f"'{text}'" if "'" not in text else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


if __name__ == "__main__":
    print(_missing(sys.argv[1]))
