"""Lesson 07 keeps its contract: topics, exercises, points; and what it builds does what it promises."""

from __future__ import annotations

import json
import re
import runpy
from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import labkit
from labkit.servers.replicas import hasty, survive
from labkit.servers.rows import circle, train_alone, train_recommender
from labkit.timeline import Timeline
from labkit.timeline.span import Span
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract


class TestContract(LessonContract):
    number = "07"
    topics: ClassVar = {
        "the question": r"what is left after friday",
        "stuck": r"labkit\.lend\(",
        "range and hash": r"by range[\s\S]*by hash",
        "consistent hashing": r"\*\*consistent hashing\*\*",
        "what moves": r"a fifth server joins",
        "Python's hash": r"python's own `hash`",
        "power law": r"\*\*power law\*\*",
        "the hot key": r"hot key",
        "a recorded run": r'labkit\.recorded\("hot_server"\)',
        "a figure before the guess": r'labkit\.figure\("joining"[\s\S]*predict\("keys_that_move"',
        "hybrid": r"rows from servers, layers by all-reduce",
        "the optimizer's state": r"so does its state",
        "primary and backup": r"primary and backup",
        "killed": r"and then a real\s+(# )?process",
        "too early": r"asynchronous\s+(# )?replication",
        "after aggregation": r"replicate after aggregation",
        "the next lesson": r"08_pipeline",
        "sources": r"### sources",
    }
    least_guesses = 3


ROOMS = Path(__file__).parents[2] / "labkit" / "exercises" / "keys_rows_failures"
FOLDERS = {
    "SHOWN": ROOMS / "hot_server",
    "KEPT_BACK": Path(__file__).parents[2] / "solutions" / "hidden" / "keys_rows_failures" / "hot_server",
}


@pytest.mark.in_turn
@pytest.mark.parametrize("which", FOLDERS)
def test_the_recorded_run_is_fresh_and_its_key_names_the_busiest_server_and_its_hot_key(which: str) -> None:
    program = runpy.run_path(str(FOLDERS["KEPT_BACK"] / "record.py"))
    recorded = Timeline.load(FOLDERS[which] / "recording.json")
    assert _spans(recorded) == _spans(program["record"](program[which]))
    busy, keys = Counter[int](), defaultdict[int, list[set[str]]](list)
    for span in recorded.rows():
        if found := re.fullmatch(r"(?:pull|push) of rank \d: (.+)", span.name):
            busy[span.rank] += span.duration_ns
            keys[span.rank].append(set(found[1].split(", ")))
    key = json.loads((FOLDERS[which] / "key.json").read_text(encoding="utf-8"))["answers"]
    ((server, most), (_, next_most)) = busy.most_common(2)
    assert server == key["server"] and most > 1.4 * next_most
    assert set.intersection(*keys[server]) == {str(key["key"])}


def _spans(timeline: Timeline) -> list[Span]:
    """Return what is on the timeline, but for bytes: those of a call depend on the name of its module."""
    return [replace(span, bytes=0) for span in timeline.rows()]


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return namespace(number="07")


def test_the_numbers_of_the_text_are_those_that_the_cells_printed() -> None:
    source = Path(__file__).parents[2] / "solutions" / "07_keys_rows_failures.py"
    text, printed = source.read_text().replace("\n# ", " "), source.with_suffix(".ipynb").read_text()
    assert re.findall(r"by (?:range|hash) +([\d.]+)% of the keys move", printed) == ["50.0"] * 2
    assert "key % S      80.0% of the keys move" in printed
    (busiest,) = re.findall(r"by range +rows asked for .*busiest (\d+)%", printed)
    assert f"Why {busiest} %?" in text
    draws = [sum(1 / k for k in range(1, most + 1)) for most in (10, 2_500, 10_000)]
    assert f"draws {draws[1] / draws[2]:.0%}".replace("%", " %") in text
    assert f"Ten keys draw {draws[0] / draws[2]:.0%}".replace("%", " %") in text
    assert f"{draws[0] / (2 * draws[2] / 16):.2f} even shares" in text
    first = json.loads((ROOMS / "late_adagrad" / "key.json").read_text(encoding="utf-8"))["answers"][""]
    assert first == pytest.approx(sum(k**-0.5 for k in range(1, 5)), abs=0.005)


def test_a_server_that_joins_the_circle_takes_keys_and_moves_no_other(answers: dict[str, Any]) -> None:
    keys = torch.arange(5_000)
    four, five = (answers["place_on_circle"](keys, *circle(servers)) for servers in (4, 5))
    assert set(five[four != five].tolist()) == {4}
    assert 0.1 < (four != five).double().mean() < 0.3
    hashed = [answers["place_by_hash"](keys, servers) for servers in (4, 5)]
    assert (hashed[0] != hashed[1]).double().mean() == pytest.approx(0.5, abs=0.01)


def test_the_recommender_trains_as_one_process_does(answers: dict[str, Any]) -> None:
    points, owners = circle(2)
    rule = partial(answers["place_on_circle"], points=points, owners=owners)
    parts = (answers["hybrid_step"], answers["pull_rows"], answers["push_rows"], rule)
    run = labkit.run(train_recommender, *parts, 2, 4, on=labkit.virtual(4), echo=False)
    together = torch.tensor(run.results[2:]).mean(0)
    torch.testing.assert_close(together, torch.tensor(train_alone(range(2, 4), 4)), rtol=0, atol=1e-4)


@pytest.mark.in_turn
def test_only_a_hasty_replica_loses_what_it_acknowledged(answers: dict[str, Any]) -> None:
    ones = [[row] * 12 for row in torch.eye(2)]
    lost = {}
    for make in (answers["Replica"], hasty(answers["Replica"])):
        found = []
        for moment in (0.008, 0.013, 0.018):
            run = labkit.run(
                survive, make, answers["push_safely"], ones, moment, on=labkit.virtual(4), init=False, echo=False
            )
            found.append(24 - int(run.results[1][1].sum()))
        lost[make.__name__] = sum(found)
    assert lost["Replica"] == 0
    assert lost["Hasty"] > 0


@pytest.mark.in_turn
def test_a_killed_process_loses_nothing_that_was_acknowledged(answers: dict[str, Any]) -> None:
    world, ones = labkit.local(4, device="cpu"), [[row] * 30 for row in torch.eye(2)]
    run = labkit.run(
        survive, answers["Replica"], answers["push_safely"], ones, 0.1, True, on=world, init=False, echo=False
    )
    assert run.results[1][1].tolist() == [30, 30]
    assert [sum(found) for found in run.results[2:]] == [30, 30]
