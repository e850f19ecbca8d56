"""The whole: MiniDataParallel on the hard model and on nested arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.judged import Mistake, judged
from labkit.checks.on_ranks.hard_model import hard_batch
from labkit.checks.on_ranks.model_state import gradients_of, model_of, state_of
from labkit.checks.tensor_values import close, ratio_of
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.data_parallel.mini_data_parallel.driver import NestedModel, drive
from labkit.exercises.data_parallel.one_process import BUFFERS, Gradients, add_up, replay, steps_of, wrong_tensor
from labkit.exercises.data_parallel.shares import balanced
from labkit.exercises.data_parallel.trees import first_difference

Seen = Callable[[Case, Got, Wire], bool]


def training_case(
    name: str,
    seed: int,
    devices: int | Sequence[str],
    steps: Sequence[Mapping[str, Any]],
    *,
    lr: float = 0.1,
    meet: bool = False,
    **model: bool,
) -> Case:
    """Return a case of mini_data_parallel: training steps, each with its batch's size, and spare or eval.

    Args:
        name: Of the case.
        seed: Draws model and batches.
        devices: By name, or how many CPUs.
        steps: What each is like.
        lr: Learning rate.
        meet: Whether replicas wait for one another, so that they must run at the same time.
        model: Options of the hard model.
    """
    names = ["cpu"] * devices if isinstance(devices, int) else list(devices)
    made: list[Value] = []
    for number, about in enumerate(steps):
        x, y = hard_batch(1000 * seed + number, about["size"])
        made.append({"x": x, "y": y, **{key: about[key] for key in ("spare", "eval") if key in about}})
    given: dict[str, Value] = {
        "seed": draws.part_of(seed, "model"), "model": {"unused": False, **model},
        "devices": cast(Value, names), "lr": lr, "steps": made,
        "meet": meet,
    }  # fmt: skip
    return Case(name, 1, (given,))


def nested_case(name: str, seed: int, num_devices: int, size: int, *, offset: bool, scale: float) -> Case:
    """Return a case of mini_data_parallel: one call with a dict, a tuple and keywords."""
    generator = draws.generator(seed)
    given: dict[str, Value] = {
        "seed": draws.part_of(seed, "model"), "devices": ["cpu"] * num_devices, "scale": scale,
        "x": torch.randn(size, 5, generator=generator, dtype=torch.float64),
        "offset": torch.randn(size, 3, generator=generator, dtype=torch.float64) if offset else None,
    }  # fmt: skip
    return Case(name, 1, (given,))


def _is_nested(case: Case) -> bool:
    return "steps" not in case.inputs[0]


@lru_cache(maxsize=64)
def nested(case: Case) -> dict[str, Value]:
    """Return what a nested call must bring, computed by plain loops."""
    inputs = case.inputs[0]
    x, offset = cast(Tensor, inputs["x"]), cast(Tensor | None, inputs["offset"])
    sizes = balanced(len(x), len(cast(list[str], inputs["devices"])))
    offsets: Sequence[Tensor | None] = [None] * len(sizes) if offset is None else torch.split(offset, sizes)
    outs, losses, gradients = [], [], []
    for piece, more in zip(torch.split(x, sizes), offsets, strict=True):
        model = NestedModel(cast(int, inputs["seed"]))
        output = model({"x": piece, "parts": ([], "a name")}, more, scale=cast(float, inputs["scale"]))
        torch.autograd.backward(output["out"].sum() + output["more"][0])
        outs.append(output["out"].detach())
        losses.append(output["more"][0].detach())
        gradients.append(cast(Gradients, gradients_of(model)))
    tree: Value = {"dict": {"out": torch.cat(outs), "more": {"tuple": [torch.stack(losses), "a name"]}}}
    return {"output": tree, "gradients": cast(Value, add_up(gradients))}


def expected(case: Case) -> list[Values]:
    """Return what the driver must return (the oracle)."""
    if _is_nested(case):
        return [nested(case)]
    return [{"steps": cast(Value, replay(case)), "same_parameters": True, "met": True}]


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether outputs, gradients, parameters and buffers are those of plain loops, and pieces were cut."""
    assert isinstance(got, tuple)
    if _is_nested(case):
        right = nested(case)
        wrong = first_difference(got[0].get("output"), right["output"], "the output")
        if wrong:
            return Verdict(False, f"{wrong[0].upper()}{wrong[1:]}.")
        return wrong_tensor(got[0].get("gradients"), right["gradients"], "The gradient") or Verdict(True)
    for number, (came, step) in enumerate(zip(_steps(got), replay(case), strict=True)):
        found = _judge_step(case, number, came, step)
        if found is not None:
            return found
    if not got[0].get("same_parameters"):
        return Verdict(False, "parameters() of MiniDataParallel does not give the module's own parameters.")
    if not got[0].get("met"):
        return Verdict(
            False, "All values are right, but the replicas did not run at the same time: one waited for the others."
        )
    return Verdict(True)


_ORDINALS = ("first ", "second ", "third ", "fourth ")


def _judge_step(case: Case, number: int, came: Mapping[str, Any], right: Mapping[str, Any]) -> Verdict | None:
    which = _ORDINALS[number] if len(steps_of(case)) > 1 else ""
    when = f"in the {which}step"
    wrong = first_difference(came["output"], right["output"], f"{when} the output")
    if wrong:
        return Verdict(False, f"{wrong[0].upper()}{wrong[1:]}.")
    if came["tracked"] != right["tracked"]:
        begin = f"{when[0].upper()}{when[1:]}"
        if right["tracked"]:
            return Verdict(False, f"{begin} the output needs no gradient: nothing can go backward from it.")
        return Verdict(False, f"{begin} the output has a gradient, although it was asked for under no_grad.")
    if came["sizes"] != right["sizes"]:
        devices = len(cast(list[str], case.inputs[0]["devices"]))
        return Verdict(
            False,
            f"The output is right, but {when} {len(steps_of(case)[number]['x'])} samples on {devices} devices made "
            f"pieces of {came['sizes']}.",
            expected=str(right["sizes"]),
            got=str(came["sizes"]),
        )
    after = f"After the {which}step"
    return wrong_tensor(came["gradients"], right["gradients"], f"{after} the gradient") or wrong_tensor(
        came["state"], right["state"], f"{after} the value"
    )


def _steps(got: Got) -> list[dict[str, Any]]:
    steps = got[0].get("steps") if isinstance(got, tuple) else None
    return cast(list[dict[str, Any]], steps) if isinstance(steps, list) else []


def _gradient_pairs(case: Case, got: Got) -> list[tuple[Value, Value]]:
    """Return (what came, what must come) for the gradients of the first step, or of a nested call."""
    if not isinstance(got, tuple):
        return []
    if _is_nested(case):
        came, right = got[0].get("gradients"), nested(case)["gradients"]
    else:
        came, right = _steps(got)[0]["gradients"], replay(case)[0]["gradients"]
    wanted = cast(dict[str, Value], right)
    mine = came if isinstance(came, dict) else {}
    return [(mine.get(name), value) for name, value in wanted.items() if value is not None]


def _ratio(factor: Callable[[int], float]) -> Seen:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        pairs = _gradient_pairs(case, got)
        sizes = _first_sizes(case)
        found = [ratio_of(a, cast(Tensor, b)) if isinstance(a, Tensor) else None for a, b in pairs]
        wanted = factor(len(sizes))
        return bool(found) and wanted != 1 and all(r is not None and abs(r / wanted - 1) < 1e-6 for r in found)

    return seen


def _first_sizes(case: Case) -> list[int]:
    x = cast(Tensor, case.inputs[0]["x"]) if _is_nested(case) else steps_of(case)[0]["x"]
    return balanced(len(x), len(cast(list[str], case.inputs[0]["devices"])))


def _elsewhere(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether some output does not lie on the CPU, which is the first device of all cases."""
    return any(isinstance(came["output"], dict) and "meta" in came["output"] for came in _steps(got))


def _one_after_another(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether each piece had its replica, and the replicas did not meet."""
    if not isinstance(got, tuple) or got[0].get("met") is not False:
        return False
    return all(a["sizes"] == b["sizes"] for a, b in zip(_steps(got), replay(case), strict=False))


def _no_gradients(case: Case, got: Got, wire: Wire) -> bool:
    pairs = _gradient_pairs(case, got)
    evaluates = not _is_nested(case) and bool(steps_of(case)[0].get("eval"))
    return bool(pairs) and not evaluates and all(mine is None for mine, _ in pairs)


def _stale(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the first step's output is right and a later step's is not."""
    if _is_nested(case) or not _steps(got):
        return False
    right = [close(a["output"], b["output"]) for a, b in zip(_steps(got), replay(case), strict=False)]
    plain = not any(step.get("spare") for step in steps_of(case)[1:])
    return bool(right[0] and not all(right) and plain and not _buffers_only(case, got))


def _wrong_state(case: Case, got: Got) -> set[str]:
    wrong: set[str] = set()
    for came, right in zip(_steps(got)[:1], replay(case), strict=False):
        mine, state = came["state"], cast(dict[str, Value], right["state"])
        wrong |= {name for name in state if not close(mine.get(name), state[name])}
    return wrong


def _buffers_only(case: Case, got: Got) -> bool:
    wrong = set() if _is_nested(case) else _wrong_state(case, got)
    return bool(wrong) and wrong <= set(BUFFERS)


def _batches_seen(case: Case, got: Got) -> int:
    name = BUFFERS[2]
    came = _steps(got)[0]["state"].get(name)
    before = cast(Tensor, state_of(model_of(case.inputs[0]))[name])
    return int(came - before) if isinstance(came, Tensor) else -1


def _pieces(test: Callable[[list[int], int, int], bool]) -> Seen:
    """Return a test of (what the first layer got in some step, the batch's size, the number of devices)."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if _is_nested(case):
            return False
        devices = len(cast(list[str], case.inputs[0]["devices"]))
        pairs = zip(_steps(got), steps_of(case), strict=False)
        return any(
            came["sizes"] != balanced(len(step["x"]), devices) and test(came["sizes"], len(step["x"]), devices)
            for came, step in pairs
        )

    return seen


def _keywords_dropped(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether outputs are those of calls without keywords."""
    if _is_nested(case):
        came = got[0].get("output") if isinstance(got, tuple) else None
        inputs = {**case.inputs[0], "scale": 1.0}
        plain = nested(Case(case.name, 1, (inputs,)))["output"]
        return cast(float, case.inputs[0]["scale"]) != 1.0 and first_difference(came, plain, "") is None
    places = [number for number, step in enumerate(steps_of(case)) if step.get("spare")]
    if not places or not _steps(got):
        return False
    steps = [{key: value for key, value in step.items() if key != "spare"} for step in steps_of(case)]
    plain_steps = replay(Case(case.name, 1, ({**case.inputs[0], "steps": cast(Value, steps)},)))
    return close(_steps(got)[places[0]]["output"], plain_steps[places[0]]["output"])


def _too_many_devices(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether it failed where some batch has fewer samples than there are devices."""
    if not isinstance(got, Failure) or _is_nested(case):
        return False
    return any(len(step["x"]) < len(cast(list[str], case.inputs[0]["devices"])) for step in steps_of(case))


EXERCISE = judged(
    id="mini_data_parallel",
    functions=("MiniDataParallel",),
    driver=drive,
    oracle=expected,
    judge=judge,
    visible=(
        training_case("4 devices, 8 samples", 151, 4, [{"size": 8}], norm=False),
        training_case(
            "3 devices, batches of 7, 8 and 9, three steps", 152, 3, [{"size": s} for s in (7, 8, 9)], norm=False
        ),
        training_case("5 devices, 3 samples", 153, 5, [{"size": 3}, {"size": 5}], norm=False),
        training_case("2 devices, BatchNorm, two steps", 154, 2, [{"size": 7}, {"size": 6}]),
        training_case(
            "3 devices, a keyword, then an evaluation",
            155,
            3,
            [{"size": 9, "spare": True}, {"size": 4, "eval": True}],
            unused=True,
        ),
        nested_case("nested arguments, nested output", 156, 3, 7, offset=True, scale=0.5),
        training_case("4 devices at the same time", 158, 4, [{"size": 9}], norm=False, meet=True),
        training_case("one sample, two kinds of device", 159, ["cpu", "meta"], [{"size": 1}], norm=False),
        training_case("one device", 157, 1, [{"size": 4}]),
    ),
    distributed=False,
    hints=(
        "It is four calls, in the order of the sections. Which of them depend on the batch, and which on the "
        "parameters as they are now?",
        "All four belong into forward. scatter((arguments, keywords), devices) cuts both at once and says, by the "
        "number of pieces, how many replicas you need.",
        "pieces = scatter((arguments, keywords), self.devices); replicas = replicate(self.module, "
        "self.devices[:len(pieces)]); return gather(parallel_apply(replicas, pieces), self.devices[0]).",
    ),
    mistakes=(
        Mistake(
            "gathered elsewhere",
            "The output is not on the first device, where the loss is computed: gather(..., self.devices[0]).",
            _elsewhere,
        ),
        Mistake(
            "one after another",
            "The replicas ran one after another: hand them to parallel_apply, which runs them in threads (and if you "
            "do, check parallel_apply again).",
            _one_after_another,
        ),
        Mistake(
            "no gradients",
            "No gradient arrives in the module: the replicas, or what is gathered, are cut off from it (a bare "
            "deepcopy, detach, no_grad).",
            _no_gradients,
        ),
        Mistake(
            "keywords dropped",
            "The model was called without its keywords: forward(*arguments, **keywords), and scatter both.",
            _keywords_dropped,
        ),
        Mistake(
            "not split",
            "The module ran once, on the whole batch. That is right and uses one device; cut it with scatter.",
            _pieces(lambda sizes, size, devices: sizes == [size] and devices > 1),
        ),
        Mistake(
            "the whole batch everywhere",
            "Every replica computed the whole batch. Each should get its piece.",
            _pieces(lambda sizes, size, devices: len(sizes) > 1 and set(sizes) == {size} and size > 1),
        ),
        Mistake(
            "replicas made once",
            "The first step is right and a later one is not: the replicas still hold the parameters of before. Make "
            "them anew in every forward.",
            _stale,
        ),
        Mistake(
            "gradients divided",
            "The gradients are divided by the number of replicas. The loss of the whole batch is computed once, after "
            "gather; there is nothing to average.",
            _ratio(lambda count: 1 / count),
        ),
        Mistake(
            "gradients multiplied",
            "The gradients are too large by the number of replicas: something is counted once for each.",
            _ratio(lambda count: float(count)),
        ),
        Mistake(
            "buffers of nobody",
            "The module's buffers are as they were before the step. What replica 0 writes into its buffers must be "
            "seen in the module.",
            lambda case, got, wire: _buffers_only(case, got) and _batches_seen(case, got) == 0,
        ),
        Mistake(
            "buffers of all replicas",
            "Every replica wrote into the module's buffers; only replica 0 may.",
            lambda case, got, wire: _buffers_only(case, got) and _batches_seen(case, got) != 0,
        ),
        Mistake(
            "more replicas than pieces",
            "With fewer samples than devices there are fewer pieces: make as many replicas as there are pieces.",
            _too_many_devices,
            certain=True,
        ),
        Mistake(
            "gradients under no_grad",
            "Under torch.no_grad() the output has a gradient all the same: a new thread begins with gradients on.",
            lambda case, got, wire: any(
                came["tracked"] and not right["tracked"]
                for came, right in zip(_steps(got), _rights(case), strict=False)
            ),
        ),
        Mistake(
            "another module",
            "The parameters of MiniDataParallel are not the module's own: keep the module itself, not a copy "
            "(self.module = module), and nothing else that has parameters.",
            lambda case, got, wire: isinstance(got, tuple) and got[0].get("same_parameters") is False,
        ),
    ),
)


def _rights(case: Case) -> list[dict[str, Value]]:
    return [] if _is_nested(case) else replay(case)
