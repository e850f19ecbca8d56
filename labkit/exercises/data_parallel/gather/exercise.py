"""The replicas' outputs as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.data_parallel.gather.driver import drive
from labkit.exercises.data_parallel.trees import (
    drawn,
    first_difference,
    gradient_difference,
    in_words,
    kinds,
    leaves,
    no_gradient,
    parts,
    rebuilt,
)


def gather_case(name: str, outputs: Sequence[Value], device: str = "cpu") -> Case:
    """Return a case of gather."""
    given: dict[str, Value] = {"outputs": list(outputs), "device": device, "gradients": device == "cpu"}
    return Case(name, 1, (given,))


def _outputs(case: Case) -> list[Value]:
    return cast(list[Value], case.inputs[0]["outputs"])


def joined(outputs: Sequence[Value], device: str = "cpu") -> Value:
    """Return the outputs as one tree."""
    kind, items = parts(outputs[0])
    if kind:
        columns = [[parts(each)[1][place][1] for each in outputs] for place in range(len(items))]
        return rebuilt(outputs[0], [joined(column, device) for column in columns])
    if not isinstance(outputs[0], Tensor):
        return outputs[0]
    tensors = cast(list[Tensor], list(outputs))
    whole = torch.stack([row for t in tensors for row in (t if t.dim() else t[None])])
    return whole if device == "cpu" else {device: list(whole.shape)}


def _gradients(case: Case) -> list[Tensor]:
    """Return the gradient of every tensor when element i of a joined tensor counts i + 1 times."""
    outputs = _outputs(case)
    of_output = [list(leaves(each)) for each in outputs]
    found: list[list[Tensor]] = [[] for _ in outputs]
    for column in zip(*of_output, strict=True):
        start = 1
        for place, t in enumerate(column):
            found[place].append(torch.arange(start, start + t.numel(), dtype=torch.float64).reshape(t.shape))
            start += t.numel()
    return [gradient for each in found for gradient in each]


def expected(case: Case) -> list[Values]:
    """Return the whole and the gradients that must come (the oracle)."""
    device = cast(str, case.inputs[0]["device"])
    right: dict[str, Value] = {"whole": joined(_outputs(case), device)}
    if case.inputs[0]["gradients"]:
        right["gradients"] = list(_gradients(case))
    return [right]


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether the whole is right, lies where it must, and gradients flow back."""
    assert isinstance(got, tuple)
    right = expected(case)[0]
    wrong = first_difference(got[0].get("whole"), right["whole"], "what gather returned")
    no_type = wrong and "holds the right numbers" in wrong and no_gradient(got[0].get("gradients"))
    if wrong and not no_type:  # new tensors made of numbers lack both; the gradient is what matters
        return Verdict(False, f"{wrong[0].upper()}{wrong[1:]}.")
    if "gradients" in right:
        wrong = gradient_difference(got[0].get("gradients"), cast(list[Tensor], right["gradients"]))
        if wrong:
            return Verdict(False, f"The whole is right, but {wrong}.")
    return Verdict(True)


def _first_tensors(case: Case, got: Got) -> tuple[Tensor, list[Tensor]] | None:
    """Return the first tensor of what came, and those it should be made of."""
    whole = next(leaves(got[0].get("whole")), None) if isinstance(got, tuple) else None
    given = [next(leaves(each), None) for each in _outputs(case)]
    return None if whole is None or any(t is None for t in given) else (whole, cast(list[Tensor], given))


def _is(make: str, case: Case, got: Got) -> bool:
    found = _first_tensors(case, got)
    if found is None or len(found[1]) < 2:
        return False
    whole, given = found
    same = len({t.shape for t in given}) == 1
    if make == "stack" and same and given[0].dim():
        other = torch.stack(given)
    elif make == "mean" and same:
        other = torch.stack(given).mean(0)
    elif make == "sum" and same:
        other = torch.stack(given).sum(0)
    elif make == "reversed" and given[0].dim():
        other = torch.cat(given[::-1])
    elif make == "first":
        other = given[0]
    elif make == "dim 1" and given[0].dim() > 1 and len({len(t) for t in given}) == 1:
        other = torch.cat(given, 1)
    else:
        return False
    return whole.shape == other.shape and torch.allclose(whole, other)


def _scalars_failed(case: Case, got: Got, wire: Wire) -> bool:
    scalars = any(t.dim() == 0 for t in leaves({"list": _outputs(case)}))
    return scalars and isinstance(got, Failure) and got.error in ("RuntimeError", "TypeError", "IndexError")


def _kind_changed(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, tuple) and kinds(got[0].get("whole")) != kinds(_outputs(case)[0])


def _elsewhere(case: Case, got: Got, wire: Wire) -> bool:
    whole = got[0].get("whole") if isinstance(got, tuple) else None
    return case.inputs[0]["device"] != "cpu" and "on the CPU" in in_words(whole)


_GENERATOR = torch.Generator().manual_seed(102)

EXERCISE = judged(
    id="gather",
    functions=("gather",),
    driver=drive,
    oracle=expected,
    judge=judge,
    visible=(
        gather_case("three outputs of 2 samples each", [drawn(_GENERATOR, 2, 3) for _ in range(3)]),
        gather_case("outputs of 3, 2 and 2 samples", [drawn(_GENERATOR, size, 2, 2) for size in (3, 2, 2)]),
        gather_case("four losses", [drawn(_GENERATOR) for _ in range(4)]),
        gather_case(
            "a dict with a tuple in it",
            [
                {"dict": {"out": drawn(_GENERATOR, size), "more": {"tuple": [drawn(_GENERATOR), "a name", None]}}}
                for size in (2, 1)
            ],
        ),
        gather_case("to another device", [drawn(_GENERATOR, 2), drawn(_GENERATOR, 1)], "meta"),
    ),
    distributed=False,
    hints=(
        "Look at the first output: is it a tensor, a container or something else? All the others are built like it.",
        "torch.cat joins along the first dimension, torch.stack makes a new one, which is what tensors without "
        "dimensions need. For a tuple: zip(*outputs) gives the items that belong together; gather each of them.",
        "torch.cat([output.to(device) for output in outputs]); type(first)(gather(list(items), device) for items in "
        "zip(*outputs)); {key: gather([output[key] for output in outputs], device) for key in first}.",
    ),
    mistakes=(
        Mistake(
            "stack for cat",
            "stack makes a new dimension: three outputs of 2 samples are 6 samples, not 3 x 2. Join them with cat.",
            lambda case, got, wire: (
                _is("stack", case, got)
                or (isinstance(got, Failure) and "stack expects each tensor to be equal size" in got.message)
            ),
            certain=True,
        ),
        Mistake(
            "along another dimension",
            "The outputs were joined along dimension 1; samples lie along dimension 0.",
            lambda case, got, wire: _is("dim 1", case, got),
        ),
        Mistake(
            "mixed instead of joined",
            "The outputs were added up or averaged. Every sample has an output of its own, and all of them come back.",
            lambda case, got, wire: _is("mean", case, got) or _is("sum", case, got),
        ),
        Mistake(
            "in another order",
            "The outputs come in the order of the replicas, so that row i belongs to sample i.",
            lambda case, got, wire: _is("reversed", case, got),
        ),
        Mistake(
            "only the first", "That is the first replica's output alone.", lambda c, got, wire: _is("first", c, got)
        ),
        Mistake(
            "losses cannot be joined",
            "A loss has no dimension along which cat could join it: stack those into a vector.",
            _scalars_failed,
            certain=True,
        ),
        Mistake(
            "kind changed",
            "A tuple must stay a tuple, a list a list and a dict a dict: whoever calls the model expects its output.",
            _kind_changed,
        ),
        Mistake(
            "not on the device", "The result is not on the device that was asked for: output.to(device).", _elsewhere
        ),
        Mistake(
            "gradients cut off",
            "The result has lost its connection with the outputs (detach, .item(), torch.tensor(...)): no gradient can "
            "go back to the replicas. cat, stack and .to(device) keep it.",
            lambda case, got, wire: isinstance(got, tuple) and no_gradient(got[0].get("gradients")),
        ),
    ),
)
