"""The self-check says what is wrong and what it costs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit import doctor
from labkit.doctor import Finding
from labkit.errors import RunTimeout
from labkit.grading.sandbox import bubblewrap
from labkit.launch import preloaded
from labkit.launch.local import default_start_method


@pytest.fixture(autouse=True)
def _sandbox_is_tried_anew() -> Iterator[None]:
    yield
    bubblewrap.problem.cache_clear()


def _program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_taken_port_is_said_in_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        finding = doctor._port(f"--no-browser --port {port}")
    assert finding.state == "note"
    assert f"Port {port} is not free (address already in use)" in finding.text
    assert "open the address it prints" in finding.cost


@pytest.mark.parametrize(
    ("arguments", "port"),
    [("", 8888), ("--port 8899", 8899), ("--no-browser --port=9000", 9000), ("--ServerApp.port=9001", 9001)],
)
def test_the_port_is_the_one_jupyterlab_will_use(arguments: str, port: int) -> None:
    assert doctor._asked_port(arguments) == port


def test_a_machine_without_bubblewrap_is_told_what_that_costs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    bubblewrap.problem.cache_clear()
    finding = doctor._sandbox()
    assert finding.state == "missing"
    assert "apt install bubblewrap" in finding.text
    assert "--sandbox none" in finding.cost


def test_bubblewrap_that_may_not_make_namespaces_is_found_by_trying(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _program(tmp_path, "bwrap", "echo 'bwrap: No permissions to create a new namespace' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    bubblewrap.problem.cache_clear()
    finding = doctor._sandbox()
    assert finding.state == "missing"
    assert "No permissions to create a new namespace" in finding.text
    assert "user namespaces" in finding.text


def test_ranks_that_cannot_talk_stop_the_labs(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        raise RunTimeout("no rank can go on")

    monkeypatch.setattr("labkit.worlds.run", run)
    finding = doctor._two_ranks()
    assert finding.state == "essential"
    assert "no rank can go on" in finding.cost


def test_only_the_full_repository_is_told_of_chromium(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert [finding.topic for finding in doctor._browser()] == ["Chromium"]
    monkeypatch.setattr(doctor, "__file__", str(tmp_path / "labkit" / "doctor.py"))
    assert doctor._browser() == []


def test_the_last_line_says_whether_labs_can_run() -> None:
    good = Finding("Python", "ok", "Python 3.11")
    lacking = Finding("bubblewrap", "missing", "No bubblewrap", "Only grading wants it, for what others wrote.")
    stopping = Finding("gloo", "essential", "no gloo", "Install again.")
    narrow = doctor.as_text([good, lacking], 34).splitlines()
    assert (
        len(narrow) > 4
        and max(map(len, narrow[:-1])) <= 34
        and " ".join(" ".join(narrow).split()) == " ".join(doctor.as_text([good, lacking]).split())
    )
    assert doctor.as_text([good]).endswith("Labs can run; nothing is missing.")
    noted = Finding("cores", "note", "2 cores", "They take turns.")
    said = doctor.as_text([good, noted]).splitlines()
    assert said[-1] == "Labs can run; nothing is missing, and the notes need no action." and said[-2] == ""
    assert said[2].index("They") == said[1].index("2 cores")  # what it costs stands below what it is
    assert doctor.as_text([good, lacking]).endswith("Labs can run; without bubblewrap they do less, as said above.")
    assert doctor.as_text([good, lacking, stopping]).endswith("Labs cannot run yet: see gloo above.")


@pytest.mark.skipif(default_start_method() != "zygote", reason="ranks are spawned here, each loads torch itself")
def test_the_process_that_ranks_are_forked_from_begins_to_load_torch_before_this_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began: list[str] = []

    def torch_loads() -> Iterator[Finding]:
        began.append("here")
        yield Finding("torch", "essential", "")

    monkeypatch.setattr(preloaded, "warm", lambda: began.append("ranks"))
    monkeypatch.setattr(doctor, "_torch", torch_loads)
    monkeypatch.setattr(doctor, "_sandbox", lambda: Finding("bubblewrap", "ok", ""))
    doctor.examine()
    assert began == ["ranks", "here"]
