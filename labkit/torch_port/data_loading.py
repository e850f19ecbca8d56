"""Which samples a DataLoader of this process hands out: watched where it fetches them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import dataloader
from torch.utils.data._utils import fetch

Begun = Callable[[Any, Any], None]
"""Is told a loader and the iterator that it made."""
Fetched = Callable[[Any, Any, Any], None]
"""Is told an iterator's fetcher, the indices it was asked for, and the batch."""

_loader: Any = dataloader.DataLoader
_fetcher: Any = fetch._MapDatasetFetcher


@contextmanager
def loaders_watched(begun: Begun, fetched: Fetched, fetches: Callable[[bool], None]) -> Iterator[None]:
    """Tell when a loader begins an epoch, when it makes a batch and what it hands out, while the context lasts."""
    real_iter, real_fetch = _loader.__iter__, _fetcher.fetch

    def begin(self: Any) -> Any:
        iterator = real_iter(self)
        begun(self, getattr(iterator, "_dataset_fetcher", None))
        return iterator

    def get(self: Any, indices: Any) -> Any:
        fetches(True)
        try:
            batch = real_fetch(self, indices)
        finally:
            fetches(False)
        fetched(self, indices, batch)
        return batch

    _loader.__iter__, _fetcher.fetch = begin, get
    try:
        yield
    finally:
        _loader.__iter__, _fetcher.fetch = real_iter, real_fetch


NEEDED: dict[str, Callable[[], object]] = {
    "torch.utils.data._utils.fetch._MapDatasetFetcher.fetch": lambda: _fetcher.fetch,
    "torch.utils.data.DataLoader's _dataset_fetcher": lambda: iter(_loader([0]))._dataset_fetcher,
}
"""Name -> how it is reached; a test calls each."""
