"""Sandboxes of one kernel tell each other nothing by locks, watches, futexes, pages in memory and abstract sockets."""

from __future__ import annotations

import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

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
TIMED = """
import time
took = []
for name in names:
    begin = time.perf_counter()
    open(name, "rb").read(4096)
    took.append(time.perf_counter() - begin)
print(json.dumps(took))
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


@pytest.mark.long
def test_a_sandbox_sees_which_files_an_earlier_one_read() -> None:
    """What is left, and docs/attacks.md says so: more than a bit a second, after the teller has ended."""
    folder = Path("/usr/share")
    files = [path for path in folder.rglob("*") if path.is_file() and 20_000 < path.stat().st_size < 200_000]
    random.Random(3).shuffle(files)
    told = {str(path): random.Random(str(path)).random() < 0.5 for path in files[:200]}
    for name in told:
        with open(name, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begin = time.perf_counter()
    in_a_sandbox("for name in names: open(name, 'rb').read(4096)", [name for name, bit in told.items() if bit])
    took = json.loads(in_a_sandbox(TIMED, list(told)))
    seconds = time.perf_counter() - begin
    by_bit = [
        statistics.median(each for each, bit in zip(took, told.values(), strict=True) if bit == b) for b in (1, 0)
    ]
    edge = math.sqrt(math.prod(by_bit))
    right = sum((each < edge) == bit for each, bit in zip(took, told.values(), strict=True)) / len(told)
    wrong = min(max(1 - right, 1e-9), 0.5)
    bits = len(told) * (1 + wrong * math.log2(wrong) + (1 - wrong) * math.log2(1 - wrong)) / seconds
    print(f"{right:.1%} of {len(told)} files are told apart, {bits:.0f} bits a second")
    assert bits > 1


def in_a_sandbox(program: str, names: list[str]) -> str:
    links = [part for name in ("lib", "lib64", "bin") for part in ("--symlink", f"usr/{name}", f"/{name}")]
    box = ["bwrap", "--ro-bind", "/usr", "/usr", *links, "--proc", "/proc", "--dev", "/dev", "--unshare-all"]
    whole = f"import json, sys\nnames = json.load(sys.stdin)\n{program}\n"
    run = [*box, "/usr/bin/python3", "-c", whole]
    return subprocess.run(run, input=json.dumps(names), capture_output=True, text=True, check=True).stdout


def test_two_ranks_tell_each_other_nothing_by_any_of_them(probe: Callable[..., Outcome]) -> None:
    outcome = probe("program", {"program": SOURCE + IN_RANKS}, case=1)
    assert outcome.failure is None, outcome.failure
    seen = wire_format.decode(outcome.results[1])["y"]  # type: ignore[index,call-overload]
    assert isinstance(seen, dict) and set(seen) == set(MEANS)
    for name, (zero, one) in seen.items():
        assert zero == one, (name, zero, one)
    assert seen["pages"] == ["PermissionError", "PermissionError"]
