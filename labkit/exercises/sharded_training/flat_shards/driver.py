"""What a rank runs of flat_shards."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import tensors
from labkit.exercises.sharded_training.on_ranks import asker, cutter, goes_back, squares_of
from labkit.simulator.storages import tensors_in
from labkit.torch_port.operators import DispatchMode, name_of, schema_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Cut tensors into shards, gather them into others, scatter a third list (flat_shards).

    Inputs: tensors (the same on all ranks), targets (what is filled), gradients, transposed (matrices to cut and to
    scatter are transposed views), optional marks. Between the beginning of each collective and its end stands a mark on
    the wire; with marks, it asks for a number, which is returned.
    """
    cut = cutter()
    ask = asker(inputs, cut)
    whole, gradients = _handed(inputs, "tensors"), _handed(inputs, "gradients")
    shards = [functions["shard_of"](each) for each in whole]
    theirs = {each.untyped_storage().data_ptr() for each in whole}
    copied = all(each.untyped_storage().data_ptr() not in theirs for each in shards)
    copies = [each.clone() for each in shards]
    targets = tensors(inputs, "targets")
    memory = [each.untyped_storage().data_ptr() for each in targets]
    used = squares_of(targets)
    cut()
    with _Touched(targets) as touched:
        finish = functions["start_gather"]([each.clone() for each in shards], targets)
    first = ask()
    finish()
    cut()
    collect = functions["start_scatter"](gradients)
    second = ask()
    means = collect()
    cut()
    return {
        "shards": copies,
        "copied": copied,
        "targets": [each.detach() for each in targets],
        "unseen": goes_back(used),
        "untouched": not touched.by,
        "kept_memory": memory == [each.untyped_storage().data_ptr() for each in targets],
        "means": list(means),
        "heard": [first, second],
    }


def _handed(inputs: Values, key: str) -> list[Tensor]:
    """Return tensors of the inputs, matrices as transposed views where the case says so."""
    given = tensors(inputs, key)
    return [each.t().contiguous().t() if inputs["transposed"] and each.dim() == 2 else each for each in given]


class _Touched(DispatchMode):
    """Which operators read or write tensors whose storage may be empty; views, and new tensors of their shape, do not.

    On a storage that is empty the process would die, and could tell nobody why.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__()
        self.storages = {each.untyped_storage().data_ptr() for each in tensors}
        self.by: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        writes = any(each.alias_info is not None and each.alias_info.is_write for each in schema_of(func).arguments)
        is_new = name_of(func).startswith("new_") or name_of(func).endswith("_like")
        if self._among((args, kwargs)) and not is_new and (writes or not self._among([result])):
            self.by.append(name_of(func))
        return result

    def _among(self, values: Any) -> bool:
        return any(each.untyped_storage().data_ptr() in self.storages for each in tensors_in(values))
