"""Rules that stand in Python and in JavaScript: both give what tests/vectors/rules.json says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from labkit.widgets import layout
from tests.vectors import PYTHON, RULES, as_text
from tests.widgets.in_page import Evaluate

CASES: dict[str, list[Any]] = json.loads(RULES.read_text(encoding="utf-8"))
JAVASCRIPT = {
    "a schedule placed": (
        "schedule",
        "(lists, [tf, tb, tm, tw]) => place(lists.map(parse), { tf, tb, tm, tw })",
    ),
    "a schedule in a form": (
        "schedule",
        "(form, p, m) => Array.from({ length: p }, (_, s) => inForm(form, s, p, m))",
    ),
    "a ring": ("ring", "(n, chunks) => ringSteps(n, chunks).map(({ sends }) => sends.map((send) => send.slice(0, 3)))"),
    "buckets": ("buckets", "bucketPlan"),
    "buckets of DDP": ("buckets", "ddpPlan"),
    "when buckets are sent": (
        "buckets",
        """(sizes, plan) => bucketTimes(sizes, plan, {
          backward: 1e-2, skew: 2e-3, ranks: 8, latency: 2e-5, bandwidth: 12.5e9,
        }).map(({ ready, start, end }) => [ready, start, end])""",
    ),
    "draws": ("staleness", "(seed) => Array.from({ length: 5 }, ((next) => () => next())(draws(seed)))"),
    "a server": (
        "staleness",
        """(workers, bound, drop, law, seed) => {
          const values = { workers, bound, straggler: 2.5, delay: 0.25, seed, drop: drop ?? "–", law };
          const updates = simulate(values, 30);
          const trained = losses(updates, { workers, lr: 0.5, divided: "workers", seed });
          return { updates, ahead: aheadOf(updates, workers), losses: trained };
        }""",
    ),
    "a time in words": ("timeline", "timeText"),
}


def test_the_cases_are_those_that_python_makes() -> None:
    """Where a rule was changed on purpose, `python -m tests.vectors` writes them anew."""
    assert RULES.read_text(encoding="utf-8") == as_text()
    assert CASES.keys() == PYTHON.keys() == JAVASCRIPT.keys()


def _near(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_near, found, wanted))
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_near(found[key], wanted[key]) for key in wanted)
    return bool(found == pytest.approx(wanted)) if isinstance(wanted, float) else bool(found == wanted)


@pytest.mark.in_turn
@pytest.mark.parametrize("rule", JAVASCRIPT)
def test_javascript_holds_the_rule(evaluate: Evaluate, rule: str) -> None:
    folder, function = JAVASCRIPT[rule]
    found = evaluate(folder, f"cases.map(([given]) => ({function})(...given))", cases=CASES[rule])
    wrong = [[*case, seen] for case, seen in zip(CASES[rule], found, strict=True) if not _near(seen, case[1])]
    assert not wrong


def test_the_names_that_colours_tell_are_one_list() -> None:
    source = (Path(layout.__file__).parent / "js" / "timeline" / "bare.js").read_text(encoding="utf-8")
    (names,) = re.findall(r"COLOURED = new Set\(\[(.*)\]\)", source)
    assert {*re.findall(r'"(\w+)"', names)} == layout._COLOURED
