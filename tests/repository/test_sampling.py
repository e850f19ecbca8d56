"""Tests that take turns: each runs within a few commits, each folder runs some of its own every time."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sampling import TURNS, touched, turn_of_commit, waiting

ROOT = Path(__file__).parents[2]


def _item(nodeid: str, *marks: str, of_file: tuple[str, ...] = ()) -> Any:
    own = [SimpleNamespace(name=name) for name in marks]
    inherited = [SimpleNamespace(name=name) for name in of_file]
    every = {mark.name: mark for mark in own + inherited}
    chain = [SimpleNamespace(own_markers=inherited), SimpleNamespace(own_markers=own)]
    function = SimpleNamespace(__module__="", __name__=nodeid.rpartition("::")[2].partition("[")[0])
    return SimpleNamespace(nodeid=nodeid, function=function, get_closest_marker=every.get, listchain=lambda: chain)


ITEMS = [
    *(_item(f"tests/board/test_page.py::test_{name}", "in_turn") for name in "abcdefg"),
    *(_item(f"tests/docs/test_site.py::test_{name}", of_file=("in_turn",)) for name in "abc"),
    *(_item(f"tests/grading/test_{name}.py::test_it", of_file=("in_turn",)) for name in "ab"),
    *(
        _item(f"tests/checks/test_answers_0{number}.py::test_{name}[ring_sum]", "in_turn")
        for number in range(16)
        for name in ("right", "wrong")
    ),
    _item("tests/board/test_page.py::test_quick"),
    _item("tests/board/test_page.py::test_long", "in_turn", "long"),
]


def _running(turn: int, *changed: str) -> set[str]:
    wait = waiting(ITEMS, turn, changed)
    return {each.nodeid for each in ITEMS if each not in wait}


def test_each_test_has_its_turn_and_each_folder_runs_some_every_time() -> None:
    turns = [_running(turn) for turn in range(TURNS)]
    assert set.union(*turns) == {each.nodeid for each in ITEMS}
    folders: defaultdict[str, set[str]] = defaultdict(set)
    for each in ITEMS:
        if each.get_closest_marker("in_turn") and not each.get_closest_marker("long"):
            folders[each.nodeid.rpartition("/")[0]].add(each.nodeid)
    for run in turns:
        assert all(run & members for members in folders.values())
        assert {"tests/board/test_page.py::test_quick", "tests/board/test_page.py::test_long"} <= run
        assert all(len([each for each in run if f"::test_{kind}[" in each]) == 2 for kind in ("right", "wrong"))


def test_what_is_marked_in_its_file_shares_what_it_builds_and_has_its_turn_at_once() -> None:
    for turn in range(TURNS):
        assert len([each for each in _running(turn) if each.startswith("tests/grading")]) == 1
        assert len([each for each in _running(turn) if each.startswith("tests/docs")]) == 3


@pytest.mark.parametrize(
    ("changed", "runs"),
    [
        ("tests/board/test_page.py", {each.nodeid for each in ITEMS if "test_page" in each.nodeid}),
        (
            "labkit/exercises/collectives/ring_sum/driver.py",
            {each.nodeid for each in ITEMS if "ring_sum" in each.nodeid},
        ),
        ("solutions/04_ddp.py", {each.nodeid for each in ITEMS if "answers_04" in each.nodeid}),
    ],
)
def test_what_a_change_touches_waits_for_no_turn(changed: str, runs: set[str]) -> None:
    for turn in range(TURNS):
        assert _running(turn, changed) == _running(turn) | runs


def _git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_what_a_branch_and_its_working_folder_changed_is_touched(tmp_path: Path) -> None:
    _git(tmp_path, "init", "--initial-branch=main")
    turns = set()
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
        _git(tmp_path, "add", name)
        _git(tmp_path, "commit", "-m", name)
    assert touched(tmp_path) == ["two"]  # on main, what its last commit changed
    _git(tmp_path, "checkout", "-b", "branch")
    for name in map(str, range(12)):
        (tmp_path / name).write_text(name)
        _git(tmp_path, "add", name)
        _git(tmp_path, "commit", "-m", name)
        turns.add(turn_of_commit(tmp_path))
        assert turn_of_commit(tmp_path) == turn_of_commit(tmp_path)
    (tmp_path / "one").write_text("another")
    (tmp_path / "new").write_text("new")
    assert set(touched(tmp_path)) == {*map(str, range(12)), "one", "new"}
    assert 2 < len(turns) <= TURNS


def test_without_a_history_it_is_always_the_first_turn_and_nothing_is_touched(tmp_path: Path) -> None:
    assert turn_of_commit(tmp_path) == 0
    assert touched(tmp_path) == []


@pytest.mark.in_turn
def test_a_worker_is_told_whose_turn_it_is() -> None:
    words = ("-n", "1", "--turn=commit", "-p", "no:cacheprovider", "tests/repository/test_order_of_files.py")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout + ran.stderr
    assert f"turn: {turn_of_commit(ROOT)} of 0 to {TURNS - 1}" in ran.stdout
