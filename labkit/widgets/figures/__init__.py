"""Figures for ideas: ``labkit.figure("ring")``. Each is made from a plan or a small computation, and plays."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from labkit.errors import ConfigError
from labkit.widgets.explorer import Explorer
from labkit.widgets.figures.batch import batch_split
from labkit.widgets.figures.buckets import gradient_buckets
from labkit.widgets.figures.cable import stages_and_cable
from labkit.widgets.figures.cuts import matrix_cut
from labkit.widgets.figures.factory import pipeline_factory
from labkit.widgets.figures.joining import server_joins
from labkit.widgets.figures.mesh import device_mesh
from labkit.widgets.figures.nodes import two_nodes
from labkit.widgets.figures.residual import kept_and_residual
from labkit.widgets.figures.ring import ring_round
from labkit.widgets.figures.valley import stale_worker
from labkit.widgets.figures.zero import memory_slices
from labkit.widgets.storyboard import Story

_MAKERS: dict[str, Callable[..., Story]] = {
    "batch": batch_split,
    "ring": ring_round,
    "nodes": two_nodes,
    "buckets": gradient_buckets,
    "stale": stale_worker,
    "joining": server_joins,
    "cable": stages_and_cable,
    "factory": pipeline_factory,
    "residual": kept_and_residual,
    "cuts": matrix_cut,
    "zero": memory_slices,
    "mesh": device_mesh,
}


def figure(name: str, **sizes: Any) -> Explorer:
    """Return a figure of one idea, which a notebook shows and plays.

    Each takes its own sizes: "batch" (num_replicas, batch_size), "ring" (num_ranks), "nodes" (num_nodes,
    gpus_per_node), "buckets" (sizes_mb, cap_mb), "stale" (delay, learning_rate),
    "joining" (num_servers, num_keys), "cable" (none), "factory" (num_stages,
    num_microbatches, schedule, most_held), "residual" (kept, steps), "cuts" (num_gpus), "zero"
    (num_ranks, num_params), "mesh" (data, tensor).

    Args:
        name: Which idea.
        **sizes: How large it is drawn.

    Raises:
        ConfigError: If there is no such figure, or it cannot be drawn in that size.
    """
    if name not in _MAKERS:
        raise ConfigError(f"There is no figure({name!r}); use one of {', '.join(map(repr, _MAKERS))}.")
    known = list(signature(_MAKERS[name]).parameters)
    if unknown := sorted(set(sizes) - set(known)):
        raise ConfigError(f"figure({name!r}) has no argument {unknown[0]!r}; it takes {', '.join(known)}.")
    return _MAKERS[name](**sizes).explorer()


def matrix_cuts() -> Explorer:
    """Return the figure of a matrix cut by columns and by rows, on two GPUs: ``labkit.figure("cuts")``."""
    return figure("cuts")
