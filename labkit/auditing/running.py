"""Runs that an audit watches: the program itself, and the same again on one process or with other roundings."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from labkit.auditing.against import Parting, parting
from labkit.auditing.finding import Change, Finding
from labkit.auditing.hooks import watched
from labkit.auditing.lateness import Late, Pauses, late
from labkit.auditing.numbers_apart import number_apart
from labkit.auditing.probes import STEPS, Probes
from labkit.auditing.rank_watch import Enough
from labkit.auditing.resuming import Resumed, resumed_apart
from labkit.auditing.roles import averages_parameters
from labkit.auditing.seen import Seen
from labkit.auditing.watch import Watch
from labkit.auditing.what_if import Changed, with_saving
from labkit.errors import LabkitError, RunTimeout
from labkit.launch.rank import set_span_recorder
from labkit.scripts import Script
from labkit.simulator.failure_plan import FailurePlan
from labkit.simulator.regions import span
from labkit.simulator.run import simulate
from labkit.torch_port.rounding import InFloat64, OtherOrder
from labkit.virtual_world import VirtualWorld, virtual

Mode = Callable[[], AbstractContextManager[object]]


class _Program:
    """The program as ranks run it: it ends where the watch has seen enough, and the watch learns that it did."""

    def __init__(self, fn: Callable[..., object]) -> None:
        self._fn = fn

    def __call__(self, *args: object) -> None:
        watch, mode = _under_way[-1]
        try:
            with mode():
                self._fn(*args)
        except Enough:
            pass
        watch.ended()


_under_way: list[tuple[Watch, Mode]] = []


def run_watched(
    fn: Callable[..., object], args: tuple[object, ...], world: VirtualWorld, steps: int | None, seed: int,
    timeout: float | None, *, echo: bool, probes: Probes | None = None, mode: Mode = nullcontext,
    pauses: Pauses = (), change: Change | None = None,
) -> Seen:  # fmt: skip
    """Return what was seen of a run, in which ranks are paused or one thing is changed."""
    is_script = isinstance(fn, Script)
    watch = Watch(world.world_size, steps)
    watch.probes = probes
    watch.what_if = None if change is None else Changed(change)
    _under_way.append((watch, mode))
    set_span_recorder(span)
    try:
        with watched(watch):
            outcome = simulate(
                _Program(fn), args, world.cluster, timeout=timeout, seed=seed, init=not is_script, echo=echo,
                cuda=is_script if world.cuda is None else world.cuda, observer=watch,
                failure_plan=FailurePlan(pauses) if pauses else None,
            )  # fmt: skip
        watch.seen.timeline = outcome.timeline
    except RunTimeout:
        if not watch.stopped:  # else who is left waits for ranks that have seen enough
            raise
    finally:
        set_span_recorder(None)
        _under_way.pop()
    seen = watch.conclude()
    seen.nodes = {rank: world.cluster.node(rank) for rank in range(world.world_size)}
    return seen


@contextlib.contextmanager
def beside(entries: list[Path]) -> Iterator[Path]:
    """Let the body run in a folder in which these files and folders are found, and what it writes is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        for entry in entries:
            (Path(folder) / entry.name).symlink_to(entry)
        with contextlib.chdir(folder):
            yield Path(folder)


def here() -> list[Path]:
    """Return what is in the folder, links and all."""
    return [Path(one.path).absolute() for one in os.scandir()]


def resumed(
    whole: Probes, seen: Seen, fn: Callable[..., object], short: Callable[..., object], args: tuple[object, ...],
    world: VirtualWorld, stops: int | None, seed: int, timeout: float | None, entries: list[Path],
) -> Resumed | str:  # fmt: skip
    """Return where a run that is stopped and resumed parts from the whole, "" for nowhere, else why nobody can say.

    Args:
        whole: The values of the run that was not stopped.
        seen: What was seen of it.
        fn: The program.
        short: The program that ends early, by itself or after `stops` steps.
        args: What both are given.
        world: The world.
        stops: After how many steps each rank ends; None where the program ends early by itself.
        seed: The run's seed.
        timeout: Seconds each run may take.
        entries: What was in the folder before the first run.
    """
    probes = Probes(steps=whole.steps)
    try:
        with beside(entries):
            first = run_watched(short, args, world, stops, seed, timeout, echo=False)
            after = min(first.num_steps.values(), default=0)
            if not 0 < after < min(seen.num_steps.values(), default=0):
                return f"the run that was to be stopped took {after} steps"
            rest = run_watched(fn, args, world, None, seed, timeout, echo=False, probes=probes)
    except LabkitError as error:
        return f"it fails: {str(error).splitlines()[0]}"
    return resumed_apart(whole, probes, rest, after)


def parted(
    run: Probes, seen: Seen, fn: Callable[..., object], args: tuple[object, ...], steps: int | None, seed: int,
    timeout: float | None, entries: list[Path],
) -> Parting | str:  # fmt: skip
    """Return where a run parts from the same program on one process, "" for nowhere, else why nobody can say."""
    if any(fit is None for step in seen.steps for fits in step.fits.values() for fit in fits.values()):
        return "its gradients are no multiple of what the ranks computed, as where they are compressed"
    if averages_parameters(seen, tuple(range(seen.world_size))):
        return "it averages parameters in place of gradients"
    if any(draw.loading or (draw.step and not draw.whole) for draw in seen.draws):
        return "it draws random numbers for its samples or in its steps, which are others on one process"
    found = []
    for mode in (nullcontext, InFloat64, OtherOrder):
        probes = Probes()
        try:
            with beside(entries):
                run_watched(fn, args, virtual(1), STEPS, seed, timeout, echo=False, probes=probes, mode=mode)
        except LabkitError as error:
            return f"on one process it fails: {str(error).splitlines()[0]}"
        found.append(probes)
    parts = parting(run, found[0], found[1:])
    if parts or not any(one.shared for one in seen.decisions):
        return parts
    try:
        with beside(entries):
            whole = run_watched(fn, args, virtual(1), steps, seed, timeout, echo=False)
    except LabkitError:
        return ""  # what it trains agrees
    return number_apart(seen, whole) or ""


def paused(
    base: Probes, seen: Seen, fn: Callable[..., object], args: tuple[object, ...], world: VirtualWorld,
    steps: int | None, every: list[Pauses], seed: int, timeout: float | None, entries: list[Path], *, reads_clock: bool,
) -> Late | str:  # fmt: skip
    """Return the fewest delays with which a run ends otherwise, "" where it ends the same, else why nobody can say."""

    def rerun(pauses: Pauses) -> Probes:
        probes = Probes(steps=base.steps, keeps_sent=True)
        with beside(entries):
            run_watched(fn, args, world, steps, seed, timeout, echo=False, probes=probes, pauses=pauses)
        return probes

    return late(base, rerun, seen, every, reads_clock=reads_clock)


def saving(
    finding: Finding, seen: Seen, fn: Callable[..., object], args: tuple[object, ...], world: VirtualWorld,
    steps: int | None, seed: int, timeout: float | None, entries: list[Path],
) -> Finding:  # fmt: skip
    """Return a finding that says what it would save, by a run with its one thing changed."""
    try:
        with beside(entries):
            again = run_watched(fn, args, world, steps, seed, timeout, echo=False, change=finding.change)
    except LabkitError:
        return finding  # what it changes is needed
    return with_saving(finding, seen.timeline.makespan_ns, again.timeline.makespan_ns)
