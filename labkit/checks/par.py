"""Par: what our own solution costs on a virtual cluster, shown beside yours once the cases have passed.

A par may bound yours: more time than that (the computing being the same, it is communication that nothing hides), or
more memory, and the check does not pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from labkit.checks.case import Case
from labkit.checks.verdict import Verdict
from labkit.errors import LabkitError
from labkit.units import format_bytes, format_time

if TYPE_CHECKING:
    from labkit.worlds import World

Functions = Mapping[str, Callable[..., Any]]

EXPOSED, TOO_LARGE = "too much exposed", "too much memory"
"""What a par names by itself, whatever mistakes its exercise knows."""
_HINTS = {
    EXPOSED: "Yours computes the same, so the extra time is communication or copying that nothing hides. Run it with "
    "labkit.run on the virtual cluster, as section 2 does, and look at what happens while the device is idle.",
    TOO_LARGE: "You keep something that a step does not need: a second copy of the gradients, or packed buckets that "
    "nobody reads any more. The memory rows of a timeline on the virtual cluster show when it appears.",
}


@dataclass(frozen=True)
class Score:
    """What a program cost in a virtual world.

    Attributes:
        time_ns: Virtual time from the first to the last thing any rank did.
        bytes_sent: Payload of the messages, collectives and remote calls of the rank that had most.
        peak_bytes: Memory of the rank that held most, at its peak.
    """

    time_ns: int
    bytes_sent: int
    peak_bytes: int = 0


@dataclass(frozen=True)
class Par:
    """A program in which the learner's functions are used, where it runs, and what our solution needs for it.

    Attributes:
        what: The program in words: "one step of a model of 8 linear layers".
        where: The world in words: "8 x H100, NVLink 4".
        program: Called on every rank with the learner's functions; a top-level function of labkit that holds no answer.
        world_size: Number of virtual ranks.
        score: What our own solution needs; the tests measure it anew.
        cluster: Keyword arguments of ``labkit.virtual``.
        most_time: How many times as long yours may take; None where any time passes.
        most_memory: How many times as much memory yours may hold at its peak; None likewise.
        advice: What to change where a bound is exceeded, for this exercise; "" for what usually helps.
    """

    what: str
    where: str
    program: Callable[[Functions], object]
    world_size: int
    score: Score
    cluster: Mapping[str, Any] = field(default_factory=dict)
    most_time: float | None = None
    most_memory: float | None = None
    advice: str = ""

    def world(self) -> World:
        """Return the virtual world it is measured in."""
        from labkit.virtual_world import virtual

        return virtual(self.world_size, **self.cluster)


def measure(par: Par, functions: Functions) -> Score:
    """Return what the functions need for par's program in its virtual world.

    Raises:
        RunError: If they fail there.
    """
    from labkit.timeline.memory import peak_memory_bytes
    from labkit.timeline.metrics import bytes_sent, collective_payload_bytes, remote_call_bytes
    from labkit.worlds import run

    timeline = run(par.program, functions, on=par.world(), echo=False).timeline
    assert timeline is not None
    sent = bytes_sent(timeline) + collective_payload_bytes(timeline) + remote_call_bytes(timeline)
    return Score(timeline.makespan_ns, int(sent.max(initial=0)), peak_memory_bytes(timeline))


def beside(par: Par, functions: Functions) -> tuple[Verdict, list[str]]:
    """Return whether the functions keep within par's bounds, and par beside what they need, as lines of text."""
    head = f"  on the virtual cluster ({par.where}), {par.what}:"
    try:
        yours = measure(par, functions)
    except LabkitError as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        failed = Verdict(not is_bound(par), f"It did not run there: {first}")
        return failed, [head, f"    yours did not run there: {first}"]
    return _kept(par, yours), [head, *_rows(par, yours)]


def is_bound(par: Par) -> bool:
    """Return whether a check may fail by this par."""
    return par.most_time is not None or par.most_memory is not None


def bounds(par: Par) -> Case:
    """Return what stands for par's bounds in a list of cases."""
    parts = [
        f"{most:g} times par's {what}"
        for what, most in (("time", par.most_time), ("memory", par.most_memory))
        if most is not None
    ]
    return Case(f"{par.where}: at most {' and '.join(parts)}", 1, ({},))


def _kept(par: Par, yours: Score) -> Verdict:
    for mistake, what, most, ours, mine, shown in (
        (EXPOSED, "takes", par.most_time, par.score.time_ns, yours.time_ns, format_time),
        (TOO_LARGE, "holds at its peak", par.most_memory, par.score.peak_bytes, yours.peak_bytes, format_bytes),
    ):
        if most is not None and mine > most * ours:
            text = f"{par.what[:1].upper()}{par.what[1:]} {what} {shown(mine)}, {mine / ours:.2f} times par's."
            return Verdict(
                False, text, par.advice or _HINTS[mistake], f"at most {shown(int(most * ours))}", shown(mine), mistake
            )
    return Verdict(True)


def _rows(par: Par, yours: Score) -> list[str]:
    rows = [
        ("time", format_time(par.score.time_ns), format_time(yours.time_ns), par.score.time_ns, yours.time_ns),
        (
            "bytes sent",
            format_bytes(par.score.bytes_sent),
            format_bytes(yours.bytes_sent),
            par.score.bytes_sent,
            yours.bytes_sent,
        ),
    ]
    if par.score.peak_bytes and yours.peak_bytes:
        ours, theirs = par.score.peak_bytes, yours.peak_bytes
        rows.append(("memory", format_bytes(ours), format_bytes(theirs), ours, theirs))
    return [
        f"    {name:10}  par {ours:>9}  yours {theirs:>9}" + (f"  ({b / a:.2f} x)" if a else "")
        for name, ours, theirs, a, b in rows
    ]
