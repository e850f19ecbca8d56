"""Runs take turns for GPUs: real processes contend for names that stand for GPUs, in a line that each can see."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import labkit
from labkit import worlds
from labkit.launch import gpu_turns
from labkit.launch.gpu_turns import gpu_turn
from labkit.launch.gpus import Gpu, Gpus
from labkit.launch.local import Outcome

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="turns are taken on Linux")

# Takes GPUs, says which, and holds them until a line comes in.
HOLDER = """
import sys
from labkit.launch import gpu_turns
gpu_turns._PREFIX = sys.argv[3]
say = lambda words: print("says:", words, flush=True)
with gpu_turns.gpu_turn(sys.argv[2].split(","), int(sys.argv[1]), say) as held:
    print("holds:", *held, flush=True)
    sys.stdin.readline()
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> str:
    """Names of two GPUs, in a line of this test's own: in the machine's, others may stand."""
    monkeypatch.setattr(gpu_turns, "_PREFIX", f"labkit-test-{os.getpid()}")
    return "a,b"


@pytest.fixture
def start(names: str) -> Iterator[Start]:
    started = []

    def run(wanted: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLDER, str(wanted), names, gpu_turns._PREFIX]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=300)


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line a process says."""
    assert process.stdout is not None
    said = process.stdout.readline()
    assert said, f"it ended with {process.wait(60)}"
    return said.rstrip("\n")


def holds(process: subprocess.Popen[str]) -> str:
    """Return what a process holds, after what it said while it waited."""
    while not (said := line(process)).startswith("holds: "):
        assert "turn" in said or "Waiting" in said
    return said.removeprefix("holds: ")


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=300)


def test_two_runs_of_one_gpu_each_run_side_by_side(start: Start, names: str) -> None:
    one, two = start(1), start(1)  # whoever comes second may see the first still in line, and says so
    assert {holds(one), holds(two)} == set(names.split(","))


def test_who_waits_sees_who_runs_and_gets_the_next_turn(start: Start, names: str) -> None:
    one = start(2)
    assert line(one) == f"holds: {names.replace(',', ' ')}"
    two = start(1)
    assert "Waiting for 1 GPU of 2: you are next" in (words := line(two))
    assert "(2 GPUs) running" in words
    end(one)
    said = [line(two), line(two)]
    while not said[-1].startswith("holds:"):
        said.append(line(two))
    assert said[-2].startswith("says: [labkit] Your turn: GPU ")


def test_a_large_run_is_not_overtaken_by_small_ones(start: Start) -> None:
    small = start(1)
    line(small)
    large = start(2)
    assert "you are next" in line(large)
    later = start(1)
    assert "1 run is before you in line" in line(later)
    end(small)
    holds(large)
    assert later.poll() is None
    end(large)
    holds(later)


def test_a_killed_run_lets_go(start: Start) -> None:
    one = start(2)
    line(one)
    one.send_signal(signal.SIGKILL)
    one.wait(60)
    holds(start(2))


def test_somebody_who_leaves_the_line_does_not_hold_it_up(start: Start) -> None:
    one = start(2)
    line(one)
    two, three = start(2), None
    line(two)
    three = start(1)
    assert "1 run is before you" in line(three)
    two.kill()
    two.wait(60)
    assert "you are next" in line(three)


def test_two_who_each_have_part_of_what_both_want_do_not_wait_for_ever(start: Start) -> None:
    """Who asked first may be the last to be seen in the line: its number is drawn before it stands there."""
    with ExitStack() as other:
        other.enter_context(gpu_turns._bound(f"{gpu_turns._PREFIX}/taken/b"))
        late = start(2)
        assert "you are next" in line(late)
        with ExitStack() as early:
            early.enter_context(gpu_turns._bound(f"{gpu_turns._PREFIX}/line/{1:020}/1/somebody/2"))
            assert "1 run is before you in line" in line(late)
            early.enter_context(gpu_turns._bound(f"{gpu_turns._PREFIX}/taken/a"))
    assert holds(late) == "a b"


def test_a_local_world_with_gpus_launches_in_its_turn_on_those_it_got(
    monkeypatch: pytest.MonkeyPatch, names: str, tmp_path: Path
) -> None:
    seen: list[tuple[str, ...]] = []

    def launch(order: object, placement: object, threads: int, method: str, gpus: tuple[str, ...] = ()) -> Outcome:
        seen.append(tuple(gpus))
        return Outcome([None], ("",), None, 0.0)

    monkeypatch.setattr(worlds, "launch_local", launch)
    here = Gpus(tuple(Gpu(name, "H100", 80 * 10**9) for name in names.split(",")), 2, "2.28")
    monkeypatch.setattr(worlds, "gpus", lambda: here)
    with gpu_turn(names.split(","), 1, None) as (other,):
        labkit.run(print, on=labkit.local(1))
    labkit.run(print, on=labkit.local(2))
    labkit.run(print, on=labkit.local(1, device="cpu"))
    assert seen == [tuple(set(names.split(",")) - {other}), tuple(names.split(",")), ()]
