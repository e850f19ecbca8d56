"""Samples as loaders hand them out: what the watch is told of epochs and batches."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from labkit.auditing.bits import rows, unseen
from labkit.auditing.facts import Batch, Epoch
from labkit.auditing.origins import first_of
from labkit.auditing.rank_watch import RankWatch, length_of, line
from labkit.auditing.seen import Seen

_MOST = 1_000_000


def epoch_begins(seen: Seen, mine: RankWatch, loader: Any, fetcher: Any, frame: FrameType) -> None:
    """Note a loader that begins an epoch."""
    mine.kept_alive += [loader, fetcher]
    place = mine.loaders.setdefault(id(loader), len(mine.loaders))
    number = mine.epochs[place]
    mine.epochs[place] += 1
    mine.iterating[id(fetcher)] = (place, number)
    data, sampler = getattr(loader, "dataset", None), getattr(loader, "sampler", None)
    spreads = hasattr(sampler, "num_replicas") and hasattr(sampler, "seed") and length_of(sampler) <= _MOST
    drops = bool(getattr(loader, "drop_last", False)) or bool(getattr(sampler, "drop_last", False))
    seen.epochs.append(
        Epoch(
            mine.rank, mine.step, place, number, type(sampler).__name__, getattr(sampler, "epoch", None),
            bool(getattr(sampler, "shuffle", type(sampler).__name__ == "RandomSampler")),
            getattr(sampler, "seed", None) if spreads else None,
            getattr(sampler, "num_replicas", None), getattr(sampler, "rank", None), length_of(data),
            length_of(sampler), () if not spreads or sampler is None else tuple(sampler), line(frame),
            mine.made.get(id(loader), ""), mine.made.get(id(sampler), ""), drops, torch.is_grad_enabled(),
            _stream(data),
        )
    )  # fmt: skip


def _stream(data: Any) -> str:
    """Return the line at which a stream of samples begins to hand them out, "" for a dataset that is no stream."""
    if not isinstance(data, torch.utils.data.IterableDataset):
        return ""
    code = getattr(type(data).__iter__, "__code__", None)
    return "" if code is None else first_of(f"{code.co_filename}:{code.co_firstlineno}")


def fetched(seen: Seen, mine: RankWatch, fetcher: Any, indices: Any, batch: Any, frame: FrameType) -> None:
    """Note samples that a loader hands out."""
    if not isinstance(indices, list | tuple):
        return
    place, number = mine.iterating.get(id(fetcher), (-1, 0))
    with unseen():
        found = rows(batch, len(indices))
    seen.batches.append(Batch(mine.rank, mine.step, place, number, tuple(indices), found, line(frame)))
