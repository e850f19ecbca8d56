"""The hybrid step: compared with one process that has all samples, layers and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks import draws
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.compare import difference
from labkit.checks.declared import Mistake, Seen, declared, either
from labkit.checks.finding import Finding
from labkit.checks.groups import group_of
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.values import listed, record, tensor, tensors
from labkit.checks.wire import Wire
from labkit.exercises.keys_rows_failures.server_hybrid.driver import Dense, drive
from labkit.exercises.keys_rows_failures.server_hybrid.one_process import all_ranks, alone, own_steps, train
from labkit.words import plural


def hybrid_case(
    name: str, seed: int, num_workers: int, samples: int, num_steps: int, group: Sequence[int] | None = None,
    *, keys_a_sample: int = 2,
) -> Case:  # fmt: skip
    """Return a case of server_hybrid; with a group, three ranks more than it needs stand beside it."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    draw = draws.generator(seed)
    dense: dict[str, Value] = {"first": normal(3, 4), "bias": normal(4), "frozen": normal(4), "second": normal(4)}
    table = normal(7, 3)
    world_size = num_workers if group is None else max(group) + 2
    inputs: list[dict[str, Value]] = []
    for rank in range(world_size):
        draw = draws.generator(seed, "rank", rank)
        keys: list[Value] = [torch.randint(0, 7, (samples, keys_a_sample), generator=draw) for _ in range(num_steps)]
        targets: list[Value] = [normal(samples) for _ in range(num_steps)]
        each: dict[str, Value] = {"dense": dense, "table": table, "lr": 0.1, "keys": keys, "targets": targets}
        inputs.append(each | ({} if group is None else {"group": list(group)}))
    return Case(name, world_size, tuple(inputs))


def structure(case: Case) -> list[Any]:
    """Return what results look like: the oracle's, and how often a member pulled."""
    return [right if "member" in right else {**right, "num_pulls": int} for right in expected(case)]


def least_traffic(case: Case) -> dict[int, Bytes]:
    """Return what must travel: the dense part's gradients, in every step."""
    first = case.inputs[0]
    dense = cast(dict[str, Tensor], record(first, "dense"))
    num_trained = sum(tensor.numel() for name, tensor in dense.items() if name != "frozen")
    return both_ways(group_of(case), num_trained * len(tensors(first, "keys")))


def expected(case: Case) -> list[Values]:
    """Return the oracle's results."""
    return train(case)


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield the first loss, layer or pushed gradient that is not one process's."""
    right, ranks = expected(case), group_of(case)
    for rank in ranks:
        if got[rank].get("problem") == "attached":
            said = f"The loss that rank {rank} returned still holds its graph: return loss.detach()."
            yield Finding("the loss keeps its graph", said, rank=rank)
            return
    for rank in ranks:
        count, num_steps = len(listed(got[rank], "pushes")), len(tensors(case.inputs[0], "keys"))
        if count != num_steps:
            name = "nothing was pushed" if count < num_steps else "pushed more than once"
            yield Finding(
                name, f"Rank {rank} pushed {plural(count, 'time')} in {plural(num_steps, 'step')}.", rank=rank
            )
            return
    for rank in ranks:
        if wrong := _first_wrong(got[rank], right[rank]):
            yield Finding("", f"Rank {rank}'s {wrong}.", rank=rank)
    for step in range(len(tensors(case.inputs[0], "keys"))):
        came, good = (
            torch.stack([tensors(each[rank], "pushes")[step] for rank in ranks]).sum(0) for each in (got, right)
        )
        if wrong := _apart(came, good):
            samples, num_keys = tensors(case.inputs[ranks[0]], "keys")[step].shape
            times = {"rows not divided": float(len(ranks)), "rows divided twice": 1.0 / len(ranks)}
            times |= {"rows divided by the samples": 1.0 / samples, "rows divided by the keys": 1.0 / num_keys}
            times |= {"divided by the keys for the workers": len(ranks) / num_keys}
            times |= {"rows times the learning rate": cast(float, case.inputs[0]["lr"]), "rows the other way": -1.0}
            times |= {"divided by the samples for the workers": len(ranks) / samples}
            name = next(
                (name for name, factor in times.items() if torch.allclose(came, factor * good)), "other gradients"
            )
            if name == "other gradients" and _reduced_rows(case, [tensors(got[rank], "pushes")[0] for rank in ranks]):
                name = "the rows' gradients reduced"
            said = f"The gradients of rows that the servers add up in step {step + 1}: {wrong}."
            yield Finding(name, said)


def _reduced_rows(case: Case, pushed: list[Tensor]) -> bool:
    """Return whether in the first step each rank pushed the sum of all ranks' gradients, place by place, or a mean."""
    ranks, first = group_of(case), case.inputs[0]
    model, table = Dense(cast(dict[str, Tensor], record(first, "dense"))), tensor(first, "table")
    keys = [tensors(case.inputs[rank], "keys")[0] for rank in ranks]
    total: Tensor = torch.zeros(())
    for rank, mine in zip(ranks, keys, strict=True):
        rows = table[mine].requires_grad_()
        torch.autograd.backward(nn.functional.mse_loss(model(rows), tensors(case.inputs[rank], "targets")[0]))
        total = total + cast(Tensor, rows.grad).flatten(0, 1)
    made = [torch.zeros_like(table).index_add_(0, mine.flatten(), total) for mine in keys]
    return any(
        all(torch.allclose(came, one / len(ranks) ** power) for came, one in zip(pushed, made, strict=True))
        for power in (0, 1, 2)
    )


def _first_wrong(came: Values, right: Values) -> str:
    """Return which loss or layer is not right, in words; "" if all are."""
    for step, (mine, wanted) in enumerate(zip(listed(came, "losses"), tensors(right, "losses"), strict=True)):
        if wrong := _apart(mine, wanted):
            return f"loss of step {step + 1} is {wrong}"
    for name, wanted in cast(dict[str, Tensor], record(right, "dense")).items():
        if wrong := _apart(record(came, "dense")[name], wanted):
            return f"layer {name!r} has {wrong} after the steps"
    return ""


def _apart(mine: Value, wanted: Tensor) -> str:
    wrong = difference(mine, wanted, torch.full(wanted.shape, 1e-9, dtype=torch.float64))
    return "" if wrong is None else f"{wrong.got} where {wrong.expected} should be"


def _as_if(trained: Callable[[Case], list[Values]]) -> Seen:
    """Return the mark that losses and layers are those that one process comes to in a wrong way."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple) or any("losses" not in got[rank] for rank in group_of(case)):
            return False
        made = trained(case)
        return bool(made) and not any(_first_wrong(got[rank], made[rank]) for rank in group_of(case))

    return seen


def _stood_still(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether no layer has moved."""
    begin = cast(dict[str, Tensor], record(case.inputs[0], "dense"))
    members = [got[rank].get("dense") for rank in group_of(case)] if isinstance(got, tuple) else []
    return bool(members) and all(
        isinstance(each, dict) and not any(_apart(each[name], wanted) for name, wanted in begin.items())
        for each in members
    )


def _some_layers_alone(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether after one step each layer is right or as if the rank trained alone, and both occur."""
    if not isinstance(got, tuple) or len(tensors(case.inputs[0], "keys")) > 1:
        return False
    kinds = set()
    for rank, right, by_itself in zip(group_of(case), *_of_members(case), strict=True):
        for name, wanted in right.items():
            came, own = record(got[rank], "dense")[name], by_itself[name]
            if _apart(wanted, own):
                kinds.add("right" if not _apart(came, wanted) else "alone" if not _apart(came, own) else "other")
    return kinds == {"right", "alone"}


def _frozen_moved(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the frozen parameter is not what it was."""
    begin = cast(dict[str, Tensor], record(case.inputs[0], "dense"))["frozen"]
    there = [got[rank].get("dense") for rank in group_of(case)] if isinstance(got, tuple) else []
    return any(isinstance(each, dict) and bool(_apart(each["frozen"], begin)) for each in there)


def _of_members(case: Case) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
    """Return each member's layers as they should be, and as they are where it trains alone."""
    right, by_itself = (
        [cast(dict[str, Tensor], record(each[rank], "dense")) for rank in group_of(case)]
        for each in (expected(case), alone(case))
    )
    return right, by_itself


def _squares_summed(case: Case, got: Got, wire: Wire) -> bool:
    first = group_of(case)[0]
    samples = len(tensors(case.inputs[first], "targets")[0])
    if not isinstance(got, tuple) or samples == 1 or "losses" not in got[first]:
        return False
    return not _apart(listed(got[first], "losses")[0], samples * tensors(expected(case)[first], "losses")[0])


def _loss_of_a_share(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the first loss was divided by the number of workers."""
    ranks = group_of(case)
    if not isinstance(got, tuple) or "losses" not in got[ranks[0]]:
        return False
    pairs = [(listed(got[rank], "losses")[0], tensors(expected(case)[rank], "losses")[0]) for rank in ranks]
    return not any(_apart(came, right / len(ranks)) for came, right in pairs)


def _fails_with(*words: str) -> Seen:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        return isinstance(got, Failure) and all(word in f"{got.message} {got.detail}" for word in words)

    return seen


def _hangs_beside_a_group(case: Case, got: Got, wire: Wire) -> bool:
    hangs = isinstance(got, Failure) and got.kind != "exception"
    return hangs and case.inputs[0].get("group") is not None


EXERCISE = declared(
    id="server_hybrid",
    functions=("hybrid_step",),
    driver=drive,
    oracle=expected,
    structure=structure,
    returned={"losses": "hybrid_step"},
    least=least_traffic,
    looks=(find,),
    visible=(
        hybrid_case("2 workers, one step", 101, 2, 3, 1, keys_a_sample=5),
        hybrid_case("3 workers, 3 steps", 102, 3, 4, 3),
        hybrid_case("5 ranks, of which 3 train", 103, 3, 2, 2, group=[0, 2, 3]),
    ),
    hints=(
        "Whose samples are in a layer's gradient after backward? And how do the gradients of a row that two workers "
        "touched come together?",
        "rows = pull(...), made a leaf by requires_grad_(). After backward: all_reduce each layer's gradient and "
        "divide by the number of workers; optimizer.step(). Rows: servers add what all workers push, so push the "
        "gradient divided by the number of workers.",
        "for p in model.parameters(): if p.grad is not None: dist.all_reduce(p.grad, group=group); p.grad /= "
        "dist.get_world_size(group). Then push(keys.flatten(), rows.grad / dist.get_world_size(group)).",
    ),
    mistakes=(
        Mistake("all ranks counted in place of the group's",
                "The sum over the group was divided by the number of all ranks: "
                "dist.get_world_size(group).", seen=_as_if(all_ranks)),
        Mistake("the optimizer's state is lost",
                "The layers move as if the optimizer were made anew in each step, without its momentum, or as one "
                "with a learning rate and nothing else: use the one you are given.",
                seen=either(_as_if(lambda case: train(case, anew=True)), _as_if(lambda case: train(case, plain=True)))),
        Mistake("gradients of the step before are still there",
                "From the second step on, the sum contains old gradients: optimizer.zero_grad() before backward.",
                seen=_as_if(lambda case: train(case, keeps=True))),
        Mistake("sum instead of mean for the layers",
                "The layers took a step with the sum of the workers' gradients: divide by their number.",
                seen=_as_if(lambda case: train(case, lambda of: float(len(group_of(case)))))),
        Mistake("the layers' gradients divided twice",
                "The layers took a step as many times too small as there are workers: divide the sum of the gradients "
                "once.", seen=_as_if(lambda case: train(case, factor=1 / len(group_of(case))))),
        Mistake("no layer has moved",
                "The layers are where they began: optimizer.step() was not called, or it found no gradients. Clear "
                "those of the step before with zero_grad() before backward, not after it, and call step() last.",
                seen=_stood_still),
        Mistake("the layers' gradients multiplied",
                "The sum of the workers' gradients was multiplied by their number: divide by it.",
                seen=_as_if(lambda case: train(case, factor=float(len(group_of(case)) ** 2)))),
        Mistake("not all layers averaged",
                "Some layers moved by the mean over the workers, others by this worker's own gradient: all-reduce and "
                "divide each parameter's gradient, to the last of the loop.", seen=_some_layers_alone),
        Mistake("parameters divided",
                "The parameters themselves were divided by the number of workers: divide their gradients, p.grad.",
                seen=_as_if(lambda case: train(case, factor=float(len(group_of(case))), parameters=True))),
        Mistake("each takes its own step",
                "Each worker took a step with its own gradients, and the layers were averaged after it. That is "
                "another step where an optimizer keeps state: average the gradients first.", seen=_as_if(own_steps)),
        Mistake("layers not averaged",
                "The layers differ between ranks: each stepped with its own gradients. All-reduce every p.grad before "
                "the step. What was reduced in a copy, such as a torch.cat of them, does not reach p.grad: copy it "
                "back.", seen=_as_if(alone)),
        Mistake("the mean loss of all workers",
                "The loss that is returned is the mean over all workers; return that of this worker's own samples.",
                seen=_as_if(lambda case: train(case, shared=True))),
        Mistake("the loss after the step",
                "The loss that is returned is that of the layers after the step: return the one from before, which "
                "the step makes smaller.", seen=_as_if(lambda case: train(case, after=True))),
        Mistake("the sum of the squares",
                "The loss is the mean of the squared errors over the samples, not their sum.", seen=_squares_summed),
        Mistake("the loss of a share",
                "The loss that is returned is divided by the number of workers: return that of this worker's own "
                "samples as it is. Only gradients are shares of the mean.", seen=_loss_of_a_share),
        Mistake("a frozen parameter has a gradient",
                "The frozen parameter has moved, because it was given a gradient, of zeros for instance, and an "
                "optimizer shrinks each parameter that has one. Skip it: if p.grad is not None.", seen=_frozen_moved),
        Mistake("one row for each distinct key",
                "The model takes K rows for each sample, (B, K, D): one for each of keys.flatten(), also where a key "
                "occurs twice.", seen=either(_fails_with("mat1 and mat2 shapes"), _fails_with("is invalid for input")),
                certain=True),
        Mistake("a parameter without a gradient",
                "A parameter that is frozen or unused has no gradient: skip it, if p.grad is not None.",
                seen=_fails_with("NoneType", "all_reduce", "tensor"), certain=True),
        Mistake("rows without a gradient",
                "What pull returned is not a leaf of autograd, so backward leaves no gradient on it: "
                "rows.requires_grad_() before the model is called.",
                seen=either(_fails_with("NoneType"), _fails_with("does not require grad")), certain=True),
        Mistake("all ranks in place of the group",
                "With a group the workers are its members only: group=group in every "
                "collective, and their number is dist.get_world_size(group).", seen=_hangs_beside_a_group),
        Mistake("keys or gradients are not flat",
                "pull and push take flat keys, keys.flatten(); to the model the rows go as (B, K, D).",
                seen=either(_fails_with("it takes flat keys"), _fails_with("it takes one for each")),
                certain=True),
        Mistake("the rows' gradients reduced",
                "The rows' gradients were added up over the workers place by place, but at its places each worker has "
                "other keys. Push this worker's own, divided by the number of workers: the servers add them up."),
        Mistake("rows not divided",
                "The servers add up what all workers push, so what arrives is as many times too large as there are "
                "workers: push each worker's share, divided by their number."),
        Mistake("rows divided twice", "The gradients of the rows are too small by the number of workers: divide once."),
        Mistake("rows times the learning rate",
                "The gradients of the rows were multiplied by the learning rate. The servers do that: push gradients."),
        Mistake("rows the other way",
                "The gradients of the rows have the wrong sign: the servers subtract what is pushed, so push gradients "
                "and not steps."),
        Mistake("divided by the samples for the workers",
                "The gradients of the rows were divided by the number of a worker's samples, which the mean squared "
                "error has done already, and not by the number of workers."),
        Mistake("rows divided by the samples",
                "The gradients of the rows are too small by the number of samples of a worker: the mean squared error "
                "has divided by it already. Divide by the number of workers alone."),
        Mistake("rows divided by the keys",
                "The gradients of the rows are too small by K, the number of keys of a sample. Each place in keys has "
                "its own gradient: divide by the number of workers alone."),
        Mistake("divided by the keys for the workers",
                "The gradients of the rows were divided by K, the number of keys of a sample, and not by the number of "
                "workers."),
        Mistake("nothing was pushed",
                "The gradients of the rows never left this rank: push(keys, gradients), once a step."),
        Mistake("pushed more than once",
                "The servers add up all that they are pushed: push(keys, gradients) once a step."),
        Mistake("the loss keeps its graph",
                "Return loss.detach(): a caller that keeps losses would keep all activations."),
        Mistake("other gradients",
                "Push the gradient of the mean over all workers' samples, once for each place in keys."),
    ),
)  # fmt: skip
