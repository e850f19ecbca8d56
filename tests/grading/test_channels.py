"""Sandboxes of one kernel tell each other nothing by locks, watches, futexes, pages in memory and abstract sockets."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable

import pytest

from grading.channels import MEANS, SOURCE
from labkit.checks import wire_format
from labkit.grading.hidden_cases.probe import Outcome
from labkit.grading.sandbox import bubblewrap

pytestmark = [
    pytest.mark.skipif(bool(bubblewrap.problem()), reason=f"no sandbox here: {bubblewrap.problem()}"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of the calls are those of x86-64"),
]
IN_RANKS = """
def program(x):
    rank = dist.get_rank()
    seen = telling(min(rank, 2), dist.barrier)
    return {name: each for name, each in seen.items()} if rank == 1 else {}
"""
IN_PROCESSES = """
import json, os, sys
to, back = os.pipe(), os.pipe()
rank = 0 if os.fork() else 1
def meet():
    mine, theirs = (to, back) if rank else (back, to)
    os.write(theirs[1], b".")
    os.read(mine[0], 1)
seen = telling(rank, meet)
if rank:
    sys.stdout.write(json.dumps(seen))
    sys.stdout.flush()
    os._exit(0)
os.wait()
"""


def test_two_processes_outside_sandboxes_tell_each_other_by_every_means() -> None:
    ran = subprocess.run([sys.executable, "-c", SOURCE + IN_PROCESSES], capture_output=True, text=True, timeout=60)
    seen = json.loads(ran.stdout)
    assert {name for name in MEANS if seen[name][0] != seen[name][1]} == set(MEANS) - {"pages"}, seen
    assert seen["pages"] == ["told", "told"]  # that they may be asked for at all


def test_two_ranks_tell_each_other_nothing_by_any_of_them(probe: Callable[..., Outcome]) -> None:
    outcome = probe("program", {"program": SOURCE + IN_RANKS}, case=1)
    assert outcome.failure is None, outcome.failure
    seen = wire_format.decode(outcome.results[1])["y"]  # type: ignore[index,call-overload]
    assert isinstance(seen, dict) and set(seen) == set(MEANS)
    for name, (zero, one) in seen.items():
        assert zero == one, (name, zero, one)
    assert seen["pages"] == ["PermissionError", "PermissionError"]
