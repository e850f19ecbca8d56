"""Roads out of a sandbox besides those of test_sandbox: keys, queues, watches, other processes, devices, names."""

from __future__ import annotations

import json
import platform
import socket
from pathlib import Path

import pytest
import torch

from grading.conftest import Probe
from grading.test_sandbox import pytestmark as needs_a_sandbox
from grading.test_sandbox import run
from labkit.checks import wire_format
from labkit.grading.course import Course

pytestmark = [needs_a_sandbox, pytest.mark.in_turn]

ASKS = """
import ctypes, errno, os, resource, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    done = libc.syscall(number, *arguments)
    return "allowed" if done >= 0 else errno.errorcode.get(ctypes.get_errno(), "?")
def tries(what):
    try:
        what()
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
    return "allowed"
def abstract():
    with socket.socket(socket.AF_UNIX) as one:
        one.connect("\\0" + NAME)
def writes(path):
    return lambda: open(path, "r+b").close()
def queues():
    files = [f"/proc/sysvipc/{name}" for name in ("msg", "sem", "shm")]
    return [line for file in files if os.path.exists(file) for line in open(file).readlines()[1:]]
def asks():
    size = ctypes.create_string_buffer(128)
    found = {
        "perf_event_open": call(298, size, 0, -1, -1, 0), "userfaultfd": call(323, 0), "fanotify": call(300, 0, 0),
        "inotify": call(294, 0), "add_key": call(248, b"user", b"x", b"y", 1, -3),
        "request_key": call(249, b"user", b"x", 0, 0),
        "kcmp": call(312, 1, 1, 0, 0, 0), "open_by_handle": call(304, -100, size, 0), "setns": call(308, 0, 0),
        "chroot": call(161, b"/tmp"), "mount": call(165, b"none", b"/tmp", b"tmpfs", 0, 0),
        "device": call(133, b"/tmp/null", 0o20666, os.makedev(1, 1)),
        "bind": call(165, b"/usr", b"/tmp", None, 4096, None),
        "pidfd_getfd": call(438, 0, 0, 0), "memory of process 1": tries(lambda: open("/proc/1/mem", "rb").read(1)),
        "syslog": call(103, 3, size, 128), "clock": call(227, 0, size), "quota": call(179, 0, None, 0, None),
        "abstract socket": tries(abstract), "/etc/localtime": tries(writes("/etc/localtime")),
        "/sys": tries(lambda: os.listdir("/sys")), "core pattern": tries(writes("/proc/sys/kernel/core_pattern")),
        "address": tries(lambda: socket.getaddrinfo("example.org", 80)),
        "hard link": tries(lambda: os.link("/usr/bin/env", "/tmp/env")),
        "core": str(resource.getrlimit(resource.RLIMIT_CORE)[1]),
        "/dev/shm": str(sorted(os.listdir("/dev/shm"))),
        "queues": str(queues()),
    }
    return found
"""
NOTHING = {"core": "0", "queues": "[]"}


def held(found: dict[str, str]) -> list[str]:
    """Return what is allowed and should not be."""
    return [name for name, answer in found.items() if answer == "allowed" or answer != NOTHING.get(name, answer)]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of the calls are those of x86-64")
def test_no_other_road_is_open_in_kernel_or_rank(course: Course, tmp_path: Path, probe: Probe) -> None:
    name = f"labkit-test-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX) as host:
        host.bind("\0" + name)
        host.listen()
        asks = f"NAME = {name!r}\n{ASKS}"
        with socket.socket(socket.AF_UNIX) as one:
            one.connect("\0" + name)  # it is there; nothing else of this is tried outside a sandbox
        told = f"{asks}import json\nprint(json.dumps(asks()))"
        kernel = json.loads(run(tmp_path, course, told).cells[0].text)
        outcome = probe("program", {"program": asks + "def program(rank):\n    return asks()\n"}, case=1)
        assert outcome.failure is None, outcome.failure
        rank = wire_format.decode(outcome.results[0])["y"]
        assert held(kernel) == [] and held(rank) == []  # type: ignore[arg-type]


def test_a_rank_computes_with_all_instructions_that_the_machine_has(probe: Probe) -> None:
    """Torch looks into /proc for them; without them a rank computes slower, and other last digits than the judge."""
    program = "import torch\ndef program(rank):\n    return torch.backends.cpu.get_cpu_capability()\n"
    outcome = probe("program", {"program": program}, case=1)
    assert outcome.failure is None, outcome.failure
    assert wire_format.decode(outcome.results[0])["y"] == torch.backends.cpu.get_cpu_capability()
