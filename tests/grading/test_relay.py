"""The relay alone: frames in, answers out."""

from __future__ import annotations

from typing import Any

import pytest

from labkit.checks.case import Failure
from labkit.checks.failures import sizes_differ
from labkit.grading.limits import Limits
from labkit.grading.relay.records import Deadlock, RelayError
from labkit.grading.relay.server import Relay

WORLD = "0:0,1,2"


class Ranks:
    """Speaks for ranks to a relay, with numbers counted for each rank."""

    def __init__(self, world_size: int = 3, limits: Limits | None = None) -> None:
        self.relay = Relay(world_size, limits)
        self.ids = [0] * world_size
        self.group = "0:" + ",".join(map(str, range(world_size)))

    def post(self, rank: int, op: str, peer: int, size: int = 4, tag: int = 0, dtype: str = "float32") -> int:
        self.ids[rank] += 1
        about = {"op": op, "id": self.ids[rank], "peer": peer, "tag": tag, "group": self.group}
        self.relay.receive(rank, {**about, "bytes": size, "dtype": dtype}, b"")
        return self.ids[rank]

    def data(self, rank: int, number: int, payload: bytes) -> None:
        self.relay.receive(rank, {"op": "data", "id": number}, payload)

    def wait(self, rank: int, number: int, where: str = "", op: str = "wait") -> None:
        self.relay.receive(rank, {"op": op, "id": number, "threads": 1, "where": where}, b"")

    def end(self, rank: int) -> None:
        self.relay.receive(rank, {"op": "end"}, b"")

    def collective(self, rank: int, name: str, *payload: bytes) -> int:
        self.ids[rank] += 1
        about = {"op": "collective", "id": self.ids[rank], "group": self.group, "name": name, "bytes": 4}
        self.relay.receive(rank, about, b"")
        if payload:
            sizes = [len(part) for part in payload]
            self.relay.receive(rank, {"op": "parts", "id": self.ids[rank], "sizes": sizes}, b"".join(payload))
        return self.ids[rank]

    def answers(self) -> list[tuple[int, dict[str, Any], bytes]]:
        found = list(self.relay.outbox)
        self.relay.outbox.clear()
        return found


def test_a_send_ends_when_its_receive_is_posted_and_brings_the_bytes() -> None:
    ranks = Ranks()
    send = ranks.post(0, "send", 1)
    ranks.data(0, send, b"abcd")
    ranks.wait(0, send)
    assert ranks.answers() == []
    receive = ranks.post(1, "recv", 0)
    assert ranks.answers() == [(0, {"id": send, "op": "done"}, b"")]
    ranks.wait(1, receive)
    assert ranks.answers() == [(1, {"id": receive, "op": "done", "source": 0}, b"abcd")]


def test_an_isend_is_read_only_when_nobody_can_go_on_without_it() -> None:
    ranks = Ranks(2)
    send = ranks.post(0, "send", 1)
    ranks.wait(1, ranks.post(1, "recv", 0))
    assert not ranks.relay.settled  # rank 0 still computes and may still change the buffer
    ranks.wait(0, ranks.post(0, "recv", 1))
    assert ranks.relay.settled
    assert ranks.relay.unstick() is None
    assert ranks.answers() == [(0, {"op": "pull", "ids": [send]}, b"")]


def test_messages_of_one_pair_and_tag_arrive_in_the_order_they_were_sent() -> None:
    ranks = Ranks(2)
    for payload, tag in ((b"1111", 0), (b"2222", 9), (b"3333", 0)):
        ranks.data(0, ranks.post(0, "send", 1, tag=tag), payload)
    for tag in (0, 0, 9):
        ranks.wait(1, ranks.post(1, "recv", 0, tag=tag))
    assert [payload for _, _, payload in ranks.answers()] == [b"1111", b"3333", b"2222"]


def test_a_receive_from_any_source_takes_the_lowest_rank_once_all_have_posted() -> None:
    ranks = Ranks(3)
    receive = ranks.post(0, "recv", -1)
    ranks.wait(0, receive)
    for rank in (2, 1):
        send = ranks.post(rank, "send", 0)
        ranks.data(rank, send, bytes([rank] * 4))
        ranks.wait(rank, send)
    assert ranks.relay.settled and ranks.relay.unstick() is None
    assert ranks.answers()[-1] == (0, {"id": receive, "op": "done", "source": 1}, b"\1\1\1\1")


def test_everybody_sending_first_is_a_deadlock_told_with_sizes_peers_and_lines() -> None:
    ranks = Ranks(3)
    for rank in range(3):
        send = ranks.post(rank, "send", (rank + 1) % 3, size=12)
        ranks.data(rank, send, b"x" * 12)
        ranks.wait(rank, send, where=f"exercise 2.6, line {rank}: dist.send(x)")
    assert ranks.relay.settled
    found = ranks.relay.unstick()
    assert isinstance(found, Deadlock)
    assert found.text == (
        "Deadlock: 3 of 3 ranks wait and none can go on. They wait for each other in a circle: rank 0 -> rank 1 -> "
        "rank 2 -> rank 0. All of them are in a send, and none has got as far as a receive."
    )
    assert found.lines[2] == "rank 2 waits in send to rank 0 (12 B) at exercise 2.6, line 2: dist.send(x)"


def test_waiting_for_a_rank_that_has_finished_is_told_as_such() -> None:
    ranks = Ranks(2)
    ranks.wait(0, ranks.post(0, "recv", 1, size=1))
    ranks.end(1)
    found = ranks.relay.unstick()
    assert isinstance(found, Deadlock)
    assert found.text == "Deadlock: rank 0 of 2 waits for something that can never happen."
    assert found.lines == ("rank 0 waits in recv from rank 1 (1 B), which has finished", "Finished: rank 1.")


def test_a_collective_that_one_rank_never_calls_names_the_rank_that_is_missing() -> None:
    ranks = Ranks(3)
    for rank in (0, 1):
        ranks.wait(rank, ranks.collective(rank, "all_reduce", b"abcd"))
    ranks.end(2)
    found = ranks.relay.unstick()
    assert isinstance(found, Deadlock)
    assert found.lines[0] == "rank 0 waits in all_reduce #1 (4 B), which rank 2 finished without"


def test_ranks_in_different_collectives_are_told_at_once() -> None:
    ranks = Ranks(2)
    ranks.collective(0, "all_reduce")
    with pytest.raises(RelayError, match="rank 0 called all_reduce while rank 1 called broadcast"):
        ranks.collective(1, "broadcast")


def test_sizes_that_differ_are_an_error_that_names_both() -> None:
    ranks = Ranks(2)
    ranks.post(0, "send", 1, size=12)
    with pytest.raises(RelayError, match="rank 0 sent 12 bytes to rank 1, which asked for 8 bytes") as told:
        ranks.post(1, "recv", 0, size=8)
    assert sizes_differ(Failure("exception", 0, str(told.value)))
    assert ranks.relay.wire().problems_of("size_mismatch")


def test_polling_is_answered_no_only_when_nobody_else_can_go_on() -> None:
    ranks = Ranks(2)
    receive = ranks.post(0, "recv", 1)
    ranks.wait(0, receive, op="test")
    assert not ranks.relay.settled
    ranks.wait(1, ranks.post(1, "recv", 0), op="test")
    assert ranks.relay.unstick() is None
    assert [(rank, header["op"]) for rank, header, _ in ranks.answers()] == [(0, "no"), (1, "no")]


def test_a_rank_with_threads_of_its_own_is_never_taken_for_blocked() -> None:
    ranks = Ranks(2)
    ranks.end(1)
    receive = ranks.post(0, "recv", 1)
    ranks.relay.receive(0, {"op": "wait", "id": receive, "threads": 2}, b"")
    assert not ranks.relay.settled and ranks.relay.settled_but_for_threads


def test_the_wire_holds_messages_collectives_and_what_nobody_received() -> None:
    ranks = Ranks(2)
    ranks.collective(0, "barrier", b"")
    ranks.post(0, "send", 1, size=40)
    ranks.post(1, "recv", 0, size=40)
    ranks.post(0, "send", 1, size=8)
    wire = ranks.relay.wire()
    assert [(m.src, m.dst, m.bytes, m.sent, m.received) for m in wire.messages] == [
        (0, 1, 40, 1, 0),
        (0, 1, 8, 2, None),
    ]
    assert [(c.rank, c.kind, c.sequence) for c in wire.collectives] == [(0, "barrier", 0)]
    assert [p.kind for p in wire.problems] == ["unmatched_send"]


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "header",
    [
        {},
        {"op": "become root"},
        {"op": "send"},
        {"op": "send", "id": "x", "peer": 1, "tag": 0, "group": "0:0,1", "bytes": 4, "dtype": "f"},
        {"op": "send", "id": 1, "peer": 7, "tag": 0, "group": "0:0,1", "bytes": 4, "dtype": "f"},
        {"op": "send", "id": 1, "peer": 1, "tag": 0, "group": "0:0,1", "bytes": -4, "dtype": "f"},
        {"op": "send", "id": 1, "peer": 1, "tag": 0, "group": "0:0,1", "bytes": 1 << 60, "dtype": "f"},
        {"op": "recv", "id": [], "peer": {}, "tag": None, "group": None, "bytes": None, "dtype": None},
        {"op": "data", "id": 99},
        {"op": "wait", "id": 99},
        {"op": "wait", "id": None},
        {"op": "wait", "id": float("inf")},
        {"op": "parts", "id": 1, "sizes": [1 << 70]},
        {"op": "collective", "id": 1, "group": "0:5,6", "name": "x", "bytes": 0},
        {"op": "collective", "id": 1, "group": "nonsense", "name": "x", "bytes": 0},
        {"op": "collective", "id": 1, "group": "0:" + ",".join(["0"] * 9000), "name": "x", "bytes": 0},
    ],
)
def test_requests_that_make_no_sense_end_the_case_and_nothing_else(header: dict[str, Any]) -> None:
    with pytest.raises(RelayError):
        Relay(2).receive(0, header, b"")


def test_a_number_no_call_could_have_ends_the_case_and_a_long_name_is_cut() -> None:
    send = {"op": "send", "id": 1, "peer": 1, "group": "g" * 60_000, "tag": 0, "bytes": 4, "dtype": "d" * 60_000}
    with pytest.raises(RelayError, match="a number that no call can have"):
        Relay(2).receive(0, {**send, "tag": 10**4000}, b"")
    relay = Relay(2)
    relay.receive(0, {**send, "where": "w" * 60_000}, b"")
    [(_, _, group, _)] = relay._sends
    [post] = relay._messages
    assert len(group) == len(post.where) == 200 and len(post.dtype) == 20


def test_too_many_messages_and_bytes_in_flight_end_the_case() -> None:
    ranks = Ranks(2, Limits(case_messages=3))
    for _ in range(3):
        ranks.post(0, "send", 1)
    with pytest.raises(RelayError, match="more than 3 messages"):
        ranks.post(0, "send", 1)
    ranks = Ranks(2, Limits(case_message_bytes=10))
    first, second = ranks.post(0, "send", 1, size=8), ranks.post(0, "send", 1, size=8)
    ranks.data(0, first, b"x" * 8)
    with pytest.raises(RelayError, match="more than 10 bytes are in flight"):
        ranks.data(0, second, b"x" * 8)


def test_a_message_that_was_announced_and_never_came_counts_no_bytes() -> None:
    ranks = Ranks(2)
    ranks.post(0, "send", 1, size=4000)
    ranks.post(1, "recv", 0, size=4000)
    assert [message.bytes for message in ranks.relay.wire().messages] == [4000]  # the case is not over
    for rank in range(2):
        ranks.end(rank)
    assert [message.bytes for message in ranks.relay.wire().messages] == [0]


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("barrier", [(b"all",), (b"that",), (b"is",)], "rank 0 passed bytes through a barrier, which carries none."),
        ("barrier", [(b"a", b"b", b"c")] * 3, "rank 0 gave 3 parts to barrier of 3 ranks."),
        ("broadcast", [(b"mine",), (b"",), (b"too",)], "ranks 0 and 2 each gave to broadcast."),
        ("broadcast", [(b"a", b"b", b"c"), (b"",), (b"",)], "rank 0 gave 3 parts to broadcast of 3 ranks."),
        ("all_reduce", [(b"1234",), (b"1234",), (b"12345678",)], "rank 0 gave 4 bytes to all_reduce and rank 2 gave 8"),
        ("all_reduce", [(b"a", b"b", b"c")] * 3, "rank 0 gave 3 parts to all_reduce of 3 ranks."),
        ("all_gather", [(b"a",), (b"a",), (b"a", b"b", b"c")], "rank 2 gave 3 parts to all_gather of 3 ranks."),
        ("gather", [(b"a", b"", b""), (b"", b"b", b""), (b"", b"", b"")], "several roots of gather"),
        ("scatter", [(b"a", b"b", b"c"), (b"",), (b"d",)], "ranks 0 and 2 each gave to scatter."),
        ("reduce_scatter", [(b"a", b"b", b"c"), (b"a", b"b", b"c"), (b"a", b"", b"")], "all must give as much"),
        ("all_to_all", [(b"abc",), (b"abc",), (b"abc",)], "rank 0 gave 1 parts to all_to_all of 3 ranks."),
    ],
)  # fmt: skip
def test_a_collective_is_what_its_parts_say_whatever_a_rank_calls_it(
    name: str, given: list[tuple[bytes, ...]], words: str
) -> None:
    ranks = Ranks()
    with pytest.raises(RelayError) as caught:
        for rank, parts in enumerate(given):
            ranks.collective(rank, name, *parts)
    assert words in caught.value.text


@pytest.mark.parametrize(
    ("name", "given", "counted"),
    [
        ("barrier", [(b"",)] * 3, [0, 0, 0]),
        ("all_reduce", [(b"12345678",)] * 3, [8, 8, 8]),
        ("all_gather", [(b"1",), (b"22",), (b"333",)], [1, 2, 3]),
        ("broadcast", [(b"",), (b"12345",), (b"",)], [5, 5, 5]),
        ("gather", [(b"", b"1", b""), (b"", b"22", b""), (b"", b"", b"")], [1, 2, 0]),
        ("scatter", [(b"1", b"22", b"333"), (b"",), (b"",)], [1, 2, 3]),
        ("reduce_scatter", [(b"1", b"22", b"333")] * 3, [6, 6, 6]),
        ("all_to_all", [(b"1", b"22", b"333"), (b"", b"", b"4"), (b"", b"", b"")], [6, 1, 0]),
    ],
)
def test_a_collectives_bytes_are_those_that_came_not_those_announced(
    name: str, given: list[tuple[bytes, ...]], counted: list[int]
) -> None:
    ranks = Ranks()
    for rank, parts in enumerate(given):  # each announces 4
        ranks.wait(rank, ranks.collective(rank, name, *parts))
        ranks.end(rank)
    assert [(call.rank, call.kind, call.bytes) for call in ranks.relay.wire().collectives] == [
        (rank, name, size) for rank, size in enumerate(counted)
    ]


def test_a_word_that_is_no_collective_ends_the_case() -> None:
    with pytest.raises(RelayError, match="which is not a collective"):
        Ranks().collective(0, "telepathy", b"")
