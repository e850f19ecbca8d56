"""What lessons 05, 10 and 13 say beside an audit is what the audit says there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import labkit
from labkit import wrong_runs
from labkit.auditing.rank_watch import is_installed
from tests.checks.lesson_cells import lesson

EXERCISES = Path(labkit.__file__).parent / "exercises"
PROGRAMS: dict[str, tuple[Callable[[], None], str, str, dict[str, str]]] = {
    "05": (wrong_runs.a_little_worse, "used-before-wait", "optimizer.step()", {}),
    "10": (wrong_runs.largest_entries_first, "state-never-found", "compressed = ", {}),
    "13": (wrong_runs.four_sharded_layers, "one-rank-holds-more", "plotted.append(", {"gpu": "a100"}),
}
"""Lesson -> the program, the rule that finds its mistake, how the line begins that is named, and the hardware."""


@pytest.mark.in_turn
@pytest.mark.parametrize("number", PROGRAMS)
def test_an_audit_in_a_lesson_names_the_mistake_and_its_line(number: str) -> None:
    program, rule, begins, hardware = PROGRAMS[number]
    cell = f"print(*labkit.audit({program.__name__}, on=labkit.virtual(4"
    assert any(cell in each.source for each in lesson(number).cells)
    every = labkit.audit(program, on=labkit.virtual(4, **hardware)).findings
    assert len(every) == {"05": 2}.get(number, 1), every
    found = [one for one in every if one.rule == rule]
    assert Path(found[0].file).read_text().splitlines()[found[0].line - 1].strip().startswith(begins)
    slug = {"05": "ddp_for_real_models/trains_worse", "13": "sharded_training/who_holds"}.get(number)
    if slug is not None:
        key = json.loads((EXERCISES / slug / "key.json").read_text(encoding="utf-8"))["answers"]
        assert found[0].rank == key["rank"]


def test_their_lines_are_a_programs_where_labkit_is_installed_too() -> None:
    file = f"{Path(wrong_runs.__file__)}:12"
    assert not is_installed(file)
    assert is_installed("/lib/site-packages/labkit/models.py:12")
