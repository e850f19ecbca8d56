"""Replicas whose gradients arrive in the original."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.on_ranks.hard_model import hard_batch
from labkit.checks.on_ranks.model_state import gradients_of, loss_of, model_of, state_of
from labkit.checks.structure import NOTHING, WRONG_LENGTH, OneOf
from labkit.checks.tensor_values import close, first_wrong, ratio_of
from labkit.checks.values import flag, listed, tensors, texts
from labkit.checks.wire import Wire
from labkit.exercises.data_parallel.one_process import BUFFERS, Gradients, Tensors, add_up, wrong_tensors
from labkit.exercises.data_parallel.replicate.driver import drive
from labkit.words import join


def replicas_case(
    name: str, seed: int, devices: int | Sequence[str], *, train: bool = True, size: int = 4, **model: int
) -> Case:
    """Return a case of replicate; devices by name, or how many CPUs."""
    names = ["cpu"] * devices if isinstance(devices, int) else list(devices)
    batches = [hard_batch(100 * seed + number, size) for number in range(len(names))]
    given: dict[str, Value] = {
        "seed": draws.part_of(seed, "model"), "model": {"unused": False, **model},
        "devices": names, "train": train,
        "x": [x for x, _ in batches], "y": [y for _, y in batches],
    }  # fmt: skip
    return Case(name, 1, (given,))


def _devices(case: Case) -> list[str]:
    return texts(case.inputs[0], "devices")


@lru_cache(maxsize=64)
def _alone(case: Case) -> tuple[list[Value], list[Gradients], dict[str, Value]]:
    """Return every replica's output and gradients, as a model of its own has them, and the state after replica 0."""
    inputs = case.inputs[0]
    outputs: list[Value] = []
    gradients: list[Gradients] = []
    state: dict[str, Value] = {}
    batches = zip(tensors(inputs, "x"), tensors(inputs, "y"), strict=True)
    for number, (x, y) in enumerate(batches):
        model = model_of(inputs)
        model.train(flag(inputs, "train"))
        output = model(x)
        torch.autograd.backward((number + 1) * loss_of(output, y))
        outputs.append(output.detach())
        gradients.append(cast(Gradients, gradients_of(model)))
        state = state or state_of(model)
    return outputs, gradients, state


def expected(case: Case) -> list[Values]:
    """Return what the driver must return (the oracle)."""
    devices = _devices(case)
    right: dict[str, Value] = {"replicas": [None] * len(devices), "places": [[device] for device in devices]}
    if set(devices) == {"cpu"}:
        outputs, gradients, state = _alone(case)
        right |= {
            "outputs": outputs,
            "gradients": add_up(gradients),
            "state": state,
            "again": [],
            "shared": [],
            "same_tensors": True,
        }
    return [right]


def structure(case: Case) -> list[Any]:
    """Return the structure of what must come, where a parameter's gradient may be missing; `find` says which."""
    (right,) = expected(case)
    wanted: dict[str, Any] = dict(right)
    if "gradients" in right:
        wanted["gradients"] = {name: OneOf((each, None)) for name, each in wanted["gradients"].items()}
    return [wanted]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with where replicas lie, what they compute, and where gradients and buffers arrive."""
    came, right = got[0], expected(case)[0]
    if came["replicas"] != right["replicas"]:  # no list, or one of another length
        return
    if came["places"] != right["places"]:
        where = [join(cast(list[str], each)) for each in listed(came, "places")]
        text = f"The replicas compute with tensors on {join(where)}; the devices are {join(_devices(case))}."
        yield Finding(_ELSEWHERE, text, str(_devices(case)), str(where))
    if "outputs" not in right:
        return
    mine, outputs = listed(came, "outputs"), listed(right, "outputs")
    for number, (output, wanted) in enumerate(zip(mine, outputs, strict=True)):
        if not close(output, wanted):
            yield Finding(_of_outputs(case, mine), f"Replica {number} does not compute what the module computes.")
    if not came["same_tensors"]:
        yield Finding(_CHANGED, "The module holds other tensors than before; the optimizer knows the old ones.")
    gradients, state = cast(Tensors, came["gradients"]), cast(Tensors, came["state"])
    wanted_gradients, wanted_state = cast(Tensors, right["gradients"]), cast(Tensors, right["state"])
    yield from wrong_tensors(
        gradients, wanted_gradients, "After backward the gradient", _of_gradients(case, gradients, wanted_gradients)
    )
    yield from wrong_tensors(
        state, wanted_state, "After the replicas have run, the module's value", _of_buffers(case, state, wanted_state)
    )
    if came["again"]:
        number = cast(list[int], came["again"])[0]
        text = f"Values and gradients are right, but replica {number} is the same module as a replica before it."
        yield Finding(_AGAIN, text)
    if came["shared"]:
        text = (
            f"Values and gradients are right, but replica {cast(list[int], came['shared'])[0]} computes with memory of "
            "the module or of another replica: what it writes is seen there."
        )
        yield Finding(_SHARED, text)


def _of_outputs(case: Case, came: list[Value]) -> str:
    """Return the mistake that wrong outputs show, or ""."""
    inputs = case.inputs[0]
    turned = replace(case, inputs=({**inputs, "train": not inputs["train"]},))
    return _OTHER_MODE if all(map(close, came, _alone(turned)[0])) else ""


def _of_gradients(case: Case, came: Tensors, right: Tensors) -> str:
    """Return the mistake that wrong gradients show, or ""."""
    if all(each is None for each in came.values()):
        return _DETACHED
    if any(came[name] is None and right[name] is not None for name in right):
        return _SOME
    own, count = _alone(case)[1], len(_devices(case))
    ways: list[tuple[str, Callable[[], Tensors]]] = []
    if count > 1:
        ways = [(_ONLY_FIRST, lambda: own[0]), (_ONLY_OTHERS, lambda: add_up(own[1:]))]
    found = as_if(came, ways, lambda mine, other: first_wrong(dict(mine), other) is None)
    if found:
        return found
    there = [(came[name], wanted) for name, wanted in right.items() if isinstance(wanted, Tensor)]
    ratios = [ratio_of(a, b) if isinstance(a, Tensor) and a.shape == b.shape else None for a, b in there]
    if count > 1 and all(ratio is not None and abs(ratio * count - 1) < 1e-6 for ratio in ratios):
        return _AVERAGED
    return _TIED if [name for name in right if not close(came[name], right[name])] == ["mix.weight"] else ""


def _of_buffers(case: Case, came: Tensors, right: Tensors) -> str:
    """Return the mistake that wrong buffers show, or ""."""
    counted, mean = BUFFERS[2], BUFFERS[0]
    if not case.inputs[0]["train"] or counted not in right:
        return ""
    before = cast(Tensor, state_of(model_of(case.inputs[0]))[counted])
    seen = int(cast(Tensor, came[counted]) - before)
    if seen == 1:
        return "" if close(came[mean], right[mean]) else _OTHERS_BUFFERS
    return _ALL_BUFFERS if seen > 1 else _NO_BUFFERS


def _on_the_wrong_device(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, Failure) and "meta" in _devices(case)


_OTHER_MODE, _SOME = "another mode", "some parameters left out"
_MOVED = "moved as a whole module"
_DETACHED, _ONLY_FIRST, _ONLY_OTHERS, _AVERAGED, _TIED = (
    "detached", "only replica 0's gradients", "only the others' gradients", "averaged", "the shared weight lost",
)  # fmt: skip
_ALL_BUFFERS, _NO_BUFFERS, _OTHERS_BUFFERS, _SHARED, _ELSEWHERE, _CHANGED, _AGAIN = (
    "buffers of all replicas", "buffers of nobody", "another replica's buffers", "the same memory",
    "not on its device", "the module changed", "one module for several replicas",
)  # fmt: skip


def _lacks_a_name(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a replica that came back failed on a name that is not there."""
    lacks = isinstance(got, Failure) and got.error == "AttributeError" and "object has no attribute" in got.message
    return lacks and isinstance(got, Failure) and " in replicate" not in got.detail


EXERCISE = declared(
    id="replicate",
    functions=("replicate",),
    driver=drive,
    oracle=expected,
    structure=structure,
    looks=(find,),
    visible=(
        replicas_case("2 devices, plain layers", 131, 2, norm=False, tied=False, frozen=False),
        replicas_case("3 devices, a weight that two layers share", 132, 3, norm=False),
        replicas_case("4 devices, BatchNorm in training", 133, 4),
        replicas_case("3 devices, BatchNorm in evaluation", 134, 3, train=False),
        replicas_case("two kinds of device", 135, ["cpu", "meta"]),
    ),
    distributed=False,
    hints=(
        "Which tensors does a module hold? For each of them you need one that takes its place in the replica, and that "
        "autograd can trace back to the original.",
        "tensor.to(device, copy=True) is such a tensor. A memo {id(tensor): its stand-in} for all parameters and "
        "buffers makes copy.deepcopy(module, memo) use them. Replica 0 must write into the original's buffers: no copy "
        "there.",
        "memo = {id(t): t.to(device, copy=number > 0) for t in [*module.parameters(), *module.buffers()]}, then "
        "copy.deepcopy(module, memo), for each device.",
    ),
    mistakes=(
        Mistake(_OTHER_MODE,
                "The replicas are in another mode than the module, training or evaluation: BatchNorm and Dropout "
                "compute otherwise there. A deep copy keeps the module's mode."),
        Mistake(NOTHING, "Return the list of replicas: print shows a value, return hands it back."),
        Mistake("a replica lacks a name",
                "A replica lacks an attribute that the given module has. A parameter that is None (a layer without a "
                "bias) has a name too, and so has every buffer; copy.deepcopy(module, memo) copies all of them.",
                seen=_lacks_a_name, certain=True),
        Mistake(WRONG_LENGTH, "Return one replica for each device, also where a device occurs several times."),
        Mistake(_DETACHED,
                "No gradient arrives in the module: the replicas hold new parameters, with nothing between them and "
                "the original. A copy must be made by an operation that autograd sees (clone, .to with copy=True), "
                "and not under no_grad, by detach, .data or a bare deepcopy."),
        Mistake(_SOME,
                "Some parameters get no gradient: in no replica does a copy that autograd sees stand in their place. "
                "module.parameters() lists those of all submodules; recurse=False, or a look at one kind of layer, "
                "leaves some out."),
        Mistake(_ONLY_FIRST,
                "The module has the gradients of replica 0 alone: the other replicas are cut off from it. What stands "
                "in a parameter's place must come out of it by an operation that autograd sees, .to(device, "
                "copy=True): load_state_dict and deepcopy leave no trace, and a memo is keyed by id(parameter)."),
        Mistake(_MOVED,
                "module.to() moves Parameters, and a copy that autograd can follow is none. Move each tensor, "
                "tensor.to(device, copy=True), before it takes its place in the replica.",
                says=("param must be a Parameter",), certain=True),
        Mistake(_ONLY_OTHERS,
                "The gradients of replica 0 are missing: it is cut off from the module, or another replica's gradient "
                "was written over its own. They must add up."),
        Mistake(_AVERAGED,
                "The gradients are divided by the number of replicas. They must add up: the mean is the loss's "
                "business."),
        Mistake(_TIED,
                "Only the weight that two layers share is wrong: named_parameters() lists it once, so the second "
                "layer kept its own copy. Replace the weight everywhere it is used; a memo keyed by id does that."),
        Mistake(_ALL_BUFFERS,
                "Every replica wrote into the module's buffers. Only replica 0 may: give the others copies, "
                "buffer.to(device, copy=True); a plain .to(device) returns the same tensor if it is on that device "
                "already."),
        Mistake(_NO_BUFFERS,
                "The module's buffers did not change: what BatchNorm learned in this step is lost. Replica 0 must "
                "hold the module's own buffers, not copies."),
        Mistake(_OTHERS_BUFFERS, "The module's buffers are not those that replica 0 has written."),
        Mistake(_AGAIN,
                "Several replicas are one and the same module. copy.deepcopy notes in the memo what it has copied, and "
                "with the same memo returns it again: make a new memo, with new copies, for each replica."),
        Mistake(_SHARED,
                "Replicas from 1 on need tensors of their own. Where the tensor is already on the device, .to(device) "
                "returns it unchanged; .to(device, copy=True) makes a copy. Each "
                "replica needs its own."),
        Mistake(_ELSEWHERE, "Parameters and buffers of replica i belong on devices[i].", seen=_on_the_wrong_device,
                certain=True),
        Mistake(_CHANGED,
                "The module itself was changed: its parameters are other tensors now. Put the copies into the "
                "replicas."),
    ),
)  # fmt: skip
