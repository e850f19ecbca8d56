"""Whether ranks compute what one process computes."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.auditing.against import Parting
from labkit.auditing.catalogue import rule
from labkit.auditing.facts import Call
from labkit.auditing.finding import Finding
from labkit.auditing.origins import first_made, in_step, origin
from labkit.auditing.seen import Seen

PARTS = rule(
    "parts-from-one-process",
    "ranks compute what one process computes with the same global batch",
    seen="inputs, outputs, targets, losses, gradients, parameters and numbers read, against one process (--against 1)",
    why="What the ranks train is another model than the program says; no other rule names the cause.",
    todo="Look at what the ranks exchange up to this place: what is missing, twice, or another rank's.",
    lesson="05",
    sources="huggingface/accelerate#1154, NVIDIA/Megatron-LM#5243, open-mmlab/mmpretrain#173",
)
_WORDS = {
    "input": "{name} is called with", "output": "{name} gives", "function": "{name} gives", "loss": "the loss is",
    "target": "what the loss is held against is", "number": "what the ranks made together and read here is",
    "gradient": "the gradient of {name} is", "parameter": "{name} is",
}  # fmt: skip


def look(seen: Seen) -> Iterator[Finding]:
    """Yield the first value in which the run parts from its reference."""
    one = seen.parting
    if not isinstance(one, Parting):
        return
    place = one.place
    what = _WORDS[place.kind].format(name=place.name or "the model")
    text = (
        f"In step {place.step} {what} something else on rank {one.rank} than on one process: they differ by up to "
        f"{one.by:.3g}, of which rounding explains {one.explained:.2g} (measured)."
    )
    todo = "Everything before agrees: look at what this line exchanges, and with whom."
    evidence = {"kind": place.kind, "differs_by": one.by, "rounding_explains": one.explained}
    yield Finding(PARTS, "wrong", text, todo, one.rank, place.step, _line(seen, one), place.name, evidence)


def _line(seen: Seen, one: Parting) -> str:
    """Return the line of the mistake, as near as the record knows it."""
    place = one.place
    mine = [call for call in seen.calls if (call.rank, call.step) == (one.rank, place.step) and len(call.ranks) > 1]
    before = [call for call in mine if call.before_backward]
    if place.kind == "input":
        return origin(one.source, one.callee or place.name.rpartition(".")[2])
    if place.kind == "number":
        return first_made(one.source)
    if place.kind == "target":
        return origin(one.source, "", 1)
    if place.kind in ("loss", "output", "function"):
        wrapped = seen.wrapped.get(one.rank)  # what a wrapper sends as it is made is no part of the loss
        entering = [call for call in before if call.numel > 1 and call.outer and call.source != wrapped]
        return (entering[-1].outer if entering else "") or one.source
    if place.kind == "gradient":
        lost = next((call for call in before if call.in_graph and call.kind != "barrier"), None)
        given = [call for call in mine if place.name in call.names]
        found: Call | None = lost or (given[-1] if given else None)
        return (found.outer if found is not None else "") or one.source
    return (in_step(one.source, "to_local") if place.kind == "parameter" else "") or one.source
