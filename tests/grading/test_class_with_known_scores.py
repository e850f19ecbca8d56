"""A class of lesson 02: cut in the middle, it goes on where it was and everybody has exactly their score."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from grading.class_with_known_scores import command, write_class, wrong_scores
from labkit.grading.sandbox import bubblewrap

STUDENTS = 16


@pytest.mark.skipif(bool(bubblewrap.problem()), reason=f"no sandbox here: {bubblewrap.problem()}")
@pytest.mark.long
def test_a_class_that_was_cut_goes_on_and_everybody_has_their_score(tmp_path: Path) -> None:
    expected = write_class(tmp_path / "in", STUDENTS)
    out = tmp_path / "out"
    first = subprocess.Popen(command(tmp_path, 2), stderr=subprocess.DEVNULL)
    while len(list(out.glob("*/result.json"))) < 3:
        assert first.poll() is None
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = {path: path.stat().st_mtime_ns for path in out.glob("*/result.json")}
    ended = subprocess.run(command(tmp_path, 2), capture_output=True, text=True, timeout=1500)
    assert f"{len(kept)} of {STUDENTS} are graded already" in ended.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert wrong_scores(out, expected) == []


def test_no_two_students_of_the_class_hand_in_the_same(tmp_path: Path) -> None:
    expected = write_class(tmp_path, 60)
    texts = {(tmp_path / f"{name}.ipynb").read_bytes() for name, each in expected.items() if each["score"]}
    assert len(texts) == sum(bool(each["score"]) for each in expected.values())
    assert {"never_ends", "right_as_taught", "empty_file"} <= {each["kind"] for each in expected.values()}
