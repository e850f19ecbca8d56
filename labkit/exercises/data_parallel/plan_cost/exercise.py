"""The bytes at each port and the seconds of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labkit.checks.case import Case
from labkit.checks.formulas import NOTHING, Call, Counted, as_if, calls_case, counting, judging
from labkit.checks.judged import Mistake, judged
from labkit.exercises.data_parallel.moves import Move, right_plan
from labkit.exercises.data_parallel.plan_cost.driver import drive

Link = tuple[float, float]


def _ports(plan: Sequence[Move], num_devices: int) -> list[int]:
    return [sum(m[3] * (m[1:3].count(device)) for m in plan) for device in range(num_devices)]


def _seconds(plan: Sequence[Move], latency_s: float, bandwidth: float) -> float:
    return float(len(plan) * latency_s + sum(m[3] for m in plan) / bandwidth)


COUNTED: Counted = {"port_bytes": _ports, "plan_seconds": _seconds}


def costs_case(name: str, plans: Sequence[tuple[Sequence[Move], int]], links: Sequence[Link]) -> Case:
    """Return a case of plan_cost: (plan, number of devices) of each call, (latency, bytes per second) of each link."""
    calls: list[Call] = []
    for plan, num_devices in plans:
        moves: list[Any] = [list(move) for move in plan]
        calls.append(("port_bytes", (moves, num_devices)))
        calls += [("plan_seconds", (moves, *link)) for link in links]
    return calls_case(name, calls)


def _outgoing(plan: Sequence[Move], num_devices: int) -> list[int]:
    return [sum(m[3] for m in plan if m[1] == device) for device in range(num_devices)]


def _incoming(plan: Sequence[Move], num_devices: int) -> list[int]:
    return [sum(m[3] for m in plan if m[2] == device) for device in range(num_devices)]


EXERCISE = judged(
    id="plan_cost",
    functions=("port_bytes", "plan_seconds"),
    given=("Move",),
    driver=drive,
    oracle=counting(COUNTED),
    judge=judging(COUNTED),
    visible=(
        costs_case("3 devices", [(right_plan([4, 3, 2], 20, 8, 700, 500), 3)], [(1e-5, 1e9), (0.0, 1e6)]),
        costs_case("moves between others than 0", [([["model", 1, 2, 100], ["model", 3, 1, 7]], 4)], [(1e-3, 1e4)]),
        costs_case("nothing to move", [([], 1)], [(1e-5, 1e9)]),
    ),
    distributed=False,
    hints=(
        "A move of 100 bytes from 0 to 2: which ports does it pass? And how long does it take alone?",
        "It passes two ports, that of src and that of dst. The moves follow one another, so their times add up.",
        "totals[move.src] += move.num_bytes and totals[move.dst] += move.num_bytes; sum(latency_s + move.num_bytes / "
        "bandwidth_Bps for move in plan).",
    ),
    mistakes=(
        NOTHING,
        Mistake(
            "only what is sent",
            "port_bytes counts what a device sends. What it receives passes its port, too.",
            as_if(COUNTED, "port_bytes", _outgoing),
        ),
        Mistake(
            "only what is received",
            "port_bytes counts what a device receives. What it sends passes its port, too.",
            as_if(COUNTED, "port_bytes", _incoming),
        ),
        Mistake(
            "latency forgotten",
            "plan_seconds leaves out the latency.",
            as_if(COUNTED, "plan_seconds", lambda plan, latency, bandwidth: sum(m[3] for m in plan) / bandwidth),
        ),
        Mistake(
            "latency once",
            "Every move pays the latency, not the plan as a whole.",
            as_if(
                COUNTED, "plan_seconds", lambda plan, latency, bandwidth: latency + sum(m[3] for m in plan) / bandwidth
            ),
        ),
        Mistake(
            "all at the same time",
            "plan_seconds takes the longest move. They do not run side by side: they pass the same port, one after "
            "another.",
            as_if(
                COUNTED,
                "plan_seconds",
                lambda plan, latency, bandwidth: max((latency + m[3] / bandwidth for m in plan), default=0.0),
            ),
        ),
    ),
)
