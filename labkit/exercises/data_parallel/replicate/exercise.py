"""Replicas whose gradients arrive in the original."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.draws import part_of
from labkit.checks.judged import Mistake, judged
from labkit.checks.on_ranks.hard_model import hard_batch
from labkit.checks.on_ranks.model_state import gradients_of, loss_of, model_of, state_of
from labkit.checks.tensor_values import close, first_wrong, ratio_of
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.data_parallel.one_process import BUFFERS, Gradients, add_up, wrong_tensor
from labkit.exercises.data_parallel.replicate.driver import drive
from labkit.words import join, plural


def replicas_case(
    name: str, seed: int, devices: int | Sequence[str], *, train: bool = True, size: int = 4, **model: bool
) -> Case:
    """Return a case of replicate; devices by name, or how many CPUs."""
    names = ["cpu"] * devices if isinstance(devices, int) else list(devices)
    batches = [hard_batch(100 * seed + number, size) for number in range(len(names))]
    given: dict[str, Value] = {
        "seed": part_of(seed, "model"), "model": {"unused": False, **model},
        "devices": cast(Value, names), "train": train,
        "x": [x for x, _ in batches], "y": [y for _, y in batches],
    }  # fmt: skip
    return Case(name, 1, (given,))


def _devices(case: Case) -> list[str]:
    return cast(list[str], case.inputs[0]["devices"])


@lru_cache(maxsize=64)
def _alone(case: Case) -> tuple[list[Value], list[Gradients], dict[str, Value]]:
    """Return every replica's output and gradients, as a model of its own has them, and the state after replica 0."""
    inputs = case.inputs[0]
    outputs: list[Value] = []
    gradients: list[Gradients] = []
    state: dict[str, Value] = {}
    batches = zip(cast(list[Tensor], inputs["x"]), cast(list[Tensor], inputs["y"]), strict=True)
    for number, (x, y) in enumerate(batches):
        model = model_of(inputs)
        model.train(cast(bool, inputs["train"]))
        output = model(x)
        torch.autograd.backward((number + 1) * loss_of(output, y))
        outputs.append(output.detach())
        gradients.append(cast(Gradients, gradients_of(model)))
        state = state or state_of(model)
    return outputs, gradients, state


def expected(case: Case) -> list[Values]:
    """Return what the driver must return (the oracle)."""
    devices = _devices(case)
    right: dict[str, Value] = {"count": len(devices), "places": [[device] for device in devices]}
    if set(devices) == {"cpu"}:
        outputs, gradients, state = _alone(case)
        right |= {
            "outputs": outputs,
            "gradients": cast(Value, add_up(gradients)),
            "state": state,
            "shared": [],
            "training": [True] * len(devices),
            "same_tensors": True,
        }
    return [right]


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether replicas compute what the module does, and gradients and buffers are where they belong."""
    assert isinstance(got, tuple)
    right, came = expected(case)[0], got[0]
    if came.get("count") != right["count"]:
        what = plural(cast(int, came["count"]), "replica") if "count" in came else "no list of replicas"
        return Verdict(False, f"There are {len(_devices(case))} devices, and replicate returned {what}.")
    if came.get("places") != right["places"]:
        where = [join(cast(list[str], each)) for each in cast(list[Value], came["places"])]
        return Verdict(
            False,
            f"The replicas' tensors lie on {join(where)}; the devices are {join(_devices(case))}.",
            expected=str(_devices(case)),
            got=str(where),
        )
    if "outputs" not in right:
        return Verdict(True)
    for number, output in enumerate(cast(list[Value], right["outputs"])):
        if not close(cast(list[Value], came["outputs"])[number], output):
            return Verdict(False, f"Replica {number} does not compute what the module computes.")
    if not came["same_tensors"]:
        return Verdict(False, "The module holds other tensors than before; the optimizer knows the old ones.")
    wrong = wrong_tensor(came["gradients"], right["gradients"], "After backward the gradient")
    wrong = wrong or wrong_tensor(came["state"], right["state"], "After the replicas have run, the module's value")
    if wrong is not None:
        return wrong
    if came["shared"]:
        numbers = cast(list[int], came["shared"])
        return Verdict(
            False,
            f"Values and gradients are right, but replica {numbers[0]} holds tensors that lie in the memory of the "
            "module or of another replica: what it writes is seen there.",
        )
    if came["training"] != right["training"]:
        return Verdict(False, "A replica is in training mode and the module is not, or the other way round.")
    return Verdict(True)


def _no_gradients(case: Case, got: Got, wire: Wire) -> bool:
    came = got[0].get("gradients") if isinstance(got, tuple) else None
    return isinstance(came, dict) and all(each is None for each in came.values())


def _gradients_are(make: Callable[[list[Gradients]], Gradients]) -> Callable[[Case, Got, Wire], bool]:
    """Return a test: whether the gradients that came are what this makes of each replica's own."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple) or "gradients" not in got[0]:
            return False
        own = _alone(case)[1]
        return len(own) > 1 and first_wrong(got[0]["gradients"], cast(dict[str, Value], make(own))) is None

    return seen


def _averaged(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple) or not isinstance(got[0].get("gradients"), dict):
        return False
    right = cast(dict[str, Value], expected(case)[0]["gradients"])
    came = cast(dict[str, Value], got[0]["gradients"])
    pairs = [(came.get(name), wanted) for name, wanted in right.items() if isinstance(wanted, Tensor)]
    ratios = [ratio_of(a, b) if isinstance(a, Tensor) and a.shape == b.shape else None for a, b in pairs]
    count = len(_devices(case))
    return count > 1 and all(ratio is not None and abs(ratio * count - 1) < 1e-6 for ratio in ratios)


def _tied_lost(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple) or not isinstance(got[0].get("gradients"), dict):
        return False
    right = cast(dict[str, Value], expected(case)[0]["gradients"])
    came = cast(dict[str, Value], got[0]["gradients"])
    return [name for name in right if not close(came.get(name), right[name])] == ["mix.weight"]


def _batches_seen(case: Case, got: Got) -> int | None:
    """Return how many batches BatchNorm's buffers in the module have seen."""
    state = got[0].get("state") if isinstance(got, tuple) else None
    name = BUFFERS[2]
    if not isinstance(state, dict) or not isinstance(state.get(name), Tensor) or not case.inputs[0]["train"]:
        return None
    before = cast(Tensor, state_of(model_of(case.inputs[0]))[name])
    return int(cast(Tensor, state[name]) - before)


def _buffers_of_all(case: Case, got: Got, wire: Wire) -> bool:
    seen = _batches_seen(case, got)
    return seen is not None and seen > 1


def _buffers_of_nobody(case: Case, got: Got, wire: Wire) -> bool:
    return _batches_seen(case, got) == 0


def _buffers_of_another(case: Case, got: Got, wire: Wire) -> bool:
    if _batches_seen(case, got) != 1 or not isinstance(got, tuple):
        return False
    right, came = expected(case)[0]["state"], got[0]["state"]
    return not close(cast(dict[str, Value], came).get(BUFFERS[0]), cast(dict[str, Value], right)[BUFFERS[0]])


EXERCISE = judged(
    id="replicate",
    functions=("replicate",),
    driver=drive,
    oracle=expected,
    judge=judge,
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
        Mistake(
            "detached",
            "No gradient arrives in the module: the replicas hold new parameters, with nothing between them and the "
            "original. A stand-in must be made by an operation that autograd sees (clone, .to with copy=True), and not "
            "under no_grad, by detach, .data or a bare deepcopy.",
            _no_gradients,
        ),
        Mistake(
            "only replica 0's gradients",
            "The module has the gradients of replica 0 alone: the other replicas are cut off from it.",
            _gradients_are(lambda own: own[0]),
        ),
        Mistake(
            "only the others' gradients",
            "The gradients of replica 0 are missing: it is cut off from the module.",
            _gradients_are(lambda own: add_up(own[1:])),
        ),
        Mistake(
            "averaged",
            "The gradients are divided by the number of replicas. They must add up: the mean is the loss's business.",
            _averaged,
        ),
        Mistake(
            "the shared weight lost",
            "Only the weight that two layers share is wrong: named_parameters() lists it once, so the second layer "
            "kept a copy of its own. Replace it wherever it is used; a memo by id does that.",
            _tied_lost,
        ),
        Mistake(
            "buffers of all replicas",
            "Every replica wrote into the module's buffers. Only replica 0 may: give the others copies, "
            "buffer.to(device, copy=True); a plain .to(device) returns the same tensor where it lies there already.",
            _buffers_of_all,
        ),
        Mistake(
            "buffers of nobody",
            "The module's buffers are as they were: what BatchNorm learned in this step is lost. Replica 0 must hold "
            "the module's own buffers, not copies.",
            _buffers_of_nobody,
        ),
        Mistake(
            "another replica's buffers",
            "The module's buffers are not those that replica 0 has written.",
            _buffers_of_another,
        ),
        Mistake(
            "the same memory",
            "On logical devices .to(device) returns the same tensor. Ask for a copy: .to(device, copy=True).",
            lambda case, got, wire: isinstance(got, tuple) and bool(got[0].get("shared")),
        ),
        Mistake(
            "not on its device",
            "Parameters and buffers of replica i belong on devices[i].",
            lambda case, got, wire: (
                (isinstance(got, tuple) and "places" in got[0] and got[0]["places"] != expected(case)[0]["places"])
                or (isinstance(got, Failure) and "meta" in _devices(case))
            ),
        ),
        Mistake(
            "the module changed",
            "The module itself was changed: its parameters are other tensors now. Put the stand-ins into the copies.",
            lambda case, got, wire: isinstance(got, tuple) and got[0].get("same_tensors") is False,
        ),
    ),
)
