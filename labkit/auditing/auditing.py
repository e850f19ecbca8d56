"""audit(): a program or a function runs on virtual ranks, and what is wrong with its training is said."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.auditing.catalogue import RULES
from labkit.auditing.finding import Finding
from labkit.auditing.hooks import watched
from labkit.auditing.judging import judged
from labkit.auditing.rank_watch import Enough
from labkit.auditing.seen import Seen
from labkit.auditing.watch import Watch
from labkit.errors import ConfigError, RunTimeout
from labkit.launch.rank import set_span_recorder
from labkit.scripts import Script, script
from labkit.simulator.regions import span
from labkit.simulator.run import simulate
from labkit.virtual_world import VirtualWorld, virtual


@dataclass(frozen=True)
class Audit:
    """What an audit says.

    Attributes:
        name: What was audited.
        world_size: On how many ranks.
        num_steps: Training steps that were seen, those of the rank that made most.
        findings: What is wrong, the gravest first.
        held: The rules that were looked at and held, as far as these steps went: what comes later was not seen.
        seconds: How long the run took, of the host's time.
    """

    name: str
    world_size: int
    num_steps: int
    findings: tuple[Finding, ...]
    held: tuple[str, ...]
    seconds: float
    notes: tuple[str, ...] = field(default=())

    @property
    def is_wrong(self) -> bool:
        """Whether anything is wrong, not only suspected or slow."""
        return any(finding.severity == "wrong" for finding in self.findings)

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {
            "name": self.name, "world_size": self.world_size, "num_steps": self.num_steps,
            "findings": [finding.as_data() for finding in self.findings], "held": list(self.held),
            "notes": list(self.notes), "seconds": round(self.seconds, 3),
        }  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        Path(path).write_text(json.dumps(self.as_data(), indent=2) + "\n", encoding="utf-8")

    def __str__(self) -> str:
        lines = [f"{self.name} on {self.world_size} virtual ranks, {self.num_steps} training steps"]
        lines += [f"note: {note}" for note in self.notes]
        for number, one in enumerate(self.findings, start=1):
            told = [f"rank {one.rank}"] if one.rank >= 0 else []
            told += [f"step {one.step}"] if one.step >= 0 else []
            told += [one.tensor] if one.tensor else []
            told += [one.where] if one.source else []
            lesson = RULES[one.rule].lesson
            lines += [
                "", f"{number}. {one.severity}: {one.rule} ({', '.join(told)})",
                f"   {one.text}", f"   Do: {one.advice}", f"   Lesson {lesson}; `labkit explain {one.rule}`",
            ]  # fmt: skip
        if not self.findings:
            lines += ["", "Nothing found."]
        lines += ["", f"Looked at in these steps, and held: {', '.join(self.held)}."]
        return "\n".join(lines)

    __repr__ = __str__


def audit(
    program: Callable[..., object] | str | Path,
    *args: object,
    on: VirtualWorld | None = None,
    steps: int | None = None,
    seed: int = 0,
    timeout: float | None = None,
    echo: bool = False,
) -> Audit:
    """Return what is wrong with a training program, found by a run on virtual ranks.

    Args:
        program: A function, labkit.script(...), or a script's path.
        *args: The function's arguments, or the script's.
        on: The world; labkit.virtual(8) by default.
        steps: After how many training steps each rank ends; None lets the program end by itself.
        seed: Rank r seeds torch, numpy and random with seed + r.
        timeout: Seconds the run may take, or None.
        echo: Show what ranks print.

    Raises:
        ConfigError: If the world is not virtual.
        RunError: If the run failed.
    """
    world = virtual(8) if on is None else on
    if not isinstance(world, VirtualWorld):
        raise ConfigError(f"An audit needs virtual ranks, and {world!r} is none; use on=labkit.virtual(8).")
    fn = script(program, *args) if isinstance(program, str | Path) else program
    is_script = isinstance(fn, Script)
    name = fn.name if isinstance(fn, Script) else getattr(fn, "__name__", repr(fn))
    began = time.monotonic()
    seen = _watched(fn, () if is_script else args, world, steps, seed, timeout, echo=echo)
    seen.loads = _reads_checkpoints(fn)
    findings = judged(seen)
    broken = {finding.rule for finding in findings}
    notes = (
        () if seen.num_steps else ("no optimizer.step() was seen: nothing that hangs on training steps was looked at",)
    )
    return Audit(
        name, world.world_size, max(seen.num_steps.values(), default=0), tuple(findings),
        tuple(rule for rule in RULES if rule not in broken) if seen.num_steps else (), time.monotonic() - began, notes,
    )  # fmt: skip


def _reads_checkpoints(fn: Callable[..., object]) -> bool:
    """Return whether a program can read a checkpoint again, as far as its text says."""
    try:
        text = Path(fn.path).read_text("utf-8") if isinstance(fn, Script) else inspect.getsource(inspect.unwrap(fn))
    except (OSError, TypeError):
        return False
    return "torch.load(" in text or "checkpoint.load(" in text or "dcp.load(" in text


class _Program:
    """The program as ranks run it: it ends where the watch has seen enough, and the watch learns that it did."""

    def __init__(self, fn: Callable[..., object]) -> None:
        self._fn = fn

    def __call__(self, *args: object) -> None:
        watch = _under_way[-1]
        try:
            self._fn(*args)
        except Enough:
            pass
        watch.ended()


_under_way: list[Watch] = []


def _watched(
    fn: Callable[..., object], args: tuple[object, ...], world: VirtualWorld, steps: int | None, seed: int,
    timeout: float | None, *, echo: bool,
) -> Seen:  # fmt: skip
    is_script = isinstance(fn, Script)
    watch = Watch(world.world_size, steps)
    _under_way.append(watch)
    set_span_recorder(span)
    try:
        with watched(watch):
            simulate(
                _Program(fn), args, world.cluster, timeout=timeout, seed=seed, init=not is_script, echo=echo,
                cuda=is_script if world.cuda is None else world.cuda, observer=watch,
            )  # fmt: skip
    except RunTimeout:
        if not watch.stopped:  # else who is left waits for ranks that have seen enough
            raise
    finally:
        set_span_recorder(None)
        _under_way.pop()
    return watch.conclude()
