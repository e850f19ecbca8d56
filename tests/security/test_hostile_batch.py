"""Hostile and broken submissions among honest ones in one batch: no undeserved point, no harm, nothing left."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from labkit.grading.sandbox import bubblewrap
from security.attacks import Places, attacks
from security.batch import HONEST, LIMITS, PATIENT, Batch, run_batch

pytestmark = [
    pytest.mark.skipif(bool(bubblewrap.problem()), reason=f"no sandbox here: {bubblewrap.problem()}"),
    pytest.mark.in_turn,
]

PARTS = 8
"""All attacks, in parts of a few minutes: ``-m long -k part3of8``; ``-k broken`` for the broken files."""
BROKEN = -1
NOWHERE = Places(*[Path("/nowhere")] * 4, port=0, pid=0)
SAMPLE = (
    "finds-the-oracle-in-memory",
    "kills-everybody",
    "library-past-the-record",
    "orphans-and-daemons",
    "reads-hidden-cases",
    "forged-result",
    "ranks-talk-over-sockets",
    "talks-to-a-service-of-the-host",
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(None, id="sample"),
        *(pytest.param(part, id=f"part{part + 1}of{PARTS}", marks=pytest.mark.long) for part in range(PARTS)),
        pytest.param(BROKEN, id="broken", marks=pytest.mark.long),
    ],
)
def batch(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    names: Sequence[str] = SAMPLE
    limits = PATIENT if request.param is None else LIMITS
    if request.param is not None:
        every = sorted(attacks(NOWHERE))
        names = every[request.param :: PARTS] if request.param != BROKEN else ()
    yield run_batch(tmp_path_factory.mktemp("hostile"), names, broken=request.param == BROKEN, limits=limits)


def test_no_attack_earns_a_point(batch: Batch) -> None:
    assert {name: score for name, score in batch.scores.items() if score and name not in HONEST} == {}
    assert set(batch.scores) == {*batch.hostile, *HONEST}


def test_honest_neighbours_get_exactly_their_scores(batch: Batch) -> None:
    assert {name: batch.scores[name] for name in HONEST} == HONEST


def test_nothing_is_left_behind(batch: Batch) -> None:
    assert (batch.processes, batch.mounts, batch.files, batch.calls) == ([], set(), [], 0)


def test_the_batch_ends_within_its_limits(batch: Batch) -> None:
    one = batch.limits.notebook_seconds + 2 * (batch.limits.case_seconds + batch.limits.retry_seconds) + 20
    assert batch.seconds < one * len(batch.scores) / 2 + 60


@pytest.mark.long
def test_the_attacks_have_teeth_where_there_is_no_sandbox(tmp_path: Path) -> None:
    names = ("reads-hidden-cases", "reads-the-checks", "imports-closed-answers", "reads-other-submissions")
    names += ("lends-itself-an-answer", "reads-the-keys-of-questions")
    names += ("reads-the-gradebook", "talks-to-a-service-of-the-host")
    batch = run_batch(tmp_path, names, sandbox="none", limits=PATIENT)
    assert {name: score for name, score in batch.scores.items() if name not in HONEST} == dict.fromkeys(names, 2.0)


def test_everybody_gets_a_report_in_words(batch: Batch) -> None:
    for name in batch.scores:
        page = (batch.out / name / "feedback.html").read_text()
        assert "<script>" not in page and "\x1b" not in page and "\u202e" not in page
        result = json.loads((batch.out / name / "result.json").read_text())
        assert "fault of the grader" not in result["extra_data"]["problem"]
        assert "grader itself failed" not in result["extra_data"]["problem"]
        assert sum(path.stat().st_size for path in (batch.out / name).iterdir()) < 1 << 20


def test_the_gradebook_has_a_line_for_everybody(batch: Batch) -> None:
    with open(batch.out / "gradebook.csv", newline="", encoding="utf-8") as file:
        assert {row["Student"]: float(row["Score"]) for row in csv.DictReader(file)} == batch.scores
