"""The error catalogue: every message has one entry that says why and what to do, and every entry a message."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.statements import statements

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made_pages() -> Any:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import made_pages
    finally:
        sys.path.remove(str(ROOT / "docs"))
    return made_pages


@pytest.fixture(scope="module")
def entries() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "docs" / "error_catalogue.toml").read_text())["entry"]
    return found


@pytest.fixture(scope="module")
def messages(made_pages: Any) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = made_pages.messages()
    return found


def test_every_message_is_explained_once_and_every_entry_explains_one(
    made_pages: Any, entries: list[dict[str, Any]], messages: list[tuple[str, str]]
) -> None:
    explained, problems = made_pages.catalogue(entries, messages)
    assert not problems, "\n".join([*problems, "", "Write it into docs/error_catalogue.toml."])
    assert sum(map(len, explained)) == len(messages) > 200


def test_no_class_of_errors_is_left_out(made_pages: Any) -> None:
    known = {"LabkitError", "RunError", *made_pages.KINDS}
    derives = re.compile(rf"class \w+\([^)]*\b({'|'.join(known)})\b")
    made = set()
    for path in (ROOT / "labkit").rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        if not derives.search(code):  # few do, and parsing all takes seconds
            continue
        for node in statements(ast.parse(code)):
            if isinstance(node, ast.ClassDef) and known & {ast.unparse(base).rpartition(".")[2] for base in node.bases}:
                made.add(node.name)
    assert len(made) > 8 and made <= known


def test_an_entry_says_in_a_few_sentences_why_and_what_to_do(entries: list[dict[str, Any]]) -> None:
    assert all(set(entry) == {"title", "says", "why", "do"} for entry in entries)
    wordy = [entry["title"] for entry in entries for part in ("why", "do") if not 20 < len(entry[part]) < 260]
    assert not wordy


def test_a_new_message_without_an_entry_is_named(
    made_pages: Any, entries: list[dict[str, Any]], messages: list[tuple[str, str]]
) -> None:
    found = [*messages, ("ConfigError", "a message nobody explained")]
    assert made_pages.catalogue(entries, found)[1] == ["no entry explains: a message nobody explained"]


def test_an_entry_whose_message_is_gone_is_named(
    made_pages: Any, entries: list[dict[str, Any]], messages: list[tuple[str, str]]
) -> None:
    stale = {"title": "t", "says": ["words that no message has"], "why": "", "do": ""}
    assert made_pages.catalogue([*entries, stale], messages)[1] == ["no message says: words that no message has"]
