"""run() and the worlds it takes a function to."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from labkit.errors import ConfigError, RunError
from labkit.failures.records import Failure
from labkit.launch.devices import DEVICES, place
from labkit.launch.gpu_turns import gpu_turn
from labkit.launch.gpus import Gpus, gpus
from labkit.launch.local import Order, default_start_method, launch_local
from labkit.launch.local_failures import WithFailures, check_local
from labkit.launch.shown_error import show_report_alone
from labkit.launch.watchdog import STALL_SECONDS
from labkit.scripts import Script
from labkit.timeline.drawing import draw
from labkit.units import format_time

if TYPE_CHECKING:
    from labkit.timeline import Timeline

START_METHODS = ("auto", "zygote", "spawn")
_MOST_RANKS = 512

Result = TypeVar("Result")


class World(Protocol):
    """Where a function runs on several ranks."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""

    def launch(self, order: Order) -> Run[Any]:
        """Return what came of running the order on every rank of this world."""


@dataclass(frozen=True)
class LocalWorld:
    """Real processes on this host; made by local().

    Attributes:
        world_size: Number of ranks.
        device: "auto", "cpu" or "cuda".
        threads_per_rank: CPU threads of each rank, or None for an equal share of the cores.
        start_method: "auto", "zygote" or "spawn".
        failures: What breaks.
    """

    world_size: int
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads_per_rank: int | None = None
    start_method: Literal["auto", "zygote", "spawn"] = "auto"
    failures: tuple[Failure, ...] = ()
    can_be_watched: ClassVar[bool] = True

    def launch(self, order: Order) -> Run[Any]:
        """Return what came of the order on fresh processes of this host (see run())."""
        if self.failures:
            order = replace(order, function=WithFailures(order.function, self.failures))
        here = Gpus() if self.device == "cpu" else gpus()
        placement = place(self.world_size, self.device, here)
        threads = self.threads_per_rank or max(1, _num_cores() // self.world_size)
        start_method = chosen_start_method(self.start_method)
        if not here.usable:
            outcome = launch_local(order, placement, threads, start_method)
        else:
            wanted = min(self.world_size, len(here.usable))
            with gpu_turn(here.names, wanted, print if order.echo else None) as held:
                outcome = launch_local(order, placement, threads, start_method, held)
        return Run(
            outcome.results, outcome.timeline, list(outcome.output), self, placement.label, round(outcome.seconds * 1e9)
        )


@dataclass(frozen=True)
class Run(Generic[Result]):
    """The outcome of a run of a function that returns a `Result`.

    Attributes:
        results: What the function returned, one value per rank.
        timeline: What every rank did and when; None where nothing could be recorded.
        output: What each rank printed.
        world: The world it ran on.
        backend: Backend and kind of device, such as "gloo/cpu".
        elapsed_ns: Time from the call of run() to its return.
    """

    results: list[Result]
    timeline: Timeline | None = field(repr=False)
    output: list[str] = field(repr=False)
    world: World = field(repr=False)
    backend: str = field(repr=False)
    elapsed_ns: int = field(repr=False)

    def __repr__(self) -> str:
        ranks = "1 rank" if len(self.results) == 1 else f"{len(self.results)} ranks"
        span_ns = self.timeline.makespan_ns if self.timeline is not None and len(self.timeline) else self.elapsed_ns
        return f"Run({ranks} on {self.backend}, {format_time(span_ns)})"


def local(
    world_size: int,
    *,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads_per_rank: int | None = None,
    start_method: Literal["auto", "zygote", "spawn"] = "auto",
    failures: Sequence[Failure] = (),
) -> LocalWorld:
    """Return a world of real processes on this host.

    Backend and devices follow from the host: NCCL where every rank has a GPU of its own; gloo with CUDA tensors where
    ranks must share GPUs (collectives only, send and recv then need CPU tensors); gloo on the CPU otherwise. Runs of
    several people or notebooks on one Linux host take turns for its GPUs, and say so while they wait.

    Args:
        world_size: Number of ranks, 1 to 512.
        device: "auto" takes GPUs where there are any, "cpu" never, "cuda" insists.
        threads_per_rank: CPU threads of each rank; None shares the cores equally.
        start_method: "zygote" forks ranks from a preloaded process (Linux), "spawn" starts each as a fresh Python
            (works everywhere, costs an import of torch per rank); "auto" takes the first where it can. The environment
            variable LABKIT_START_METHOD overrides "auto".
        failures: What breaks, really: Kill (SIGKILL), Hang (SIGSTOP) and Slow of labkit.failures, at_s= or step=.

    Raises:
        ConfigError: If a number or a word is not one of these.
    """
    if isinstance(world_size, bool) or not isinstance(world_size, int):
        raise ConfigError(f"world_size={world_size!r} is not a whole number of ranks; use 1 to {_MOST_RANKS}.")
    if not 1 <= world_size <= _MOST_RANKS:
        raise ConfigError(f"{world_size} ranks were asked for; a local world has 1 to {_MOST_RANKS}.")
    if device not in DEVICES:
        raise ConfigError(f"device={device!r} is not known; use one of {', '.join(map(repr, DEVICES))}.")
    if start_method not in START_METHODS:
        raise ConfigError(
            f"start_method={start_method!r} is not known; use one of {', '.join(map(repr, START_METHODS))}."
        )
    if threads_per_rank is not None and threads_per_rank < 1:
        raise ConfigError(f"threads_per_rank={threads_per_rank} leaves no thread to compute; use 1 or more, or None.")
    check_local(tuple(failures), world_size)
    return LocalWorld(world_size, device, threads_per_rank, start_method, tuple(failures))


def run(
    fn: Callable[..., Result],
    *args: object,
    on: World | None = None,
    timeout: float | None = 120.0,
    stall: float | None = STALL_SECONDS,
    seed: int = 0,
    init: bool | None = None,
    echo: bool = True,
    watch: bool = False,
) -> Run[Result]:
    """Return what ``fn(*args)`` gives on every rank of a world, what they printed, and the timeline of what they did.

    Every run has fresh processes, so nothing is left over from the last one. Function, arguments and results travel by
    value; for keyword arguments use functools.partial. Tensors come back on the CPU.

    Args:
        fn: A function, also one from a notebook cell, a closure, or any callable; or a program, labkit.script(...).
        *args: Its arguments, the same on every rank.
        on: The world; local(2) by default.
        timeout: Seconds the run may take, or None for no limit.
        stall: A run counts as deadlocked, before its time is up, when for this many seconds every rank that has not
            finished waits in the same communication call and uses no CPU; None never looks.
        seed: Rank r seeds torch, numpy and random with seed + r.
        init: Make the default process group before fn and destroy it after; False leaves both to fn. None is True
            for a function and False for a script.
        echo: Show what ranks print while they run, tagged with the rank.
        watch: Show the timeline while it grows, in a live JupyterLab; elsewhere and in virtual time it does nothing.

    Raises:
        ConfigError: If fn cannot be called, or something cannot travel by value.
        RankFailed: If a rank raised, exited or was killed. All others have been ended.
        RunTimeout: If the time limit passed or the ranks wait for each other. All have been ended.
        EnvironmentProblem: If processes cannot be started.
    """
    if not callable(fn):
        raise ConfigError(
            f"run() needs a function to call on every rank, and got {fn!r}; pass the function itself, without ()."
        )
    if isinstance(on, int):
        raise ConfigError(f"on={on} is not a world; write on=labkit.local({on}).")
    for name, value in (("timeout", timeout), ("stall", stall)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise ConfigError(f"{name}={value} is not a time limit; use seconds above 0, or None for no limit.")
    if isinstance(fn, Script):
        if init:
            raise ConfigError(f"{fn.name} is a script, which initialises its own process group; leave init=True out.")
        if args:
            raise ConfigError(f"A script's arguments belong to it: write labkit.script({fn.name!r}, ...).")
    world = on if on is not None else local(2)
    shown = draw("growing") if watch and getattr(world, "can_be_watched", False) and draw("is_live") else None
    init = not isinstance(fn, Script) if init is None else init
    order = Order(fn, args, timeout, stall, seed, init, echo, shown.add if shown is not None else None)
    try:
        done = world.launch(order)
    except RunError as error:
        if shown is not None:
            shown.finish(error.timeline)
        show_report_alone(error)
        raise error.with_traceback(None) from None
    except BaseException:
        if shown is not None:
            shown.finish(None)
        raise
    if shown is not None:
        shown.finish(done.timeline)
    return done


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chosen_start_method(asked: str) -> str:
    """Return "zygote" or "spawn" for what was asked for, "auto" included.

    Raises:
        ConfigError: If the environment names none, or this system cannot fork ranks.
    """
    if asked == "auto":
        asked = os.environ.get("LABKIT_START_METHOD", "auto")
        if asked not in START_METHODS:
            raise ConfigError(
                f"LABKIT_START_METHOD={asked!r} is not known; use one of {', '.join(map(repr, START_METHODS))}."
            )
    if asked == "zygote" and default_start_method() != "zygote":
        raise ConfigError('start_method="zygote" needs Linux; use "auto" or "spawn" here.')
    return default_start_method() if asked == "auto" else asked


def _warm_in_notebook() -> None:
    """Start preloading at import inside a notebook kernel, so that the first run does not wait for it."""
    if "ipykernel" in sys.modules and chosen_start_method("auto") == "zygote":
        from IPython import get_ipython

        if get_ipython() is not None:
            from labkit.launch.preloaded import warm

            warm()


_warm_in_notebook()
