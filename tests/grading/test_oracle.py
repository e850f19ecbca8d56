"""What is right stays with the oracle process."""

from __future__ import annotations

import pytest

from labkit.checks.wire import Wire
from labkit.grading.hidden_cases.oracle import Oracle
from labkit.grading.hidden_cases.oracle_process import without_expected


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
