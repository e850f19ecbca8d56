"""average_gradients: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.declared import Mistake, Seen, declared
from labkit.checks.draws import part_of
from labkit.checks.finding import Finding
from labkit.checks.on_ranks.hard_model import HardModel, hard_batch
from labkit.checks.on_ranks.model_state import gradients_of, loss_of, model_of, state_of
from labkit.checks.structure import and_more
from labkit.checks.tensor_values import close, compare_ranks, ratio_of
from labkit.checks.values import record, tensor
from labkit.checks.wire import Wire
from labkit.exercises.averaging import least_traffic, marks
from labkit.exercises.averaging.cases import PLAIN
from labkit.exercises.averaging.replay import average, models_of
from labkit.exercises.ddp.average_gradients.driver import drive
from labkit.exercises.ddp.starting import names_of, same


def gradient_case(name: str, seed: int, world_size: int, spare: tuple[int, ...] = (), **model: int) -> Case:
    """Return a case of average_gradients: equal models, a batch for each rank; `spare` ranks use the spare layer."""
    inputs: list[Values] = []
    for rank in range(world_size):
        x, y = hard_batch(part_of(seed, "rank", rank), 4)
        about = {**PLAIN, **model}
        inputs.append({"seed": part_of(seed, "model"), "model": about, "x": x, "y": y, "spare": rank in spare})
    return Case(name, world_size, tuple(inputs))


def _after_backward(case: Case) -> list[HardModel]:
    models = [model_of(inputs) for inputs in case.inputs]
    for model, inputs in zip(models, case.inputs, strict=True):
        output = model(tensor(inputs, "x"), spare=bool(inputs.get("spare")))
        torch.autograd.backward(loss_of(output, tensor(inputs, "y")))
    return models


def averaged(case: Case) -> list[Values]:
    """Return the mean gradients for every rank (the oracle of average_gradients)."""
    models = _after_backward(case)
    average(models)
    return [{"gradients": gradients_of(model), "state": state_of(model)} for model in models]


def wrong_averages(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: a gradient that is not the mean, a changed value, frozen parameters that travel too."""
    right = [dict(values) for values in averaged(case)]
    for key, what in (("gradients", "the gradient"), ("state", "the value")):
        if (found := compare_ranks(got, right, (key,), what)) is not None:
            yield found
    model = models_of(case)[0]
    most = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad) + 8 * 32
    sent = _given(case, wire)
    if sent > most:
        text = f"The gradients are right, but rank 0 gave {sent} bytes to collectives; trained parameters have {most}."
        frozen = sum(p.numel() * p.element_size() for p in model.parameters() if not p.requires_grad)
        yield Finding("frozen parameters travel" if sent == most - 8 * 32 + frozen > most else "", text)


def _given(case: Case, wire: Wire) -> int:
    """Return the bytes that rank 0 gave to collectives; what is gathered holds a part of each rank."""
    mine = [call for call in wire.collectives if call.rank == 0]
    return sum(call.bytes // (case.world_size if call.kind.startswith("all_gather") else 1) for call in mine)


def _ratio(of: str) -> Seen:
    """Return a test: the wrong gradients are the mean times N ("N"), 1/N ("1/N"), N over a constant ("N/c")
    or N * N ("NN")."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple):
            return False
        size = case.world_size
        wanted: dict[str, list[float]] = {
            "N": [size],
            "1/N": [1 / size],
            "NN": [size**2],
            "N/c": [size / c for c in (2, 3, 4, 8) if c not in (size, size**2)],
        }
        right = cast(dict[str, Value], averaged(case)[0]["gradients"])
        came: Value = got[0].get("gradients")
        if not isinstance(came, dict):
            return False
        ratios = [
            ratio_of(mine, mean)
            for name, mean in list(right.items())
            if isinstance(mean, Tensor) and isinstance(mine := came.get(name), Tensor) and mine.shape == mean.shape
        ]
        return bool(ratios) and any(
            all(ratio is not None and abs(ratio - factor) < 1e-6 for ratio in ratios) for factor in wanted[of]
        )

    return seen


def _some_are_sums(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether each gradient on rank 0 is the mean over the ranks or the sum, and both occur."""
    pairs = [pair for rank in _gradients_of_ranks(case, got)[:1] for pair in rank.values() if pair[1] is not None]
    if not all(
        isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape for one, other in pairs
    ):
        return False
    ratios = {round(ratio_of(cast(Tensor, one), cast(Tensor, other)) or 0.0, 6) for one, other in pairs}
    return ratios == {1.0, float(case.world_size)}


def _own(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple):
        return False
    own = [gradients_of(model) for model in _after_backward(case)]
    return all(same(values.get("gradients"), mine) for values, mine in zip(got, own, strict=True))


def _all_have_rank_0s(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether every rank has rank 0's own gradients."""
    mine = gradients_of(_after_backward(case)[0])
    return isinstance(got, tuple) and case.world_size > 1 and all(same(values.get("gradients"), mine) for values in got)


def _gradients_of_ranks(case: Case, got: Got) -> list[dict[str, tuple[Value, Value]]]:
    """Return for each rank what came and what must come, by the parameter's name."""
    found = []
    for values, right in zip(got if isinstance(got, tuple) else (), averaged(case), strict=False):
        came, wanted = values.get("gradients"), record(right, "gradients")
        found.append({name: (came.get(name) if isinstance(came, dict) else None, wanted[name]) for name in wanted})
    return found


def _frozen_has_one(case: Case, got: Got, wire: Wire) -> bool:
    ranks = _gradients_of_ranks(case, got)
    return any(
        pair[0] is not None and pair[1] is None for rank in ranks for n, pair in rank.items() if n in marks.FROZEN
    )


def _mean_not_kept(case: Case, got: Got, wire: Wire) -> bool:
    pairs = [pair for rank in _gradients_of_ranks(case, got) for pair in rank.values()]
    wrong = [came for came, wanted in pairs if not close(came, wanted)]
    return bool(wrong) and all(came is None for came in wrong) and len(wrong) < len(pairs)


def _empty_for_zeros(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether NaN came: in this check that is what a tensor of torch.empty holds."""
    pairs = [pair for rank in _gradients_of_ranks(case, got) for pair in rank.values()]
    return any(isinstance(came, Tensor) and bool(came.isnan().any()) for came, _ in pairs)


def _biases_left_out(case: Case, got: Got, wire: Wire) -> bool:
    wrong = names_of(case, got, "gradients", averaged(case)) - set(marks.SPARE)
    model = models_of(case)[0]
    used = {n: p for n, p in model.named_parameters() if p.requires_grad and n not in marks.SPARE}
    return wrong in ({n for n, p in used.items() if p.dim() < 2}, {n for n in used if n.endswith("bias")})


def _shared_twice(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the bytes of the shared weight were given once more than those of all trained parameters."""
    model = models_of(case)[0]
    once = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    shared = model.mix.weight.numel() * model.mix.weight.element_size()
    given = _given(case, wire)
    return isinstance(got, tuple) and model.remix.weight is model.mix.weight and given == once + shared


def _own_pairs(case: Case, got: Got) -> Iterator[tuple[Value, Value, Value]]:
    """Yield what came, what must come and the rank's own, for each gradient of each rank that has one of its own."""
    ranks = _gradients_of_ranks(case, got)
    for of_rank, model in zip(ranks, _after_backward(case) if ranks else (), strict=False):
        own = gradients_of(model)
        yield from ((*pair, own[name]) for name, pair in of_rank.items() if isinstance(own[name], Tensor))


def _divided_only(case: Case, got: Got, wire: Wire) -> bool:
    found = list(_own_pairs(case, got))
    return bool(found) and all(isinstance(own, Tensor) and close(came, own / case.world_size) for came, _, own in found)


def _all_zero(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether every gradient is 0 on every rank that had one of its own."""
    found = list(_own_pairs(case, got))
    return bool(found) and all(isinstance(came, Tensor) and not came.any() for came, _, _ in found)


def _some_as_they_were(case: Case, got: Got, wire: Wire) -> bool:
    wrong = [(came, own) for came, wanted, own in _own_pairs(case, got) if not close(came, wanted)]
    return bool(wrong) and all(close(came, own) for came, own in wrong)


def _another_operation(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether rank 0's gradients are another operation's, divided by the ranks or not."""
    if not isinstance(got, tuple):
        return False
    own = [gradients_of(model) for model in _after_backward(case)]
    came: Value = got[0].get("gradients")
    names = [name for name in own[0] if all(isinstance(each[name], Tensor) for each in own)]
    if not isinstance(came, dict) or not names:
        return False
    for operation in (torch.amax, torch.amin, torch.prod):
        found = {name: operation(torch.stack([cast(Tensor, each[name]) for each in own]), 0) for name in names}
        if any(all(close(came.get(n), each / by) for n, each in found.items()) for by in (1, case.world_size)):
            return True
    return False


def _parameters_moved(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether all gradients are right and a parameter is not."""
    if not isinstance(got, tuple):
        return False
    right = averaged(case)
    return all(
        same(one.get("gradients"), record(other, "gradients")) for one, other in zip(got, right, strict=True)
    ) and any(not same(one.get("state"), record(other, "state")) for one, other in zip(got, right, strict=True))


def _calls_differ(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a layer is not used by all, and the ranks made different numbers of calls, or came to no end."""
    counts = {sum(call.rank == rank for call in wire.collectives) for rank in range(case.world_size)}
    own = marks.says("assign a gradient")(case, got, wire) or _zeros_require_gradients(case, got, wire)
    differ = (isinstance(got, Failure) and not own) or len(counts) > 1
    return any(inputs.get("spare") for inputs in case.inputs) and differ


def _zeros_require_gradients(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a gradient itself was a leaf that requires one."""
    leaf = marks.says("leaf Variable that requires grad")(case, got, wire)
    return leaf and isinstance(got, Failure) and ".grad" in got.detail.rstrip().rpartition("\n")[2]


MISTAKES = (
    marks.TO_ONE,
    marks.UNWAITED,
    Mistake("sum instead of mean",
            f"{marks.SUM.hint} Divide in place, parameter.grad /= N: grad = parameter.grad / N makes another tensor.",
            seen=_ratio("N")),
    Mistake("another operation",
            "The numbers are the largest or smallest over the ranks, or their product, not what they add up to: "
            "all_reduce adds by default, ReduceOp.SUM.", seen=_another_operation),
    Mistake("a step for the optimizer",
            "The gradients are right, and parameters have changed. Whoever calls takes the step: only gradients are "
            "yours.", seen=_parameters_moved),
    Mistake("multiplied, not divided", marks.MULTIPLIED.hint, seen=_ratio("NN")),
    Mistake("not all divided",
            "Some gradients are the mean over all ranks, others as large as the sum: divide each by "
            "dist.get_world_size(), inside the loop, also where only some ranks had a gradient.", seen=_some_are_sums),
    Mistake("divided twice", marks.TWICE.hint, seen=_ratio("1/N")),
    Mistake("divided by a constant", marks.CONSTANT.hint, seen=_ratio("N/c")),
    Mistake("never averaged", "Every rank still has its own gradients. Either nothing was reduced, or something else "
            "than parameter.grad (a copy of it, the parameter's values), and the result was never written into "
            "parameter.grad.",
            seen=_own),
    Mistake("rank 0's gradients for all",
            "Every rank has rank 0's own gradients: broadcast hands them out and adds nothing. The mean is over all "
            "ranks: dist.all_reduce, then divide.", seen=_all_have_rank_0s),
    Mistake("frozen parameters travel",
            "Bytes travel for frozen parameters too. Leave out all that have requires_grad=False: they have no "
            "gradient on any rank."),
    Mistake("gradients set to zero",
            "Every gradient is 0: zeros belong only where this rank has no gradient, grad is None.", seen=_all_zero),
    Mistake("divided, never added up",
            "Every gradient is the rank's own, divided by the number of ranks: the others' were never added. "
            "all_reduce adds up in the tensor that it is given: give it parameter.grad itself, not a copy.",
            seen=_divided_only),
    Mistake("biases left out", marks.BIASES.hint, seen=_biases_left_out),
    Mistake("some are left out",
            "Some gradients are averaged and others are as they were: the loop must go through all that are trained.",
            seen=_some_as_they_were),
    Mistake("the shared weight counted twice", marks.TIED.hint, seen=_shared_twice),
    Mistake("frozen parameters get zeros",
            "A frozen parameter (requires_grad=False) needs no gradient and must keep grad None: leave it out before "
            "you ask whether there is a gradient.", seen=_frozen_has_one),
    Mistake("the mean was not kept",
            "A rank without a gradient still has none: the zeros were sent, but the mean came back into a separate "
            "tensor. Make that tensor parameter.grad.", seen=_mean_not_kept),
    Mistake("memory as it was for zeros",
            "torch.empty and empty_like take memory with what it held before (in this check NaN, so that it shows). "
            "A rank without a gradient contributes zeros: torch.zeros_like(parameter).", seen=_empty_for_zeros),
    Mistake("zeros of another type",
            "The zeros have another dtype, shape or device than the parameter: torch.zeros(shape) is float32 on "
            "the CPU. torch.zeros_like(parameter) is like the parameter in all three.",
            seen=marks.says("assign a gradient"), certain=True),
    Mistake("zeros that require a gradient",
            "The zeros were made with requires_grad=True, and autograd guards them against changes in place. A "
            "gradient needs no gradient: torch.zeros_like(parameter).", seen=_zeros_require_gradients, certain=True),
    Mistake("a missing gradient is skipped",
            "A rank that did not use a layer has grad None there and skips the call, while another rank makes it: the "
            "calls no longer fit together. Put zeros first, on every rank.",
            seen=_calls_differ),
    Mistake("None is reduced",
            "A grad is None in your all_reduce. Leave out a frozen parameter (requires_grad=False); for one that this "
            "rank did not use put zeros there, because another rank may have used it.",
            seen=marks.says("NoneType"), certain=True),
    Mistake("ranks call different things", marks.BRANCH.hint, seen=marks.hangs, general=True),
)  # fmt: skip

EXERCISE = declared(
    id="average_gradients",
    functions=("average_gradients",),
    driver=drive,
    oracle=averaged,
    least=least_traffic.of_gradients,
    structure=and_more(averaged, same_tensors=bool),
    visible=(
        gradient_case("3 ranks, a model with biases", 321, 3, frozen=False, tied=False),
        gradient_case("2 ranks, a frozen layer and a shared weight", 322, 2),
        gradient_case("4 ranks, all of it", 323, 4),
        gradient_case("3 ranks, a layer that only rank 1 used", 324, 3, spare=(1,), unused=True),
    ),
    hints=(
        "all_reduce adds. Who divides, and by what? And which parameters have no gradient at all?",
        "For each parameter that needs a gradient: where this rank has none, put zeros, because another rank may have "
        "one, and all must call all_reduce equally often. Then all_reduce parameter.grad and divide it by the "
        "world size.",
        "if p.grad is None: p.grad = torch.zeros_like(p); dist.all_reduce(p.grad); p.grad /= dist.get_world_size()",
    ),
    looks=(wrong_averages,),
    mistakes=MISTAKES,
)
