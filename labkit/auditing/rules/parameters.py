"""Whether every parameter trains: it is the model's, it requires a gradient, and it gets one."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.finding import Finding
from labkit.auditing.roles import first_steps
from labkit.auditing.seen import Seen, Step
from labkit.auditing.telling import listed, on_ranks

OTHER_PARAMETERS = rule(
    "optimizer-of-other-parameters",
    "the optimizer holds the parameters that the model computes with",
    seen="the optimizer's parameters, against those of all modules, and whether they have gradients",
    why="The optimizer steps with tensors that no module uses any more: the model stays as it was.",
    todo="Make the optimizer after the model is sharded, wrapped or moved.",
    lesson="13",
    sources="huggingface/accelerate#3256, huggingface/accelerate#3209, pytorch/pytorch#149205",
)
NO_GRADIENT = rule(
    "no-gradient",
    "every parameter that the forward pass uses gets a gradient",
    seen="parameters of the optimizer whose module was called and whose gradient is None in every step",
    why="They stay as they were made; the loss falls all the same.",
    todo="Look for detach(), .data, no_grad() or a collective that autograd does not know between them and the loss.",
    lesson="05",
    sources="huggingface/accelerate#1154",
)
FROZEN = rule(
    "requires-grad-lost",
    "a parameter requires a gradient on all ranks or on none, from when the optimizer got it",
    seen="requires_grad of the optimizer's parameters at every step, on each rank",
    why="The ranks reduce different lists of gradients, or the parameter stops training.",
    todo="Keep the Parameter and copy into it: with torch.no_grad(): parameter.copy_(tensor).",
    lesson="04",
)


def look(seen: Seen) -> Iterator[Finding]:
    """Yield parameters that do not train."""
    for first in first_steps(seen):
        steps = [step for step in seen.steps if step.optimizer == first.optimizer]
        finding = _others(first, steps) or _frozen(first, steps) or _without(first, steps)
        if finding is not None:
            yield finding
            return


def _others(first: Step, steps: list[Step]) -> Finding | None:
    for rank, names in sorted(first.unknown.items()):
        idle = [name for name in names if all(rank in step.without.get(name, ()) for step in steps)]
        if not idle or len(idle) * 2 < len(names):
            continue
        text = (
            f"The optimizer of rank {rank} holds {len(idle)} parameters that are in no module and never have a "
            f"gradient in {len(steps)} steps: the model's own are other tensors."
        )
        todo = "Make the optimizer from model.parameters() after fully_shard(), parallelize_module() or .to()."
        evidence = {"parameters": len(idle), "steps": len(steps)}
        return Finding(
            OTHER_PARAMETERS, "wrong", text, todo, rank, first.step, first.optimizer_made or first.sources[rank],
            idle[0], evidence,
        )  # fmt: skip
    return None


def _frozen(first: Step, steps: list[Step]) -> Finding | None:
    for step in steps:
        ranks = set(step.sources)
        for name, frozen in step.frozen.items():
            if ranks - set(frozen):
                rank, other = min(frozen), min(ranks - set(frozen))
                text = f"{name} requires no gradient on {on_ranks(sorted(frozen))} and requires one on rank {other}."
            elif name in step.lost:
                rank = min(frozen)
                text = f"{name} required a gradient when the optimizer got it, and does not in step {step.step}."
            else:
                continue
            todo = "Set requires_grad alike on all ranks, and keep the Parameter when its values are replaced."
            severity = "wrong" if ranks - set(frozen) else "suspected"
            evidence = {"frozen_on": sorted(frozen)}
            return Finding(FROZEN, severity, text, todo, rank, step.step, step.sources[rank], name, evidence)
    return None


def _without(first: Step, steps: list[Step]) -> Finding | None:
    if any(step.unsynced for step in steps):
        return None  # it says why they have none
    for name, ranks in first.without.items():
        always = [rank for rank in ranks if all(rank in step.without.get(name, ()) for step in steps)]
        if len(always) < len(first.sources) or name not in first.called or name in first.frozen:
            continue
        names = [one for one in first.without if one in first.called and one not in first.frozen]
        text = (
            f"{name} has no gradient on any rank in any of {len(steps)} steps, although its module was called: "
            f"{len(names)} of {len(first.parameters)} parameters never train ({listed(names)})."
        )
        todo = "Find what cuts the graph between this module and the loss: detach(), .data, no_grad(), a collective."
        rank = always[0]
        evidence = {"parameters": names, "steps": len(steps)}
        return Finding(NO_GRADIENT, "wrong", text, todo, rank, first.step, first.sources[rank], name, evidence)
    return None
