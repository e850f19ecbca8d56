"""What is right stays with the oracle process."""

from __future__ import annotations

import pytest

from labkit.checks.exercise import functions_for
from labkit.checks.wire import Wire
from labkit.checks.wire_format import encode
from labkit.grading.hidden_cases import oracle_process
from labkit.grading.hidden_cases.oracle import HiddenCase, Judged, Oracle, _brought
from labkit.grading.hidden_cases.oracle_process import without_expected
from tests.checks.brought import brought
from tests.checks.lesson_cells import namespace


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("element 0 is 352.5, expected 705 (7 of 7 elements differ).", "element 0 is 352.5 (7 of 7 elements differ)."),
        ("element 6 is 981, expected 1805. There, one is missing.", "element 6 is 981. There, one is missing."),
        ("element 0 is 2.5, expected 14267.4 (19 of 19 differ).", "element 0 is 2.5 (19 of 19 differ)."),
        ("element 0 is 2.5, expected -1.5e-07.", "element 0 is 2.5."),
        ("f(6, 5) gave [(0, 2)], expected [(0, 22), (22, 43)].", "f(6, 5) gave [(0, 2)]."),
        (
            "outputs[0] is [1, …], expected [2, 3, …], rank 3's piece for it.",
            "outputs[0] is [1, …], rank 3's piece for it.",
        ),
        ("Rank 0's tensor has shape (3,), expected (4, 5).", "Rank 0's tensor has shape (3,)."),
        ("Rank 0's tensor has dtype float64, expected torch.float32.", "Rank 0's tensor has dtype float64."),
        ("f(1) gave 2, expected 7.", "f(1) gave 2."),
        ("ValueError was expected, rank 0 did not raise it.", "ValueError was expected, rank 0 did not raise it."),
    ],
)
def test_expected_values_of_hidden_cases_are_taken_out_of_messages(message: str, told: str) -> None:
    assert without_expected(message) == told


def test_results_that_are_not_values_are_a_verdict_and_not_a_crash(oracle: Oracle) -> None:
    case = oracle.cases("double", 3)[0]
    for junk in (b"", b"LKV1", b"LKV1\xff\xff\xff\xff", b"\x80\x04pickle", b"LKV1\x02\x00\x00\x00{}" + b"\xff" * 8):
        judged = oracle.judge("double", case, [junk], None, Wire())
        assert not judged.passed and "cannot be read" in judged.message


WHOLE = """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    moving = tensor.clone()
    for _ in range(n - 1):
        incoming = torch.empty_like(moving)
        ops = [
            dist.P2POp(dist.isend, moving, group=group, group_peer=(rank + 1) % n),
            dist.P2POp(dist.irecv, incoming, group=group, group_peer=(rank - 1) % n),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        tensor += incoming
        moving = incoming
"""


def test_a_message_that_holds_too_much_is_told_with_whose_call_it_was_and_how_much_it_may_hold() -> None:
    oracle = oracle_process.Oracle("ring_all_reduce", None, 1 << 20)
    about, _ = oracle.visible("ring_sum")
    index = next(at for at, each in enumerate(about) if each["world_size"] == 3)
    exercise = oracle.exercises["ring_sum"]
    case = exercise.visible[index]
    got, wire = brought(exercise, functions_for(exercise, namespace(extra=WHOLE)), case)
    results = [encode(each) for each in got]
    hidden = HiddenCase(index, case.name, ())
    header = _brought("judge", "ring_sum", hidden, results, None, wire)
    judged = Judged(**oracle.judge(header, memoryview(b"".join(results))))
    assert judged.mistake == "whole tensor at each step" and (judged.rank, judged.call) == (0, 0)
    assert judged.most_bytes and f"at most {judged.most_bytes} bytes each" in judged.message
    assert judged.most_bytes < max(message.bytes for message in wire.messages)
    got, wire = brought(exercise, functions_for(exercise, namespace()), case)
    right = [encode(each) for each in got]
    header = _brought("judge", "ring_sum", hidden, right, None, wire)
    assert Judged(**oracle.judge(header, memoryview(b"".join(right)))) == Judged(True)
