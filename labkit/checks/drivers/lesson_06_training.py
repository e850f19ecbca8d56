"""Drivers of lesson 06's second half: autocast, loss scaling and the prefetching loader."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_SECONDS = 5.0


def under_autocast(functions: Functions, inputs: Values) -> Values:
    """Run two layers, a loss and some other functions under the mode; return results, dtypes and gradients (autocast).

    Inputs: dtype, x, first, bias, second (float32), labels.
    """
    x, first, bias, second = (cast(Tensor, inputs[name]).clone() for name in ("x", "first", "bias", "second"))
    labels = cast(Tensor, inputs["labels"]).clone()
    weights = [each.requires_grad_() for each in (first, bias, second)]
    with functions["Autocast"](_DTYPES[cast(str, inputs["dtype"])]):
        hidden = functional.linear(x, first, bias)
        active = functional.relu(hidden)
        out = torch.matmul(active, second)
        loss = functional.cross_entropy(out, labels)
        named = functional.linear(input=x, weight=first)
        squared = functional.mse_loss(hidden, x.new_zeros(hidden.shape))
        power = torch.exp(hidden * 0.1)
        untouched = functional.relu(x)
        at_sign = active @ second
        counts = labels + 1
    loss.backward()  # type: ignore[no-untyped-call]
    after = functional.linear(x, first)
    results = {
        "linear": hidden, "relu of a 16-bit tensor": active, "matmul": out, "cross_entropy": loss,
        "linear with named arguments": named, "mse_loss": squared, "exp": power, "relu of a float32 tensor": untouched,
        "@": at_sign, "labels + 1": counts, "linear after the mode": after,
    }  # fmt: skip
    return {
        "results": {
            name: value.detach() if isinstance(value, Tensor) else f"a {type(value).__name__}"
            for name, value in results.items()
        },
        "gradients": [None if each.grad is None else each.grad for each in weights],
    }


class _Optimizer:
    """Plain gradient descent that counts its steps."""

    def __init__(self, parameters: list[Tensor], lr: float) -> None:
        self.param_groups = [{"params": parameters[:1], "lr": lr}, {"params": parameters[1:], "lr": lr}]
        self.steps = 0

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        self.steps += 1
        for group in self.param_groups:
            for parameter in cast(list[Tensor], group["params"]):
                if parameter.grad is not None:
                    parameter.sub_(cast(float, group["lr"]) * parameter.grad)


def scale_losses(functions: Functions, inputs: Values) -> Values:
    """Take steps with a scaler; some gradients are not finite (loss_scaling).

    Inputs: scale, growth_interval, slopes: for each step the gradients of two parameters. A third has none.
    """
    parameters = [torch.ones(3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    optimizer = _Optimizer(parameters, 0.1)
    scaler = functions["LossScaler"](cast(float, inputs["scale"]), cast(int, inputs["growth_interval"]))
    found: list[Value] = []
    for slopes in cast(list[list[Tensor]], inputs["slopes"]):
        for parameter in parameters:
            parameter.grad = None
        loss = sum(((slope * each).sum() for slope, each in zip(slopes, parameters, strict=False)), torch.zeros(()))
        scaled = scaler.scaled(loss)
        asked = float(scaled.detach() / loss.detach()) if bool(loss.isfinite()) else float("nan")
        scaled.backward()
        before = optimizer.steps
        said = scaler.step(optimizer)
        found.append(
            {
                "said": said if isinstance(said, bool) else f"{said!r:.40}",
                "asked": asked,
                "steps": optimizer.steps - before,
                "scale": float(scaler.scale),
                "weights": [parameter.detach().clone() for parameter in parameters],
            }
        )
    return {"steps": found}


class _Source:
    """Batches that are counted as they are fetched; which thread fetches them is remembered."""

    def __init__(self, batches: int, error_after: int | None = None) -> None:
        self.batches, self.error_after = batches, error_after
        self.fetched = 0
        self.threads: set[threading.Thread] = set()

    def __iter__(self) -> Iterator[int]:
        for number in range(self.batches):
            self.threads.add(threading.current_thread())
            if self.error_after == number:
                raise ValueError("this batch cannot be read")
            self.fetched += 1
            yield 10 * number

    def reaches(self, count: int, seconds: float) -> bool:
        """Return whether so many have been fetched within the time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.fetched < count:
            time.sleep(0.001)
        return self.fetched >= count


def _bounded(action: Callable[[], Value]) -> Value:
    """Return what the action returned, or words for an action that hangs or fails."""
    box: list[Value] = []

    def run() -> None:
        try:
            box.append(action())
        except NotImplementedError as error:
            box.append(f"NotImplementedError: {error}")
        except Exception as error:
            box.append(f"raised {type(error).__name__}: {error}"[:200])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_SECONDS)
    return box[0] if box else "hangs"


def _number(value: Any) -> Value:
    return value if type(value) is int else f"{value!r:.40}"


def fetch_ahead(functions: Functions, inputs: Values) -> Values:
    """Iterate to the end, into an error, and away in the middle. Inputs: batches, depth, error_after."""
    make, count, depth = functions["prefetched"], cast(int, inputs["batches"]), cast(int, inputs["depth"])

    def whole() -> Value:
        source = _Source(count)
        came: list[Value] = [_number(each) for each in make(source, depth)]
        return {"came": came, "own_thread": threading.current_thread() not in source.threads}

    def none() -> Value:
        return [_number(each) for each in make(_Source(0))]

    def failing() -> Value:
        came: list[Value] = []
        try:
            for each in make(_Source(count, cast(int, inputs["error_after"])), depth):
                came.append(_number(each))
        except ValueError as error:
            return {"came": came, "error": str(error)}
        return {"came": came, "error": "none"}

    def left_early() -> Value:
        source = _Source(count)
        batches = iter(make(source, depth))
        next(batches)
        ahead = source.reaches(2, _SECONDS / 2)
        source.reaches(depth + 3, 0.3)  # one was taken, depth wait, one may be in the thread's hand
        fetched = source.fetched
        cast(Any, batches).close()
        return {
            "ahead": ahead,
            "fetched": fetched,
            "alive": any(thread.is_alive() and thread is not threading.current_thread() for thread in source.threads),
        }

    found: dict[str, Value] = {}
    for name, action in (("whole", whole), ("none", none), ("failing", failing), ("left", left_early)):
        found[name] = _bounded(action)
        if found[name] == "hangs":
            break
    stub = next((each for each in found.values() if str(each).startswith("NotImplementedError: ")), None)
    if stub is not None:
        raise NotImplementedError(str(stub).removeprefix("NotImplementedError: "))
    return found
