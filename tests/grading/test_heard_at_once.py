"""What sandboxes that run at the same time hear of each other's load, reads and pipes: it is open, and measured here.

docs/attacks.md says with these figures what follows from it. Each test prints what it heard.
"""

from __future__ import annotations

import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from grading.test_channels import bits_told, in_a_sandbox, pytestmark
from labkit.grading.sandbox.page_cache import drop_pages
from labkit.grading.workers.processors import processors, share

pytestmark = [*pytestmark, pytest.mark.long]
MOST_APART, MOST_TOGETHER = 1.5, 17.0
"""Bits a second by load, on processors of one's own and on the same ones: the bounds of docs/attacks.md."""
TELLS_BY_LOAD = """
import os, time
begin, slot, means, bits = names
if means == "processors":
    for _ in range(os.cpu_count() - 1): os.fork()
block = bytearray(32 << 20)
for number, bit in enumerate(bits):
    while time.monotonic() < begin + number * slot: time.sleep(0.0002)
    while bit and time.monotonic() < begin + (number + 1) * slot:
        if means == "memory": block[:] = bytes(block)
print("[]")
"""
SEES_LOAD = """
import time
begin, slot, means, count = names
block, seen = bytearray((8 << 20) if means == "memory" else 4096), []
for number in range(count):
    while time.monotonic() < begin + number * slot: time.sleep(0.0002)
    done = 0
    while time.monotonic() < begin + (number + 0.9) * slot:
        if means == "memory": block[:] = bytes(block)
        else: sum(range(500))
        done += 1
    seen.append(1 / (done + 1))
print(json.dumps(seen))
"""
TELLS_BY_FILES = """
import time
for at, name in names:
    while time.monotonic() < at: time.sleep(0.0002)
    if name: open(name, "rb").read(4096)
print("[]")
"""
SEES_FILES = """
import mmap, resource, time
seen = []
for at, name in names:
    while time.monotonic() < at: time.sleep(0.0002)
    with open(name, "rb") as file, mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ) as block:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        block[0]
        seen.append(resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before)
print(json.dumps(seen))
"""
TELLS_BY_PIPES = """
import os, time
begin, slot, bits = names
for number, bit in enumerate(bits):
    while time.monotonic() < begin + number * slot: time.sleep(0.0002)
    while bit and time.monotonic() < begin + (number + 1) * slot:
        for end in os.pipe(): os.close(end)
print("[]")
"""
SEES_PIPES = """
import os, time
begin, slot, count = names
def inode():  # processors take inodes by the thousand; so many pipes show where they are now
    last = 0
    for _ in range(1100):
        ends = os.pipe()
        last = max(last, os.fstat(ends[0]).st_ino)
        for end in ends: os.close(end)
    return last
seen = []
for number in range(count):
    while time.monotonic() < begin + number * slot: time.sleep(0.0002)
    first = inode()
    while time.monotonic() < begin + (number + 0.8) * slot: time.sleep(0.0002)
    seen.append(first - inode())
print(json.dumps(seen))
"""


@pytest.mark.parametrize("means", ["processors", "memory"])
@pytest.mark.parametrize("apart", [True, False], ids=["own-processors", "same-processors"])
def test_sandboxes_that_run_at_the_same_time_hear_of_each_others_load_no_more_than_the_page_says(
    means: str, apart: bool
) -> None:
    """Nothing prevents that on one machine. What is heard is printed; docs/attacks.md says what follows from it."""
    there = processors()
    if apart and len(there) < 2:
        pytest.skip("one processor cannot be divided")
    mine, others = (share(place, 2, there) if apart else () for place in (0, 1))
    bits = random.Random(3).choices([False, True], k=200)
    found = {}
    for slot in (0.05, 0.1):
        begin = time.monotonic() + 2
        with ThreadPoolExecutor(1) as other:
            told = other.submit(in_a_sandbox, TELLS_BY_LOAD, [begin, slot, means, bits], others)
            took = json.loads(in_a_sandbox(SEES_LOAD, [begin, slot, means, len(bits)], mine))
            told.result()
        by_slot = {str(at): bit for at, bit in enumerate(bits)}
        busy = {at: -each for at, each in zip(by_slot, took, strict=True)}  # who is told 1 gets less done
        found[slot] = bits_told(by_slot, busy) / (len(bits) * slot)
    print(f"{means}, load {os.getloadavg()[0]:.1f}: {max(found.values()):.2f} bits a second")
    assert max(found.values()) <= (MOST_APART if apart else MOST_TOGETHER)


def test_sandboxes_that_run_at_the_same_time_see_which_files_the_other_reads() -> None:
    """Pages of shared files are the machine's: the kernel counts for each process what had to come from the disk."""
    there = (path for path in Path("/usr/share").rglob("*") if path.is_file() and not path.is_symlink())
    files = [path for path in there if 20_000 < path.stat().st_size < 200_000]
    random.Random(5).shuffle(files)
    told = {str(path): random.Random(str(path)).random() < 0.5 for path in files[:200]}
    drop_pages([Path("/usr/share")])
    begin, slot = time.monotonic() + 3, 0.05
    with ThreadPoolExecutor(1) as other:
        reads = [[begin + at * slot, name if bit else ""] for at, (name, bit) in enumerate(told.items())]
        telling = other.submit(in_a_sandbox, TELLS_BY_FILES, reads)
        took = json.loads(in_a_sandbox(SEES_FILES, [[begin + (at + 0.5) * slot, name] for at, name in enumerate(told)]))
        telling.result()
    found = bits_told(told, dict(zip(told, took, strict=True))) / (len(told) * slot)
    print(f"{found:.1f} bits a second")
    assert found > 1


def test_sandboxes_that_run_at_the_same_time_see_how_many_pipes_the_machine_has_made() -> None:
    """No namespace counts inodes apart, so this is left, as load is."""
    bits, slot = random.Random(3).choices([False, True], k=40), 0.25
    begin = time.monotonic() + 5
    with ThreadPoolExecutor(1) as other:
        told = other.submit(in_a_sandbox, TELLS_BY_PIPES, [begin, slot, bits])
        more = json.loads(in_a_sandbox(SEES_PIPES, [begin, slot, len(bits)]))
        told.result()
    by_slot = {str(at): bit for at, bit in enumerate(bits)}
    found = bits_told(by_slot, dict(zip(by_slot, more, strict=True))) / (len(bits) * slot)
    print(f"{found:.1f} bits a second")
    assert found > 1
