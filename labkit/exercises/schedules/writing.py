"""Functions that write the order of one stage's work, asked for every stage of several pipelines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from labkit.checks.case import Case, Value, Values
from labkit.checks.finding import Find, Finding
from labkit.checks.structure import Each, OneOf
from labkit.checks.values import listed
from labkit.checks.wire import Wire

NOTHING = "returns nothing"

Wrong = Callable[[list[Any], Sequence[int]], Iterator[Finding]]
"""Yields what is wrong with every stage's order in one pipeline: stages, microbatches and, of some, chunks."""


def order_case(name: str, function: str, pipelines: Sequence[tuple[int, ...]]) -> Case:
    """Return a case that asks for the order of work of all stages of each pipeline."""
    listed: list[Value] = [list(each) for each in pipelines]
    return Case(name, 1, ({"function": function, "pipelines": listed},))


def asked(case: Case) -> list[list[int]]:
    """Return the pipelines of a case."""
    return listed(case.inputs[0], "pipelines")


def structure(case: Case) -> list[Any]:
    """Return what comes: for each stage of each pipeline a list of records, or in words what else."""
    record = OneOf(({"kind": str, "microbatch": OneOf((int, str))}, str))
    return [{"schedules": [[OneOf((Each(record), str)) for _ in range(stages)] for stages, *_ in asked(case)]}]


def finding(wrong: Wrong) -> Find:
    """Return what finds the first thing that is wrong with any pipeline, and says which."""

    def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
        for pipeline, orders in zip(asked(case), listed(got[0], "schedules"), strict=True):
            words = zip(pipeline, ("stages", "microbatches", "chunks"), strict=False)
            head = ", ".join(f"{value} {name}" for value, name in words)
            if any("None" in str(order) for order in orders if isinstance(order, str)):
                yield Finding(NOTHING, f"{head}: the function returned None.")
            for each in wrong(orders, pipeline):
                yield replace(each, message=f"{head}: {each.message}")

    return find


def late(turns: float, enough: float, name: str = "") -> Iterator[Finding]:
    """Yield that a pipeline takes more turns than it must."""
    if turns > enough + 1e-9:
        yield Finding(name, f"It takes {turns:g} turns; {enough:g} are enough.", f"{enough:g}", f"{turns:g}")
