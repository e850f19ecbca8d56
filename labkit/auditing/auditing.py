"""audit(): a program or a function runs on virtual ranks, and what is wrong with its training is said."""

from __future__ import annotations

import inspect
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.auditing.catalogue import RULES
from labkit.auditing.finding import Finding
from labkit.auditing.judging import judged
from labkit.auditing.lateness import schedules
from labkit.auditing.looked import not_looked_at
from labkit.auditing.origins import reads_clock
from labkit.auditing.probes import STEPS, Probes
from labkit.auditing.resuming import Resumed
from labkit.auditing.running import here, parted, paused, resumed, run_watched, saving
from labkit.auditing.seen import Seen
from labkit.errors import ConfigError
from labkit.scripts import Script, script
from labkit.virtual_world import VirtualWorld, virtual

_MOST_STEPS = 16
"""So many steps of a run that is resumed are compared."""


@dataclass(frozen=True)
class Audit:
    """What an audit says.

    Attributes:
        name: What was audited.
        world_size: On how many ranks.
        num_steps: Training steps that were seen, those of the rank that made most.
        findings: What is wrong, the gravest first.
        held: The rules that were looked at and held, as far as these steps went: what comes later was not seen.
        not_looked_at: Rule -> why these steps gave no occasion to look.
        seconds: How long the run took, of the host's time.
    """

    name: str
    world_size: int
    num_steps: int
    findings: tuple[Finding, ...]
    held: tuple[str, ...]
    seconds: float
    notes: tuple[str, ...] = field(default=())
    not_looked_at: dict[str, str] = field(default_factory=dict)

    @property
    def is_wrong(self) -> bool:
        """Whether anything is wrong, not only suspected or slow."""
        return any(finding.severity == "wrong" for finding in self.findings)

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {
            "name": self.name, "world_size": self.world_size, "num_steps": self.num_steps,
            "findings": [finding.as_data() for finding in self.findings], "held": list(self.held),
            "not_looked_at": self.not_looked_at,
            "notes": list(self.notes), "seconds": round(self.seconds, 3),
        }  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        Path(path).write_text(json.dumps(self.as_data(), indent=2) + "\n", encoding="utf-8")

    def __str__(self) -> str:
        lines = [f"{self.name} on {self.world_size} virtual ranks, {self.num_steps} training steps"]
        lines += [f"note: {note}" for note in self.notes]
        for number, one in enumerate(self.findings, start=1):
            lines += ["", f"{number}. {one}", f"   Lesson {RULES[one.rule].lesson}; `labkit explain {one.rule}`"]
        if not self.findings:
            lines += ["", "Nothing found."]
        if self.held:
            lines += ["", f"Looked at in these steps, and held: {', '.join(self.held)}."]
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.not_looked_at.items():
            by_reason.setdefault(reason, []).append(name)
        if by_reason:
            lines += ["", "Not looked at:"]
            lines += [f"   {', '.join(names)} ({reason})" for reason, names in by_reason.items()]
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
    against: int | None = None,
    reference: Callable[..., object] | None = None,
    resume: Sequence[object] | bool = False,
    late: bool = False,
    what_if: bool = False,
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
        against: 1 for three more runs, on one process: values are compared with the first, and the other two, with
            other roundings, say how far rounding explains a difference. A fourth compares what is read in the end.
        reference: What is run on one process in place of the program: a function that takes the same arguments.
        resume: For two more runs, one that is stopped and one that goes on from its checkpoint: True where the program
            saves one while it trains, else the script's arguments with which it ends early, such as ("--steps", 2).
        late: For a run for each rank, in which that rank is late at each of its calls, and two in which one is late at
            each of its steps; where one ends otherwise, further runs find the fewest delays with which it does.
        what_if: For a run for each finding that is slow, with the one thing changed that it speaks of: what it saves.

    Raises:
        ConfigError: If the world is not virtual, or against is another number.
        RunError: If the run failed.
    """
    world = virtual(8) if on is None else on
    if not isinstance(world, VirtualWorld):
        raise ConfigError(f"An audit needs virtual ranks, and {world!r} is none; use on=labkit.virtual(8).")
    fn = script(program, *args) if isinstance(program, str | Path) else program
    is_script = isinstance(fn, Script)
    name = fn.name if isinstance(fn, Script) else getattr(fn, "__name__", repr(fn))
    began = time.monotonic()
    if against not in (None, 1):
        raise ConfigError(f"against={against}: a run is compared with one process; write against=1.")
    given, entries = () if is_script else args, here()
    compares = against is not None or reference is not None
    asks = compares or late or bool(resume)
    probes = Probes(steps=_MOST_STEPS if resume or late else STEPS, keeps_sent=late) if asks else None
    seen = run_watched(fn, given, world, steps, seed, timeout, echo=echo, probes=probes)
    watched_s = time.monotonic() - began
    if compares and probes is not None:
        _announce("on one process, and twice more with other roundings", 3 * watched_s / world.world_size)
        seen.parting = parted(probes, seen, reference or fn, given, steps, seed, timeout, entries)
    if resume and probes is not None:
        seen.resumed = _resumed(probes, seen, fn, given, world, resume, seed, timeout, entries, watched_s)
    if late and probes is not None:
        every = schedules(seen, seen.num_calls)
        _announce("with one rank late after the other, then two at a time", len(every) * watched_s)
        clock = any(reads_clock(call.source) for call in seen.calls[:1])
        seen.lateness = paused(
            probes, seen, fn, given, world, steps, every, seed, timeout, entries, reads_clock=clock
        )  # fmt: skip
    else:
        seen.lateness = "make ranks late with --late"
    if not compares:
        seen.parting = "run again on one process with --against 1"
    if not resume:
        seen.resumed = "stop and resume it with --resume"
    seen.loads = _reads_checkpoints(fn)
    findings = judged(seen)
    if what_if and seen.timeline is not None:
        _announce("with one thing changed", sum(one.change is not None for one in findings) * watched_s)
        findings = [
            saving(one, seen, fn, given, world, steps, seed, timeout, entries) if one.change is not None else one
            for one in findings
        ]
    return _said(name, world.world_size, seen, findings, time.monotonic() - began)


def _said(name: str, world_size: int, seen: Seen, findings: list[Finding], seconds: float) -> Audit:
    unseen = not_looked_at(seen)
    broken = {finding.rule for finding in findings}
    notes = (
        () if seen.num_steps else ("no optimizer.step() was seen: nothing that hangs on training steps was looked at",)
    )
    return Audit(
        name, world_size, max(seen.num_steps.values(), default=0), tuple(findings),
        tuple(rule for rule in RULES if rule not in broken and rule not in unseen), seconds, notes,
        {rule: reason for rule, reason in unseen.items() if rule not in broken},
    )  # fmt: skip


def _announce(what: str, seconds: float) -> None:
    sys.stderr.write(f"Running again {what}: about {max(1, round(seconds))} s.\n")


def _resumed(
    whole: Probes, seen: Seen, fn: Callable[..., object], args: tuple[object, ...], world: VirtualWorld,
    resume: Sequence[object] | bool, seed: int, timeout: float | None, entries: list[Path], watched_s: float,
) -> Resumed | str:  # fmt: skip
    """Return where a run that is stopped and resumed parts from the whole one."""
    stops: int | None = None
    short = fn
    if resume is True:
        steps = min(seen.num_steps.values(), default=0)
        stops = min((save.step for save in seen.saves if 0 < save.step < steps), default=0)
        if not stops:
            return "no checkpoint was written between two steps"
    elif isinstance(fn, Script) and not isinstance(resume, bool):
        short = script(fn.path, *resume)
    else:
        raise ConfigError(f"resume={resume!r}: a function has no arguments to end early by; use resume=True.")
    _announce("stopped, and resumed from its checkpoint", 2 * watched_s)
    return resumed(whole, seen, fn, short, args, world, stops, seed, timeout, entries)


def _reads_checkpoints(fn: Callable[..., object]) -> bool:
    """Return whether a program can read a checkpoint again, as far as its text says."""
    try:
        text = Path(fn.path).read_text("utf-8") if isinstance(fn, Script) else inspect.getsource(inspect.unwrap(fn))
    except (OSError, TypeError):
        return False
    return "torch.load(" in text or "checkpoint.load(" in text or "dcp.load(" in text
