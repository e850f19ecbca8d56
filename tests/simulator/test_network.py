"""How long bytes take."""

from __future__ import annotations

import dataclasses
import math

import pytest

from labkit.errors import ConfigError
from labkit.hardware import Link
from labkit.simulator.algorithms import choose, exchange
from labkit.simulator.cluster import Cluster, describe
from labkit.simulator.network import Network

LINK = Link("test", 1e9, 1_000, "one byte a nanosecond", "1 us")  # 1 byte takes 1 ns
SLOW = Link("test_nic", 1e8, 10_000, "ten nanoseconds a byte", "10 us")


def _cluster(world_size: int, **more: object) -> Cluster:
    return describe(world_size, link=LINK, nic=SLOW, **more)  # type: ignore[arg-type]


def test_a_message_takes_latency_plus_bytes_over_bandwidth() -> None:
    way = Network(_cluster(2)).transfer(0, 1, 5_000, 100)
    left, there = way.left_ns, way.there_ns
    assert (left, there) == (5_100, 6_100)


def test_two_messages_out_of_one_port_follow_each_other() -> None:
    network = Network(_cluster(3))
    assert network.transfer(0, 1, 5_000, 0).there_ns == 6_000
    assert network.transfer(0, 2, 5_000, 0).there_ns == 11_000


def test_two_messages_into_one_port_follow_each_other() -> None:
    network = Network(_cluster(3))
    assert network.transfer(1, 0, 5_000, 0).there_ns == 6_000
    assert network.transfer(2, 0, 5_000, 0).there_ns == 11_000


def test_both_directions_of_a_link_go_at_once() -> None:
    network = Network(_cluster(2))
    assert network.transfer(0, 1, 5_000, 0) == network.transfer(1, 0, 5_000, 0)


def test_between_nodes_the_network_card_decides_and_is_shared() -> None:
    network = Network(_cluster(4, gpus_per_node=2, nics_per_node=1))
    assert network.transfer(0, 2, 100, 0).there_ns == 1_000 + 10_000
    assert network.transfer(1, 3, 100, 0).there_ns == 2_000 + 10_000
    assert network.transfer(0, 1, 100, 0).there_ns == 100 + 1_000


def test_each_accelerator_with_a_card_of_its_own_does_not_wait() -> None:
    network = Network(_cluster(4, gpus_per_node=2))
    assert network.transfer(0, 2, 100, 0).there_ns == network.transfer(1, 3, 100, 0).there_ns == 11_000


def test_a_slow_link_is_slow_in_its_direction_only() -> None:
    network = Network(_cluster(2, slow_links={(0, 1): 4.0}))
    assert network.transfer(0, 1, 1_000, 0).there_ns == 5_000
    assert network.transfer(1, 0, 1_000, 0).there_ns == 2_000


def test_jitter_repeats_with_its_seed_and_never_makes_anything_faster() -> None:
    def times(seed: int) -> list[int]:
        network = Network(_cluster(2, jitter=0.5, seed=seed))
        return [network.transfer(0, 1, 1_000, at * 10_000).left_ns - at * 10_000 for at in range(20)]

    assert times(1) == times(1) != times(2)
    assert all(1_000 <= time <= 1_500 for time in times(1)) and len(set(times(1))) > 10


@pytest.mark.parametrize("size", [2, 3, 8])
def test_a_ring_all_reduce_takes_its_closed_form(size: int) -> None:
    network = Network(_cluster(size, algorithm="ring"))
    traffic = choose("all_reduce", range(size), 24_000, network, algorithm="ring")
    steps = 2 * (size - 1)
    assert network.collective(traffic, 0)[1] == pytest.approx(steps * (1_000 + 24_000 / size), abs=2)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_the_halves_of_a_ring_take_half_of_it(kind: str) -> None:
    network = Network(_cluster(8))
    assert network.collective(choose(kind, range(8), 24_000, network), 0)[1] == 7 * (1_000 + 3_000)


def test_small_tensors_take_the_tree_and_large_ones_the_ring() -> None:
    network = Network(_cluster(64, gpus_per_node=64))
    ranks = range(64)
    assert choose("all_reduce", ranks, 1_000, network).algorithm == "tree"
    assert choose("all_reduce", ranks, 10**9, network).algorithm == "ring"


def test_a_forced_algorithm_is_taken_where_the_collective_can_be_made_so() -> None:
    network = Network(_cluster(8))
    assert choose("all_reduce", range(8), 10, network, algorithm="direct").algorithm == "direct"
    assert choose("all_gather", range(8), 10, network, algorithm="tree").algorithm == "ring"


def test_a_collective_waits_for_a_port_that_is_in_use() -> None:
    network = Network(_cluster(4))
    alone = network.estimate_ns(choose("all_reduce", range(4), 8_000, network, algorithm="ring"))
    network.transfer(0, 1, 50_000, 0)
    later = network.collective(choose("all_reduce", range(4), 8_000, network, algorithm="ring"), 0)[1]
    assert later == alone + 50_000


def test_a_gather_is_limited_by_the_port_into_its_root() -> None:
    network = Network(_cluster(8))
    assert network.collective(choose("gather", range(8), 8_000, network, root=2), 0)[1] == 7 * 1_000 + 1_000


def test_all_to_all_counts_the_bytes_of_each_pair() -> None:
    network = Network(_cluster(3))
    sizes = [[9, 100, 200], [0, 9, 0], [0, 0, 9]]
    assert network.collective(exchange(range(3), sizes), 0)[1] == 300 + 1_000


def test_over_nodes_a_ring_crosses_on_all_cards() -> None:
    two_cards = Network(_cluster(4, gpus_per_node=2))
    one_card = Network(_cluster(4, gpus_per_node=2, nics_per_node=1))
    big = [choose("all_gather", range(4), 4_000_000, network) for network in (two_cards, one_card)]
    fast, slow = two_cards.collective(big[0], 0)[1], one_card.collective(big[1], 0)[1]
    assert slow / fast == pytest.approx(2, rel=0.01)
    assert slow == pytest.approx(3_000_000 * 10, rel=0.01)


def test_a_bus_bandwidth_is_that_of_the_link_for_large_tensors() -> None:
    cluster = describe(8, gpu="a100")
    network = Network(cluster)
    num_bytes = 2**30
    time_ns = network.collective(choose("all_reduce", range(8), num_bytes, network), 0)[1]
    bus_bandwidth = 2 * 7 / 8 * num_bytes / time_ns  # GB/s
    assert bus_bandwidth == pytest.approx(cluster.link.payload_bytes_per_second / 1e9, rel=0.01)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"world_size": 0}, "world_size=0 is not possible"),
        ({"gpu": "abacus"}, "No device is called 'abacus'"),
        ({"algorithm": "star"}, "algorithm='star' is not known"),
        ({"slow": {9: 2.0}}, "slow names rank 9; the ranks are 0 to 3"),
        ({"slow": {1: 0.5}}, "is below 1; use a factor of 1 or more"),
        ({"slow_links": {1: 2.0}}, "write a pair of ranks"),
        ({"jitter": math.inf}, "jitter=inf is not a fraction"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        describe(**({"world_size": 4} | wrong))  # type: ignore[arg-type]


def test_a_network_named_as_the_link_makes_every_accelerator_a_host() -> None:
    cluster = describe(4, gpu="cpu", link="ethernet_25g")
    assert cluster.num_nodes == 4 and cluster.nic.name == "ethernet_25g"
    assert dataclasses.replace(cluster, gpus_per_node=2).num_nodes == 2
