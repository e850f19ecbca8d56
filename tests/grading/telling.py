"""What tells an answer to a question of the course, looked for in what people read."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEYS = sorted(
    path for place in ("labkit/exercises", "solutions/hidden") for path in (ROOT / place).glob("*/*/key.json")
)
VERDICTS = (
    re.compile(r"\bRight\. [A-Z]"),
    re.compile(r"\bNot yet\. \w+="),
    re.compile(r"\bNo, it is ['\"\d]"),
    re.compile(r"\bpassed, all \d"),
    re.compile(r"\(naive [\d.,]+, the paper's"),
    re.compile(r"labkit\.answer\(\s*\"\w+\"(?!,\s*(?:\w+=)?None\b)[^.)]"),
)


def readable(path: Path) -> str:
    """Return what a person or a program reads in a file: text without tags, escapes and line ends."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join(_strings(json.loads(text)))
    return _plain(html.unescape(re.sub(r"</?[a-zA-Z][^<>]*>", "", text)))


def tells(path: Path) -> list[str]:
    """Return each verdict that a file holds, and each sentence of a reason or a hint of any key."""
    text = readable(path)
    found = [match[0] for pattern in VERDICTS for match in pattern.finditer(text)]
    return found + [f"{slug}: {sentence}" for slug, sentence in sentences() if sentence in text]


def sentences() -> list[tuple[str, str]]:
    """Return the sentences of every key, a class's and labkit's, that are long enough to be nobody else's."""
    found = []
    for path in KEYS:
        key = json.loads(path.read_text(encoding="utf-8"))
        said = [key["reason"], *(hint["says"] for hint in key.get("hints", ()))]
        parts = [_plain(part) for text in said for part in re.split(r"(?<=[.?!:])\s", text)]
        found += [(path.parent.name, part) for part in parts if len(part) >= 25]
    return found


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("`", ""))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
            yield "".join(value)
            return
        for each in value if isinstance(value, list) else value.values():
            yield from _strings(each)
