"""Whether a run ends the same whoever is late."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.finding import Finding
from labkit.auditing.lateness import Late
from labkit.auditing.seen import Seen
from labkit.failures.records import Pause
from labkit.units import format_time

FAILS = rule(
    "fails-when-late",
    "a run comes to its end whoever is late",
    seen="runs in which ranks are paused at their calls or steps, one or two at a time (--late), and the fewest pauses",
    why="On real machines another rank is late in each run: it fails one time in a hundred, and nobody can repeat it.",
    todo="Let all ranks wait for what one of them makes, or let one rank decide and tell the others.",
    lesson="03",
    sources="ROCm/pytorch#3659, QMCPACK/qmcpack#460, ai2cm/ace#1407",
)
OTHERWISE = rule(
    "ends-otherwise-when-late",
    "a run computes the same whoever is late, up to rounding",
    seen="what ranks send, their losses, gradients and parameters in the same runs",
    why="A result that hangs on who comes first is another one in each run.",
    todo="Receive from a named rank, or put what came where its sender says.",
    lesson="03",
    sources="determined-ai/determined#3405, hpcaitech/EnergonAI#42, deepspeedai/Megatron-DeepSpeed#356",
)


def look(seen: Seen) -> Iterator[Finding]:
    """Yield the fewest delays with which the run ended otherwise."""
    one = seen.lateness
    if not isinstance(one, Late):
        return
    evidence = {"pauses": [repr(pause) for pause in one.pauses], "runs": one.runs}
    todo = f"Repeat it with labkit.virtual({seen.world_size}, failures={list(one.pauses)!r})."
    who, rank = " and ".join(map(_who, one.pauses)), one.pauses[0].rank
    if one.error:
        text = f"With {who} the run fails: {one.error.rstrip('.')}. With nobody late it comes to its end."
        yield Finding(FAILS, "wrong", text, todo, rank, -1, one.source, "", evidence)
        return
    assert one.place is not None
    what = {"sent": f"what rank {one.other} sends ({one.place.name})", "loss": f"the loss on rank {one.other}"}.get(
        one.place.kind, f"{one.place.kind} {one.place.name} on rank {one.other}".replace("  ", " ")
    )
    text = f"With {who} {what} is another one: it differs by up to {one.by:.3g}, more than rounding does."
    yield Finding(OTHERWISE, "suspected", text, todo, rank, one.place.step, one.source, "", evidence)


def _who(pause: Pause) -> str:
    """Return "rank 1 late by 2 ms at its call 3"."""
    word, first = ("call", pause.call) if pause.call else ("step", pause.step)
    last = (first or 1) + pause.times - 1
    which = f"{word} {first}" if pause.times == 1 else f"{word}s {first} to {last}"
    return f"rank {pause.rank} late by {format_time(round(pause.seconds * 1e9))} at its {which}"
