"""torch.distributed under recording does what it does without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import recorded_programs as programs
import torch.distributed as dist
from recorded_ranks import record_of, run_ranks

from labkit.launch.recording.event_log import EventLog
from labkit.launch.recording.recorded_group import RecordedGroup
from labkit.launch.recording.recorder import Recorder
from labkit.timeline import Timeline
from labkit.torch_port.operations import OPERATIONS
from labkit.torch_port.wrapped_group import OWN, PlainGroup, wrapping_class

pytestmark = pytest.mark.in_turn


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], Timeline]:
    folder = tmp_path_factory.mktemp("recorded")
    return run_ranks(programs.everything_torch_does, 2, folder), record_of(folder, 2)


@pytest.mark.long
def test_everything_that_stands_on_groups_gives_the_same_values_recorded_or_not(
    recorded: tuple[list[dict[str, Any]], Timeline], tmp_path: Path
) -> None:
    results, timeline = recorded
    assert results == run_ranks(programs.everything_torch_does, 2, tmp_path, record=False)
    assert results[0]["kinds"] == (True, True)
    kinds = {call.kind for call in timeline.collectives()}
    assert kinds >= {"all_reduce", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor"}


def test_what_cpp_calls_is_recorded_too_and_ends(recorded: tuple[list[dict[str, Any]], Timeline]) -> None:
    _, timeline = recorded
    calls = timeline.tables["call"]
    without_handle = ~calls["blocking"] & (timeline.kind[calls["span"]] == "all_reduce")
    # Two steps of DDP, one functional collective, two steps of the hook, one asynchronous call: on each of two ranks.
    assert without_handle.sum() >= 12
    failed = calls["span"][calls["failed"]]
    assert set(timeline.tables["open"]["span"].tolist()) <= set(failed.tolist())


def test_a_backend_written_in_python_still_counts_as_a_process_group(tmp_path: Path) -> None:
    assert run_ranks(programs.foreign_backend, 1, tmp_path) == [True]


def test_no_method_of_a_process_group_is_left_to_the_outer_shell(tmp_path: Path) -> None:
    recorder = Recorder(EventLog(tmp_path / "0.log", 0), 0)
    group_class = wrapping_class(lambda outer, inner: RecordedGroup(recorder, outer, inner))
    left = [
        name
        for name in dir(PlainGroup)
        if not (name.startswith("__") and name.endswith("__"))
        and name not in OWN
        and name not in vars(group_class)
        and not isinstance(getattr(PlainGroup, name), type | PlainGroup.BackendType)
    ]
    assert left == []


def test_every_communication_method_of_this_torch_is_known() -> None:
    known = {name for operation in OPERATIONS for name in operation.methods}
    returning_work = {
        name
        for name in dir(PlainGroup)
        if "-> c10d::Work" in (getattr(PlainGroup, name).__doc__ or "") or name == "monitored_barrier"
    }
    # reconfigure, of torch 2.15, names a group's peers anew; it carries nothing of the program's.
    assert returning_work - {"_end_coalescing", "reconfigure"} <= known
    assert issubclass(dist.ProcessGroup, PlainGroup)
