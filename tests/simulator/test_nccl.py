"""Collectives over NVLink, PCIe and InfiniBand follow NCCL's own cost model."""

from __future__ import annotations

import pytest

from labkit.simulator.algorithms import choose
from labkit.simulator.cluster import describe
from labkit.simulator.nccl import nvls_round
from labkit.simulator.network import Network, Traffic


def _plan(num_ranks: int, num_bytes: int, kind: str = "all_reduce", **cluster: object) -> tuple[Traffic, int]:
    algorithm = cluster.pop("algorithm", "auto")
    network = Network(describe(num_ranks, **cluster))  # type: ignore[arg-type]
    traffic = choose(kind, range(num_ranks), num_bytes, network, algorithm=algorithm)  # type: ignore[arg-type]
    return traffic, network.estimate_ns(traffic)


def _bus_bandwidth(num_ranks: int, num_bytes: int, **cluster: object) -> float:
    return 2 * (num_ranks - 1) / num_ranks * num_bytes / _plan(num_ranks, num_bytes, **cluster)[1]  # GB/s


def test_a_small_ring_costs_its_base_and_a_step_each_with_ll() -> None:
    traffic, time_ns = _plan(8, 8, gpu="a100", algorithm="ring")
    assert traffic.protocol == "LL"
    assert time_ns == pytest.approx(6_600 + 14 * 600, abs=5)


def test_the_protocol_grows_with_the_size() -> None:
    sizes = (1_000, 4_000_000, 1_000_000_000)
    chosen = [_plan(8, size, gpu="a100", algorithm="ring")[0].protocol for size in sizes]
    assert chosen == ["LL", "LL128", "Simple"]


def test_pcie_has_no_ll128() -> None:
    chosen = {_plan(8, 2**power, gpu="l4", algorithm="ring")[0].protocol for power in range(8, 32)}
    assert chosen == {"LL", "Simple"}


def test_an_h100s_switch_adds_large_tensors_and_an_a100s_cannot() -> None:
    assert _plan(8, 10**9, gpu="h100")[0].algorithm == "nvls"
    assert _plan(8, 10**9, gpu="a100")[0].algorithm == "ring"
    assert _plan(8, 1_000, gpu="h100")[0].algorithm == "ring"
    assert _plan(16, 10**9, gpu="h100")[0].algorithm != "nvls"


def test_a_tensor_of_few_rounds_pays_for_filling_the_switchs_pipeline() -> None:
    """16 MiB on 8 H100 go in four rounds of 4 MiB: two rounds more, half of what the bytes take."""
    network = Network(describe(8, gpu="h100"))
    traffic = choose("all_reduce", range(8), 2**24, network)
    expected_ns = network.estimate_ns(traffic)
    assert (traffic.algorithm, traffic.fill) == ("nvls", 0.5)
    assert network.collective(traffic, 0) == (0, pytest.approx(expected_ns + (expected_ns - 23_000) / 2, abs=2))


def test_what_fills_the_pipeline_is_two_rounds_and_never_more_than_twice_the_tensor() -> None:
    rounds = {power: nvls_round(2**power, 8) for power in (20, 22, 24, 26, 30)}
    assert rounds == {20: 2**21, 22: 2**21, 24: 2**22, 26: 2**23, 30: 2**24}
    fills = [_plan(8, 2**power, gpu="h100", algorithm="nvls")[0].fill for power in (10, 20, 33)]
    assert fills == [2.0, 2.0, 2**-8]


def test_over_many_nodes_small_tensors_take_the_tree_and_large_ones_the_ring() -> None:
    traffic, time_ns = _plan(512, 8, gpu="h100")
    assert (traffic.algorithm, traffic.protocol) == ("tree", "LL")
    assert time_ns == pytest.approx(6_800 + 2 * (7 * 600 + 6 * 5_000), abs=5)
    assert _plan(64, 10**10, gpu="h100")[0].algorithm == "ring"


def test_a_ring_over_nodes_pays_the_networks_latency_where_it_crosses() -> None:
    _, time_ns = _plan(16, 8, gpu="a100", algorithm="ring")
    assert time_ns == pytest.approx(6_600 + (30 - 4) * 1_000 + 4 * 2_700, abs=5)


def test_one_gpu_a_node_makes_the_trees_latency_two_log_n() -> None:
    _, few = _plan(4, 8, gpu="h100", gpus_per_node=1, algorithm="tree")
    _, many = _plan(256, 8, gpu="h100", gpus_per_node=1, algorithm="tree")
    assert many - few == pytest.approx(2 * (8 - 2) * 5_000, abs=5)


def test_over_two_nodes_a_tree_crosses_once_each_way() -> None:
    two, four = (_bus_bandwidth(8 * n, 4 * 10**9, gpu="a100", nic="ib_hdr", algorithm="tree") for n in (2, 4))
    assert two > 1.1 * four


def test_over_ethernet_its_latency_comes_on_top() -> None:
    _, fast = _plan(16, 8, gpu="a100", algorithm="ring")
    _, slow = _plan(16, 8, gpu="a100", nic="ethernet_100g", algorithm="ring")
    assert slow - fast == pytest.approx(4 * 15_000, abs=5)


def test_gathers_and_broadcasts_take_a_ring() -> None:
    for kind in ("all_gather", "reduce_scatter", "broadcast", "reduce"):
        assert {_plan(64, 2**power, kind, gpu="h100")[0].algorithm for power in (3, 20, 30)} == {"ring"}


def test_a_link_nccl_does_not_know_costs_latency_and_bytes_and_no_more() -> None:
    traffic, time_ns = _plan(8, 8_000, gpu="cpu", link="ethernet_10g", algorithm="ring")
    assert traffic.protocol == ""
    assert time_ns == pytest.approx(14 * (15_000 + 1_000 / (1.25 * 1448 / 1538)), rel=1e-3)


def test_the_same_collective_is_planned_once() -> None:
    network = Network(describe(8))
    first = choose("all_reduce", range(8), 1_000, network)
    assert choose("all_reduce", range(8), 1_000, network) is first
    assert choose("all_reduce", range(8), 2_000, network) is not first
