"""What labkit uses of torch beyond its documentation, held against the torch that is installed."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from labkit.torch_port import (
    asked_groups,
    backward,
    compiling,
    data_loading,
    devices,
    futures,
    gatherings,
    group_tables,
    handles,
    known_crashes,
    low_precision_buckets,
    meeting,
    operators,
    own_parallelism,
    process_tables,
    remote_calls,
    rpc,
    sharded_random,
    sharded_together,
)
from labkit.torch_port.group_tables import WORLD_FIELDS, RankWorlds, c10d, new_world

NEEDED = {
    name: reach
    for module in (
        *(
            backward,
            compiling,
            devices,
            futures,
            gatherings,
            group_tables,
            known_crashes,
            meeting,
            operators,
            process_tables,
        ),
        *(asked_groups, handles, low_precision_buckets, own_parallelism, remote_calls, rpc, sharded_random),
        *(data_loading, sharded_together),
    )
    for name, reach in module.NEEDED.items()
}


@pytest.mark.in_turn
@pytest.mark.parametrize("name", NEEDED)
def test_torch_still_has(name: str) -> None:
    try:
        NEEDED[name]()
    except (AttributeError, ImportError):
        pytest.fail(
            f"torch {torch.__version__} has no {name} any more. "
            "See what replaced it and change labkit/torch_port, the one place that knows."
        )


def test_torch_keeps_about_groups_what_ranks_are_given_a_table_of() -> None:
    kept = {name for name, value in vars(type(c10d._world)).items() if isinstance(value, property)}
    unknown = kept - set(WORLD_FIELDS) - {"pg_config_info"}
    assert not unknown, f"torch {torch.__version__} keeps {unknown} for each process: give ranks a table of it"
    assert set(WORLD_FIELDS) - {"pg_flight_recorder_hooks"} <= kept


def test_other_threads_go_on_to_see_the_real_groups() -> None:
    table = new_world()
    current: list[dict[str, object] | None] = [table]
    worlds = RankWorlds(c10d._world, lambda: current[0])
    worlds.default_pg = "a rank's group"
    assert worlds.default_pg == table["default_pg"] == "a rank's group"
    current[0] = None
    assert worlds.default_pg is c10d._world.default_pg is None
    assert worlds.pg_map is c10d._world.pg_map


def test_the_methods_of_a_group_that_torch_calls_are_all_ours() -> None:
    from labkit.torch_port.adapter import PortGroup

    theirs = {name for name in vars(dist.ProcessGroup) if name.startswith(("all", "reduce", "broad", "gath", "scatt"))}
    theirs |= {"send", "recv", "recv_anysource", "barrier", "monitored_barrier", "_allgather_base"}
    theirs |= {"_reduce_scatter_base", "_start_coalescing", "_end_coalescing"}
    ours = {name for cls in PortGroup.__mro__ if cls.__module__.startswith("labkit") for name in vars(cls)}
    missing = theirs - ours
    assert not missing, f"torch {torch.__version__} has collectives that the adapter has not: {missing}"
