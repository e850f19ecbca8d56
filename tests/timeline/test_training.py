"""What a training run comes to, on timelines small enough to work out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import labkit
from labkit.timeline import Timeline
from labkit.timeline.span import Lane
from labkit.timeline.training import STEP, training


def _steps(ends: list[int], more: list[tuple[int, int, int, str]] = ()) -> Timeline:  # type: ignore[assignment]
    """Return one rank's timeline with optimizer steps of 2 ns that end then, and (lane, start, end, name) besides."""
    rows = [(int(Lane.HOST), end - 2, end, STEP) for end in ends] + list(more)
    lane, start, end, name = zip(*sorted(rows, key=lambda row: row[1]), strict=True)
    return Timeline([0] * len(rows), lane, start, end, name, name)


def test_a_step_lasts_from_one_optimizer_steps_end_to_the_next() -> None:
    found = training(_steps([50, 60, 72, 82]))
    assert (found.num_steps, found.step_ns) == (4, 10)
    assert (found.exposed_ns, found.utilisation, found.peak_bytes) == (None, None, None)


def test_a_step_inside_another_is_part_of_it() -> None:
    inner = [(int(Lane.HOST), end - 1, end - 1, STEP) for end in (50, 60)]
    assert training(_steps([50, 60], inner)).num_steps == 2


def test_communication_is_exposed_where_nothing_is_computed_beside_it() -> None:
    more = [
        (int(Lane.COMMUNICATION), 10, 40, "before the first step's end"),
        (int(Lane.COMPUTE), 50, 55, "mm"),
        (int(Lane.COMMUNICATION), 53, 58, "all_reduce"),
        (int(Lane.COMMUNICATION), 62, 63, "all_reduce"),
    ]
    assert training(_steps([50, 60, 70], more)).exposed_ns == (3 + 1) / 2


def test_utilisation_is_ideal_time_over_time() -> None:
    timeline = _steps([50, 60, 70])
    timeline.tables["work"] = {
        "rank": np.zeros(3, dtype=np.int64), "time_ns": np.array([50.0, 60.0, 70.0]),
        "ideal_ns": np.array([40.0, 44.0, 49.0]),
    }  # fmt: skip
    assert training(timeline).utilisation == pytest.approx(9 / 20)


def test_a_run_without_steps_says_so() -> None:
    assert training(Timeline(num_ranks=2)).lines() == ["step time           not known: fewer than two optimizer steps"]


def test_work_counts_products_and_what_is_computed_anew_apart() -> None:
    def work() -> None:
        layer = torch.nn.Sequential(torch.nn.Linear(64, 32, bias=False), torch.nn.Linear(32, 64, bias=False))
        x = torch.randn(16, 64, requires_grad=True)
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()

    run = labkit.run(work, on=labkit.virtual(1), echo=False)
    assert run.timeline is not None
    table = run.timeline.tables["work"]
    once = 2 * 16 * 64 * 32
    # Two products forward, four backward; the first of the forward is done again, for the input of the second.
    assert (table["flops"][-1], table["recomputed_flops"][-1]) == (6 * once, once)
    peak = labkit.virtual(1).cluster.device.flops_per_second("float32")
    assert table["ideal_ns"][-1] == pytest.approx(6 * once / peak * 1e9)
