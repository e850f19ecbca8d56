"""crash_points(): crash a program at every moment that leaves another state behind, restart it, compare its end."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from labkit.crashes.events import Event, Events
from labkit.crashes.report import CrashPoint, CrashReport, Verdict
from labkit.errors import ConfigError, RankFailed, RunError, RunTimeout
from labkit.failures.records import KEEPS, Failure, Kill, PowerCut
from labkit.failures.settings import Disk, Restarts
from labkit.scripts import Script
from labkit.simulator.failure_plan import FailurePlan, Kept
from labkit.simulator.program_end import End
from labkit.virtual_world import VirtualWorld, virtual
from labkit.worlds import run

KINDS = ("step", "call", "file")
"""What a moment may be before: an optimizer step, a collective, message or remote call, a file operation."""
MOST_BYTES = 256 * 2**20
"""The most that a folder may hold which is copied for every crash."""


@dataclass(frozen=True)
class _Outcome:
    """How one start of the program ended: what ranks ended with, None where it did not end, and how many attempts."""

    ends: list[End] | None
    num_steps: list[int]
    error: RunError | None
    num_attempts: int


def crash_points(
    fn: Callable[..., object],
    *args: object,
    on: VirtualWorld | None = None,
    restarts: int = 2,
    kinds: Sequence[str] = KINDS,
    power_cuts: bool = True,
    limit: int = 200,
    folder: str | Path | None = None,
    timeout: float | None = 120.0,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> CrashReport:
    """Return what becomes of a program that is crashed at each moment that leaves another state behind.

    A rank is killed before each of its file operations, and all ranks lose their power there, with nothing, only the
    names, or torn files left of what was not synced; for each step and each collective one rank is killed, in turn.
    Then all ranks are started again, as torchrun would. The end is compared with that of a run without a crash, bit
    for bit: the parameters, state and settings of the optimizers that each rank made, and what the function returned.
    A save with which the program has gone on to the next step counts as made: a restart from an older one lost work.

    Args:
        fn: The function, or labkit.script(...).
        *args: Its arguments.
        on: A virtual world without failures; labkit.virtual(2) by default.
        restarts: How often ranks are started again before the verdict is that they cannot.
        kinds: Which moments: "step", "call", "file", or some of them.
        power_cuts: Whether power cuts are tried, too.
        limit: How many points are tried at most, evenly spaced among all there are.
        folder: What the program finds in its folder in each run; empty by default.
        timeout: Seconds of real time that one run may take.
        seed: Rank r seeds torch, numpy and random with seed + r.
        say: Shown a line for each point.

    Raises:
        ConfigError: If the world cannot be crashed, the program has no end to compare, or two runs without a crash
            come to different ends.
        RunError: If the program fails without a crash.
    """
    world = virtual(2) if on is None else on
    if not isinstance(world, VirtualWorld) or world.failure_plan is not None:
        raise ConfigError(
            f"on={world!r} cannot be crashed: crash_points needs a labkit.virtual(...) without failures= and restarts=."
        )
    if not kinds or set(kinds) - set(KINDS):
        raise ConfigError(f"kinds={kinds!r} are no moments of a program; use some of {', '.join(KINDS)}.")
    test = _Test(fn, args, world, restarts, _checked(folder), timeout, seed)
    with TemporaryDirectory(prefix="labkit-crash-") as base:
        test.base = Path(base)
        work = test.fresh()
        test.seen = Events(lambda: test.kept(work))
        test.whole = whole = test.start(work, 0, (), test.seen.note)
        if whole.error is not None:
            raise whole.error
        if not any(whole.ends or ()):
            raise ConfigError(
                "The program has no end to compare: it made no optimizer and returned nothing. Return what it computed."
            )
        again = test.start(test.fresh(), 0, ())
        if again.ends != whole.ends:
            raise ConfigError(
                f"Two runs without a crash come to different ends ({_differing(whole.ends, again.ends)}), so nothing "
                "can be compared: seed what is drawn, and return nothing that is measured."
            )
        events = test.seen.events
        found = [
            point for point in _points(events, world.cluster.world_size, power_cuts) if events[point[0]].kind in kinds
        ]
        chosen = found if len(found) <= limit else _evenly(found, limit)
        points = []
        for number, (place, failure) in enumerate(chosen):
            points.append(test.crash(failure, place))
            if say is not None:
                say(f"{number + 1:4} of {len(chosen)}  {points[-1]}")
    return CrashReport(tuple(points), len(found), max(whole.num_steps))


def _points(events: list[Event], world_size: int, power_cuts: bool) -> Iterator[tuple[int, Failure]]:
    """Yield each crash and the place of its event: each file operation, step and call; of the last two one rank's."""
    counts: dict[tuple[int, str], int] = {}
    for place, event in enumerate(events):
        number = counts[event.rank, event.kind] = counts.get((event.rank, event.kind), 0) + 1
        if event.kind == "file":
            yield place, Kill(event.rank, file=number)
            if power_cuts:
                for keeps in KEEPS:
                    yield place, PowerCut(rank=event.rank, file=number, keeps=keeps)
        elif event.rank == (number - 1) % world_size:
            yield place, Kill(event.rank, step=number) if event.kind == "step" else Kill(event.rank, call=number)


def _evenly(found: list[tuple[int, Failure]], limit: int) -> list[tuple[int, Failure]]:
    """Return so many of the crashes, evenly spaced, and at each event the next of the ways to crash there."""
    at: dict[int, list[tuple[int, Failure]]] = {}
    for point in found:
        at.setdefault(point[0], []).append(point)
    ways = [at[found[len(found) * number // limit][0]] for number in range(limit)]
    return [way[number % len(way)] for number, way in enumerate(ways)]


@dataclass
class _Test:
    """What all crashes of a test have in common; restarts that begin from the same files come to the same."""

    fn: Callable[..., object]
    args: tuple[object, ...]
    world: VirtualWorld
    restarts: int
    folder: Path | None
    timeout: float | None
    seed: int
    base: Path = field(init=False)
    seen: Events = field(init=False)
    whole: _Outcome = field(init=False)
    """The run without a crash, and what was seen of it."""

    def __post_init__(self) -> None:
        self._known: dict[str, _Outcome] = {}

    def fresh(self, folder: Path | None = None) -> Path:
        """Return the program's folder with what is in another, by default what it finds when it is first started."""
        work, folder = self.base / "work", folder or self.folder
        if work.exists():
            shutil.rmtree(work)
        if folder is None:
            work.mkdir()
        else:
            shutil.copytree(folder, work, symlinks=True)
        return work

    def kept(self, work: Path) -> str:
        """Return the digest of what is in the folder, of which a copy is kept."""
        left = _digest_of(work)
        if not (self.base / left).exists():
            shutil.copytree(work, self.base / left, symlinks=True)
        return left

    def start(self, work: Path, number: int, failures: tuple[Failure, ...], watch: Any = None) -> _Outcome:
        """Return what a start of the program comes to.

        Args:
            work: Its folder.
            number: How often it was started before.
            failures: What is injected into it.
            watch: Told of each event.
        """
        most = self.restarts + number - 1 if number else 0
        told: list[Kept] = []
        error: RunError | None = None
        failure_plan = FailurePlan(failures, Restarts(most), Disk(work), watch, first=number, told=told.append)
        world = replace(self.world, failure_plan=failure_plan)
        try:
            run(self._program(work), *self.args, on=world, timeout=self.timeout, seed=self.seed, echo=False)
        except (RankFailed, RunTimeout) as raised:
            error = raised.with_traceback(None)
        (kept,) = told
        size = self.world.world_size
        ends = [kept.ends[rank] for rank in range(size)] if error is None else None
        return _Outcome(ends, list(kept.num_steps), error, len(kept.attempts))

    def crash(self, failure: Failure, place: int) -> CrashPoint:
        """Return what becomes of the program that is crashed so, before the event of this place."""
        at, whole = str(self.seen.events[place]), self.whole
        work = self.fresh()
        first = self.start(work, 0, (failure,))
        after = self._restarted(_digest_of(work), lambda: work)
        if after.error is not None:
            stuck = isinstance(after.error, RunTimeout)
            verdict: Verdict = "stuck" if stuck else "cannot_start"
            return CrashPoint(failure, at, place, verdict, why=_first_line(after.error))
        total = [before + later for before, later in zip(first.num_steps, after.num_steps, strict=True)]
        lost = max(0, max(total) - max(whole.num_steps))
        if differs := _differing(whole.ends, after.ends):
            return CrashPoint(failure, at, place, "wrong", lost, differs)
        found = self._found(after)
        if (relied := self._relied_on(place, found)) > found:
            newest = f"one after step {found}" if found else "none"
            why = f"the run had gone on from a save after step {relied}, and the restart found {newest}"
            return CrashPoint(failure, at, place, "lost_work", lost, why)
        return CrashPoint(failure, at, place, "survived", lost)

    def _restarted(self, left: str, work: Callable[[], Path]) -> _Outcome:
        """Return what the program comes to that is started again on these files."""
        if left not in self._known:
            self._known[left] = self.start(work(), 1, ())
        return self._known[left]

    def _found(self, after: _Outcome) -> int:
        """Return how many steps a restart did not have to do."""
        return max(0, max(self.whole.num_steps) - max(after.num_steps))

    def _relied_on(self, place: int, found: int) -> int:
        """Return how many steps were saved when all ranks last began one, as a restart on those files tells.

        Args:
            place: Of an event after it.
            found: So many are known to be; where no more can be, nothing is started.
        """
        begun = self.seen.all_began(place)
        if begun is None or begun.step - 1 <= found:
            return 0
        after = self._restarted(begun.files, lambda: self.fresh(self.base / begun.files))
        return self._found(after) if after.error is None and after.num_attempts == 1 else 0

    def _program(self, work: Path) -> Callable[..., object]:
        """Return the program, a script in the folder as the copy of it there."""
        if isinstance(self.fn, Script) and self.folder is not None:
            path = Path(self.fn.path)
            if path.is_relative_to(self.folder):
                return replace(self.fn, path=str(work / path.relative_to(self.folder)))
        return self.fn


def _checked(folder: str | Path | None) -> Path | None:
    if folder is None:
        return None
    path = Path(folder).resolve()
    if not path.is_dir():
        raise ConfigError(f"folder={str(folder)!r} is not there; name the folder that the program begins in.")
    size = 0
    for name in path.rglob("*"):
        size += name.stat().st_size if name.is_file() and not name.is_symlink() else 0
        if size > MOST_BYTES:
            raise ConfigError(
                f"{path} holds more than {MOST_BYTES // 2**20} MiB, and is copied for every crash; name a smaller "
                "folder with what the program reads."
            )
    return path


def _digest_of(work: Path) -> str:
    hashed = hashlib.sha256()
    for folder, folders, files in os.walk(work):
        folders.sort()
        hashed.update(os.path.relpath(folder, work).encode() + b"\0")
        for name in sorted(files):
            path = Path(folder, name)
            data = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
            hashed.update(name.encode() + b"\0" + hashlib.sha256(data).digest())
    return hashed.hexdigest()


def _differing(whole: list[End] | None, after: list[End] | None) -> str:
    """Return what differs between two ends, in words, "" for nothing."""
    found = []
    for rank, (wanted, got) in enumerate(zip(whole or (), after or (), strict=True)):
        names = [name for name in (wanted | got) if wanted.get(name) != got.get(name)]
        if names:
            found.append(f"rank {rank}: {', '.join(names)}")
    more = f" and {len(found) - 2} ranks more" if len(found) > 2 else ""
    return "; ".join(found[:2]) + more


def _first_line(error: RunError) -> str:
    return str(error).partition("\n")[0]
