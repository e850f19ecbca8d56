"""Updates of a parameter server, simulated and recorded, and what is said of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from labkit.errors import ConfigError
from labkit.plans.server_runs import read_runs
from labkit.plans.staleness import Update, ahead_of, draws, losses, simulate, updates_of
from labkit.timeline import COMPUTE, Timeline
from labkit.widgets.staleness_view import staleness_view, waiting_share
from tests.widgets.in_page import Evaluate

BOUNDS: list[int | str] = ["sync", 0, 1, 2, 8, "delay 2", "delay 8", "async"]


def test_numbers_are_the_same_in_javascript(evaluate: Evaluate) -> None:
    drawn = [[next(numbers) for _ in range(50)] for numbers in map(draws, range(5))]
    expression = "seeds.map((s) => { const next = draws(s); return Array.from({ length: 50 }, () => next()); })"
    assert evaluate("staleness", expression, seeds=list(range(5))) == drawn


def test_javascript_simulates_the_same_updates(evaluate: Evaluate) -> None:
    cases = [
        {"workers": workers, "bound": bound, "straggler": 2.5, "delay": 0.1, "seed": seed, "drop": drop, "law": law}
        for workers in (1, 3, 8)
        for bound in BOUNDS
        for seed, drop, law in ((0, None, "±25 %"), (7, None, "equal"), (3, 2, "exponential"), (1, 0, "±25 %"))
    ]
    expression = "cases.map((each) => simulate({ ...each, drop: each.drop ?? '–' }))"
    found = evaluate("staleness", expression, cases=cases)
    for case, updates in zip(cases, found, strict=True):
        names = ("workers", "bound", "straggler", "delay", "seed")
        wanted = simulate(*(case[name] for name in names), drop=case["drop"], law=case["law"])  # type: ignore[arg-type]
        assert [each[:3] for each in updates] == [[u.worker, u.version_read, u.version_applied] for u in wanted]
        assert [each[4] for each in updates] == pytest.approx([u.end for u in wanted])
        assert [each[5] for each in updates] == [u.dropped for u in wanted]
        assert sum(not u.dropped for u in wanted) == 60


def test_javascript_counts_how_far_ahead_a_worker_was_as_python_does(evaluate: Evaluate) -> None:
    made = [simulate(4, bound, 3.0, 0.1, 0) for bound in BOUNDS]
    rows = [[[u.worker, u.version_read, u.version_applied, u.start, u.end] for u in each] for each in made]
    assert evaluate("staleness", "rows.map((each) => aheadOf(each, 4))", rows=rows) == list(map(ahead_of, made))


@dataclass(frozen=True)
class Ran:
    results: list[Any]
    timeline: Timeline


@pytest.mark.parametrize("divided", ["nothing", "workers", "staleness"])
def test_javascript_trains_to_the_same_losses(evaluate: Evaluate, divided: str) -> None:
    cases: list[Any] = [(4, bound, seed) for bound in BOUNDS for seed in (0, 3)]
    made = [simulate(workers, bound, 2.0, 0.1, seed) for workers, bound, seed in cases]
    rows = [[[u.worker, u.version_read, u.version_applied, u.start, u.end] for u in each] for each in made]
    values = [{"workers": workers, "lr": 0.3, "divided": divided, "seed": seed} for workers, _, seed in cases]
    found = evaluate("staleness", "rows.map((each, k) => losses(each, values[k]))", rows=rows, values=values)
    for case, updates, points in zip(cases, made, found, strict=True):
        wanted = losses(updates, case[0], 0.3, case[2], divided)
        assert points == [pytest.approx(list(point)) for point in wanted]


def test_a_rate_that_a_synchronous_server_takes_is_too_large_for_an_asynchronous_one_unless_it_is_divided() -> None:
    """With seven versions of delay SGD is stable up to 2 sin(pi / 30) = 0.21 only; with none up to 2."""
    synchronous, stale = simulate(8, "sync", 1.0, 0.0, 0, 240), simulate(8, "async", 1.0, 0.0, 0, 240)
    assert losses(synchronous, 8, 0.4, 0, "nothing")[-1][2] < 0.5
    assert losses(stale, 8, 0.4, 0, "nothing")[-1][2] > 1000
    assert losses(stale, 8, 0.4, 0, "workers")[-1][2] < 0.5
    assert losses(stale, 8, 0.4, 0, "staleness")[-1][2] < 0.5


@dataclass(frozen=True)
class Seen:
    seconds: float
    version: int
    loss: float


@dataclass(frozen=True)
class Trained:
    updates: list[tuple[int, int, int, int]]
    seen: list[Seen]


def test_runs_are_read_with_their_losses_and_compared_on_one_axis() -> None:
    one = Trained([(0, 0, 0, 0), (1, 1, 0, 1)], [Seen(2.0, 2, 0.5), Seen(1.0, 1, 0.75)])
    figure = staleness_view({"mine": one, "records": [(0, 0, 0, 0.0, 1.0)]})
    assert figure.numbers["runs"]["mine"]["loss"] == 0.5
    assert [run["name"] for run in figure.data["runs"]] == ["mine", "records"]
    assert figure.data["runs"][0]["losses"] == [[1.0, 1, 0.75], [2.0, 2, 0.5]]
    assert [run["timed"] for run in figure.data["runs"]] == [False, True]
    assert "records: 1 updates of 1 workers" in figure.sentence


def test_a_runs_timeline_gives_the_times_of_its_updates() -> None:
    spans = [(1, 10, 20, "version 0"), (2, 10, 30, "version 0"), (1, 22, 31, "version 1")]
    ranks, starts, ends, names = zip(*spans, strict=True)
    timeline = Timeline(ranks, [COMPUTE] * 3, starts, ends, names, ["span"] * 3)
    records = [(0, 0, 0, 0), (1, 1, 0, 1), (2, 0, 1, 2)]
    (run,) = read_runs(Ran([None, Trained(records, [])], timeline))
    assert run.timed
    assert [(u.worker, round(u.start * 1e9), round(u.end * 1e9)) for u in run.updates] == [
        (0, 0, 10),
        (1, 0, 20),
        (0, 12, 21),
    ]
    (other,) = read_runs(Ran([Trained([(0, 0, 5, 5)], [])], timeline))  # the spans are of other versions
    assert not other.timed


def test_a_span_whose_gradient_is_in_no_record_was_dropped_and_bytes_asked_are_counted() -> None:
    """Two gradients make a version; worker 2's first comes when version 1 is there, its second after the end."""
    spans = [(1, 0, 10, 0), (2, 0, 12, 0), (3, 0, 20, 0), (1, 13, 22, 1), (2, 13, 23, 1), (3, 21, 40, 1)]
    asked = [
        (1, 10, 12, 80, "rpc_sync"),
        (0, 10, 12, 80, "rpc_serve"),
        (3, 20, 21, 88, "rpc_sync"),
        (0, 0, 5, 7, "rpc_async"),
    ]
    timeline = Timeline(
        [rank for rank, *_ in spans] + [rank for rank, *_ in asked],
        [COMPUTE] * 10,
        [span[1] for span in spans + asked],
        [span[2] for span in spans + asked],
        [f"version {span[3]}" for span in spans] + ["push"] * 4,
        ["span"] * 6 + [each[4] for each in asked],
        bytes=[0] * 6 + [each[3] for each in asked],
    )
    records = [(0, 0, 0, 0), (1, 1, 0, 0), (2, 0, 1, 1), (3, 1, 1, 1)]
    figure = staleness_view(Ran([Trained(records, [])], timeline))
    assert figure.numbers["dropped"] == 2
    assert figure.sentence.startswith("4 updates of 3 workers: mean staleness 0.00, at most 0; 2 gradients dropped; ")
    (run,) = figure.data["runs"]
    assert [row[:3] for row in run["updates"] if row[5:]] == [[2, 0, 1], [2, 1, 2]]
    assert run["sent"] == 168


def test_a_gap_in_the_sequence_stands_where_it_is_with_what_is_missing() -> None:
    records = [(3, 0, 0, 0), (4, 1, 1, 1), (7, 0, 1, 4), (8, 1, 2, 5), (10, 0, 5, 7)]
    figure = staleness_view(records)  # the record may begin at any number
    assert figure.data["runs"][0]["gaps"] == [[2.5, "5 to 6"], [4.5, "9"]]
    assert "The record lacks update 5 to 6, 9." in figure.sentence
    assert "gaps" not in staleness_view([(0, 0, 0, 0), (1, 1, 1, 1)]).data["runs"][0]


@pytest.mark.parametrize("bound", [0, 1, 2, 4])
def test_no_worker_begins_more_than_the_bound_ahead(bound: int) -> None:
    assert max(ahead_of(simulate(4, bound, 4.0, 0.1, 3))) == bound


def test_how_far_ahead_is_counted_in_pushes_by_hand() -> None:
    made = [Update(0, 0, 0, 0, 1), Update(0, 1, 1, 1, 2), Update(1, 0, 2, 0, 3), Update(0, 2, 3, 2, 4)]
    assert ahead_of(made) == [0, 1, 0, 2]


@pytest.mark.in_turn
@pytest.mark.parametrize("law", ["equal", "±25 %", "exponential"])
def test_of_a_bounded_server_a_gradient_misses_at_most_2s_plus_1_pushes_of_each_other_worker(law: str) -> None:
    for bound, workers, seed in product((0, 1, 2), (2, 4, 8), range(4)):
        made = simulate(workers, bound, 3.0, 0.2, seed, 200, law=law)
        assert max(update.staleness for update in made) <= (workers - 1) * (2 * bound + 1)


@pytest.mark.in_turn
@pytest.mark.parametrize("law", ["equal", "±25 %", "exponential"])
def test_under_bounded_delay_no_gradient_begins_while_an_older_one_than_the_delay_is_out(law: str) -> None:
    """Li et al. 2014; so none is staler than d + min(d, N - 1), whoever the straggler is and however slow."""
    for delay, workers, seed in product((0, 1, 2, 4), (1, 2, 4, 8), range(4)):
        made = simulate(workers, f"delay {delay}", 5.0, 0.2, seed, 200, law=law)
        assert max(update.staleness for update in made) <= delay + min(delay, workers - 1)
        begun = sorted(made, key=lambda update: update.start)
        for number, update in enumerate(begun):
            assert all(older.end <= update.start for older in begun[: max(0, number - delay)])
    everybody = simulate(2, "delay 0", 1.0, 0.0, 0, 20, law="equal")  # one gradient after the other
    assert [update.end for update in everybody] == [pytest.approx(k + 1) for k in range(20)]


def test_bounded_delay_holds_staleness_down_where_counting_pushes_does_not() -> None:
    """Eight workers, one four times slower: one push ahead allows a staleness of 21, a delay of 4 at most 8."""
    pushes, delay = (simulate(8, bound, 4.0, 0.1, 0, 200) for bound in (1, "delay 4"))
    assert max(update.staleness for update in pushes) > 8 >= max(update.staleness for update in delay)
    assert staleness_view(bound="delay 4").sentence.startswith("60 updates of 4 workers: mean staleness ")
    assert next(iter(staleness_view(bound="delay 4").numbers["runs"])) == "delay 4"


def test_norms_of_compressed_gradients_come_with_their_updates(evaluate: Evaluate) -> None:
    records = [
        {"worker": 0, "version_read": 0, "version_applied": 0, "start": 0, "end": 2, "error": 0.5, "residual": 0.25},
        {"worker": 1, "version_read": 0, "version_applied": 1, "start": 0, "end": 1, "error": 0.75, "residual": 0.125},
    ]
    figure = staleness_view(records)
    assert figure.data["runs"][0]["norms"] == {"error": [0.75, 0.5], "residual": [0.125, 0.25]}  # as they were applied
    assert "norms" not in staleness_view([{**records[0], "error": None, "residual": None}]).data["runs"][0]
    drawn = evaluate("staleness", "stalenessView(data).draw({}, 2, 900).svg", data=figure.data)
    assert drawn.count('data-norm="') == 2 and "norms of each gradient" in drawn


@pytest.mark.in_turn
@pytest.mark.parametrize("drop", [0, 1, 2, 4])
def test_what_is_staler_than_the_server_takes_is_dropped_and_makes_no_version(drop: int) -> None:
    made = simulate(4, "async", 4.0, 0.1, 3, drop=drop)
    applied = [update for update in made if not update.dropped]
    assert [update.version_applied for update in applied] == list(range(60))
    assert max(update.staleness for update in applied) <= drop
    assert min(update.staleness for update in made if update.dropped) > drop
    assert losses(made, 4, 0.3, 0) == losses(applied, 4, 0.3, 0)
    assert f"; {len(made) - 60} gradients dropped; " in staleness_view(drop=drop, straggler=4, seed=3).sentence


def test_without_a_bound_nobody_waits_and_the_straggler_is_stalest() -> None:
    updates = simulate(4, "async", 4.0, 0.0, 3)
    assert waiting_share(updates) == pytest.approx(0)
    worst = max(updates, key=lambda update: update.staleness)
    assert worst.worker == 0
    assert max(ahead_of(updates)) > 4


def test_when_all_wait_for_all_nothing_is_stale_and_a_version_takes_every_worker() -> None:
    updates = simulate(4, "sync", 4.0, 0.1, 3)
    assert {update.staleness for update in updates} == {0}
    assert set(Counter(update.version_applied for update in updates).values()) == {4}
    assert waiting_share(updates) > 0.4


def test_a_pull_is_no_waiting() -> None:
    """Equal times 1, pull and push 0.5 each: a worker is at it all the time until its last push, 1.5 + 2 k."""
    made = simulate(2, "async", 1.0, 0.5, 0, 20, law="equal")
    assert made[-1].end == pytest.approx(1.5 + 2 * 9)
    assert waiting_share(made, 0.5) == pytest.approx(0)
    assert waiting_share(made) == pytest.approx(9 * 0.5 / 19.5)


def test_each_push_alone_makes_the_next_version() -> None:
    assert [update.version_applied for update in simulate(3, 1, 2.0, 0.1, 0)] == list(range(60))


def test_records_of_every_form_are_read() -> None:
    record = Update(1, 0, 1, 2.0, 3.0)
    words = {"worker": 1, "version_read": 0, "version_applied": 1, "start": 2.0, "end": 3.0}
    first = Update(0, 0, 0, 0.0, 1.0)
    assert updates_of([record, first]) == updates_of([words, first]) == updates_of([(1, 0, 1, 2.0, 3.0), first])
    of_lesson = updates_of([(0, 0, 0, 0), (1, 1, 0, 1), (2, 0, 1, 2)])
    assert [(u.worker, u.staleness, u.start, u.end) for u in of_lesson] == [(0, 0, 0, 1), (1, 1, 0, 2), (0, 1, 1, 3)]


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("records", "says"),
    [
        ([3], "Record 0 is 3, without worker, version_read, version_applied"),
        ([{"worker": 1, "version_read": 2}], "without version_applied"),
        ([(0, 0, 0, 2.0, 1.0)], "start 2 and end 1; a worker is 0 or more"),
        ([], "0 updates were given"),
        (Ran([1], Timeline()), "No rank of this run returned a record of updates"),
        ({}, "0 runs were given; 1 to 6"),
    ],
)
def test_what_is_no_update_is_refused_in_words(records: list[Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        staleness_view(records)


def test_a_version_from_the_future_is_told() -> None:
    figure = staleness_view([(0, 0, 0, 0), (1, 0, 3, 1)])
    assert figure.sentence.endswith("Update 1 of worker 0 read version 3 but was applied to version 1.")


def test_without_times_nothing_is_said_of_waiting() -> None:
    assert "wait" not in staleness_view([(0, 0, 0, 0), (1, 1, 0, 1)]).sentence
    assert "workers wait 0 % of the time" in staleness_view([(0, 0, 0, 0.0, 1.0), (1, 0, 1, 0.0, 2.0)]).sentence


def test_bounds_of_the_simulation_are_checked() -> None:
    with pytest.raises(ConfigError, match="bound=3 with 4 workers"):
        staleness_view(bound=3)
    with pytest.raises(ConfigError, match="divided='two' is not known; use one of 'nothing', 'workers', 'staleness'"):
        staleness_view(divided="two")
    with pytest.raises(ConfigError, match="drop=3 and law='equal' were asked for; drop is one of"):
        staleness_view(drop=3, law="equal")


@pytest.mark.in_turn
def test_a_figure_is_small_and_the_same_every_time() -> None:
    bundle, size = staleness_view()._repr_mimebundle_()
    assert len(bundle["text/html"]) + len(bundle["image/png"]) * 4 / 3 <= 85_000
    assert (bundle, size) == staleness_view()._repr_mimebundle_()


def test_whoever_waited_longest_begins_first_so_that_nobody_is_forgotten() -> None:
    made = simulate(8, "delay 2", 1.0, 0.0, 0, 80)
    counts = Counter(update.worker for update in made)
    assert set(counts) == set(range(8)) and max(counts.values()) - min(counts.values()) <= 2
