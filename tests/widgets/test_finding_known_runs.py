"""A timeline's first sentence over runs of known kind: right, and right again with other noise."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

import labkit
from labkit.widgets.finding import finding
from tests.widgets.known_runs import KNOWN, SILENT, WRONG, Known, timeline_of

_SAID = {
    "hot_spot": r"^Rank 0 works; ",
    "late_rank": rf"^Rank 5 comes last; |{SILENT}",
    "who_waits": r"^Rank 5 comes last; ",
    "waiting_order": "^The pipeline's bubble: ",
}
"""Of recorded runs of the lessons, were they not asked about: no sentence but these names a rank."""


def _said(known: Known, seeds: Sequence[int]) -> list[str]:
    return [finding(timeline_of(known, seed)) for seed in seeds]


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", WRONG)
def test_the_sentence_over_a_run_of_known_kind_is_right(kind: str) -> None:
    """Of each program, on the fewest ranks; noise may excuse one in ten, and here is one."""
    fewest = {each.program: each for each in reversed(KNOWN) if each.kind == kind}
    said = [(each, *_said(each, [0])) for each in fewest.values()]
    assert [f"{each.name}: {what}" for each, what in said if not re.search(each.right, what)] == []


@pytest.mark.long
@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.kind}-{known.name}-{known.noise}")
def test_the_sentence_holds_in_nine_of_ten_runs_with_other_noise_and_is_wrong_in_none(known: Known) -> None:
    said = _said(known, range(10))
    assert sum(not re.search(known.right, what) for what in said) <= 1, said
    assert not [what for what in said if re.search(WRONG[known.kind], what)]


def test_the_bank_is_large_and_what_is_right_of_a_run_is_never_wrong_of_its_kind() -> None:
    assert len(KNOWN) >= 40 and sum(each.right == SILENT for each in KNOWN) > len(KNOWN) / 3
    named = [each for each in KNOWN if each.right != SILENT]
    assert not [each.name for each in named if re.search(WRONG[each.kind], each.right.lstrip("^"))]


@pytest.mark.parametrize(
    "slug", ["hot_server", "hot_spot", "late_rank", "lost_update", "slow_ring", "waiting_order", "who_waits"]
)
def test_the_sentence_over_a_lessons_recording_is_its_answer_or_blames_nobody(slug: str) -> None:
    timeline = labkit.recorded(slug)
    timeline.is_asked_about = False
    assert re.search(_SAID.get(slug, SILENT), finding(timeline))
