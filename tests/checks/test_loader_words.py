"""1.10 says which samples a pass lacks and which it has more than once, and nothing of an empty list."""

from __future__ import annotations

import pytest

from labkit.checks.wire import Wire
from labkit.exercises.data_parallel.split_loader.exercise import judge, loader_case


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([0, 1, 2, 3, 4, 4], "samples [5] are missing and samples [4] come more than once."),
        ([0, 1, 2, 3, 4], "samples [5] are missing."),
        ([0, 1, 2, 3, 4, 5, 5], "samples [5] come more than once."),
        ([0, 1, 2, 3, 4, 6], "samples [5] are missing and samples [6] are none of the dataset's."),
    ],
)
def test_only_what_is_wrong_with_the_samples_is_said(samples: list[int], said: str) -> None:
    case = loader_case("one batch, one device", 6, 10, (1,), epochs=1, shuffle=False)
    came = {"length": 1, "epochs": [[[{"0": samples}]], [[{"0": samples}]]]}
    verdict = judge(case, (came,), Wire())  # type: ignore[arg-type]
    assert not verdict.passed and verdict.message == f"In pass 0 {said}"
