"""Whether every gradient was averaged: once, over the right ranks, by the right number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from labkit.auditing.catalogue import rule
from labkit.auditing.facts import Backward, Call, Fit
from labkit.auditing.finding import Finding
from labkit.auditing.origins import condition_of_block
from labkit.auditing.roles import averages_parameters, entangled, first_steps, in_turn, replicas, together
from labkit.auditing.seen import Seen, Step
from labkit.auditing.telling import listed, share

NOT_AVERAGED = rule(
    "gradient-not-averaged",
    "replicas step with gradients that were averaged over all of them",
    seen="each gradient as optimizer.step() gets it, against what every rank's own backward pass computed",
    why="Every rank trains a model of its own on its share of the samples; a checkpoint holds one of them.",
    todo="Wrap the model in DistributedDataParallel, or all_reduce every gradient after backward().",
    lesson="01",
    sources="jingyaogong/minimind#854, pytorch/pytorch#104336",
)
PARTLY_AVERAGED = rule(
    "gradient-partly-averaged",
    "all gradients are averaged, not those of some parameters alone",
    seen="the same, parameter by parameter",
    why="The parameters left out drift apart: ranks hold models that agree in all but these.",
    todo="Reduce the gradients of every parameter that trains; call the wrapped model, not model.module.",
    lesson="04",
    sources="pytorch/pytorch#109191",
)
WRONG_GROUP = rule(
    "gradient-wrong-group",
    "gradients are averaged over all ranks that hold the same model",
    seen="the smallest set of ranks whose gradients add up to what a rank steps with",
    why="Each group of ranks trains a model of its own.",
    todo="Pass the group of all replicas: the data-parallel axis of the mesh.",
    lesson="12",
    sources="pytorch/pytorch#36516",
)
WRONG_SCALE = rule(
    "gradient-wrong-scale",
    "a step gets the mean of the ranks' and microbatches' gradients, divided once",
    seen="how many times the sum of all ranks' own gradients a step gets, and how each loss was made of a mean",
    why="The learning rate is multiplied by it; with Adam it hides, and clipping and epsilon still see it.",
    todo="Divide the loss by the microbatches, and the sum over ranks by the ranks, each once.",
    lesson="01",
    sources="pytorch/tutorials#2305, neuralmagic/sparseml#135, verl-project/verl#3332",
)

UNSYNCED = rule(
    "step-without-sync",
    "the last backward pass before a step is outside no_sync()",
    seen="whether DistributedDataParallel averages in the last backward pass before each step",
    why="The last microbatch's gradients stay the rank's own, and replicas drift.",
    todo="Let the last microbatch of a step run outside no_sync().",
    lesson="05",
    sources="modelscope/FunASR#3472",
)


def look(seen: Seen) -> Iterator[Finding]:
    """Yield what is wrong with gradients."""
    told: set[str] = set()
    for finding in _mixed(seen):
        told.add(finding.rule)
        yield finding
    for step in sorted(seen.steps, key=lambda step: (step.number, step.optimizer)):
        for finding in (*_unsynced(step), *_groups(seen, step), *_scale(seen, step)):
            if finding.rule not in told:
                told.add(finding.rule)
                yield finding


def _groups(seen: Seen, step: Step) -> Iterator[Finding]:
    begins = next((first for first in first_steps(seen) if first.optimizer == step.optimizer), None)
    if begins is None:
        return
    for ranks in replicas(begins):
        if averages_parameters(seen, ranks):
            continue
        alone, smaller, whole = [], [], []
        for name, fits in step.fits.items():
            mine = {rank: fits[rank] for rank in ranks if rank in fits}
            known = [fit for fit in mine.values() if fit is not None]
            if len(mine) < len(ranks) or len(known) < len(mine) or name in step.frozen:
                continue
            if any(len(fit.ranks) == 1 for fit in known):
                alone.append(name)
            elif any(not set(ranks) <= set(fit.ranks) for fit in known):
                smaller.append(name)
            else:
                whole.append(name)
        if in_turn(seen, ranks):
            continue
        if alone:
            yield _alone(seen, step, ranks, alone, whole + smaller)
        elif smaller and not entangled(seen, ranks):
            yield _smaller(seen, step, ranks, smaller)
    yield from _norms(seen, step)


def _unsynced(step: Step) -> Iterator[Finding]:
    if step.unsynced:
        rank = min(step.unsynced)
        inside, todo = "inside no_sync()", "Leave no_sync() for the last microbatch before optimizer.step()."
        if any(rank in ranks for ranks in step.without.values()):
            inside = "under set_requires_gradient_sync(False)"
            todo = "Call set_requires_gradient_sync(True) before the last microbatch's forward pass."
        text = (
            f"Rank {rank} steps after a backward pass {inside}: the last of {len(step.backwards[rank])} passes is not "
            "averaged."
        )
        source = condition_of_block(step.unsynced[rank])
        yield Finding(UNSYNCED, "wrong", text, todo, rank, step.step, source, "", {})


def _norms(seen: Seen, step: Step) -> Iterator[Finding]:
    """Yield what ranks hold whole while they work on one batch together, and step apart with."""
    groups = [ranks for ranks in together(seen) if not any(set(ranks) <= set(same) for same in replicas(step))]
    groups += [tuple(sorted(pair)) for pair in seen.messages if not any(set(pair) <= set(s) for s in replicas(step))]
    for ranks in groups:
        for name, fits in step.fits.items():
            mine = [fit for rank in ranks if (fit := fits.get(rank)) is not None]
            equal = any(set(ranks) <= set(group) for group in step.parameters.get(name, ()))
            whole = name not in step.constant or (name in step.norms and not in_turn(seen, ranks))
            if whole and equal and len(mine) == len(ranks) and all(len(fit.ranks) == 1 for fit in mine):
                yield _alone(seen, step, ranks, [name], [])
                return


def _alone(seen: Seen, step: Step, ranks: tuple[int, ...], alone: list[str], shared: list[str]) -> Finding:
    rank = next(one for one in ranks if (fit := step.fits[alone[0]].get(one)) is not None and len(fit.ranks) == 1)
    evidence = {"ranks": list(ranks), "not_averaged": alone, "averaged": shared}
    evidence["called_inside_wrapper"] = any(one.inside for one in seen.inputs)
    if shared:
        text = (
            f"Rank {rank} steps with its own gradient of {listed(alone)}, and with averages of {len(shared)} other "
            f"parameters: {share(len(alone), len(alone) + len(shared))} of the gradients never left the rank."
        )
        todo = "Average them too: reduce every parameter's gradient, and run the forward pass through the wrapper."
    else:
        text = (
            f"Ranks {listed(ranks)} hold one model and step with a gradient of their own each: none of "
            f"{len(alone)} gradients was averaged, of {alone[0]} on."
        )
        todo = "Wrap the model in DistributedDataParallel, or all_reduce each gradient before optimizer.step()."
    name = PARTLY_AVERAGED if shared else NOT_AVERAGED
    reduced = next((call for call in _given(seen, step, rank, alone[0])), None)
    inside = next((one for one in seen.inputs if one.rank == rank and one.step == step.step and one.inside), None)
    source = step.sources[rank] if inside is None else inside.source
    if reduced is not None:
        source = reduced.source
    elif shared:
        source = step.made.get(alone[0]) or source
    elif inside is None:
        entering = "" if alone[0] in step.norms else _enters_shards(seen, step, rank, ranks)
        source = entering or _averages_its_loss(seen, step, rank) or source
    return Finding(name, "wrong", text, todo, rank, step.step, source, alone[0], evidence)


def _enters_shards(seen: Seen, step: Step, rank: int, ranks: tuple[int, ...]) -> str:
    """Return the line whose autograd.Function adds up these ranks' parts in the forward pass, "" for none."""
    mine = (call for call in seen.calls if call.rank == rank and call.step == step.step and call.before_backward)
    return next((call.outer for call in mine if set(call.ranks) == set(ranks) and call.outer != call.source), "")


def _given(seen: Seen, step: Step, rank: int, name: str) -> list[Call]:
    """Return the collectives that a rank gives a parameter's gradient in a step."""
    return [
        call for call in seen.calls if call.rank == rank and call.step == step.step and name in call.names and call.op
    ]


def _averages_its_loss(seen: Seen, step: Step, rank: int) -> str:
    """Return the line by which a rank reduces one number before its backward pass, "" for none."""
    mine = (call for call in seen.calls if call.rank == rank and call.step == step.step and call.op)
    return next((call.source for call in mine if call.numel == 1 and call.before_backward), "")


def _smaller(seen: Seen, step: Step, ranks: tuple[int, ...], names: list[str]) -> Finding:
    fits = step.fits[names[0]]
    rank = next(one for one in ranks if (fit := fits.get(one)) is not None and not set(ranks) <= set(fit.ranks))
    fit = fits[rank]
    assert fit is not None
    text = (
        f"Rank {rank} steps with the gradients of ranks {listed(fit.ranks)}, and holds one model with ranks "
        f"{listed(ranks)}: {len(names)} gradients are averaged over {len(fit.ranks)} of {len(ranks)} replicas."
    )
    todo = f"Average over the group of all {len(ranks)} replicas."
    evidence = {"ranks": list(ranks), "averaged_over": list(fit.ranks), "parameters": names}
    source = _reduced_at(seen, step, rank, names[0])
    return Finding(WRONG_GROUP, "wrong", text, todo, rank, step.step, source, names[0], evidence)


def _reduced_at(seen: Seen, step: Step, rank: int, name: str) -> str:
    """Return the line that reduced a gradient: the collective's, else the one that wrapped the model, else the step."""
    calls = _given(seen, step, rank, name)
    return calls[-1].source if calls else seen.wrapped.get(rank) or step.sources[rank]


def _mixed(seen: Seen) -> Iterator[Finding]:
    """Yield a parameter of which groups of ranks hold one each, and whose gradient is averaged over several groups."""
    for step in first_steps(seen):
        whole = [name for name in step.held if len(step.parameters.get(name, ())) == 1]
        for name, fits in step.fits.items():
            groups = [group for group in step.parameters.get(name, ()) if len(group) > 1]
            if len(groups) < 2 or len(groups) < len(step.parameters[name]) or not whole or name in step.sharded:
                continue
            mixed = {rank: fit for rank, fit in fits.items() if fit is not None and _in_several(fit.ranks, groups)}
            if mixed:
                yield _told_mixed(seen, step, name, groups, *min(mixed.items()))
                return


def _in_several(ranks: tuple[int, ...], groups: list[tuple[int, ...]]) -> bool:
    return sum(bool(set(ranks) & set(group)) for group in groups) > 1


def _told_mixed(seen: Seen, step: Step, name: str, groups: list[tuple[int, ...]], rank: int, fit: Fit) -> Finding:
    text = (
        f"Rank {rank} steps with a gradient of {name} averaged over ranks {listed(fit.ranks)}; ranks "
        f"{' and ranks '.join(listed(group) for group in groups)} hold different ones of it, such as experts."
    )
    todo = "Reduce it over the group of ranks that hold the same one."
    source, evidence = _reduced_at(seen, step, rank, name), {"groups": [list(group) for group in groups]}
    return Finding(WRONG_GROUP, "wrong", text, todo, rank, step.step, source, name, evidence)


def _scale(seen: Seen, step: Step) -> Iterator[Finding]:
    for rank in sorted(step.sources):
        every = {name: fit for name, each in step.fits.items() if (fit := each.get(rank))}
        fits = {name: fit for name, fit in every.items() if len(fit.ranks) > 1}
        factor = _loss_factor(step)
        if not fits and every:
            fits, factor = every, _factor_of({rank: step.backwards.get(rank, ())})
        if not fits or factor is None or step.left_over or step.thrown:
            continue
        sizes = {(len(fit.ranks), step.passes.get(name, 1)) for name, fit in fits.items()}
        if len(sizes) > 1:
            continue
        ranks, passes = sizes.pop()
        ratio = median(fit.ratio for fit in fits.values()) * ranks
        times = ratio * factor * passes
        name, fit = next(iter(fits.items()))
        said = _said(times, ranks, passes, factor)
        if said is None:
            continue
        text, todo, of_passes = said
        source = step.sources[rank]
        factor_line = _last_factor(seen, step, rank) if times < 1 else ""
        if factor_line and not (of_passes and rank in seen.schedules):  # it is the loss that need not divide
            source = factor_line
        elif of_passes and rank in seen.schedules and times > 1:
            source = seen.schedules[rank]
        elif of_passes:
            source = step.backwards[rank][0].made or step.backwards[rank][0].source
        elif (call := _reduction(seen, step, rank)) is not None:
            source = call.source
        evidence = {
            "times_the_mean": times, "ranks": ranks, "microbatches": passes, "loss_factor": factor,
            "gradient_over_sum": fit.ratio,
        }  # fmt: skip
        of = f" of {ranks} ranks" if ranks > 1 else ""
        text = f"Rank {rank} steps with {times:.4g} times the mean gradient{of}: {text}"
        yield Finding(WRONG_SCALE, "wrong", text, todo, rank, step.step, source, name, evidence)
        return


def _last_factor(seen: Seen, step: Step, rank: int) -> str:
    """Return the line by which a program scaled gradients last in a step, "" for none."""
    found = [one for one in seen.numbers if (one.kind, one.rank, one.step) == ("factor", rank, step.step)]
    return found[-1].source if found else ""


def _reduction(seen: Seen, step: Step, rank: int) -> Call | None:
    """Return the last call by which a rank reduced gradients in a step."""
    calls = [call for call in seen.calls if call.rank == rank and call.step == step.step and call.op]
    of_gradients = [call for call in calls if call.holds == "gradient" or (call.in_backward and not call.holds)]
    found = of_gradients or [call for call in calls if not call.before_backward and call.numel > 1]
    return found[-1] if found else None


def _loss_factor(step: Step) -> float | None:
    """Return what every loss of a step was multiplied by beside being a mean; None where one was made otherwise."""
    return _factor_of(step.backwards)


def _factor_of(backwards: Mapping[int, Sequence[Backward]]) -> float | None:
    factors = set()
    for passes in backwards.values():
        if not passes or len({each.source for each in passes}) > 1:
            return None  # several losses, not several microbatches of one
        for each in passes:
            if each.given or each.root is None or not each.root.is_mean:
                return None
            factors.add(each.root.factor)
    if not factors or max(factors) > min(factors) * (1 + 1e-6):
        return None
    return max(factors)


def _said(times: float, ranks: int, passes: int, factor: float) -> tuple[str, str, bool] | None:
    def near(value: float) -> bool:
        return abs(times / value - 1) < 1e-3

    if near(1):
        return None
    if near(ranks):
        return (
            f"the gradients of {ranks} ranks are added up and never divided.",
            f"Divide the sum by {ranks}, or reduce with ReduceOp.AVG.",
            False,
        )
    if near(1 / ranks):
        return (
            f"they are divided by {ranks} twice.",
            f"DistributedDataParallel averages already: take the second division by {ranks} away.",
            False,
        )
    if passes > 1 and near(passes):
        return (
            f"{passes} microbatches are added up and never divided.",
            f"Divide each loss by {passes} before backward().",
            True,
        )
    if passes > 1 and near(1 / passes):
        return (
            f"{passes} microbatches are divided by {passes} twice.",
            "Divide the loss or the gradients, not both.",
            True,
        )
    if passes > 1 and near(ranks * passes):
        return (
            f"neither the {ranks} ranks nor the {passes} microbatches are divided by.",
            f"Divide by {ranks * passes} once.",
            True,
        )
    return None
