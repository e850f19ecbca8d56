"""A stored output that another version wrote is told, and is mended where no run is needed."""

from __future__ import annotations

from typing import Any

import pytest
from nbformat import from_dict

import labkit
from labkit.checks.rooms import find
from labkit.lessons.outputs_now import as_drawn_now, draw_now, with_other_cases
from labkit.widgets import programs


def cell_of(source: str, **data: str) -> Any:
    kinds = {kind.replace("_", "/"): text for kind, text in data.items()}
    return from_dict({"cell_type": "code", "id": f"c{len(str(data))}", "source": source, "outputs": [{"data": kinds}]})  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def today() -> str:
    return labkit.schedule_explorer().to_html()


@pytest.mark.parametrize("part", ["figure.css", "schedule_explorer.js"])
def test_a_figure_with_an_older_part_gets_the_one_of_today(today: str, part: str) -> None:
    cell = cell_of("labkit.schedule_explorer()", text_html=today.replace(programs.sent(part), "/* old */"))
    assert draw_now(cell)
    assert cell.outputs[0].data["text/html"] == today
    assert not draw_now(cell)


def test_what_is_no_figure_stays() -> None:
    table = "<table><style>td { color: red }</style></table>"
    assert as_drawn_now(table) == table


def test_a_stored_check_without_a_case_of_today_is_named_by_it() -> None:
    names = [case.name for case in find("bubble").visible]
    told = "\n".join(f"  pass  {name}" for name in names)
    right = cell_of('labkit.check("bubble", bubble)', text_plain=f"Exercise bubble: passed.\n{told}")
    older = cell_of('labkit.check("bubble", bubble)', text_plain=told.replace(names[1], "a former case"))
    own = cell_of('labkit.check("of_a_course", f)', text_plain="  pass  anything")
    found = list(with_other_cases({"cells": [right, older, own]}))
    assert [identity for identity, _ in found] == [older.id]
    assert repr(names[1]) in found[0][1]
