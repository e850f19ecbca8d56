"""From the call to the results: labkit.run beside the other launchers, on this machine, in one sitting.

Each measurement runs in a fresh process (see one_launcher), in turn: every launcher once per round, so that a busy
moment of the machine falls on all of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from statistics import median
from typing import Any

import psutil

from tests.benchmarks.launchers import LAUNCHERS
from tests.benchmarks.table import Bar, ratio, table

# Calls in one process: the first is the cold one. Where nothing is kept between calls, two say enough.
NUM_CALLS = {"labkit.run": 8, "plain fork": 8, "notebook_launcher": 8, "ipyparallel": 6}
MODULES = {"notebook_launcher": "accelerate", "torchrunx": "torchrunx", "ipyparallel": "ipyparallel"}
TIMEOUT_S = 90.0


def measure(name: str, world_size: int, num_calls: int) -> list[float] | str:
    """Return the seconds of each call in a fresh process, or what went wrong, in words."""
    command = [sys.executable, "-m", "tests.benchmarks.one_launcher", name, str(world_size), str(num_calls)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"no answer in {TIMEOUT_S:.0f} s"
    if process.returncode:
        return (err.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
    seconds: list[float] = json.loads(out.splitlines()[-1])
    return seconds


def _rounds(world_size: int, num_rounds: int, names: list[str]) -> dict[str, dict[str, Any]]:
    firsts: dict[str, list[float]] = {name: [] for name in names}
    agains: dict[str, list[float]] = {name: [] for name in names}
    problems: dict[str, list[str]] = {name: [] for name in names}
    for _ in range(num_rounds):
        for name in names:
            seconds = measure(name, world_size, NUM_CALLS.get(name, 2))
            if isinstance(seconds, str):
                problems[name].append(seconds)
            else:
                firsts[name].append(seconds[0])
                agains[name].extend(seconds[1:])
    return {
        name: {
            "first_s": median(firsts[name]) if firsts[name] else None,
            "again_s": median(agains[name]) if agains[name] else None,
            "problems": problems[name],
        }
        for name in names
    }


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"


def run(quick: bool = False) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the table as text, the bars, and the figures as data."""
    absent = [name for name, module in MODULES.items() if find_spec(module) is None]
    names = [name for name in LAUNCHERS if name not in absent]
    figures = {str(size): _rounds(size, 1 if quick else 3, names) for size in (2, 4)}
    many = {name: measure(name, 16, calls) for name, calls in (("labkit.run", 4), ("mp.spawn", 1))}
    crowd = {name: median(got[1:] or got) if isinstance(got, list) else None for name, got in many.items()}

    rows = []
    for name in names:
        row = [name]
        for size in ("2", "4"):
            figure = figures[size][name]
            row += [_seconds(figure["first_s"]), _seconds(figure["again_s"])]
        rows.append(row)
    lines = ["Call to results of one all_reduce, median; first: in a fresh process, again: later calls in it"]
    lines.append(table(["", "2 ranks: first", "again", "4 ranks: first", "again"], rows))
    lines.append(
        f"  16 ranks: labkit.run again {_seconds(crowd['labkit.run'])}, mp.spawn {_seconds(crowd['mp.spawn'])}"
    )
    lines += [f"  left out: {name} ({MODULES[name]} is not installed: `make bench` installs it)" for name in absent]
    for size, by_name in figures.items():
        for name, figure in by_name.items():
            lines += [f"  {name} on {size} ranks: {problem}" for problem in figure["problems"]]
    lines += [f"  {name} on 16 ranks: {got}" for name, got in many.items() if isinstance(got, str)]

    bars = []
    for size in ("2", "4"):
        at = figures[size]
        again = at["labkit.run"]["again_s"]
        torchrun, fork = at["torchrun"]["again_s"], at["plain fork"]["again_s"]
        bars.append(Bar(f"again, {size} ranks, at most 0.03 x torchrun", ratio(again, torchrun), 0.03))
        bars.append(Bar(f"again, {size} ranks, at most 1.3 x plain fork", ratio(again, fork), 1.3))
    four = figures["4"]
    first = ratio(four["labkit.run"]["first_s"], four["mp.spawn"]["first_s"])
    bars.append(Bar("first call, 4 ranks, at most mp.spawn's", first, 1.0))
    bars.append(Bar("16 ranks, at most 0.1 x mp.spawn", ratio(crowd["labkit.run"], crowd["mp.spawn"]), 0.1))
    return "\n".join(lines), bars, {"by_ranks": figures, "16_ranks_s": crowd}
