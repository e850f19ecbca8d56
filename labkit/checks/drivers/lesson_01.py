"""Drivers of lesson 01: values cut and joined, replicas, a training step on logical devices, plans and shares.

A logical device is the CPU; a case may name "meta" for a second one, so that what stays behind can be told.
"""

from __future__ import annotations

import threading
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.drivers.lesson_03 import PlainSGD, gradients_of, loss_of, model_of, state_of
from labkit.checks.drivers.nested_values import build, describe, tensors_in
from labkit.checks.exercise import Functions
from labkit.torch_port.tensors import own_buffers, own_parameters

_MEET_SECONDS = 5.0


def _devices(inputs: Values) -> list[torch.device]:
    return [torch.device(name) for name in cast(list[str], inputs["devices"])]


def _watched(value: Any) -> list[Tensor]:
    return [tensor.requires_grad_() for tensor in tensors_in(value) if tensor.is_floating_point()]


def _gradients(total: Any, leaves: list[Tensor]) -> list[Value]:
    if isinstance(total, Tensor) and total.requires_grad:
        torch.autograd.backward(total)
    return [leaf.grad for leaf in leaves]


def scatter_value(functions: Functions, inputs: Values) -> Values:
    """Call scatter; return its pieces, and the gradient of every tensor when piece n counts n + 1 times (scatter)."""
    value = build(inputs["value"])
    leaves = _watched(value) if inputs.get("gradients") else []
    pieces = functions["scatter"](value, _devices(inputs))
    if not isinstance(pieces, list | tuple):
        return {"pieces": describe(pieces)}
    result: dict[str, Value] = {"pieces": [describe(piece) for piece in pieces]}
    if leaves:
        total = sum((n + 1) * t.sum() for n, p in enumerate(pieces) for t in tensors_in(p) if t.requires_grad)
        result["gradients"] = _gradients(total, leaves)
    return result


def gather_outputs(functions: Functions, inputs: Values) -> Values:
    """Call gather; return the whole, and each output's gradients when element i counts i + 1 times (gather)."""
    outputs = [build(tree) for tree in cast(list[Value], inputs["outputs"])]
    leaves = _watched(outputs) if inputs.get("gradients") else []
    whole = functions["gather"](outputs, torch.device(cast(str, inputs["device"])))
    result: dict[str, Value] = {"whole": describe(whole)}
    if leaves:
        count = [t.numel() for t in tensors_in(whole)]
        weights = [torch.arange(1.0, n + 1, dtype=torch.float64) for n in count]
        parts = zip(tensors_in(whole), weights, strict=True)
        total = sum((t.reshape(-1) * weight).sum() for t, weight in parts if t.requires_grad)
        result["gradients"] = _gradients(total, leaves)
    return result


def use_replicas(functions: Functions, inputs: Values) -> Values:
    """Call replicate on a torture model; run the replicas, the last one first, and go backward (replicate).

    Inputs: seed, model (options), devices, train, x and y (one tensor for each replica). With another device than the
    CPU only where the replicas' tensors lie is returned. The loss is the sum of (n + 1) times replica n's loss.
    """
    model = model_of(inputs)
    model.train(cast(bool, inputs["train"]))
    devices = _devices(inputs)
    own = [*model.parameters(), *model.buffers()]
    replicas = functions["replicate"](model, devices)
    if not isinstance(replicas, list | tuple):
        return {"replicas": describe(replicas)}
    places: list[Value] = [cast(Value, sorted({t.device.type for t in _tensors_of(each)})) for each in replicas]
    if any(device.type != "cpu" for device in devices):
        return {"count": len(replicas), "places": places}
    batches = list(zip(cast(list[Tensor], inputs["x"]), cast(list[Tensor], inputs["y"]), strict=True))
    outputs: list[Value] = [None] * len(batches)
    losses = []
    for number in reversed(range(min(len(batches), len(replicas)))):
        x, y = batches[number]
        output = replicas[number](x)
        outputs[number] = output.detach().clone()
        losses.append((number + 1) * loss_of(output, y))
    shared = _shared(replicas, own)
    total = torch.stack(losses).sum()
    if total.requires_grad:
        torch.autograd.backward(total)
    now = [*model.parameters(), *model.buffers()]
    return {
        "count": len(replicas),
        "places": places,
        "outputs": outputs,
        "gradients": gradients_of(model),
        "state": state_of(model),
        "shared": shared,
        "training": [all(part.training == model.training for part in each.modules()) for each in replicas],
        "same_tensors": len(now) == len(own) and all(a is b for a, b in zip(own, now, strict=True)),
    }


def _tensors_of(module: nn.Module) -> list[Tensor]:
    """Return a module's tensors, however they are kept."""
    found = []
    for part in module.modules():
        for kept in (part.__dict__, own_parameters(part), own_buffers(part)):
            found += [each for each in list(kept.values()) if isinstance(each, Tensor)]
    return found


def _shared(replicas: Any, own: list[Tensor]) -> list[Value]:
    """Return the replicas from 1 on that share memory with the module or with a replica before them."""
    taken = {tensor.data_ptr() for tensor in own}
    found: list[Value] = []
    for number, replica in enumerate(replicas):
        mine = {tensor.data_ptr() for tensor in _tensors_of(replica)}
        if number > 0 and mine & taken:
            found.append(number)
        taken |= mine
    return found


class NestedModel(nn.Module):
    """A linear layer that is called with a dict, a tuple and keywords, and returns a dict with a loss in it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.layer = nn.Linear(5, 3).double()
        with torch.no_grad():
            for parameter in self.layer.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))

    def forward(self, batch: dict[str, Any], offset: Tensor | None = None, *, scale: float = 1.0) -> dict[str, Any]:
        """Return {"out": (B, 3), "more": (a loss, what the batch is called)}."""
        out = torch.tanh(self.layer(batch["x"])) * scale
        if offset is not None:
            out = out + offset
        return {"out": out, "more": (out.square().mean(), batch["parts"][1])}


class _Meeting:
    """Where replicas wait for one another, so that only threads can run them."""

    def __init__(self) -> None:
        self.met = True
        self.barrier: threading.Barrier | None = None

    def expect(self, count: int) -> None:
        """Let that many replicas meet in the next step."""
        self.barrier = threading.Barrier(count)

    def meet(self) -> None:
        """Wait for the others, unless some have been waited for in vain."""
        if self.barrier is not None and self.met:
            try:
                self.barrier.wait(_MEET_SECONDS)
            except threading.BrokenBarrierError:
                self.met = False


def train_data_parallel(functions: Functions, inputs: Values) -> Values:
    """Wrap a torture model in MiniDataParallel and take some steps with it (mini_data_parallel).

    Inputs: seed, model (options), devices, lr, steps: a list of dicts with x, y, spare (a keyword), eval (an evaluation
    without gradients). What the first layer is given is written down by a hook; with `meet` the replicas wait there for
    one another.
    """
    model = model_of(inputs)
    sizes: list[int] = []
    meeting = _Meeting()

    def on_output(layer: nn.Module, given: tuple[Tensor], output: Tensor) -> None:
        sizes.append(len(given[0]))
        meeting.meet()

    model.stem.register_forward_hook(on_output)
    wrapped = functions["MiniDataParallel"](model, _devices(inputs))
    optimizer = PlainSGD(model, cast(float, inputs["lr"]))
    steps: list[Value] = []
    for step in cast(list[dict[str, Any]], inputs["steps"]):
        optimizer.zero_grad()
        sizes.clear()
        if inputs.get("meet"):
            meeting.expect(min(len(step["x"]), len(_devices(inputs))))
        keywords = {"spare": True} if step.get("spare") else {}
        wrapped.train(not step.get("eval"))
        with torch.set_grad_enabled(not step.get("eval")):
            output = wrapped(step["x"], **keywords)
        tracked = isinstance(output, Tensor) and output.requires_grad
        if tracked and output.device.type == "cpu" and not step.get("eval"):
            if output.shape == step["y"].shape:
                torch.autograd.backward(loss_of(output, step["y"]))
            else:
                torch.autograd.backward(output.sum())
        steps.append(
            {
                "output": describe(output),
                "tracked": tracked,
                "sizes": cast(Value, sorted(sizes, reverse=True)),
                "gradients": gradients_of(model),
                "state": state_of(model),
            }
        )
        optimizer.step()
    mine = {id(p) for p in model.parameters()}
    return {"steps": steps, "same_parameters": {id(p) for p in wrapped.parameters()} == mine, "met": meeting.met}


def call_nested(functions: Functions, inputs: Values) -> Values:
    """Call MiniDataParallel with nested arguments and keywords; go backward from all it returns (mini_data_parallel).

    Inputs: seed, devices, x, offset (or None), scale.
    """
    model = NestedModel(cast(int, inputs["seed"]))
    wrapped = functions["MiniDataParallel"](model, _devices(inputs))
    batch = {"x": cast(Tensor, inputs["x"]).clone(), "parts": ([], "a name")}
    offset = inputs.get("offset")
    arguments = () if offset is None else (cast(Tensor, offset).clone(),)
    output = wrapped(batch, *arguments, scale=inputs["scale"])
    total = sum(t.sum() for t in tensors_in(output) if t.requires_grad)
    if isinstance(total, Tensor):
        torch.autograd.backward(total)
    return {"output": describe(output), "gradients": gradients_of(model)}


def train_or_call(functions: Functions, inputs: Values) -> Values:
    """Return what one of the two drivers of mini_data_parallel returns."""
    return train_data_parallel(functions, inputs) if "steps" in inputs else call_nested(functions, inputs)


def weigh_losses(functions: Functions, inputs: Values) -> Values:
    """Call whole_batch_loss; return the loss and the gradient of each part (whole_batch_loss)."""
    losses = cast(Tensor, inputs["losses"]).clone().requires_grad_()
    loss = functions["whole_batch_loss"](losses, list(cast(list[int], inputs["counts"])))
    (gradient,) = _gradients(loss, [losses])
    return {"loss": describe(loss), "gradient": gradient}


class _Move:
    """Stands for the lesson's Move where it is not defined."""

    def __init__(self, what: str, src: int, dst: int, num_bytes: int) -> None:
        self.what, self.src, self.dst, self.num_bytes = what, src, dst, num_bytes


def write_plans(functions: Functions, inputs: Values) -> Values:
    """Call step_plan with each list of arguments; return each plan as lists [what, src, dst, num_bytes] (step_plan)."""
    calls = cast(list[list[Any]], inputs["calls"])
    return {"plans": [_plan_data(functions["step_plan"](list(sizes), *more)) for sizes, *more in calls]}


def _plan_data(plan: Any) -> Value:
    try:
        return [[describe(getattr(m, name)) for name in ("what", "src", "dst", "num_bytes")] for m in plan]
    except (TypeError, AttributeError):
        return describe(plan) if not isinstance(plan, list) else f"{plan!r:.80}"


def call_with_plan(functions: Functions, inputs: Values) -> Values:
    """Call named functions whose first argument may be a plan, a list of moves (plan_cost)."""
    make = functions.get("Move", _Move)
    values = []
    for call in cast(list[dict[str, Any]], inputs["calls"]):
        moves, *more = call["args"]
        values.append(describe_list(functions[call["function"]]([make(*move) for move in moves], *more)))
    return {"values": values}


def call_plainly(functions: Functions, inputs: Values) -> Values:
    """Call named functions with plain arguments; return their values in order (shares_by_speed)."""
    calls = cast(list[dict[str, Any]], inputs["calls"])
    return {"values": [describe_list(functions[call["function"]](*call["args"])) for call in calls]}


def describe_list(value: Any) -> Value:
    """Return a list or tuple of numbers as a list, and anything else described."""
    return [describe(each) for each in value] if isinstance(value, list | tuple) else describe(value)


class _Dataset:
    """Sample i is (a row that begins with i, i)."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < self.size:
            raise IndexError(f"there is no sample {index} among {self.size}")
        return torch.tensor([float(index), 0.5]), torch.tensor(index)


def load_batches(functions: Functions, inputs: Values) -> Values:
    """Build two equal loaders, list what each yields in some epochs; more than it may is cut off (split_loader).

    Inputs: size, batch_size, speeds, epochs, shuffle and seed (each may be missing).
    """
    options = {name: inputs[name] for name in ("shuffle", "seed") if name in inputs}
    size, batch_size = cast(int, inputs["size"]), cast(int, inputs["batch_size"])
    found: list[Value] = []
    length: Value = None
    for _ in range(2):
        loader = functions["SplitLoader"](
            _Dataset(size), batch_size, list(cast(list[int], inputs["speeds"])), **options
        )
        length = describe(len(loader))
        epochs = cast(int, inputs["epochs"])
        found.append([[_batch(each) for each in islice(iter(loader), 2 * size + 4)] for _ in range(epochs)])
    return {"length": length, "epochs": found}


def _batch(pieces: Any) -> Value:
    """Return {device: [sample, ...]} of a batch, or words for anything else."""
    if not isinstance(pieces, dict):
        return f"a {type(pieces).__name__} instead of a dict"
    result: dict[str, Value] = {}
    for device, piece in pieces.items():
        if not (isinstance(piece, tuple | list) and len(piece) == 2 and all(isinstance(t, Tensor) for t in piece)):
            return f"for device {device} no pair of tensors"
        inputs, targets = piece
        if inputs.dim() != 2 or targets.dim() != 1 or not torch.equal(inputs[:, 0].long(), targets):
            shapes = f"{tuple(inputs.shape)} and {tuple(targets.shape)}"
            return f"for device {device} inputs and targets that do not belong together (shapes {shapes})"
        result[str(device)] = targets.tolist()
    return result
