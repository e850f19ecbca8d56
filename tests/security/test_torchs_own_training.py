"""Where a learner builds what torch has, torch's own does not run in a rank of a hidden case, in any disguise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from labkit.checks.rooms import exercises
from labkit.grading.hidden_cases import rank_exercise
from tests.checks.lesson_cells import NUMBERS, slug_of
from tests.security.disguises import DISGUISES

ROOT = Path(__file__).parents[2]


@pytest.mark.in_turn
def test_no_disguise_of_torchs_own_training_comes_as_far_as_a_message() -> None:
    run = [sys.executable, "-m", "tests.security.disguises"]
    ended = subprocess.run(run, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    said = dict(line.split(" | ", 1) for line in ended.stdout.splitlines() if " | " in line)
    assert set(said) == set(DISGUISES)
    assert said.pop("honest") == "made"
    known = ("torch's own DistributedDataParallel was made", "communicates here; you build yourself", "No constructor")
    assert [name for name, words in said.items() if not any(each in words for each in known)] == []


@pytest.mark.in_turn
def test_only_a_driver_that_trains_with_torchs_own_lets_it_run() -> None:
    for number in NUMBERS:
        for exercise in exercises(slug_of(number)).values():
            sources = rank_exercise.sources_of(exercise.driver.__module__).values()
            assert exercise.torchs_own == any("nn.parallel.DistributedDataParallel(" in each for each in sources)
