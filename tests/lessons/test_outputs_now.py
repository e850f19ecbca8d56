"""A stored output that another version wrote is told, and is mended where no run is needed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from nbformat import from_dict

import labkit
from labkit.checks.rooms import find
from labkit.lessons.outputs_now import as_drawn_now, draw_now
from labkit.widgets import programs

SOLUTIONS = Path(__file__).parents[2] / "solutions"


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


@pytest.mark.parametrize("path", sorted(SOLUTIONS.glob("*.ipynb")), ids=lambda path: path.stem[:2])
def test_a_stored_check_tells_of_todays_cases(path: Path) -> None:
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        checked = re.search(r'^labkit\.(?:check|challenge)\("(\w+)"', "".join(cell["source"]), re.M)
        texts = ["".join(each.get("data", {}).get("text/plain", "")) for each in cell.get("outputs", [])]
        told = re.findall(r"^  pass  (.+)$", "\n".join(texts), re.M)
        for name in [case.name for case in find(checked[1]).visible] if checked and told else []:
            said = any(line == name or line.startswith(f"{name}: ") for line in told)
            assert said, f"{cell['id']} says nothing of {name!r}: labkit build {path.stem[:2]} --always"
