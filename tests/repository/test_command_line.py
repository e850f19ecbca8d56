"""The labkit command: errors are sentences, help is quick."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from labkit import cli, doctor
from labkit.errors import ConfigError


def _labkit(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from labkit.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


def test_help_names_every_command() -> None:
    shown = CliRunner().invoke(cli.app, ["--help"])
    assert shown.exit_code == 0
    for command in ("doctor", "build", "export", "grade", "version"):
        assert command in shown.output


def _commands(group: Any, name: str = "labkit") -> Iterator[tuple[str, Any]]:
    for each, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} {each}")
        else:
            yield f"{name} {each}", command


def test_the_help_of_every_command_ends_with_an_example_that_its_parser_takes() -> None:
    commands = dict(_commands(get_command(cli.app)))
    assert len(commands) > 35
    for name, command in commands.items():
        assert command.epilog and command.epilog.startswith(f"Example: {name}"), name
        words = shlex.split(command.epilog.partition(" < ")[0].removeprefix(f"Example: {name}"))
        command.make_context(name, words)
    groups = get_command(cli.app)
    assert [groups.epilog, groups.commands["gradebook"].epilog, groups.commands["roster"].epilog] == [
        "Example: labkit lab", "Example: labkit gradebook show --lesson 02", "Example: labkit roster import class.csv"
    ]  # fmt: skip
    assert "Example: labkit reset 2.6" in CliRunner().invoke(cli.app, ["reset", "--help"]).output


def test_without_a_command_a_short_guide_names_commands_that_are_there() -> None:
    shown = CliRunner().invoke(cli.app, [])
    assert shown.exit_code == 0
    assert len(shown.output.splitlines()) < 30
    names = {name.split()[1] for name, _ in _commands(get_command(cli.app))}
    told = re.findall(r"^  labkit ([\w-]+)", shown.output, re.MULTILINE)
    assert len(told) > 8 and set(told) <= names


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("asked", "said", "command"),
    [
        (["grad"], "labkit: No such command 'grad'. Did you mean", "labkit"),
        (["grade"], "labkit: Missing option '--lesson'.", "labkit grade"),
        (["doctor", "--colour"], "labkit: No such option: --colour", "labkit doctor"),
        (["gradebook", "deadline", "2030-01-01"], "labkit: Missing option '--lesson'.", "labkit gradebook deadline"),
        (["gradebook", "show", "--lesson"], "labkit: Option '--lesson' requires", "labkit gradebook show"),
    ],
)
def test_a_command_that_is_called_wrongly_says_so_in_the_one_form(asked: list[str], said: str, command: str) -> None:
    ended = CliRunner().invoke(cli.app, asked, prog_name="labkit")
    assert ended.exit_code == 2
    first, second = ended.stderr.splitlines()
    assert first.startswith(said)
    assert second == f"`{command} --help` shows how to call it, with an example."


def test_a_file_that_cannot_be_written_is_named_in_the_one_form(tmp_path: Path) -> None:
    out = tmp_path / "nowhere" / "02.pack"
    ended = CliRunner().invoke(cli.app, ["pack", "02", "--out", str(out)])
    assert ended.exit_code == 2
    assert ended.output.startswith(f"labkit: {out} cannot be read or written (No such file or directory); name another")


@pytest.mark.parametrize("names", [(), ("/usr/lib/reveal.js", None, "full/reveal.js")])
def test_a_full_disk_is_named_and_no_file_that_was_only_read(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str | None, ...]
) -> None:
    def load(module: str, function: str) -> object:
        raise OSError(errno.ENOSPC, "No space left on device", *names)

    monkeypatch.setattr("labkit.commands.authoring.load", load)
    ended = CliRunner().invoke(cli.app, ["build"])
    assert ended.exit_code == 2
    assert ended.stderr.startswith("labkit: the disk is full, and not everything was written; free some space")
    assert "reveal" not in ended.stderr


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["gradebook", "show", "--lesson", "02", "--book", "none.db"], "there is no gradebook none.db; name the file"),
        (["gradebook", "show", "--lesson", "02", "--book", "text"], "file is not a database. Check that it is a"),
        (["launch", "here"], "that is a folder; give the path of a Python file."),
        (["calibrate", "--out", "here"], "here could not be written: it is a folder; name a file in it"),
        (["board", "--port", "99999"], "Input should be less than or equal to 65535"),
    ],
)
def test_what_cannot_work_is_refused_at_once_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "text").write_text("no database")
    ended = CliRunner().invoke(cli.app, asked)
    assert said in ended.output + str(ended.exception)
    assert ended.exit_code == 2
    assert {path.name for path in tmp_path.iterdir()} == {"here", "text"}


@pytest.mark.in_turn
def test_no_color_leaves_no_colour_even_where_it_is_forced() -> None:
    forced = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    plain, coloured = (
        subprocess.run(
            [sys.executable, "-c", "from labkit.cli import main; main()", "--help"],
            env={**forced, **more}, capture_output=True, text=True, check=True, timeout=300,
        ).stdout
        for more in ({"NO_COLOR": "1"}, {})
    )  # fmt: skip
    colours = r"\x1b\[[\d;]*3\d"
    assert re.search(colours, coloured) and not re.search(colours, plain)


def test_a_shell_completes_commands() -> None:
    environment = {**os.environ, "_LABKIT_COMPLETE": "complete_bash", "COMP_WORDS": "labkit gr", "COMP_CWORD": "1"}
    program = "import sys; sys.argv[0] = 'labkit'; from labkit.cli import main; main()"
    shown = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert shown.stdout.split() == ["grade", "gradebook"]


@pytest.mark.in_turn
def test_help_loads_no_torch() -> None:
    program = """
import sys
from labkit.cli import app
app(["--help"], standalone_mode=False)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, capture_output=True)


def test_version_says_which_torch() -> None:
    assert _labkit("version").stdout.startswith("labkit 0.")


def test_a_labkit_error_is_one_message_and_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(module: str, function: str) -> object:
        raise ConfigError("6 stages do not divide 8 ranks; use 1, 2, 4 or 8.")

    monkeypatch.setattr("labkit.commands.authoring.load", load)
    ended = CliRunner().invoke(cli.app, ["build"])
    assert ended.exit_code == 2
    assert ended.stderr == "labkit: 6 stages do not divide 8 ranks; use 1, 2, 4 or 8.\n"


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(module: str, function: str) -> object:
        raise ConfigError("no")

    monkeypatch.setattr("labkit.commands.authoring.load", load)
    assert isinstance(CliRunner().invoke(cli.app, ["--debug", "build"]).exception, ConfigError)


def test_a_student_release_says_that_it_cannot_grade(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("grade", "workers.worker_process"):
        monkeypatch.setitem(sys.modules, f"labkit.grading.{module}", None)
    ended = CliRunner().invoke(cli.app, ["grade", str(tmp_path), "--lesson", "02", "--out", str(tmp_path / "out")])
    assert ended.exit_code == 2
    assert "part of the full repository, not of a student release" in ended.stderr


@pytest.mark.in_turn
def test_doctor_looks_at_this_machine_and_says_that_labs_can_run() -> None:
    shown = _labkit("doctor")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "Two ranks started and added two tensors over gloo" in shown.stdout
    assert shown.stdout.strip().splitlines()[-1].startswith("Labs can run")
    for word in ("Python 3.", "core", "memory", "disk", "torch 2.", "bubblewrap", "Port", "JupyterLab"):
        assert word in shown.stdout


def test_doctor_speaks_json(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        doctor.Finding("ranks", "ok", "Two started."),
        doctor.Finding("bubblewrap", "missing", "None.", "No grading."),
    ]
    monkeypatch.setattr("labkit.doctor.examine", lambda *_, **__: found)
    shown = CliRunner().invoke(cli.app, ["doctor", "--json"])
    told = {finding["topic"]: finding for finding in json.loads(shown.stdout)}
    assert told["ranks"]["state"] == "ok" and told["bubblewrap"]["cost"] == "No grading."
