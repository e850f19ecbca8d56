"""From the call to the results: labkit.run beside the other launchers, on this machine, in one sitting.

Every launcher has a process of its own (see one_launcher), fresh in each round. They are all there at once and called
in turn, one call each, so that a busy moment of the machine falls on all of them.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
import uuid
from importlib.util import find_spec
from statistics import median
from typing import Any

import psutil

from tests.benchmarks.launchers import LAUNCHERS
from tests.benchmarks.table import Bar, ratio, table

# How often each is called again in one process; the slow ones keep nothing between calls, so little is to be learnt.
NUM_AGAIN = {"labkit.run": 8, "plain fork": 8, "notebook_launcher": 8, "ipyparallel": 8}
MODULES = {"notebook_launcher": "accelerate", "torchrunx": "torchrunx", "ipyparallel": "ipyparallel"}
TIMEOUT_S = 180.0
MARK = "LABKIT_BENCHMARK"


class Launcher:
    """A process that makes calls with one launcher when told to, and is ended with all it started if it hangs."""

    def __init__(self, name: str, world_size: int) -> None:
        self.problem = ""
        self.seconds: list[float] = []
        self._mark = uuid.uuid4().hex
        self._said = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - closed in end()
        command = [sys.executable, "-u", "-m", "tests.benchmarks.one_launcher", name, str(world_size)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,
            env={**os.environ, MARK: self._mark},
        )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._answer()

    def call(self) -> None:
        """Make one call; its seconds are added to ``seconds``, or ``problem`` says what went wrong."""
        if self.problem:
            return
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        answer = self._answer()
        if answer:
            self.seconds.append(float(answer))

    def _answer(self) -> str:
        assert self._process.stdout is not None
        if not self._selector.select(TIMEOUT_S):
            self.problem = f"no answer to call {len(self.seconds) + 1} in {TIMEOUT_S:.0f} s"
            self._kill()
            return ""
        line = self._process.stdout.readline().strip()
        if not line:
            self._process.wait()
            self._said.seek(0)
            lines = self._said.read().strip().splitlines()
            self.problem = (lines or [f"exit status {self._process.returncode}"])[-1]
        return line

    def _kill(self) -> None:
        """End whatever this launcher started and left, in whichever session: it bears the mark in its environment."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self._mark:
                    process.kill()

    def end(self) -> None:
        """End the process and everything it started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self._kill()
        self._process.wait()
        self._process.stdout.close()
        self._selector.close()
        self._said.close()


def _round(world_size: int, names: list[str], num_again: dict[str, int]) -> dict[str, Launcher]:
    """Return the launchers of one round, ended, with the seconds of their calls."""
    launchers: dict[str, Launcher] = {}
    try:
        for name in names:
            launchers[name] = Launcher(name, world_size)
        for number in range(1 + max(num_again.values())):
            for name, launcher in launchers.items():
                if number <= num_again.get(name, 1):
                    launcher.call()
    finally:
        for launcher in launchers.values():
            launcher.end()
    return launchers


def _rounds(world_size: int, num_rounds: int, names: list[str], num_again: dict[str, int]) -> dict[str, dict[str, Any]]:
    rounds = []
    for number in range(num_rounds):
        sys.stderr.write(f"{world_size} ranks, round {number + 1} of {num_rounds} ...\n")
        rounds.append(_round(world_size, names, num_again))
    figures = {}
    for name in names:
        launchers = [each[name] for each in rounds]
        first = [launcher.seconds[0] for launcher in launchers if launcher.seconds]
        again = [seconds for launcher in launchers for seconds in launcher.seconds[1:]]
        figures[name] = {
            "first_s": median(first) if first else None,
            "again_s": median(again) if again else None,
            "problems": [launcher.problem for launcher in launchers if launcher.problem],
        }
    return figures


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"


def run(quick: bool = False) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the table as text, the bars, and the figures as data."""
    absent = [name for name, module in MODULES.items() if find_spec(module) is None]
    names = [name for name in LAUNCHERS if name not in absent]
    begin = time.monotonic()
    figures = {str(size): _rounds(size, 1 if quick else 2, names, NUM_AGAIN) for size in (2, 4)}
    figures["16"] = _rounds(16, 1, ["labkit.run", "mp.spawn"], {"labkit.run": 3, "mp.spawn": 0})
    crowd = {"labkit.run": figures["16"]["labkit.run"]["again_s"], "mp.spawn": figures["16"]["mp.spawn"]["first_s"]}

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
    return "\n".join(lines), bars, {"by_ranks": figures, "seconds": time.monotonic() - begin}
