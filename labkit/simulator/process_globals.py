"""What a process has of its own and threads share: environment, random numbers, clocks, output, threads.

While a run goes on, each of these asks which rank's thread calls; other threads see the real thing. What was here
before is put back at the end.
"""

from __future__ import annotations

import multiprocessing.process
import os
import random
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import numpy as np
import torch

from labkit.simulator import own_dates, own_logging, own_process, own_signals, replaced
from labkit.simulator.own_clocks import clock_functions
from labkit.simulator.own_environ_and_folders import OwnEnviron, OwnFolders
from labkit.simulator.own_modules import OwnModules
from labkit.simulator.own_tables import OwnTables
from labkit.simulator.rank_output import Output
from labkit.simulator.state import current_rank

_RANDOM_FUNCTIONS = (
    "betavariate", "binomialvariate", "choice", "choices", "expovariate", "gammavariate", "gauss", "getrandbits",
    "getstate", "lognormvariate", "normalvariate", "paretovariate", "randbytes", "randint", "random", "randrange",
    "sample", "seed", "setstate", "shuffle", "triangular", "uniform", "vonmisesvariate", "weibullvariate",
)  # fmt: skip


class ProcessGlobals:
    """What one rank has as if its process were its own."""

    def __init__(self, environ: dict[Any, Any], seed: int, show: Callable[[str], None] | None, rank: int) -> None:
        """Start as a process of this rank would.

        Args:
            environ: Its environment, in the encoding that os.environ keeps inside.
            seed: Seeds torch, numpy and random.
            show: Called with each tagged line it prints, or None.
            rank: Its number.
        """
        self.environ, self.rank = environ, rank
        self.random = random.Random(seed)
        self.numpy = np.random.RandomState(seed % 2**32)
        generator = torch.Generator()
        generator.manual_seed(seed)
        self.torch = generator.get_state()
        self.output = Output(rank, show)


class _Environ(MutableMapping[Any, Any]):
    """The table inside os.environ: a rank's own, or the real one."""

    def __init__(
        self, real: dict[Any, Any], of: Callable[[], ProcessGlobals | None], differs: Callable[[Any], None]
    ) -> None:
        self._real, self._of, self._differs = real, of, differs

    def _table(self) -> dict[Any, Any]:
        mine = self._of()
        return self._real if mine is None else mine.environ

    def __getitem__(self, key: Any) -> Any:
        return self._table()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._table()[key] = value
        self._differs(key)

    def __delitem__(self, key: Any) -> None:
        del self._table()[key]
        self._differs(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._table())

    def __len__(self) -> int:
        return len(self._table())

    def copy(self) -> dict[Any, Any]:
        """Return a plain dict of it."""
        return dict(self._table())

    def __deepcopy__(self, memo: object) -> dict[Any, Any]:
        """Return what a copy of os.environ keeps: the names as they are now, of whoever copies."""
        return self.copy()


class _Stream:
    """sys.stdout or sys.stderr: a rank's output, or the real stream."""

    def __init__(self, real: Any, of: Callable[[], ProcessGlobals | None]) -> None:
        self._real, self._of = real, of

    def __getattr__(self, name: str) -> Any:
        mine = self._of()
        return getattr(self._real if mine is None else mine.output, name)

    def __iter__(self) -> Any:
        return iter(self._real)


_real_generator = torch.default_generator


class _Generator:
    """torch.default_generator: a rank finds its own state in it. Operators are told of the real one by themselves."""

    def __init__(self, switch: GlobalsSwitch) -> None:
        self._switch = switch

    def __getattr__(self, name: str) -> Any:
        rank = current_rank()
        if rank is not None:
            self._switch.draws(rank.rank)
        return getattr(_real_generator, name)


class GlobalsSwitch:
    """Switches what all threads share from rank to rank.

    Attributes:
        of_rank: One per rank.
    """

    def __init__(self) -> None:
        self.of_rank: list[ProcessGlobals] = []
        self.environ = OwnEnviron()
        self.real_environ: dict[Any, Any] = {}
        self._drew = -1  # whose state torch's generator holds
        self._there = -1  # whose everything else is in place
        self._switches: list[Callable[[int, int], None]] = []

    def mine(self) -> ProcessGlobals | None:
        """Return the globals of the rank whose thread calls, None outside."""
        rank = current_rank()
        return self.of_rank[rank.rank] if rank is not None and self.of_rank else None

    def resumed(self, _: int, rank: int) -> None:
        """Put what the rank that ran before has away and bring what this one has; called at each switch."""
        before, self._there = self._there, rank
        for switch in self._switches:
            switch(before, rank)

    @contextmanager
    def standing_in(self, rank: int) -> Iterator[None]:
        """Have in place what this rank has, for what another's thread does for it."""
        before = self._there
        if before != rank:
            self.resumed(before, rank)
        try:
            yield
        finally:
            if before != rank:
                self.resumed(rank, before)

    def draws(self, rank: int) -> None:
        """Bring this rank's state into torch's generator; called before the rank uses it, not at each switch."""
        if rank == self._drew:
            return
        if self._drew >= 0:
            self.of_rank[self._drew].torch = _real_generator.get_state()
        self._drew = rank
        _real_generator.set_state(self.of_rank[rank].torch)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Make the process serve ranks, and leave it as it was."""
        with ExitStack() as stack:
            stack.enter_context(_kept_random_state())
            stack.enter_context(_kept_environ(self))
            for name in ("stdout", "stderr"):
                stack.enter_context(_replaced(sys, name, _Stream(getattr(sys, name), self.mine)))
            for name in _RANDOM_FUNCTIONS:
                if hasattr(random, name):
                    stack.enter_context(_replaced(random, name, self._drawn(getattr(random, name), "random", name)))
            for module in (torch, torch.random):
                stack.enter_context(_replaced(module, "default_generator", _Generator(self)))
            for name, method in _numpy_functions():
                stack.enter_context(_replaced(np.random, name, self._drawn(getattr(np.random, name), "numpy", method)))
            clocks = clock_functions()
            real_clocks = {getattr(module, name): function for module, name, function in clocks}
            stack.enter_context(own_dates.installed(real_clocks))
            for module, name, function in clocks:
                stack.enter_context(_replaced(module, name, function))
            for owner, name, function in own_process.functions():
                stack.enter_context(_replaced(owner, name, function))
            stack.enter_context(
                _replaced(
                    multiprocessing.process.BaseProcess,
                    "start",
                    _refusing(multiprocessing.process.BaseProcess.start),
                )
            )
            yield

    @contextmanager
    def switching(self, modules: OwnModules, tables: OwnTables, notes: dict[str, int]) -> Iterator[None]:
        """Change what stands in shared places with the rank, and bring back what was there before ranks ran.

        To be entered last: what is there then is what ranks begin with.

        Args:
            modules: What each rank imports of its own.
            tables: What each rank changes for itself.
            notes: Takes a sentence for each function of an installed module that the program replaced.
        """
        folders = OwnFolders(len(self.of_rank))
        tables.look()
        self.environ.begin([one.environ for one in self.of_rank], self.real_environ)
        self._switches = [modules.switch, tables.switch, folders.switch, self.environ.switch]
        with ExitStack() as stack:
            for context in (modules, folders, own_logging, own_signals):
                stack.enter_context(context.installed())
            stack.enter_context(replaced.put_back(modules.shared, notes))
            stack.enter_context(_replaced(os, "getpid", own_process.telling_pid(notes)))
            try:
                yield
            finally:
                self.resumed(self._there, -1)
                self._switches = []
                tables.end()

    def _drawn(self, real: Callable[..., Any], generator: str, name: str) -> Callable[..., Any]:
        def draw(*args: Any, **kwargs: Any) -> Any:
            mine = self.mine()
            if mine is None:
                return real(*args, **kwargs)
            out = getattr(getattr(mine, generator), name)(*args, **kwargs)
            rank = current_rank()
            if rank is not None and rank.simulation.observer is not None:
                rank.simulation.observer.drew(rank, name, out)
            return out

        draw.__name__ = name
        return draw


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _kept_random_state() -> Iterator[None]:
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _numpy_functions() -> Iterator[tuple[str, str]]:
    """Yield the functions of numpy.random that draw from its one hidden generator, and the method behind each."""
    hidden = getattr(np.random.rand, "__self__", None)
    for name in np.random.__all__:
        if getattr(getattr(np.random, name), "__self__", None) is hidden:
            yield name, name
    yield from (("seed", "seed"), ("ranf", "random_sample"), ("sample", "random_sample"))


@contextmanager
def _kept_environ(switch: GlobalsSwitch) -> Iterator[None]:
    inside: Any = os.environ
    real = switch.real_environ = inside._data
    inside._data = _Environ(real, switch.mine, switch.environ.differs)
    try:
        yield
    finally:
        inside._data = real
        # A rank's assignment also reached the C library's table, which has no ranks.
        for key in {key for one in switch.of_rank for key in one.environ} - set(real):
            os.unsetenv(key)
        for key, value in real.items():
            os.putenv(key, value)


def rank_environ(changes: dict[str, str]) -> dict[Any, Any]:
    """Return this process's environment with these changes, as os.environ keeps it inside."""
    inside: Any = os.environ
    changed = {inside.encodekey(name): inside.encodevalue(value) for name, value in changes.items()}
    return dict(inside._data) | changed


_STARTERS = (
    (
        f"utils{os.sep}data{os.sep}dataloader.py",
        "DataLoader started a worker process",
        "Load the data in the rank itself (DataLoader: num_workers=0)",
    ),
    (
        f"multiprocessing{os.sep}spawn.py",
        "mp.spawn started processes, which are ranks of its own",
        "Give labkit.run the function that it starts, one call for each rank (labkit.virtual is the launcher)",
    ),
    (
        f"concurrent{os.sep}futures{os.sep}process.py",
        "ProcessPoolExecutor started a process",
        "Do the work in the rank itself, or in a ThreadPoolExecutor",
    ),
)
"""The end of the file that starts processes -> what a program called to come there, and what to do in its place."""


def _refusing(real: Callable[..., Any]) -> Callable[..., Any]:
    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        if current_rank() is not None:
            what, instead = _started_by(sys._getframe(1))
            raise RuntimeError(
                f"{what}. A virtual rank cannot start a process: its time would not be virtual. {instead}, or run on "
                "labkit.local()."
            )
        return real(self, *args, **kwargs)

    return start


def _started_by(frame: FrameType | None) -> tuple[str, str]:
    """Return what a program called that starts a process, and what it can do in its place."""
    while frame is not None:
        for file, what, instead in _STARTERS:
            if frame.f_code.co_filename.endswith(file):
                return what, instead
        frame = frame.f_back
    return "multiprocessing started a process", "Do the work in the rank itself"
