"""docs/attacks.md names attacks and tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from grading.test_heard_at_once import MOST_APART, MOST_TOGETHER

from security.attacks import attacks
from security.broken_files import write_broken
from security.points_by_exercise import KINDS, table, with_points
from security.test_forged_facts import FORGED
from security.test_hostile_batch import NOWHERE
from tests.submissions.making import HERE, LESSONS, ROOT

PAGE = ROOT / "docs" / "attacks.md"


def test_every_attack_that_the_page_names_is_tried() -> None:
    text = (
        PAGE.read_text(encoding="utf-8").partition("## What a point rests on")[2].partition("Exercise by exercise")[0]
    )
    rows = [line.split("|")[-2] for line in text.splitlines() if line.startswith("| ") and "tried by" not in line]
    known = set(attacks(NOWHERE)) | {name for _, name in FORGED}
    known |= {path.stem for number in LESSONS for path in (HERE / f"answers_{number}").glob("*.py")}
    known |= set(re.findall(r"def (test_\w+)", (ROOT / "tests/grading/test_second_run.py").read_text(encoding="utf-8")))
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(named) > 25
    assert [name for name in named if name not in known and not (ROOT / name).is_file()] == []
    assert all("`" in row for row in rows)


def test_every_forged_fact_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for _, name in FORGED if f"`{name}`" not in text] == []
    assert Path(HERE, "answers_10", "recognises_the_stand_in.py").is_file()


def test_the_page_says_how_many_attacks_and_files_there_are(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    counts = len(attacks(NOWHERE)), len(write_broken(tmp_path / "in", tmp_path / "secret"))
    assert f"{counts[0]} attacks and {counts[1]} broken files" in PAGE.read_text(encoding="utf-8")


def test_the_page_says_above_what_load_its_tests_fail() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"the test fails above {MOST_APART:g}." in text and f"the test fails above {MOST_TOGETHER:g}." in text
    heard = round(MOST_TOGETHER * 300 / 8, -1)
    assert f"by load alone, at {MOST_TOGETHER:g} bits a second, it could hear some {heard:.0f} bytes" in text


def test_the_comparison_names_attacks_that_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## The same answers through other graders")[2]
    named = re.findall(r"^\| `([^`]+)`", text, re.M)
    assert len(named) == 6 and set(named) <= set(attacks(NOWHERE))


def test_every_test_and_file_that_the_page_names_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in tests] == []
    files = {name.split("::")[0] for name in re.findall(r"`((?:tests|labkit)/[\w/]+\.py)", text)}
    assert [name for name in files if not (ROOT / name).is_file()] == [] and len(files) > 15


@pytest.mark.in_turn
def test_the_page_says_of_every_exercise_with_points_what_they_rest_on() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


@pytest.mark.in_turn
def test_rows_of_the_first_table_name_exercises_that_rest_on_what_the_row_says() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## What a point rests on")[2].partition("Checks hand an")[0]
    kinds = {slug: kind for each in with_points().values() for slug, kind in each.items()}
    rows = {line.split("|")[1] for line in text.splitlines() if line.startswith("| ")}
    for begins, kind, whole in (
        (" a formula", KINDS[3], False), (" a design", KINDS[2], True),
        (" `find` and `why` with points", KINDS[4], True),
        (" numbers on several ranks", KINDS[0], False), (" state, memory", KINDS[0], False),
        (" tensors split", KINDS[0], False), (" files after a crash", KINDS[3], False),
        (" packets", KINDS[3], False), (" one process of lesson 11", KINDS[3], False),
    ):  # fmt: skip
        (row,) = (each for each in rows if each.startswith(begins))
        named = set(re.findall(r"`(\w+)`", row)) - {"find", "why"}
        assert {kinds[slug] for slug in named} == {kind}, begins
        assert not whole or named == {slug for slug, each in kinds.items() if each == kind}, begins
    opposite = {slug for slug, each in kinds.items() if each == KINDS[1]}
    named = {slug for row in rows if row.startswith(" what ") for slug in re.findall(r"`(\w+)`", row)}
    assert opposite <= named
