"""What is received, served and kept for the next step: four of the bank's programs, each with its twin."""

from __future__ import annotations

from pathlib import Path

import pytest

import labkit
from tests.audit.bank import bugs

RULES = {
    "recv_buffer_reused": "received-over",
    "served_before_all_arrived": "answered-early",
    "last_writer_wins": "update-lost",
    "residual_lost": "state-never-found",
}


@pytest.mark.in_turn
@pytest.mark.filterwarnings("ignore")  # programs are as their users wrote them
@pytest.mark.parametrize("name", RULES)
def test_what_is_lost_on_the_way_is_found_on_its_line_and_not_in_the_twin(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (bug,) = [one for one in bugs() if one.name == name]
    path = tmp_path / bug.path.name
    path.write_text(bug.path.read_text())
    found = labkit.audit(path, on=labkit.virtual(bug.world))
    assert [(one.rule, one.line) for one in found.findings] == [(RULES[name], bug.places[0])], found
    path.write_text(bug.twin)
    assert RULES[name] in labkit.audit(path, on=labkit.virtual(bug.world)).held
