"""What the doctor said on thirty machines is one table: who cannot begin stands first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labkit.class_machines import as_table, read_machines
from labkit.cli import app
from labkit.errors import ConfigError


def said(**states: str) -> str:
    listed = [
        {"topic": topic, "state": state, "text": f"{topic} looked at", "cost": "costs this"}
        for topic, state in states.items()
    ]
    return json.dumps(listed)


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / ".labkit-release.json").write_text('["README.md"]')  # learners' files may lie in the class's folder
    for number in range(28):
        (tmp_path / f"table {number:02}.json").write_text(said(Python="ok", torch="ok", memory="note"))
    (tmp_path / "ada.json").write_bytes(said(Python="ok", torch="essential").encode("utf-16"))  # PowerShell's >
    (tmp_path / "bo.json").write_bytes(b"\xef\xbb\xbf" + said(Python="ok", torch="ok", memory="missing").encode())
    return tmp_path


def test_thirty_machines_are_one_table(room: Path) -> None:
    shown = CliRunner().invoke(app, ["doctor", "--table", str(room)])
    lines = shown.output.splitlines()
    assert shown.exit_code == 1
    assert lines[0].split() == ["Python", "torch", "memory"]
    assert lines[1].split() == ["ada", "ok", "STOPS"] and lines[2].split() == ["bo", "ok", "ok", "MISSING"]
    assert "29 of 30 machines can run labs." in lines and "Cannot run labs yet: ada" in lines
    assert "bo, memory: memory looked at. costs this" in lines


def test_a_file_that_is_something_else_costs_nobody_their_line(room: Path) -> None:
    for name, text in (("empty", ""), ("list", "[]"), ("text", '"x"'), ("state", said(Python="odd"))):
        (room / f"{name}.json").write_text(text)
    shown = as_table(read_machines([room]))
    assert "29 of 34 machines can run labs." in shown
    assert shown.count("not what labkit doctor --json printed") == 4


def test_a_folder_without_a_file_says_what_learners_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"each learner writes one with: labkit doctor --json > name.json"):
        read_machines([tmp_path])


def test_what_this_machine_says_can_be_read_back(tmp_path: Path) -> None:
    from labkit.doctor import Finding

    findings = [Finding("Python", "ok", "Python 3"), Finding("torch", "missing", "none", "install it")]
    (tmp_path / "me.json").write_text(json.dumps([each.as_dict() for each in findings]))
    [machine] = read_machines([tmp_path / "me.json"])
    assert machine.states == {"Python": "ok", "torch": "missing"} and machine.gravity == (2, 1)
