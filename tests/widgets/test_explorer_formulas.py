"""The explorers' numbers beside the papers' formulas, and beside a second way to count where there is no formula."""

from __future__ import annotations

import random
from functools import cache
from math import ceil, inf, isinf

import pytest

from labkit.plans.buckets import HOOKS, Link, sent
from labkit.plans.pipeline import Schedule
from labkit.plans.pipeline_records import Op, ops_of
from labkit.plans.pipeline_timing import place
from labkit.plans.reference.bucket_plans import bucket_plan
from labkit.plans.reference.schedules import FORMS, V_SHAPED
from labkit.widgets.compression_explorer import Method, pays
from labkit.widgets.staleness_view import staleness_view
from tests.widgets.in_page import Evaluate


def _stages(form: str, stages: int, microbatches: int) -> list[tuple[Op, ...]]:
    return [ops_of(FORMS[form](stage, stages, microbatches), stage) for stage in range(stages)]


def _longest(lists: list[tuple[Op, ...]], lasts: dict[str, float], message: float, v_shaped: bool = False) -> float:
    """Return the longest way through what waits for what, found from each operation backwards."""
    size, chunks = len(lists), 1 + max(op.chunk for ops in lists for op in ops)
    in_parts = any(op.kind == "W" for ops in lists for op in ops)
    back = "I" if in_parts else "B"
    way = [(stage, chunk) for chunk in range(chunks) for stage in range(size)]  # of a microbatch
    if v_shaped:
        way[size:] = way[: size - 1 : -1]

    @cache
    def ends(stage: int, kind: str, m: int, chunk: int) -> float:
        ops = lists[stage]
        at = ops.index(Op(kind, m, chunk))
        begins = [0.0]
        if at:
            before = ops[at - 1]
            begins.append(ends(stage, before.kind, before.microbatch, before.chunk))
        virtual = way.index((stage, chunk))
        if kind == "F" and virtual:
            there, part = way[virtual - 1]
            begins.append(ends(there, "F", m, part) + message * (there != stage))
        if kind == "W":
            begins.append(ends(stage, "I", m, chunk))
        if kind == back:
            begins.append(ends(stage, "F", m, chunk))
            if virtual < size * chunks - 1:
                there, part = way[virtual + 1]
                begins.append(ends(there, back, m, part) + message * (there != stage))
        return max(begins) + lasts[kind] / chunks

    return max(ends(stage, op.kind, op.microbatch, op.chunk) for stage, ops in enumerate(lists) for op in ops)


def _most_held(schedule: Schedule, stage: int) -> float:
    """Return the most activations held, counted anew at every begin of a forward."""
    row, parts = schedule.stages[stage], any(p.op.kind == "W" for p in schedule.stages[stage])
    chunks = 1 + max(p.op.chunk for each in schedule.stages for p in each)
    freed = {(p.op.microbatch, p.op.chunk): p.end for p in row if p.op.kind == ("W" if parts else "B")}
    begun = {(p.op.microbatch, p.op.chunk): p.start for p in row if p.op.kind == "F"}
    return max(sum(begun[k] <= time < freed[k] for k in begun) for time in begun.values()) / chunks


@pytest.mark.in_turn
@pytest.mark.parametrize("form", FORMS)
def test_a_schedules_makespan_is_the_longest_way_and_its_bubble_what_is_left_in_both_programs(
    evaluate: Evaluate, form: str
) -> None:
    draw, cases = random.Random(form), []
    for _ in range(25):
        stages, microbatches = draw.randint(1, 5), draw.randint(1, 8 if form != "interleaved" else 2)
        microbatches *= stages if form == "interleaved" else 1  # others deadlock, which the figure says
        lasts = [draw.choice([0.5, 1, 2, 2.7]) for _ in "FB"]
        cases.append([stages, microbatches, *lasts, draw.choice([0, 0.3]), draw.random()])
    expression = """cases.map(([p, m, tf, tb, tm, tw]) => {
      const lists = [...Array(p).keys()].map((s) => inForm(form, s, p, m));
      const twice = ["interleaved", "zb_v"].includes(form);
      const { stages } = place(lists, { tf, tb, tm, tw, vee: form === "zb_v" });
      const peak = (ops) => Math.max(...heldBy(ops, twice ? 2 : 1).map((each) => each[1]));
      return [Math.max(...stages.flat().map((o) => o[2])), bubbleOf(stages), stages.map(peak)];
    })"""
    found = evaluate("schedule", expression, cases=cases, form=form)
    for (p, m, tf, tb, tm, tw), (whole, bubble, peaks) in zip(cases, found, strict=True):
        lists = _stages(form, p, m)
        schedule = place(form, lists, tf, tb, tm, tw, form in V_SHAPED)
        longest = _longest(lists, {"F": tf, "B": tb, "I": tb * (1 - tw), "W": tb * tw}, tm, form in V_SHAPED)
        assert [schedule.makespan, whole] == pytest.approx([longest] * 2)
        assert [schedule.bubble(), bubble] == pytest.approx([1 - m * (tf + tb) / longest] * 2, abs=1e-9)
        held = [_most_held(schedule, stage) for stage in range(p)]
        assert [schedule.peak(stage) for stage in range(p)] == pytest.approx(held)
        assert peaks == pytest.approx(held)


@pytest.mark.in_turn
@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_schedules_take_what_their_papers_say(p: int, groups: int) -> None:
    """GPipe (Huang 2019), 1F1B and interleaved (Narayanan 2021), ZB-H1 (Qi 2023, tables 1 and 2); M a multiple of P."""
    m = groups * p

    def made(form: str, *times: float) -> tuple[float, list[float]]:
        schedule = place(form, _stages(form, p, m), *times)
        return schedule.makespan, [schedule.peak(stage) for stage in range(p)]

    for tf, tb, tm in ((1.0, 2.0, 0.0), (1.0, 1.0, 0.5), (2.0, 3.0, 0.25)):
        assert made("gpipe", tf, tb, tm) == (pytest.approx((m + p - 1) * (tf + tb) + 2 * (p - 1) * tm), [m] * p)
        length, peaks = made("one_f_one_b", tf, tb)
        assert (length, peaks) == (pytest.approx((m + p - 1) * (tf + tb)), [min(p - stage, m) for stage in range(p)])
        length, peaks = made("interleaved", tf, tb)
        assert length == pytest.approx(m * (tf + tb) + (p - 1) * (tf + tb) / 2)
        assert peaks == [min(2 * (p - 1 - stage) + p + 1, 2 * m) / 2 for stage in range(p)]
    length, peaks = made("zb_h1", 1.0, 2.0)  # F = I = W = 1
    assert (length, peaks) == (pytest.approx(3 * m + (p - 1) * (1 + 1 - 1)), [min(p, m)] * p)


def test_a_ring_sends_and_lasts_what_the_formula_says_for_every_number_of_chunks(evaluate: Evaluate) -> None:
    """Patarasuk and Yuan 2009: 2(N-1) steps, 2(N-1)/N of the bytes; a rank sends each chunk twice but for two turns."""
    expression = """cases.map(([n, chunks, slow]) => {
      const steps = ringSteps(n, chunks), sends = Array(n).fill(0);
      for (const step of steps) for (const [src] of step.sends) sends[src] += 1;
      const times = transferTimes(steps, n, { size: 8e6, latency: 5e-6, bandwidth: 1e10, slow, chunks });
      const plan = steps.map((step) => step.sends.map((s) => s.slice(0, 3)));
      return [steps.length, sends, Math.max(...times.map((t) => t[4])), plan];
    })"""
    cases = [[n, c, slow] for n in (2, 3, 4, 7, 8, 16) for c in range(1, 17) for slow in (-1, 0, n - 1)]
    for (n, c, slow), (steps, sends, seconds, plan) in zip(
        cases, evaluate("ring", expression, cases=cases), strict=True
    ):
        turns = ceil(c / n)
        assert steps == 2 * (n - 1) * turns
        residues = [[k % n for k in range(c)].count(each) for each in range(n)]
        assert sends == [2 * c - residues[(r + 1) % n] - residues[(r + 2) % n] for r in range(n)]
        if c % n == 0:
            assert sends[0] / c == pytest.approx(2 * (n - 1) / n)
        free = [0.0] * n
        for step in plan:
            begun = {src: max(free[src], free[dst]) for src, _, dst in step}
            ends = {src: at + 5e-6 + 8e6 / c / (1e10 / (4 if src == slow else 1)) for src, at in begun.items()}
            free = [max(free[r], ends.get(r, 0), ends.get((r - 1) % n, 0)) for r in range(n)]
        assert seconds == pytest.approx(max(free))
        if slow < 0 and (c % n == 0 or c <= n):
            assert seconds == pytest.approx(2 * (n - 1) * turns * (5e-6 + 8e6 / c / 1e10))


@pytest.mark.parametrize("hook", HOOKS)
def test_a_bucket_ends_after_the_longest_queue_before_it(hook: str) -> None:
    """Of buckets sent one at a time the k-th ends at the largest, over j, of ready j + skew + what j to k take."""
    draw = random.Random(hook)
    for _ in range(40):
        sizes = [4 * draw.randint(1, 10**6) for _ in range(draw.randint(1, 25))]
        n, latency, speed, skew = (
            draw.randint(2, 64),
            draw.choice([0, 2e-5]),
            draw.choice([1e9, 5e10]),
            draw.random() / 99,
        )
        link, plan = Link(0.01, n, latency, speed, skew, hook), bucket_plan(sizes, draw.randint(1, 10**7))
        ready, takes = [], []
        for bucket in plan:
            ready.append(0.01 * sum(sizes[min(bucket) :]) / sum(sizes))
            packed = sum(HOOKS[hook].packed(sizes[k]) for k in bucket)
            ring = 2 * (n - 1) * latency + 2 * (n - 1) / n * packed / speed
            gather = (n - 1) * latency + (n - 1) * packed / speed
            passes = HOOKS[hook].passes * sum(sizes[k] for k in bucket) / 1.6e12
            takes.append(passes + (gather if hook == "top 1 %" else ring))
        ends = [max(ready[j] + skew + sum(takes[j : k + 1]) for j in range(k + 1)) for k in range(len(plan))]
        assert [each.end for each in sent(sizes, plan, link)] == pytest.approx(ends)


def test_staleness_is_counted_as_in_the_records(evaluate: Evaluate) -> None:
    draw, figures = random.Random(3), []
    for _ in range(20):
        versions = range(draw.randint(1, 60))
        records = [(v, draw.randrange(4), draw.randint(max(0, v - 9), v), v) for v in versions]
        figures.append((records, staleness_view(records, num_bytes=1e6)))
    expression = """given.map((data) => {
      const figure = stalenessView(data), values = Object.fromEntries(figure.sliders.map((s) => [s.key, s.value]));
      const { numbers } = figure.draw(values, data.runs[0].updates.length, 900);
      return Object.fromEntries(numbers);
    })"""
    told = evaluate("staleness", expression, given=[figure.data for _, figure in figures])
    for (records, figure), found in zip(figures, told, strict=True):
        taus = sorted(applied - read for _, _, read, applied in records)
        # The nearest rank: at least 95 of 100 are not staler.
        enough = min(tau for tau in taus if 100 * sum(each <= tau for each in taus) >= 95 * len(taus))
        mean = sum(taus) / len(taus)
        numbers = figure.numbers
        assert (numbers["mean"], numbers["p95"], numbers["most"]) == (pytest.approx(mean), enough, taus[-1])
        assert (found["95 %"], found["most"], found["updates"]) == (enough, taus[-1], len(taus))
        assert float(found["mean staleness"]) == pytest.approx(mean, abs=0.006)
        assert found["pulled and pushed"] == f"{float(f'{2 * len(taus):.3g}'):g} MB"


def test_compression_pays_exactly_where_its_step_is_shorter() -> None:
    draw = random.Random(4)
    for _ in range(300):
        ranks, latency, compute = draw.randint(2, 64), draw.choice([0, 1e-6, 1e-4]), 0.01

        def seconds(each: Method, speed: float, n: int = ranks, a: float = latency) -> float:
            """Ring all_reduce: each rank sends 2(N-1)/N of it; all_gather: the packets of the N-1 others."""
            steps, sent = (2 * (n - 1), 2 * (n - 1) / n) if each.addable else (n - 1, n - 1)
            return 0.01 + each.compress_s + steps * a + sent * each.num_bytes / speed

        plain, other = (
            Method(name, draw.uniform(1e4, 1e8), draw.choice([0, 1e-4, 5e-3]), draw.random() < 0.6) for name in "ab"
        )
        border = pays(other, plain, ranks, latency)
        for power in range(40, 140):
            speed = 10 ** (power / 10)
            assert other.step_s(compute, ranks, latency, speed) == pytest.approx(seconds(other, speed))
            difference = seconds(other, speed) - seconds(plain, speed)
            if abs(difference) > 1e-9 * seconds(plain, speed):
                inside = border is not None and border[0] < speed < (inf if isinf(border[1]) else border[1])
                assert inside == (difference < 0), (plain, other, border, speed)
