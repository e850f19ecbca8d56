"""torch's flight recorder: the latest calls of this process's groups, what was asked for and what came of it.

NCCL writes its calls there by itself, those included that nobody else records: torch's own, and a communicator's first.
gloo writes collectives only; that record is read where ``TORCH_FR_BUFFER_SIZE`` is set. The format is the one that
torch.distributed.flight_recorder analyses.
"""

from __future__ import annotations

import importlib
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

_DUMPS = ("_dump_nccl_trace", "_dump_fr_trace")
"""Of NCCL, in builds with CUDA; of every other backend."""
_KINDS = {
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "all_reduce_barrier": "barrier",
}
"""Calls that the learner knows by another name."""
_PACKAGES = (f"{Path(torch.__file__).parent}{os.sep}", f"{Path(__file__).parents[1]}{os.sep}", "<frozen")


def status() -> list[Any]:
    """Return what changes with every call and every completion; takes microseconds."""
    return [each.get("pg_status") for each in _dumped(False, False)]


def calls() -> list[dict[str, Any]]:
    """Return the calls on record, oldest first, each as :func:`named_call`."""
    found = []
    ranks = {c10d._world.pg_names[group]: known for group, known in c10d._world.pg_group_ranks.items()}
    for dump in _dumped(True, True):
        for entry in dump.get("entries", []):
            by_rank = {group_rank: world for world, group_rank in ranks.get(entry["process_group"][0], {}).items()}
            found.append(named_call(entry, [by_rank[rank] for rank in sorted(by_rank)]))
    return sorted(found, key=lambda entry: int(entry["time_created_ns"]))


def named_call(entry: Mapping[str, Any], ranks: list[int]) -> dict[str, Any]:
    """Return a call as torch writes it, by the name the learner knows, with two fields in place of its stack.

    These are ``ranks``, and ``source``: the first line outside torch and labkit that it came from.

    Args:
        entry: What torch wrote.
        ranks: The global ranks of its group, empty where they are not known.
    """
    backend, _, name = str(entry["profiling_name"]).partition(":")
    kind, space, ends = name.partition(" ")
    named = f"{backend}:{_KINDS.get(kind, kind)}{space}{ends}"
    source = _source(entry.get("frames", []))
    return {**entry, "profiling_name": named, "ranks": ranks, "source": source, "frames": []}


def _dumped(calls: bool, stacks: bool) -> list[Mapping[str, Any]]:
    module = importlib.import_module("torch._C._distributed_c10d")
    functions = [getattr(module, name) for name in _DUMPS if hasattr(module, name)]
    return [pickle.loads(dump(calls, stacks, False)) for dump in functions]


def _source(frames: list[Mapping[str, Any]]) -> str:
    for frame in frames:
        if not str(frame["filename"]).startswith(_PACKAGES):
            return f"{frame['filename']}:{frame['line']}"
    return ""
