"""Lessons as pages that need no installation: made from the source, small, offline, without answers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from labkit.checks.question import read_key
from labkit.lessons.played import LESSONS, MOST_BYTES, played_page
from labkit.lessons.source import load

ROOT = Path(__file__).parents[2]
SOURCES = [path for number in LESSONS for path in (ROOT / "solutions").glob(f"{number}_*.py")]


@pytest.fixture(scope="module", params=SOURCES, ids=lambda path: path.stem)
def made(request: pytest.FixtureRequest) -> tuple[Path, str]:
    return request.param, played_page(request.param)


@pytest.mark.in_turn
def test_a_page_is_small_and_loads_nothing(made: tuple[Path, str]) -> None:
    page = made[1]
    assert len(page.encode()) < MOST_BYTES
    assert not re.findall(r'(?:src|href)="(?!data:|#|https?:)', page)
    assert not re.findall(r'<(?:script|img|iframe)[^>]+src="https?:|<link', page)


def test_it_asks_every_guess_and_question_of_the_core_and_knows_what_came_out(made: tuple[Path, str]) -> None:
    source, page = made
    core = source.read_text(encoding="utf-8").partition("# ## Bonus")[0]
    guesses = re.findall(r'^labkit\.predict\("(\w+)"', core, re.M)
    assert guesses and re.findall(r'data-guess="(\w+)"', page) == guesses
    assert sorted(re.findall(r'data-result="(\w+)"', page)) == sorted(guesses)
    questions = [cell for cell in load(source).cells if cell.role in ("find", "why") and cell.source in core]
    asked = [json.loads(text) for text in re.findall(r'id="question-\d+">(.+?)</script>', page)]
    keys = [next((ROOT / "labkit" / "exercises").glob(f"*/{each.exercise}/key.json")) for each in questions]
    assert [each["answers"] for each in asked] == [dict(read_key(path).answers) for path in keys]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_class_whose_answers_count_gets_the_questions_and_no_key(source: Path) -> None:
    page = played_page(source, judged=False)
    asked = [cell for cell in load(source).cells if cell.role in ("find", "why")]
    core = [cell for cell in asked if cell.source in source.read_text(encoding="utf-8").partition("# ## Bonus")[0]]
    assert page.count("You answer this in the notebook.") == len(core)
    assert "question-" not in re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    keys = [next((ROOT / "labkit" / "exercises").glob(f"*/{cell.exercise}/key.json")) for cell in core]
    assert not [path.parent.name for path in keys if read_key(path).reason in page]


def test_no_line_of_an_answer_is_in_it(made: tuple[Path, str]) -> None:
    source, page = made
    cells = load(source).cells
    handed_out = "\n".join(cell.student_source for cell in cells)
    cut = {line.strip() for cell in cells for each in cell.cuts for line in each.lines if len(line.strip()) > 30}
    lines = {line for line in cut if line not in handed_out}
    text = re.sub(r"<[^>]+>", "", page)
    assert lines and not [line for line in lines if line in text]
