"""The sandbox a submission runs in: bubblewrap's command lines, and whether this machine allows them.

One layer, as an ordinary user: bubblewrap makes the file system and the namespaces. Two, as root: a bubblewrap that
only makes the file system (root may read what a throw-away user may not reach), then that user, then the same
namespaces as everybody's. Inside there are no capabilities over anything outside, and no way to further namespaces.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from labkit.errors import EnvironmentProblem
from labkit.grading.own_folders import own_prefix
from labkit.grading.sandbox import seccomp
from labkit.grading.sandbox.view import HOSTNAME, SCRATCH, view, view_in_scratch

KINDS = ("bubblewrap", "none")
TRUSTED_ONLY = (
    "--sandbox none grades without a sandbox: every submission then runs with your rights. Use it only for input you "
    "trust."
)
_FIRST_THROW_AWAY_UID = 1_900_000_000
_INSIDE = ["--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
_OF_THE_MACHINE = (
    "buddyinfo", "cgroups", "cpuinfo", "diskstats", "interrupts", "key-users", "loadavg", "locks", "meminfo",
    "partitions", "schedstat", "softirqs", "stat", "swaps", "uptime", "vmstat", "zoneinfo",
)  # fmt: skip
_NOT_COUNTED = ("cpuinfo", "meminfo", "partitions", "swaps", "uptime")
"""Of these, what says how the machine is, or is now."""
_COUNT = re.compile(rb"(?<![\w.])(?<!btime )\d+(?![\w.:])")
_FOLDERS_OF_THE_MACHINE = ("fs", "pressure", "sys/fs")
_EMPTY = "empty"
_COPIES = Path("/etc/proc")
"""Where the inner layer sees copies of what /proc says of the machine."""
_DEVICES = ("null", "zero", "full", "random", "urandom")


@dataclass(frozen=True)
class Sandbox:
    """How one process and all it starts are confined.

    Attributes:
        control: A folder of ours for the sandbox's small files; it must outlive the start.
        hidden: Files and folders that are covered even where a folder above them is seen.
        package: Of labkit, the files and folders that are seen and no others; None for all that learners get.
        shown: Files of ours that are seen, read-only: path inside and path outside.
        scratch_bytes: Size of its /tmp, and of its /dev/shm.
        may_divide: What runs in it is ours and makes a sandbox for each process that it forks, with capabilities over
            this one; no line of a submission runs in it.
        ulimits: Limits by the names that prlimit(1) has for them, such as ``nofile``.
        devices: Device files that are seen besides those every program expects; see gpus.py.
    """

    control: Path
    hidden: tuple[Path, ...] = ()
    package: tuple[Path, ...] | None = None
    shown: Mapping[str, Path] = field(default_factory=dict)
    scratch_bytes: int = 256 << 20
    may_divide: bool = False
    ulimits: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[Path, ...] = ()

    def command(
        self, program: Sequence[str], environment: Mapping[str, str], info_fd: int, filter_fd: int = -1
    ) -> list[str]:
        """Return the command line that runs `program` inside.

        Args:
            program: What to run.
            environment: All its environment variables.
            info_fd: An inherited descriptor to which bubblewrap writes the process id of the sandbox's process 1.
            filter_fd: An inherited descriptor of `seccomp.filter_file`; -1 where nothing of a submission is run by it.
        """
        bwrap, uid = _bwrap(), user_inside()
        files = view(self.control, uid, self.hidden, self.package)
        copied, copies = _copied_proc(self.control / "proc"), self.control / "proc"
        for inside, outside in self.shown.items():
            files += ["--ro-bind", str(outside), inside]
        files += _device_files(self.devices)
        if os.geteuid() == 0:
            files += ["--ro-bind", str(copies), str(_COPIES)]
            outer = [bwrap, "--die-with-parent", *files, "--bind", "/proc", "/proc", "--", *_become(uid), bwrap]
            files, copies = ["--dev-bind", "/", "/"], _COPIES
        else:
            outer = [bwrap]
        size = str(self.scratch_bytes)
        arguments = [*_INSIDE, "--die-with-parent", "--new-session", "--hostname", HOSTNAME, "--info-fd", str(info_fd)]
        arguments += [*files, "--proc", "/proc", *_still_proc(copied, copies)]
        arguments += ["--seccomp", str(filter_fd)] if filter_fd >= 0 else []
        arguments += ["--cap-drop", "ALL", *([] if self.may_divide else ["--disable-userns"])]
        for folder in (SCRATCH, "/dev/shm"):
            arguments += ["--perms", "1777", "--size", size, "--tmpfs", folder]
        seen_from = os.geteuid() == 0
        arguments += view_in_scratch(self.control, self.hidden, self.package, seen_from=seen_from)
        arguments += ["--perms", "0700", "--size", str(1 << 20), "--tmpfs", "/run", "--remount-ro", "/"]
        arguments += ["--chdir", SCRATCH, "--clearenv"]
        for name, value in environment.items():
            arguments += ["--setenv", name, value]
        ulimits = [f"--{name}={value}" for name, value in {"core": 0, **self.ulimits}.items()]
        return [*outer, *arguments, "--", "prlimit", *ulimits, "--", *program]


def without_rights(program: Sequence[str], control: Path, hidden: Sequence[Path]) -> list[str]:
    """Return the command line that runs a program of ours, where we are root, as the user the sandboxes belong to.

    It sees the files a sandbox sees, whatever a folder above them allows, and all processes. Others run it as it is:
    they are no more than that themselves.

    Args:
        program: What to run.
        control: A folder of ours for small files; it must outlive the start.
        hidden: Files and folders that must not be seen.
    """
    if os.geteuid() != 0:
        return list(program)
    uid = user_inside()
    files = [*view(control, uid, hidden), *_device_files(), *view_in_scratch(control, hidden)]
    return [_bwrap(), *files, "--bind", "/proc", "/proc", "--chdir", "/", "--", *_become(uid), *program]


def _copied_proc(folder: Path) -> list[str]:
    """Copy what /proc says of the whole machine, and return the names there are: it tells of other sandboxes.

    What it has counted since the machine began tells of those that have ended, too, so counts are zero.
    """
    (folder / _EMPTY).mkdir(parents=True, exist_ok=True)
    for each in (folder, folder / _EMPTY):
        each.chmod(0o755)  # whatever the umask: another user looks into them
    copied = []
    for name in _OF_THE_MACHINE:
        try:
            told = (Path("/proc") / name).read_bytes()
            (folder / name).write_bytes(told if name in _NOT_COUNTED else _COUNT.sub(b"0", told))
        except OSError:
            continue  # not there, or for root alone
        (folder / name).chmod(0o444)
        copied.append(name)
    return copied


def _still_proc(copied: Sequence[str], seen_at: Path) -> list[str]:
    """Return arguments that put the copies over the files of /proc, and nothing over its folders of the machine."""
    over = {name: name for name in copied}
    over |= {name: _EMPTY for name in _FOLDERS_OF_THE_MACHINE if (Path("/proc") / name).is_dir()}
    return [word for name, copy in over.items() for word in ("--ro-bind", str(seen_at / copy), f"/proc/{name}")]


def _device_files(more: Sequence[Path] = ()) -> list[str]:
    shown = [*(f"/dev/{name}" for name in _DEVICES), *map(str, more)]
    arguments = [word for path in shown for word in ("--dev-bind", path, path)]
    links = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1"}
    for name, target in {**links, "stderr": "/proc/self/fd/2"}.items():
        arguments += ["--symlink", target, f"/dev/{name}"]
    return [*arguments, "--perms", "1777", "--dir", "/dev/shm"]


def _become(uid: int) -> list[str]:
    who = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return ["setpriv", *who, "--inh-caps=-all", "--bounding-set=-all", "--pdeathsig=KILL"]


def _bwrap() -> str:
    program = shutil.which("bwrap")
    if program is None:
        raise EnvironmentProblem(
            f"bubblewrap is not installed (Debian, Ubuntu: apt install bubblewrap). {TRUSTED_ONLY}"
        )
    return program


def user_inside() -> int:
    """Return who a sandbox's processes are: a throw-away user where we are root, else ourselves."""
    return throw_away_uid() if os.geteuid() == 0 else os.geteuid()


def throw_away_uid() -> int:
    """Return a user id that owns nothing here, another for each process of the grader."""
    wanted = _FIRST_THROW_AWAY_UID + os.getpid() % 100_000_000
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _, count = map(int, line.split())
        if first <= wanted < first + count:
            return wanted
    return 20_000 + os.getpid() % 40_000


def read_info(fd: int, seconds: float) -> int:
    """Return the process id, as seen from here, of the sandbox's process 1; 0 where the sandbox did not start.

    Args:
        fd: The other end of the descriptor bubblewrap was given.
        seconds: How long it may take.
    """
    text = b""
    while b"}" not in text and select.select([fd], [], [], seconds)[0]:
        data = os.read(fd, 4096)
        if not data:
            break
        text += data
    try:
        return int(json.loads(text)["child-pid"])
    except (ValueError, KeyError):
        return 0


@cache
def problem() -> str:
    """Return why no sandbox can be started here and what to switch on, or "" where one was started for trial."""
    if sys.platform != "linux":
        return "the sandbox is bubblewrap, which needs Linux"
    for program, package in (("bwrap", "bubblewrap"), ("setpriv", "util-linux"), ("prlimit", "util-linux")):
        if shutil.which(program) is None:
            return f"there is no {program}; Debian, Ubuntu: apt install {package}"
    if seccomp.problem():
        return seccomp.problem()
    for may_divide in (False, True):
        said = _try(may_divide)
        if said:
            return f"bubblewrap is here but cannot start a sandbox ({said}). {_switch_on(said)}"
    return ""


def _try(may_divide: bool) -> str:
    with tempfile.TemporaryDirectory(prefix=own_prefix("try")) as control, open(os.devnull, "wb") as null:
        sandbox = Sandbox(Path(control), may_divide=may_divide)
        command = sandbox.command(["true"], {"PATH": "/usr/bin:/bin"}, null.fileno())
        tried = subprocess.run(
            command, pass_fds=[null.fileno()], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
    if tried.returncode == 0:
        return ""
    return tried.stderr.strip().splitlines()[-1] if tried.stderr.strip() else f"exit status {tried.returncode}"


def _switch_on(said: str) -> str:
    """Return what to do about it."""
    if "unknown option" in said.lower() or "unrecognized" in said.lower():
        return "bubblewrap 0.8 or newer and util-linux 2.33 or newer are needed."
    if Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").exists():
        return "Ubuntu 24.04 and later: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    clone = Path("/proc/sys/kernel/unprivileged_userns_clone")
    if clone.exists() and clone.read_text().strip() == "0":
        return "Switch on user namespaces: sudo sysctl kernel.unprivileged_userns_clone=1"
    most = Path("/proc/sys/user/max_user_namespaces")
    if most.exists() and most.read_text().strip() == "0":
        return "Switch on user namespaces: sudo sysctl user.max_user_namespaces=15000"
    return (
        "Most often a container forbids user namespaces: docker run with --security-opt seccomp=unconfined "
        "--security-opt apparmor=unconfined --security-opt systempaths=unconfined"
    )


def require() -> None:
    """Return where a sandbox can be had.

    Raises:
        EnvironmentProblem: Where it cannot; says what to switch on, and how to do without for trusted input.
    """
    why = problem()
    if why:
        raise EnvironmentProblem(f"submissions run in a sandbox, but {why}\n{TRUSTED_ONLY}")
