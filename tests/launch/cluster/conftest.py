"""Dask clusters that the tests of this folder run on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="session")
def loopback() -> Iterator[Any]:
    """A Dask client with two workers on 127.0.0.1, each of which stands for a host."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    dask = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", host="127.0.0.1"
    )
    with dask, distributed.Client(dask) as client:
        yield client
