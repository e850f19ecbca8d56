"""A receive from whoever sends is no receive from a rank that is not there."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.checks.case import Case
from labkit.checks.exercise import Exercise
from labkit.checks.failures import failure_of
from labkit.checks.hanging import looks_for_a_stranger
from labkit.checks.wire import Wire
from labkit.errors import RunTimeout


def test_who_waits_for_anybody_is_said_to_and_looks_for_no_stranger() -> None:
    def wait() -> None:
        if dist.get_rank() == 0:
            dist.recv(torch.ones(1))

    with pytest.raises(RunTimeout) as ended:
        labkit.run(wait, on=labkit.virtual(2), echo=False)
    failure: Any = failure_of(ended.value, cast(Exercise, None), {})
    assert "rank 0 waits in recv from any rank" in failure.detail

    class Two:
        world_size = 2

    class Nothing:
        messages = ()

    assert not looks_for_a_stranger(cast(Case, Two), failure, cast(Wire, Nothing))
