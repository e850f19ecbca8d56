"""Which rules a run gave no occasion to look at, and why: they neither held nor were broken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from labkit.auditing.catalogue import RULES
from labkit.auditing.roles import averaging, data_parallel, together
from labkit.auditing.rules.batches import of_one_batch
from labkit.auditing.seen import Seen

Reason = Callable[[Seen], str]


def not_looked_at(seen: Seen) -> dict[str, str]:
    """Return for each rule that had no occasion why it had none; all others were looked at."""
    found = {}
    for name in RULES:
        needs = (*_NEEDS.get(name, ()), *(() if name in _WITHOUT_STEPS else (_steps,)))
        reason = next((words for one in reversed(needs) if (words := one(seen))), "")
        if reason:
            found[name] = reason
    return found


def _steps(seen: Seen) -> str:
    return "" if seen.steps else "no optimizer.step() was seen"


def _two_steps(seen: Seen) -> str:
    return "" if min(seen.num_steps.values(), default=0) > 1 else "it takes two steps"


def _epochs(seen: Seen) -> str:
    if not seen.epochs:
        return "no DataLoader was read"
    if not any(epoch.shuffles and epoch.order for epoch in seen.epochs):
        return "no sampler with a seed shuffles"
    starts: dict[tuple[int, int], set[int]] = defaultdict(set)
    for epoch in seen.epochs:
        starts[epoch.rank, epoch.loader].add(epoch.step)
    return "" if any(len(some) > 1 for some in starts.values()) else "no second epoch began in these steps"


def _whole_epochs(seen: Seen) -> str:
    dropping = [epoch for epoch in seen.epochs if epoch.drops and not epoch.shuffles]
    if not dropping:
        return "no loader leaves samples out without shuffling"
    return "" if any(epoch.number > 1 for epoch in dropping) or _ended(seen) else "no second epoch ended in these steps"


def _ended(seen: Seen) -> bool:
    return bool(seen.ends) and any(epoch.number for epoch in seen.epochs)


def _samplers(seen: Seen) -> str:
    return "" if any(epoch.order for epoch in seen.epochs) else "no sampler shares samples among ranks"


def _evaluation(seen: Seen) -> str:
    return "" if any(epoch.order and not epoch.trains for epoch in seen.epochs) else "no sampler was read to evaluate"


def _copies(seen: Seen) -> str:
    return "" if any(one.copied for one in seen.used) else "no copy of the trained model was called to evaluate"


def _buffers(seen: Seen) -> str:
    return (
        "" if any(one.buffers for one in seen.used) else "no model with buffers of a rank's own was called to evaluate"
    )


def _masks(seen: Seen) -> str:
    return "" if seen.masks else "no dropout was seen"


def _saves(seen: Seen) -> str:
    return "" if seen.saves else "no checkpoint was written"


def _reads_again(seen: Seen) -> str:
    return "" if seen.loads else "the program reads no checkpoint"


def _clips(seen: Seen) -> str:
    return "" if seen.clips or seen.numbers else "no gradient was clipped or scaled"


def _scaler(seen: Seen) -> str:
    scaled = any(scale != 1 for step in seen.steps for scale in step.scale.values())
    return "" if seen.clips and scaled else "nothing that a gradient scaler scaled was clipped"


def _means(seen: Seen) -> str:
    return "" if seen.means else "no parameters were added up over ranks after a step"


def _modes(seen: Seen) -> str:
    return "" if seen.modes else "no module was called before a backward pass"


def _microbatches(seen: Seen) -> str:
    several = any(len(some) > 1 for step in seen.steps for some in step.backwards.values())
    return "" if several else "no step is made of several backward passes"


def _squares(seen: Seen) -> str:
    return "" if seen.squares else "no sum of squares was reduced"


def _schedulers(seen: Seen) -> str:
    return "" if seen.scheduler_steps else "no scheduler took a step"


def _data_parallel(seen: Seen) -> str:
    return "" if data_parallel(seen) or averaging(seen) else "no two ranks train replicas of one model"


def _one_batch(seen: Seen) -> str:
    return "" if of_one_batch(seen) else "no two ranks work on one batch together"


def _together(seen: Seen) -> str:
    return "" if together(seen) else "no ranks exchange activations"


def _noise(seen: Seen) -> str:
    return "" if any(draw.loading for draw in seen.draws) else "no loader drew random numbers for its samples"


def _permutations(seen: Seen) -> str:
    drawn = any(draw.own and draw.name == "randperm" for draw in seen.draws)
    return "" if drawn else "the program itself drew no permutation"


def _flags(seen: Seen) -> str:
    return "" if any(one.of_infinities for one in seen.decisions) else "no test for infinities was read"


def _declared(seen: Seen) -> str:
    return "" if seen.declared else "no DTensor was declared to be replicated"


def _in_flight(seen: Seen) -> str:
    used = seen.messages or any(not call.row.blocking for call in seen.calls)
    return "" if used else "nothing was sent asynchronously"


def _messages(seen: Seen) -> str:
    return "" if seen.messages else "no rank sends another a message"


def _served(seen: Seen) -> str:
    return "" if seen.serves else "no rank serves others by torch.distributed.rpc"


def _many_ranks(seen: Seen) -> str:
    return "" if seen.world_size > 7 else f"it takes 8 ranks or more, and there are {seen.world_size}"


def _device(seen: Seen) -> str:
    return "" if seen.reads else "nothing was read from a device"


def _meshes(seen: Seen) -> str:
    return "" if len(set(seen.nodes.values())) > 1 and seen.meshes else "all ranks are in one node, or there is no mesh"


def _sharded(seen: Seen) -> str:
    return "" if seen.gatherings else "fully_shard was not called"


def _hooks(seen: Seen) -> str:
    return "" if any(call.hooked for call in seen.calls) else "no hook of the program's reduces gradients"


def _graph(seen: Seen) -> str:
    return "" if any(call.in_graph for call in seen.calls) else "no collective was called on what has a gradient"


def _lists(seen: Seen) -> str:
    return "" if any(call.kind.startswith("all_gather") for call in seen.calls) else "nothing was gathered"


def _reference(seen: Seen) -> str:
    return seen.parting if isinstance(seen.parting, str) else ""


def _resumption(seen: Seen) -> str:
    return seen.resumed if isinstance(seen.resumed, str) else ""


def _late_at_all(seen: Seen) -> str:
    return "" if "server" in (words := _lateness(seen)) else words


def _lateness(seen: Seen) -> str:
    return seen.lateness if isinstance(seen.lateness, str) else ""


_NEEDS: dict[str, tuple[Reason, ...]] = {
    "changed-in-flight": (_in_flight,), "used-before-wait": (_in_flight,),
    "checkpoint-incomplete": (_reads_again, _saves), "checkpoint-misses-ranks": (_saves,),
    "checkpoint-overwritten": (_saves,), "clipped-by-own-norm": (_clips,), "norm-counts-twice": (_squares,),
    "clipped-while-scaled": (_scaler,), "modes-differ": (_data_parallel, _modes),
    "parameters-wrong-mean": (_means,), "gradients-left-over": (_two_steps,),
    "gradients-thrown-away": (_two_steps, _microbatches), "divided-between-passes": (_microbatches,),
    "dropout-masks-equal": (_masks,), "dropout-masks-differ": (_masks,),
    "same-samples": (_data_parallel,),
    "epochs-alike": (_epochs,), "samples-never-read": (_samplers,), "tail-never-read": (_whole_epochs,),
    "evaluated-twice": (_evaluation,), "buffers-differ": (_buffers,), "copies-differ": (_copies,),
    "scheduler-steps-often": (_two_steps, _schedulers),
    "shards-equal": (_together,), "batches-differ": (_one_batch,), "noise-alike": (_noise,),
    "shuffled-apart": (_permutations,), "decided-apart": (_flags,), "declared-whole": (_declared,),
    "summed-in-16-bits": (_many_ranks,), "reads-each-step": (_device,), "busy-axis-between-nodes": (_meshes,),
    "sharded-as-one": (_sharded,), "buckets-against-backward": (_hooks,),
    "gathered-without-gradient": (_graph,),
    "results-share-memory": (_lists,), "parts-from-one-process": (_reference,), "resumed-apart": (_resumption,),
    "received-over": (_messages,), "answered-early": (_messages,), "update-lost": (_served,),
    "ends-otherwise-when-late": (_lateness,), "fails-when-late": (_late_at_all,),
    "replicas-drift": (_data_parallel,), "gradient-not-averaged": (_data_parallel,),
    "many-small-messages": (_two_steps,),
    "synchronised-each-microbatch": (_two_steps,), "waits-at-once": (_two_steps, _in_flight),
}  # fmt: skip
"""Rule -> what it takes, beside a step of an optimizer."""
_WITHOUT_STEPS = (
    "changed-in-flight", "used-before-wait", "results-share-memory", "decided-apart", "declared-whole",
    "objects-each-step", "batches-differ", "sharded-as-one", "parts-from-one-process", "resumed-apart",
    "evaluated-twice", "received-over", "answered-early", "update-lost", "state-never-found",
    "ends-otherwise-when-late", "fails-when-late",
)  # fmt: skip
"""Rules that a program without an optimizer can break, too."""
