"""Buckets ready, sent and averaged, held against lesson 04's formula."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

import labkit
from labkit.errors import ConfigError
from labkit.plans.buckets import HOOKS, Link, sent
from labkit.plans.reference.bucket_plans import bucket_plan
from labkit.timeline import COMMUNICATION, COMPUTE, Timeline
from labkit.widgets.bucket_explorer import bucket_explorer
from tests.widgets import bucket_programs
from tests.widgets.in_page import Evaluate

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


@pytest.mark.in_turn
def test_javascript_sends_the_same_buckets_at_the_same_times(evaluate: Evaluate) -> None:
    draw = random.Random(1)
    cases: list[Any] = []
    for _ in range(40):
        sizes = [draw.randint(1, 10**7) for _ in range(draw.randint(1, 30))]
        cases.append([sizes, draw.randint(10**5, 10**8)])
    values = {"backward": 10e-3, "ranks": 8, "latency": 20e-6, "bandwidth": 12.5e9}
    plans = evaluate("buckets", "cases.map(([sizes, cap]) => bucketPlan(sizes, cap))", cases=cases)
    assert plans == [bucket_plan(sizes, cap) for sizes, cap in cases]
    expression = "cases.map(([sizes, cap]) => bucketTimes(sizes, bucketPlan(sizes, cap), values).map((b) => b.end))"
    ends = evaluate("buckets", expression, cases=cases, values=values)
    for (sizes, cap), found in zip(cases, ends, strict=True):
        assert found == pytest.approx([each.end for each in sent(sizes, bucket_plan(sizes, cap), LINK)])


def test_the_learners_plan_is_sent_only_where_it_differs() -> None:
    assert "plans" not in bucket_explorer(plan=bucket_plan).data
    one_each = bucket_explorer(plan=lambda sizes, cap: [[index] for index in range(len(sizes))])
    assert one_each.numbers["buckets"] == 80
    assert set(one_each.data["faults"]) == {""}


@pytest.mark.parametrize("hook", HOOKS)
def test_javascript_counts_hooks_skew_and_the_first_bucket_as_python_does(evaluate: Evaluate, hook: str) -> None:
    link = Link(10e-3, 8, 20e-6, 12.5e9, 2e-3, hook)
    values = {"backward": 10e-3, "ranks": 8, "latency": 20e-6, "bandwidth": 12.5e9, "skew": 2e-3}
    sizes = [4 * 384 * 384, 4 * 384] * 20
    values["hook"] = bucket_explorer(sizes).data["hooks"][hook]
    plan = bucket_plan(sizes, 5 * 2**20, 2**20)
    assert sum(sizes[index] for index in plan[0]) <= 2**20 < sum(sizes[index] for index in plan[1])
    expression = "[bucketPlan(sizes, 5 * 2 ** 20, 2 ** 20), bucketTimes(sizes, plan, values)]"
    found, times = evaluate("buckets", expression, sizes=sizes, plan=plan, values=values)
    assert found == plan
    wanted = sent(sizes, plan, link)
    assert [each["end"] for each in times] == pytest.approx([each.end for each in wanted], rel=1e-5)
    assert [each["bytes"] for each in times] == pytest.approx([each.num_bytes for each in wanted], rel=1e-5)
    assert [each["all"] for each in times] == pytest.approx([each.all_ready for each in wanted])


def test_a_small_first_bucket_leaves_earlier() -> None:
    sizes = [1_000_000] * 40
    whole, small = (sent(sizes, bucket_plan(sizes, 25e6, first), LINK)[0] for first in (0, 1e6))
    assert small.start < whole.start / 10


def test_all_wait_for_the_slowest_rank() -> None:
    one, late = bucket_explorer(cap_mb=100), bucket_explorer(cap_mb=100, skew_s=3e-3)
    assert late.numbers["step_s"] == pytest.approx(one.numbers["step_s"] + 3e-3)
    assert late.numbers["exposed_s"] == pytest.approx(one.numbers["exposed_s"])
    assert (one.numbers["waiting_s"], late.numbers["waiting_s"]) == (0, pytest.approx(3e-3))
    assert late.sentence.endswith("Rank 0 waits 3 ms for the slowest rank.")


def test_waiting_for_a_late_rank_is_no_communication_and_both_programs_tell_them_apart(evaluate: Evaluate) -> None:
    draw, drawn = random.Random(2), []
    for _ in range(30):
        sizes = [draw.randint(1, 4 * 10**6) for _ in range(draw.randint(1, 30))]
        late, slow = draw.choice([0, 0.05, 0.3, 1]) * 10e-3, draw.choice([1e9, 12.5e9, 1e11])
        drawn.append(bucket_explorer(sizes, cap_mb=draw.choice([1, 5, 25]), skew_s=late, bandwidth_Bps=slow))
    expression = """figures.map((data) => {
      const figure = bucketExplorer(data);
      const values = Object.fromEntries(figure.sliders.map((s) => [s.key, s.value]));
      return Object.fromEntries(figure.draw({ registered: "as used", ...values }, 1e9, 900).numbers);
    })"""
    told = evaluate("buckets", expression, figures=[each.data for each in drawn])
    units = {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
    for figure, found in zip(drawn, told, strict=True):
        numbers, data = figure.numbers, figure.data
        exposed, waiting = numbers["exposed_s"], numbers["waiting_s"]
        assert 0 <= exposed <= numbers["communication_s"] and 0 <= waiting <= numbers["skew_s"] + 1e-12
        spent = data["forward"] + data["backward"] + data["optimizer"] + exposed + waiting
        assert numbers["step_s"] == pytest.approx(spent)  # nothing is counted twice or left out
        for name, wanted in (
            ("exposed", exposed),
            ("waits for the slowest rank", waiting),
            ("step", numbers["step_s"]),
        ):
            value, unit = found[name].split()
            assert float(value) * units[unit] == pytest.approx(wanted, rel=1e-2, abs=1e-12)


def _run(num_ranks: int) -> Timeline:
    """Return a run of two steps; the last: each rank 100 us later than the one before it, two buckets."""
    rows: list[tuple[Any, ...]] = []
    for begin, rank in ((begin, rank) for begin in (0, 10_000_000) for rank in range(num_ranks)):
        late, word = begin + 100_000 * rank, "span"
        rows += [(rank, COMPUTE, late, late + 1_000_000, "forward", word, 0)]
        rows += [(rank, COMPUTE, late + 1_000_000, late + 3_000_000, "backward", word, 0)]
        rows += [(rank, COMMUNICATION, late + 2_000_000, begin + 3_200_000, "all_reduce", "all_reduce", 4_000)]
        rows += [(rank, COMMUNICATION, late + 3_000_000, begin + 4_000_000, "all_reduce", "all_reduce", 8_000)]
        rows += [(rank, COMPUTE, begin + 4_000_000, begin + 4_500_000, "optimizer", word, 0)]
    return Timeline(*map(list, zip(*rows, strict=True)))


def test_a_run_shows_its_last_step_rank_by_rank() -> None:
    figure = bucket_explorer([8_000, 4_000], run=_run(2))
    numbers = figure.numbers["run"]
    wanted = {"step_s": 4.5e-3, "communication_s": 1.9e-3, "exposed_s": 1e-3, "waiting_s": 0, "skew_s": 1e-4}
    assert numbers == pytest.approx(wanted)
    (rank, compute, buckets), (_, _, late) = figure.data["run"]
    assert (rank, compute) == ("rank 0", [["F", 0.0, 0.001], ["B", 0.001, 0.003], ["O", 0.004, 0.0045]])
    assert buckets == [[4000.0, 0.002, 0.0021, 0.0021, 0.0032], [8000.0, 0.003, 0.0031, 0.0032, 0.004]]
    assert [each[1] for each in late] == [0.0021, 0.0031]
    assert (figure.data["backward"], figure.data["forward"]) == pytest.approx((2e-3, 1e-3))  # the model's, from the run
    assert "This run: a step of 4.5 ms, 1 ms exposed." in figure.sentence


def test_of_many_ranks_the_first_and_the_latest_are_shown() -> None:
    assert [row[0] for row in bucket_explorer(run=_run(7)).data["run"]] == ["rank 0", "rank 6"]


def test_a_real_run_is_read() -> None:
    figure = bucket_explorer([4 * 2**16] * 3, run=labkit.run(bucket_programs.step, on=labkit.local(2)).timeline)
    assert [len(row[2]) for row in figure.data["run"]] == [3, 3]
    assert {size for row in figure.data["run"] for size, *_ in row[2]} == {4 * 2**16}


def test_a_run_without_a_step_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match='Rank 0 has no spans "forward" and "backward": wrap them in'):
        bucket_explorer(run=Timeline([0], [COMPUTE], [0], [1], ["forward"], ["span"]))
    with pytest.raises(ConfigError, match="Rank 0 has no all_reduce after its forward"):
        bucket_explorer(run=Timeline([0, 0], [COMPUTE] * 2, [0, 1], [1, 2], ["forward", "backward"], ["span"] * 2))


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (lambda sizes, cap: [[2], [0]], "Parameter 1 is in no bucket: its gradient is never averaged."),
        (lambda sizes, cap: [[2, 1], [1, 0]], "Parameter 1 is in two buckets: its gradient is averaged twice."),
        (lambda sizes, cap: [[3, 2, 1, 0]], "There is no parameter 3; they are 0 to 2."),
    ],
)
def test_a_wrong_plan_is_told(plan: Any, says: str) -> None:
    figure = bucket_explorer([100, 100, 100], plan)
    assert figure.sentence.endswith(says) and f">✗ {says}<" in figure.to_svg().replace("&#x27;", "'")


def test_what_cannot_be_shown_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="0 sizes were given; 1 to 400"):
        bucket_explorer([])
    with pytest.raises(ConfigError, match="hook='zip' is not known; use one of 'none', 'fp16'"):
        bucket_explorer(hook="zip")
    with pytest.raises(
        ConfigError, match="graph='dynamic' is not known; use one of 'default', 'find_unused_parameters'"
    ):
        bucket_explorer(graph="dynamic")
    with pytest.raises(ConfigError, match="used has 2 indices; it must have each of 0 to 2 once"):
        bucket_explorer([1, 2, 3], used=[0, 2])
    with pytest.raises(ConfigError, match=r"compare=\[0\] has a cap that is not above 0 MiB"):
        bucket_explorer(compare=[0])
    with pytest.raises(ConfigError, match="Step 5 was asked for; rank 0 took 2, 0 to 1"):
        bucket_explorer(run=_run(2), run_steps=[5])
    with pytest.raises(ConfigError, match="must be a list of buckets"):
        bucket_explorer([1, 2], lambda sizes, cap: 3)


def test_caps_are_stacked_with_their_steps() -> None:
    figure = bucket_explorer([2**20] * 40, cap_mb=5, compare=(1, 25, math.inf))
    alone = {cap: bucket_explorer([2**20] * 40, cap_mb=cap).numbers["step_s"] for cap in (1, 25)}
    assert {cap: figure.numbers["compared"][cap] for cap in alone} == alone
    assert figure.numbers["compared"][math.inf] == bucket_explorer([2**20] * 40, cap_mb=40).numbers["step_s"]
    assert (figure.data["compare"], figure.data["compared"]) == ([2**20, 25 * 2**20, None], "caps")
    assert f"one bucket: {1e3 * figure.numbers['compared'][math.inf]:.3g} ms." in figure.sentence
    assert all(f">{name}<" in figure.to_svg() for name in ("1 MiB", "25 MiB", "one bucket"))
    halves = bucket_explorer([100] * 4, lambda sizes, cap: [[3, 2], [], [1, 0]], compare=(1, math.inf))
    assert halves.numbers["buckets"] == 2  # an empty bucket sends nothing


def test_a_figure_is_small_and_the_same_every_time() -> None:
    bundle, size = bucket_explorer()._repr_mimebundle_()
    assert len(bundle["text/html"]) + len(bundle["image/png"]) * 4 / 3 <= 64_000
    assert (bundle, size) == bucket_explorer()._repr_mimebundle_()
