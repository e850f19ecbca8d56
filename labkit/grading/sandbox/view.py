"""What a submission's processes can see of this machine: the system's programs, Python, labkit, and nothing else."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from labkit.checks.kept_back import is_kept_back
from labkit.grading.own_folders import own_prefix

PACKAGE = Path(__file__).resolve().parents[2]
SCRATCH = "/tmp"
_EXERCISES = PACKAGE / "exercises"
HOSTNAME = "sandbox"
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("ld.so.cache", "ld.so.conf", "alternatives", "localtime", "ssl/certs", "ssl/openssl.cnf", "mime.types")
_RUNTIME = (
    "__init__.py", "errors.py", "units.py", "slugs.py", "words.py", "frames.py", "cells.py", "deadlock.py",
    "interpreter.py", "known_classes.py", "kernels.py", "hardware.py", "product_rates.py", "worlds.py",
    "virtual_world.py", "scripts.py", "doctor.py",
    "models.py", "servers", "plans/__init__.py", "plans/matrix_splits.py", "plans/sharded_step.py",
    "plans/hybrid_step.py", "plans/planned_step.py", "plans/mesh_weights.py", "plans/operator_graph.py",
    "plans/offloaded_step.py", "plans/compressed_steps.py", "plans/policies.py", "plans/staleness.py", "timeline",
    "torch_port", "failures", "simulator", "launch", "crashes",
)  # fmt: skip
_HOSTS = f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost ip6-localhost\n"
_PASSWD = "root:x:0:0:root:/tmp:/bin/sh\nstudent:x:{uid}:{uid}:student:/tmp:/bin/sh\n"


def python_folders() -> list[Path]:
    """Return the folders Python and its packages live in, none inside another, /usr left out."""
    found = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parents[1]}
    found |= {Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))}
    found |= {Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if entry}
    there = sorted(path for path in found if path.is_dir() and path != Path("/"))
    return [path for path in there if not any(is_below(path, other) for other in [*there, Path("/usr")])]


def is_below(path: Path, folder: Path) -> bool:
    """Return whether `path` lies in `folder` and is not `folder` itself."""
    return folder in path.parents


def runtime() -> tuple[Path, ...]:
    """Return what of labkit a rank of a hidden case can read: what running takes, and nothing that knows an answer."""
    return tuple(PACKAGE / name for name in _RUNTIME if (PACKAGE / name).exists())


def view(control: Path, uid: int, hidden: Iterable[Path] = (), package: Sequence[Path] | None = None) -> list[str]:
    """Return bubblewrap's arguments for the file system, all of it read-only.

    Args:
        control: A folder of ours for small files; /etc/hosts and /etc/passwd are written there.
        uid: Who the sandbox's processes are.
        hidden: Files and folders that must not be seen even where a folder above them is.
        package: Of labkit, the files and folders that are seen and no others; None for all that learners get of it.
    """
    texts = {"hosts": _HOSTS, "passwd": _PASSWD.format(uid=uid), "group": f"root:x:0:\nstudent:x:{uid}:\n"}
    texts |= {"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n", "nothing": ""}
    for name, text in texts.items():
        (control / name).write_text(text)
        (control / name).chmod(0o644)  # whatever the umask: it is another user who reads them
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        arguments += ["--symlink", str(Path(name).readlink()), name] if Path(name).is_symlink() else _bound(Path(name))
    for folder in ("/etc", "/run", "/var", "/opt", "/dev", "/proc"):
        arguments += ["--perms", "0755", "--dir", folder]
    arguments += ["--perms", "1777", "--dir", SCRATCH]
    for name in _ETC:
        arguments += _bound(Path("/etc") / name)
    for name in ("hosts", "passwd", "group", "nsswitch.conf"):
        arguments += ["--ro-bind", str(control / name), f"/etc/{name}"]
    return [*arguments, *_packages(_shown(), control, hidden, package), *([] if package else _exercises())]


def view_in_scratch(
    control: Path, hidden: Iterable[Path] = (), package: Sequence[Path] | None = None, *, seen_from: bool = False
) -> list[str]:
    """Return bubblewrap's arguments that bring back what an empty /tmp covers.

    Args:
        control: As of :func:`view`.
        hidden: As of :func:`view`.
        package: As of :func:`view`.
        seen_from: Whether bubblewrap is started from where that view is all there is.
    """
    shown = shown_in_scratch()
    exercises = [] if package or seen_from or not any(is_below(_EXERCISES, path) for path in shown) else _exercises()
    return [*_packages(shown, control, hidden, package), *exercises]


def shown_in_scratch() -> list[Path]:
    """Return folders of Python and labkit below /tmp, where somebody installed them there."""
    return [path for path in _shown() if is_below(path, Path(SCRATCH))]


def seen_folders() -> list[Path]:
    """Return the folders whose files all sandboxes of this machine share."""
    return [Path("/usr"), *(path for path in map(Path, _SYSTEM) if path.is_dir() and not path.is_symlink()), *_shown()]


def _shown() -> list[Path]:
    shown = [*python_folders(), PACKAGE]
    return [path for path in shown if not any(is_below(path, other) for other in [*shown, Path("/usr")])]


def _packages(
    shown: Sequence[Path], control: Path, hidden: Iterable[Path], package: Sequence[Path] | None
) -> list[str]:
    arguments = _parents(shown)
    for path in shown:
        arguments += ["--ro-bind", str(path), str(path)]
    if package is not None and any(path == PACKAGE or is_below(PACKAGE, path) for path in shown):
        arguments += ["--perms", "0755", "--tmpfs", str(PACKAGE)]
        between = sorted({folder for path in package for folder in path.parents if is_below(folder, PACKAGE)})
        for folder in between:
            arguments += ["--perms", "0755", "--dir", str(folder)]
        for path in package:
            arguments += ["--ro-bind", str(path), str(path)]
        arguments += ["--remount-ro", str(PACKAGE)]
    for path in sorted({path.resolve() for path in hidden}):
        if any(is_below(path, other) or path == other for other in [*shown, Path("/usr")]):
            if path.is_dir():
                arguments += ["--perms", "0755", "--tmpfs", str(path), "--remount-ro", str(path)]
            elif path.exists():
                arguments += ["--ro-bind", str(control / "nothing"), str(path)]
    return arguments


def _exercises() -> list[str]:
    """Return arguments that put learners' exercises where labkit's are, without what is kept back of them."""
    copy = _learners_exercises(os.getpid())
    return ["--ro-bind", str(copy), str(_EXERCISES)] if copy else []


@cache
def _learners_exercises(owner: int) -> Path | None:
    """Return this process's copy of labkit's exercises as learners have them; None where nothing is kept back.

    One mount of one folder; a mount over each file that is kept back would be hundreds a sandbox.
    """
    if not any(is_kept_back(path.name) for path in _EXERCISES.rglob("*.py")):
        return None
    folder = Path(tempfile.mkdtemp(prefix=own_prefix("exercises")))
    atexit.register(_remove, folder, owner)
    copy = folder / _EXERCISES.name
    shutil.copytree(_EXERCISES, copy, ignore=lambda _, names: [name for name in names if is_kept_back(name)])
    return copy


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a fork of it ends without taking it away
        shutil.rmtree(folder, ignore_errors=True)


def _bound(path: Path) -> list[str]:
    return ["--ro-bind", str(path), str(path)] if path.exists() else []


def _parents(paths: Sequence[Path]) -> list[str]:
    """Return arguments that make the folders above `paths`, open to everybody whatever they are outside."""
    kept = {Path("/"), Path(SCRATCH)}  # they have permissions of their own
    above = sorted({parent for path in paths for parent in path.parents} - kept)
    return [word for parent in above for word in ("--perms", "0755", "--dir", str(parent))]
