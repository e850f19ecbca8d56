"""A timeline's first sentence over runs of known kind: right, and right again with other noise."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

import labkit
from labkit.widgets.finding import finding
from tests.widgets.known_runs import KNOWN, SILENT, Known, timeline_of

KINDS = ("pipeline", "deadlock", "alike", "server", "late", "link", "noise")
_SAID = {
    "hot_spot": r"^Rank 0 works; ",
    "late_rank": rf"^Rank 5 comes last; |{SILENT}",
    "who_waits": r"^Rank 5 comes last; ",
}
"""Of recorded runs of the lessons, were they not asked about: no sentence but these names a rank."""


def _wrong(known: Sequence[Known], seeds: Sequence[int]) -> list[str]:
    said = ((each, seed, finding(timeline_of(each, seed))) for each in known for seed in seeds)
    return [f"{each.name}, noise {seed}: {what}" for each, seed, what in said if not re.search(each.right, what)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_sentence_over_a_run_of_known_kind_is_right(kind: str) -> None:
    """One of each program, on the fewest ranks; noise may excuse one in ten, and here is one."""
    first = {each.program: each for each in reversed(KNOWN) if each.kind == kind}
    assert _wrong([*first.values()], [0]) == []


@pytest.mark.long
@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.kind}-{known.name}-{known.noise}")
def test_the_sentence_holds_in_nine_of_ten_runs_with_other_noise(known: Known) -> None:
    assert len(_wrong([known], range(10))) <= 1


def test_every_kind_is_there_and_most_kinds_are_to_blame_nobody() -> None:
    assert {each.kind for each in KNOWN} == set(KINDS) and len(KNOWN) >= 40
    assert sum(each.right == SILENT for each in KNOWN) > len(KNOWN) / 2


@pytest.mark.parametrize(
    "slug", ["hot_server", "hot_spot", "late_rank", "lost_update", "slow_ring", "waiting_order", "who_waits"]
)
def test_the_sentence_over_a_lessons_recording_is_its_answer_or_blames_nobody(slug: str) -> None:
    timeline = labkit.recorded(slug)
    timeline.is_asked_about = False
    assert re.search(_SAID.get(slug, SILENT), finding(timeline))
