"""Whether a run that was stopped goes on as if it had not been."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.finding import Finding
from labkit.auditing.resuming import Resumed
from labkit.auditing.seen import Seen

APART = rule(
    "resumed-apart",
    "a run that was stopped goes on as if it had not been, bit for bit",
    seen="two more runs, one that is stopped and one that goes on from its checkpoint, against the whole (--resume)",
    why="Training that goes on is another training, and its loss curve hides that.",
    todo="Save and load every rank's part of: model, optimizer, scheduler, place in the data, random state.",
    lesson="13",
    sources="EvolvingLMMs-Lab/OneVision-Encoder#65, KempnerInstitute/KempnerForge#51, THUDM/slime#1547",
)
_WHAT = {
    "parameter": "the parameter {name}", "state": "the optimizer's {name}", "rate": "the learning rate",
    "random": "the random state", "input": "what {name} is called with", "loss": "the loss",
    "gradient": "the gradient of {name}",
}  # fmt: skip
_TODO = {
    "parameter": "Save every rank's part, and load it back into the same rank.",
    "state": "Save optimizer.state_dict() and load it before the next step.",
    "rate": "Save scheduler.state_dict() and load it.",
    "random": "Save every rank's torch.get_rng_state(), and give each rank its own back.",
    "input": "Save how far the loader was, and begin there.",
}


def look(seen: Seen) -> Iterator[Finding]:
    """Yield the first value in which the resumed run parts."""
    one = seen.resumed
    if not isinstance(one, Resumed):
        return
    what = _WHAT[one.place.kind].format(name=one.place.name or "the model")
    does = "is missing" if one.missing else "is another"
    text = (
        f"Stopped after {one.after} steps and resumed, {what} {does} on rank {one.rank} in step "
        f"{one.place.step + one.after} than in the run that was not stopped."
    )
    if one.is_older:
        text += f" It is what it was a step earlier: the checkpoint took it before step {one.after - 1} had ended."
    todo = _TODO.get(one.place.kind, "Compare what is saved with what the step depends on.")
    evidence = {"kind": one.place.kind, "stopped_after": one.after}
    step = one.place.step + one.after
    yield Finding(APART, "wrong", text, todo, one.rank, step, one.source, one.place.name, evidence)
