"""Whether what ranks receive, serve and keep for the next step is still there when it is needed."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.finding import Finding
from labkit.auditing.mishap import Mishap
from labkit.auditing.origins import origin
from labkit.auditing.seen import Seen
from labkit.cells import place

OVER = rule(
    "received-over",
    "what a backward pass reads is not received over",
    seen="the buffers of receives, while an operator's backward pass still needs what was in them",
    why="The gradient is computed with another microbatch's activation; autograd does not learn of the write.",
    todo="Receive each microbatch into a tensor of its own.",
    lesson="08",
    sources="pytorch/pytorch#185331",
)
EARLY = rule(
    "answered-early",
    "a server that workers call in turn answers when it has heard all",
    seen="what a rank sends of one tensor to those that it heard by name, while it adds to it in between",
    why="Workers of one step compute with different weights.",
    todo="Answer in a loop of its own, after the last receive.",
    lesson="06",
    sources="PaddlePaddle/Paddle#7643",
)
LOST = rule(
    "update-lost",
    "a value that others write, too, is changed where it is, and not read, changed and written back",
    seen="what is read and written for each caller of torch.distributed.rpc",
    why="What others wrote in between is lost.",
    todo="Send the change, and let the owner add it.",
    lesson="06",
    sources="sql-machine-learning/elasticdl#1125",
)
NEW_KEY = rule(
    "state-never-found",
    "what is kept for the next step is found again",
    seen="tensors that a hook looks something up by, step after step",
    why="A tensor is found by itself alone, and not by its values or memory: residuals begin anew, and old ones stay.",
    todo="Use the bucket's index, the parameter or its name as the key.",
    lesson="10",
    sources="pytorch/pytorch#48670",
)


def look(seen: Seen) -> Iterator[Finding]:
    """Yield the first mishap of each kind."""
    told: set[str] = set()
    for one in seen.mishaps:
        if one.kind not in told:
            told.add(one.kind)
            yield _found(one)


def _found(one: Mishap) -> Finding:
    if one.kind == "received over":
        text = (
            f"Rank {one.rank} receives into a buffer that an operator ({one.operator}) of the graph still needs: "
            "backward computes with what came last."
        )
        return Finding(OVER, "wrong", text, "Make a new buffer for each receive.", one.rank, one.step, one.source)
    if one.kind == "answered early":
        first, other = one.others
        text = (
            f"Rank {one.rank} sends rank {other} something else than rank {first} in one round: it adds to the tensor "
            f"in between. Rank {first} does not get what came after it."
        )
        todo = "Receive from all, then answer all."
        return Finding(EARLY, "suspected", text, todo, int(other), one.step, one.source)
    if one.kind == "update lost":
        caller, other = one.others
        text = (
            f"On rank {one.rank} {caller} overwrites what {other} wrote after {caller} had read it: "
            "that update is lost."
        )
        todo = "Send the change, and let the owner add it."
        return Finding(LOST, "wrong", text, todo, one.rank, one.step, one.source)
    source = origin(one.source, "get")
    text = (
        f"Rank {one.rank} looks up what it keeps by a tensor ({place(one.source)}), and in step {one.step} by none "
        "that was a key the step before: what it kept is not found."
    )
    todo = "Use the bucket's index as the key, or the parameter."
    return Finding(NEW_KEY, "suspected", text, todo, one.rank, one.step, source)
