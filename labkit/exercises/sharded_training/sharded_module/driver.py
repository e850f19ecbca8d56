"""What a rank runs of sharded_module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.hard_model import HardModel
from labkit.checks.values import text, texts
from labkit.exercises.sharded_training.on_ranks import (
    OPTIONS,
    Cut,
    PlainAdamW,
    asker,
    backward,
    cutter,
    model_for,
    num_kept,
    scaled,
    steps_of,
)


def drive(functions: Functions, inputs: Values) -> Values:
    """Train a hard model, sharded, on this rank's own batches (sharded_module).

    Inputs: seed, model, blocks (names of layers), children (whether these are handed over as None, being all of the
    model's), dtype (of blocks, or None), steps, optional marks. Marks on the wire in each step: as each
    block computes, when forward is over, when backward reaches each block's output, when it is over, and after
    finish_gradient_synchronization. With marks, those of blocks ask for a number, which scales what the block is given.
    """
    model, names = model_for(inputs), texts(inputs, "blocks")
    if inputs["dtype"]:
        model.float()
    blocks = [cast(nn.Module, getattr(model, name)) for name in names]
    cut = cutter()
    dtypes = {name: each.dtype for name, each in model.named_parameters()}
    kind = getattr(torch, text(inputs, "dtype")) if inputs["dtype"] else None
    watch = _Watch(model, blocks, kind)
    if inputs["children"]:
        wrapped = functions["ShardedModule"](model)
    else:
        wrapped = functions["ShardedModule"](model, blocks, *([kind] if kind else []))
    watch.mark(asker(inputs, cut))
    optimizer = PlainAdamW(wrapped.parameters(), **OPTIONS)
    after: list[Value] = []
    shards: list[Value] = []
    precise = copies = True
    for step in steps_of(inputs):
        optimizer.zero_grad()
        batch = {**step, "x": step["x"].to(kind), "y": step["y"].to(kind)} if kind else step
        watch.step(wrapped, batch, cut)
        wrapped.finish_gradient_synchronization()
        cut()
        watch.look("finish", -1)
        shards.append(sum(each.numel() for each in wrapped.parameters()))
        optimizer.step()
        full = wrapped.gather_full_params()
        watch.look("gathered", -1)
        mine = {each.untyped_storage().data_ptr() for each in wrapped.parameters()}
        lost = [name for name, each in full.items() if each.untyped_storage().nbytes() < each.nbytes]
        copies &= not lost and not any(each.untyped_storage().data_ptr() in mine for each in full.values())
        full |= {name: torch.zeros_like(full[name]) for name in lost}  # to read what has no memory ends the process
        precise &= all(full[name].dtype == dtype for name, dtype in dtypes.items())
        after.append({name: each.detach().double().clone() for name, each in full.items()})
        cut()
    kept = num_kept([optimizer])
    seen = {"seen": watch.seen, "saved": watch.saved, "root": watch.root_stays}
    return {
        "steps": after,
        "kept": kept,
        "shards": shards,
        "precise": precise,
        "copies": copies,
        "typed": watch.typed,
        **seen,
    }


class _Watch:
    """Which blocks are whole at which moment, and what autograd has kept of them."""

    def __init__(self, model: HardModel, blocks: list[nn.Module], kind: torch.dtype | None) -> None:
        uses = [set(block.parameters()) for block in blocks]
        alone = [[p for p in own if sum(p in each for each in uses) == 1] for own in uses]
        self.parameters = [[(p, p.numel()) for p in own] for own in alone]
        self.weights = {p.numel() for own in alone for p in own if p.dim() == 2}
        in_blocks = {p for own in alone for p in own}
        self.root = [(p, p.shape) for p in model.parameters() if p not in in_blocks]
        self.model, self.blocks, self.kind, self.typed = model, blocks, kind, True
        self.seen: list[Value] = []
        self.saved: list[Value] = []
        self.root_stays: list[Value] = []

    def whole(self) -> list[Value]:
        """Return for each block whether its parameters have memory for all of their elements."""
        return [
            bool(own) and all(p.untyped_storage().nbytes() >= size * p.element_size() for p, size in own)
            for own in self.parameters
        ]

    def look(self, when: str, block: int) -> None:
        """Note who is whole."""
        self.seen.append([when, block, self.whole()])

    def mark(self, ask: Callable[[], float]) -> None:
        """Look and mark the wire whenever a block computes; what comes scales its input or gradient."""

        def at(when: str, number: int, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            self.look(when, number)
            return (scaled(given[0], ask()), *given[1:])

        def on_output(number: int, output: Tensor) -> None:
            cast(Any, output.grad_fn).register_prehook(lambda gradients: at("backward", number, gradients))

        for number, block in enumerate(self.blocks):
            block.register_forward_pre_hook(lambda layer, given, number=number: at("forward", number, given))
            block.register_forward_hook(  # first, so that whatever wraps the output comes before it in backward
                lambda layer, given, output, number=number: on_output(number, output), prepend=True
            )

    def step(self, wrapped: Any, step: dict[str, Any], cut: Cut) -> None:
        """Go forward and backward; note what autograd keeps of weights between the two."""
        kept: list[Tensor] = []

        def pack(tensor: Tensor) -> Tensor:
            kept.append(tensor)
            return tensor

        def forward(x: Tensor, **options: bool) -> Tensor:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                output: Tensor = wrapped(
                    x=x.requires_grad_(), **options
                )  # else torch warns of hooks on the first block
            cut()
            self.look("between", -1)
            self.typed &= all(p.dtype == (self.kind or p.dtype) for p, _ in self.root)
            self.root_stays.append(all(p.shape == shape for p, shape in self.root))  # a shard is flat
            weights = [each for each in kept if each.numel() in self.weights and each.dim() == 2]
            storages = {each.untyped_storage().data_ptr(): each for each in weights if each.untyped_storage().nbytes()}
            self.saved.append(len(storages))
            kept.clear()
            return output

        backward(cast(nn.Module, forward), step)
        cut()
