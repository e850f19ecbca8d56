"""Sandboxes of one kernel tell each other nothing by locks, watches, futexes, pages in memory and abstract sockets."""

from __future__ import annotations

import json
import math
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from grading.channels import MEANS, SOURCE
from grading.small_lesson import RIGHT
from labkit.checks import wire_format
from labkit.grading.hidden_cases.oracle import Oracle
from labkit.grading.hidden_cases.probe import Outcome
from labkit.grading.sandbox import bubblewrap
from labkit.grading.sandbox.bubblewrap import Sandbox
from labkit.grading.sandbox.cgroup import Cgroup
from labkit.grading.sandbox.page_cache import DROP, drop_pages, forget_reads
from labkit.grading.sandbox.view import seen_folders
from labkit.grading.score import submission_secret

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
LOOKED_FOR = """
import os, time
took = []
for name in names:
    begin = time.perf_counter_ns()
    os.path.exists(name)
    took.append(time.perf_counter_ns() - begin)
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


@pytest.mark.in_turn
def test_two_processes_outside_sandboxes_tell_each_other_by_every_means() -> None:
    told: set[str] = set()
    for _ in range(3):  # other work starts threads and opens files, too
        ran = subprocess.run([sys.executable, "-c", SOURCE + IN_PROCESSES], capture_output=True, text=True, timeout=60)
        seen = json.loads(ran.stdout)
        told |= {name for name in MEANS if seen[name][0] != seen[name][1]}
        if told == set(MEANS) - {"pages"}:
            break
    assert told == set(MEANS) - {"pages"}, seen
    assert seen["pages"] == ["told", "told"]  # that they may be asked for at all


@pytest.mark.long
@pytest.mark.parametrize("forgets", [False, True])
def test_a_sandbox_sees_which_files_an_earlier_one_read_until_they_are_dropped(forgets: bool) -> None:
    """What a second run would leave behind, were it not dropped as it ends."""
    folder = Path("/usr/share")
    files = [path for path in folder.rglob("*") if path.is_file() and 20_000 < path.stat().st_size < 200_000]
    random.Random(3).shuffle(files)
    told = {str(path): random.Random(str(path)).random() < 0.5 for path in files[:200]}
    drop_pages([folder])
    begin = time.perf_counter()
    in_a_sandbox("for name in names: open(name, 'rb').read(4096)", [name for name, bit in told.items() if bit])
    if forgets:
        drop_pages(seen_folders())
    took = dict(zip(told, json.loads(in_a_sandbox(TIMED, list(told))), strict=True))
    bits = bits_told(told, took) / (time.perf_counter() - begin)
    print(f"{bits:.2f} bits a second")
    assert (bits < 1) if forgets else (bits > 1)


@pytest.mark.long
@pytest.mark.parametrize("forgets", [False, True])
def test_a_sandbox_sees_which_names_an_earlier_one_looked_for_until_they_are_forgotten(forgets: bool) -> None:
    """Names that nobody has stay in memory; only root can take all out, with all that the machine has read."""
    if forgets and not os.access(DROP, os.W_OK):
        pytest.skip("only root can take names out of memory, outside most containers")
    names = [f"/usr/share/{random.random()}" for _ in range(400)]
    told = {name: random.Random(name).random() < 0.5 for name in names}
    in_a_sandbox("import os\nfor name in names: os.path.exists(name)", [name for name, bit in told.items() if bit])
    if forgets:
        forget_reads([])
    took = dict(zip(told, json.loads(in_a_sandbox(LOOKED_FOR, names)), strict=True))
    bits = bits_told(told, took)
    print(f"{bits:.0f} of 400 bits")
    assert (bits < 20) if forgets else (bits > 100)


@pytest.mark.long
def test_a_control_group_of_ones_own_forgets_which_names_were_looked_for() -> None:
    """The group still holds a process with memory of its own, as that of ranks holds what forks them."""
    group = Cgroup(2**30, 100)
    if not any(
        (folder / file).exists() for folder in group.folders for file in ("memory.force_empty", "memory.reclaim")
    ):
        group.close()
        pytest.skip("no control group can be made here")
    names = [f"/usr/share/{random.random()}" for _ in range(400)]
    told = {name: random.Random(name).random() < 0.5 for name in names}
    lives = "x = b'1' * 2**27; print(flush=True); input()"
    stays = subprocess.Popen(
        [sys.executable, "-c", lives], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=group.enter
    )
    try:
        assert stays.stdout is not None and stays.stdout.readline()
        looks = "import os\nfor name in names: os.path.exists(name)"
        in_a_sandbox(looks, [name for name, bit in told.items() if bit], before=group.enter)
        group.forget()
        took = dict(zip(told, json.loads(in_a_sandbox(LOOKED_FOR, names)), strict=True))
    finally:
        stays.communicate(b"\n")
        group.close()
    bits = bits_told(told, took)
    print(f"{bits:.0f} of 400 bits")
    assert bits < 20


def test_submissions_that_are_tried_side_by_side_have_inputs_of_their_own(oracle: Oracle) -> None:
    """So what their ranks could tell each other is of no use, but for the same answers, whose inputs are the same."""
    secrets = [submission_secret([("double", source)], b"k" * 32) for source in ("a", "b", "b")]
    for exercise in RIGHT:
        mine, theirs, same = ([case.inputs for case in oracle.cases(exercise, secret)] for secret in secrets)
        assert theirs == same and not {data for case in mine for data in case} & {
            data for case in theirs for data in case
        }


def bits_told(told: Mapping[str, bool], took: Mapping[str, float]) -> float:
    """Return how many bits times tell, at the best edge between short and long; what chance tells is subtracted."""

    def most(bits: Sequence[bool]) -> float:
        by_time = [bit for _, bit in sorted(zip(took.values(), bits, strict=True))]
        right = max(sum(by_time[:at]) + sum(not bit for bit in by_time[at:]) for at in range(len(by_time) + 1))
        wrong = min(max(1 - right / len(by_time), 1e-9), 0.5)
        return len(by_time) * (1 + wrong * math.log2(wrong) + (1 - wrong) * math.log2(1 - wrong))

    bits = list(told.values())
    by_chance = [most(random.Random(seed).sample(bits, len(bits))) for seed in range(300)]
    return max(0.0, most(bits) - max(by_chance))


def test_a_kernels_proc_says_what_was_true_of_the_machine_before(tmp_path: Path) -> None:
    with open(os.devnull, "wb") as null:
        reads = [
            "/bin/sh",
            "-c",
            "cat /proc/loadavg /proc/stat /proc/meminfo /proc/vmstat; ls /proc/sys/fs /proc/pressure",
        ]
        command = Sandbox(tmp_path).command(reads, {"PATH": "/usr/bin:/bin"}, null.fileno())
        ran = subprocess.run(command, pass_fds=[null.fileno()], capture_output=True, text=True)
    copies = "".join((tmp_path / "proc" / name).read_text() for name in ("loadavg", "stat", "meminfo", "vmstat"))
    assert copies and ran.stdout.startswith(copies), ran.stderr
    assert ran.stdout.removeprefix(copies).split() in (["/proc/pressure:", "/proc/sys/fs:"], ["/proc/sys/fs:"])


def in_a_sandbox(
    program: str, names: list[Any], kept_to: Sequence[int] = (), before: Callable[[], None] | None = None
) -> str:
    links = [part for name in ("lib", "lib64", "bin") for part in ("--symlink", f"usr/{name}", f"/{name}")]
    box = ["bwrap", "--ro-bind", "/usr", "/usr", *links, "--proc", "/proc", "--dev", "/dev", "--unshare-all"]
    whole = f"import json, sys\nnames = json.load(sys.stdin)\n{program}\n"
    run = [*box, "/usr/bin/python3", "-c", whole]
    if kept_to:
        run = ["taskset", "--cpu-list", ",".join(map(str, kept_to)), *run]
    return subprocess.run(
        run, input=json.dumps(names), capture_output=True, text=True, check=True, preexec_fn=before
    ).stdout


NUMBERS = """
import ctypes, mmap, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)

def inode(open_one, *close):
    most = 0
    for _ in range(1100):
        ends = open_one()
        ends = ends if isinstance(ends, tuple) else (ends,)
        most = max(most, os.fstat(ends[0]).st_ino)
        for end in ends: os.close(end)
    return most

def process():
    child = os.fork()
    if not child: os._exit(0)
    opened = os.pidfd_open(child)
    number = os.fstat(opened).st_ino
    os.close(opened)
    os.waitpid(child, 0)
    return number

def through_pipe():
    ours, theirs = socket.socketpair()
    opened = ours.getsockopt(1, 77)
    os.close(opened)
    return opened

def cookie():
    with socket.socket() as mine:
        return struct.unpack("Q", mine.getsockopt(1, 57, 8))[0]

def in_proc():
    opened = os.dup(0)
    number = os.lstat(f"/proc/self/fd/{opened}").st_ino
    os.close(opened)
    return number

def requests():
    found = ctypes.c_ulong()
    if libc.syscall(206, 10, ctypes.byref(found)): raise OSError(ctypes.get_errno(), "io_setup")
    return 1

def equal_pages():
    if libc.prctl(67, 1, 0, 0, 0): raise OSError(22, "prctl")
    libc.prctl(67, 0, 0, 0, 0)
    with mmap.mmap(-1, 65536, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block: block.madvise(12)
    return 1

def all_numbers():
    asked = {
        "pipes": lambda: inode(os.pipe), "sockets": lambda: inode(lambda: socket.socket().detach()),
        "memory files": lambda: inode(lambda: os.memfd_create("x")), "processes": process, "peers": through_pipe,
        "cookies": cookie, "in /proc": in_proc, "requests": requests, "equal pages": equal_pages,
        "sessions": lambda: int(open("/proc/self/autogroup").read().split()[0].split("-")[1]),
        "TCP": lambda: int(open("/proc/self/net/sockstat").read().split("alloc")[1].split()[0]),
        "shared maps": lambda: max(mmap.mmap(-1, 4096).size() for _ in range(1100)),
        "diagnosis": lambda: socket.socket(16, 3, 4).fileno(),
    }
    told = {}
    for name, ask in asked.items():
        try:
            told[name] = f"told {ask()}"
        except Exception as error:  # a process of the machine's first session has an empty autogroup
            told[name] = type(error).__name__
    return told
"""


def test_a_rank_sees_no_number_that_the_kernel_gives_out_for_the_whole_machine(probe: Callable[..., Outcome]) -> None:
    outside = subprocess.run(
        [sys.executable, "-c", f"{NUMBERS}\nimport json\nprint(json.dumps(all_numbers()))"],
        capture_output=True,
        text=True,
    )
    told = json.loads(outside.stdout)
    assert sum(each.startswith("told") for each in told.values()) >= 6, told  # some are newer than some kernels
    outcome = probe("program", {"program": f"{NUMBERS}\ndef program(x):\n    return all_numbers()\n"})
    seen = wire_format.decode(outcome.results[0])["y"]  # type: ignore[call-overload]
    assert isinstance(seen, dict) and {*seen} == {*told}
    assert {name: each for name, each in seen.items() if str(each).startswith("told")} == {}


def test_a_rank_has_pipes_and_sockets_for_an_event_loop_and_a_process(probe: Callable[..., Outcome]) -> None:
    source = (
        "import asyncio, subprocess, sys\n"
        "async def three():\n    await asyncio.sleep(0.001)\n    return 3\n"
        "def program(x):\n"
        "    loops = [asyncio.run(three()) for _ in range(20)]\n"
        "    return loops, subprocess.run(['/bin/echo', 'four'], capture_output=True, text=True).stdout\n"
    )
    outcome = probe("program", {"program": source}, case=1)
    assert outcome.failure is None, outcome.failure
    for result in outcome.results:
        assert wire_format.decode(result)["y"] == [[3] * 20, "four\n"]  # type: ignore[call-overload]


@pytest.mark.in_turn
def test_two_ranks_tell_each_other_nothing_by_any_of_them(probe: Callable[..., Outcome]) -> None:
    outcome = probe("program", {"program": SOURCE + IN_RANKS}, case=1)
    assert outcome.failure is None, outcome.failure
    seen = wire_format.decode(outcome.results[1])["y"]  # type: ignore[index,call-overload]
    assert isinstance(seen, dict) and set(seen) == set(MEANS)
    for name, (zero, one) in seen.items():
        assert zero == one, (name, zero, one)
    assert seen["pages"] == ["PermissionError", "PermissionError"]
