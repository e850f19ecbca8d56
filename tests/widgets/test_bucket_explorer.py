"""Buckets ready, sent and averaged, held against lesson 03's formula."""

from __future__ import annotations

import random
from typing import Any

import pytest

from labkit.errors import ConfigError
from labkit.widgets.bucket_explorer import bucket_explorer
from labkit.widgets.buckets import Link, bucket_plan, sent
from tests.widgets.in_node import evaluate

LINK = Link(10e-3, 8, 20e-6, 12.5e9)


@pytest.mark.parametrize("num_buckets", [1, 2, 5, 10, 40])
@pytest.mark.parametrize("bandwidth", [1e9, 12.5e9])
def test_equal_buckets_end_when_the_formula_says(num_buckets: int, bandwidth: float) -> None:
    """max(T + c, T/k + k c): backward T, k buckets, an all_reduce of one takes c."""
    sizes = [1_000_000] * 40
    link = Link(10e-3, 8, 20e-6, bandwidth)
    times = sent(sizes, bucket_plan(sizes, 40_000_000 / num_buckets), link)
    assert len(times) == num_buckets
    one = link.all_reduce_s(40_000_000 / num_buckets)
    assert times[-1].end == pytest.approx(max(10e-3 + one, 10e-3 / num_buckets + num_buckets * one))


def test_every_parameter_is_in_one_bucket_and_none_goes_over_the_cap_with_company() -> None:
    draw = random.Random(0)
    for _ in range(50):
        sizes = [draw.randint(1, 100) for _ in range(draw.randint(1, 30))]
        plan = bucket_plan(sizes, cap := draw.randint(1, 200))
        assert [index for bucket in plan for index in bucket] == list(reversed(range(len(sizes))))
        assert all(len(bucket) == 1 or sum(sizes[index] for index in bucket) <= cap for bucket in plan)


def test_javascript_sends_the_same_buckets_at_the_same_times() -> None:
    draw = random.Random(1)
    cases: list[Any] = []
    for _ in range(40):
        sizes = [draw.randint(1, 10**7) for _ in range(draw.randint(1, 30))]
        cases.append([sizes, draw.randint(10**5, 10**8)])
    values = {"backward": 10e-3, "ranks": 8, "latency": 20e-6, "bandwidth": 12.5e9}
    plans = evaluate("bucket_explorer.js", "cases.map(([sizes, cap]) => bucketPlan(sizes, cap))", cases=cases)
    assert plans == [bucket_plan(sizes, cap) for sizes, cap in cases]
    expression = "cases.map(([sizes, cap]) => bucketTimes(sizes, bucketPlan(sizes, cap), values).map((b) => b.end))"
    ends = evaluate("bucket_explorer.js", expression, cases=cases, values=values)
    for (sizes, cap), found in zip(cases, ends, strict=True):
        assert found == pytest.approx([each.end for each in sent(sizes, bucket_plan(sizes, cap), LINK)])


def test_the_learners_plan_is_sent_only_where_it_differs() -> None:
    assert "plans" not in bucket_explorer(plan=bucket_plan).data
    one_each = bucket_explorer(plan=lambda sizes, cap: [[index] for index in range(len(sizes))])
    assert one_each.numbers["buckets"] == 80
    assert set(one_each.data["faults"]) == {""}


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (lambda sizes, cap: [[2], [0]], "Parameter 1 is in no bucket: its gradient is never averaged."),
        (lambda sizes, cap: [[2, 1], [1, 0]], "Parameter 1 is in two buckets: its gradient is averaged twice."),
        (lambda sizes, cap: [[3, 2, 1, 0]], "There is no parameter 3; they are 0 to 2."),
    ],
)
def test_a_wrong_plan_is_told(plan: Any, says: str) -> None:
    assert bucket_explorer([100, 100, 100], plan).sentence.endswith(says)


def test_what_cannot_be_shown_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="0 sizes were given; 1 to 400"):
        bucket_explorer([])
    with pytest.raises(ConfigError, match="must be a list of buckets"):
        bucket_explorer([1, 2], lambda sizes, cap: 3)


def test_a_figure_is_small_and_the_same_every_time() -> None:
    bundle = bucket_explorer()._repr_mimebundle_()
    assert len(bundle["text/html"]) + len(bundle["image/png"]) * 4 / 3 <= 60_000
    assert bundle == bucket_explorer()._repr_mimebundle_()
