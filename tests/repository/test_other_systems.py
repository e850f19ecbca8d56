"""What only Linux or only POSIX has is called in the places below and nowhere else; elsewhere labkit runs anywhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "labkit"
CALLS = {
    "os": {
        "fork", "memfd_create", "pidfd_open", "sched_getaffinity", "sched_setaffinity", "geteuid", "getuid", "getpgid",
        "killpg", "setsid", "WNOHANG", "waitid", "mkfifo", "statvfs", "setuid", "chown", "sysconf", "set_blocking",
    },
    "signal": {"SIGKILL", "SIGSTOP", "SIGCONT", "SIGRTMIN", "SIGUSR1", "SIGALRM", "setitimer", "pthread_sigmask"},
    "socket": {"AF_UNIX", "SO_PEERCRED", "SCM_RIGHTS", "AF_VSOCK"},
}  # fmt: skip
MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "pty"}
FOLDERS = {
    "grading": "submissions are graded in a sandbox of Linux; environments.py says so in words elsewhere",
    "launch/cluster": "hosts of a cluster run Linux; dask_hosts.py refuses others in words",
}
FILES = {
    "launch/zygote.py": "imported where default_start_method() is zygote",
    "launch/preloaded.py": "imported where default_start_method() is zygote",
    "launch/cgroup.py": "reads files that are not there elsewhere: no limit",
    "launch/watchdog.py": "reads /proc where it is there, else asks psutil",
    "launch/gpu_turns.py": "takes turns on Linux, and says so elsewhere",
    "checks/undoing/trials.py": "runs in a forked rank: told.py asks for none where ranks are not forked",
    "doctor.py": "reads files that are not there elsewhere: no limit",
    "launch/local_failures.py": "check_local refuses what needs these signals where there are none",
    "gpu_report/claims/ranks.py": "kills ranks, on hosts with NVIDIA GPUs, which run Linux",
}


def _asked_first(node: ast.AST) -> bool:
    """Return whether what stands below this is done only where it is there."""
    return isinstance(node, ast.If | ast.IfExp) and any(
        word in ast.unparse(node.test) for word in ("hasattr(os", "sys.platform", "default_start_method")
    )


def _unasked(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not _asked_first(child):
            yield from _unasked(child)


NAMED = re.compile(rf"\b({'|'.join([*MODULES, *set().union(*CALLS.values())])})\b|/(proc|dev/shm|sys)\b")
"""Of a file in which this stands nowhere, the tree is not asked."""


def _linux_only(path: Path) -> list[str]:
    found: list[str] = []
    code = path.read_text()
    if not NAMED.search(code):
        return found
    for node in _unasked(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [f"{each.name}, line {node.lineno}" for each in node.names if each.name in MODULES]
        elif isinstance(node, ast.Attribute) and node.attr in CALLS.get(ast.unparse(node.value), ()):
            found.append(f"{ast.unparse(node.value)}.{node.attr}, line {node.lineno}")
        elif isinstance(node, ast.Constant) and str(node.value).startswith(("/proc/", "/dev/shm", "/sys/")):
            found.append(f"{node.value}, line {node.lineno}")
    return found


def test_linux_is_asked_for_in_few_places() -> None:
    elsewhere = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name in FILES or any(name.startswith(f"{folder}/") for folder in FOLDERS):
            continue
        if found := _linux_only(path):
            elsewhere[name] = found
    assert not elsewhere


def test_the_places_are_still_there() -> None:
    assert all((PACKAGE / name).exists() for name in (*FILES, *FOLDERS))
    assert all(_linux_only(PACKAGE / name) for name in FILES)
