"""Cases that share a run: what a run without an end has done stands, and it is told of the case that hung."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from labkit.checks import drive
from labkit.checks.case import Case, Failure, Values
from labkit.checks.drive import RunOfCases, run_together, run_visible
from labkit.checks.exercise import Exercise, Functions
from labkit.checks.failures import failure_of
from labkit.checks.finding import Finding
from labkit.checks.outcome import CaseOutcome
from labkit.checks.wire import Wire
from labkit.errors import RunTimeout


def _drive(functions: Functions, inputs: Values) -> Values:
    tensor = torch.tensor([float(dist.get_rank())])
    functions["exchange"](tensor, inputs["number"])
    return {"number": float(tensor)}


def _oracle(case: Case) -> list[Values]:
    return [{"number": 1.0}, {"number": 0.0}]


def _find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    if [dict(each) for each in got] != [dict(each) for each in _oracle(case)]:
        yield Finding("", "The numbers are not exchanged.")


EXERCISE = Exercise(
    id="exchange",
    functions=("exchange",),
    driver=_drive,
    oracle=_oracle,
    find=_find,
    visible=tuple(Case(f"case {number}", 2, ({"number": number}, {"number": number})) for number in range(4)),
    hints=("", "", ""),
)
EXCHANGE = """
def exchange(tensor, number):
    other = 1 - dist.get_rank()
    got = torch.empty(1)
    work = dist.isend(tensor.clone(), other)
    dist.recv(got, other)
    work.wait()
    tensor.copy_(got)
"""


def _exchange(at_first: str) -> Mapping[str, Any]:
    names: dict[str, Any] = {"dist": dist, "torch": torch, "__name__": "__main__"}
    exec(EXCHANGE.replace("    got = ", f"{at_first}\n    got = "), names)
    return {"exchange": names["exchange"]}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many cases each run has, as runs go by."""
    found: list[int] = []

    def counted(*arguments: Any) -> RunOfCases:
        found.append(len(arguments[2]))
        return run_together(*arguments)

    monkeypatch.setattr(drive, "run_together", counted)
    return found


def _said(outcomes: list[CaseOutcome]) -> list[bool | None]:
    return [None if each.verdict is None else each.passed for each in outcomes]


def test_a_case_that_hangs_is_told_without_another_run(runs: list[int]) -> None:
    outcomes = run_visible(EXERCISE, dict(_exchange("    if number == 2: dist.recv(torch.empty(1), other)")))
    assert _said(outcomes) == [True, True, False, None]
    assert runs == [4]
    got = outcomes[2].got
    assert isinstance(got, Failure) and got.kind == "deadlock"
    assert got.detail.splitlines() == ["rank 0 waits in recv from rank 1", "rank 1 waits in recv from rank 0"]


def test_a_rank_that_is_done_with_the_case_is_not_said_to_wait(runs: list[int]) -> None:
    hung = "    if number == 1 and other == 1: dist.recv(torch.empty(1), other)"
    outcomes = run_visible(EXERCISE, dict(_exchange(hung.replace("dist.recv", "tensor.fill_(dist.recv") + ")")))
    assert _said(outcomes) == [True, False, None, None]
    got = outcomes[1].got
    assert isinstance(got, Failure) and "barrier" not in got.detail, got.detail


def test_what_comes_after_a_case_that_raises_is_run_without_it(runs: list[int]) -> None:
    outcomes = run_visible(EXERCISE, dict(_exchange("    if number == 1: raise ValueError('one')")))
    assert _said(outcomes) == [True, False, True, True]
    assert runs == [4, 2]


@pytest.mark.in_turn
def test_a_case_that_meets_what_another_left_is_not_blamed_for_it(runs: list[int]) -> None:
    functions = _exchange("    pass")
    functions["exchange"].__globals__["kept"] = []
    extra = "    tensor.copy_(got)\n    if number == 1: kept.append(dist.isend(torch.full((1,), 7.0), other))"
    exec(EXCHANGE.replace("    tensor.copy_(got)", extra), functions["exchange"].__globals__)
    outcomes = run_visible(EXERCISE, {"exchange": functions["exchange"].__globals__["exchange"]})
    assert _said(outcomes) == [True, True, True, True]
    assert len(runs) > 1, "what was doubtful is run again"


def test_a_run_that_takes_too_long_is_told_how_long_it_had() -> None:
    failure = failure_of(RunTimeout("over", reports={0: "rank 0 computes"}), EXERCISE, {}, seconds=64.0)
    assert failure.message.startswith(
        "It took more than 64 s, all that this run had: an endless loop, or too much to do."
    )


def test_an_exercise_may_set_a_longer_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def together(exercise: Exercise, functions: Functions, cases: Any, seconds: float, device: str) -> RunOfCases:
        given.append(seconds)
        return run_together(exercise, functions, cases, seconds, "cpu")

    monkeypatch.setattr(drive, "run_together", together)
    run_visible(replace(EXERCISE, seconds=60.0), dict(_exchange("")), EXERCISE.visible[:1])
    assert given == [60.0]
