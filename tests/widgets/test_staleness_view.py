"""Updates of a parameter server, simulated and recorded, and what is said of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from labkit.errors import ConfigError
from labkit.widgets.staleness import Update, draws, simulate, updates_of
from labkit.widgets.staleness_view import staleness_view, waiting_share
from tests.widgets.in_node import evaluate

BOUNDS: list[int | str] = ["sync", 0, 1, 2, 8, "async"]


def test_numbers_are_the_same_in_javascript() -> None:
    drawn = [[next(numbers) for _ in range(50)] for numbers in map(draws, range(5))]
    expression = "seeds.map((s) => { const next = draws(s); return Array.from({ length: 50 }, () => next()); })"
    assert evaluate("staleness_view.js", expression, seeds=list(range(5))) == drawn


def test_javascript_simulates_the_same_updates() -> None:
    cases = [
        {"workers": workers, "bound": bound, "straggler": 2.5, "delay": 0.1, "seed": seed}
        for workers in (1, 3, 8)
        for bound in BOUNDS
        for seed in (0, 7)
    ]
    found = evaluate("staleness_view.js", "cases.map((each) => simulate(each))", cases=cases)
    for case, updates in zip(cases, found, strict=True):
        wanted = simulate(case["workers"], case["bound"], 2.5, 0.1, case["seed"])  # type: ignore[arg-type]
        assert [each[:3] for each in updates] == [[u.worker, u.version_read, u.version_applied] for u in wanted]
        assert [each[4] for each in updates] == pytest.approx([u.end for u in wanted])


def _ahead(updates: list[Update]) -> int:
    """Return how many pushes a worker had more than the slowest when it began one, at most."""
    workers = {update.worker for update in updates}
    return max(
        sum(o.worker == u.worker and o.end <= u.start for o in updates)
        - min(sum(o.worker == w and o.end <= u.start for o in updates) for w in workers)
        for u in updates
    )


@pytest.mark.parametrize("bound", [0, 1, 2, 4])
def test_no_worker_begins_more_than_the_bound_ahead(bound: int) -> None:
    assert _ahead(simulate(4, bound, 4.0, 0.1, 3)) == bound


def test_without_a_bound_nobody_waits_and_the_straggler_is_stalest() -> None:
    updates = simulate(4, "async", 4.0, 0.0, 3)
    assert waiting_share(updates) == pytest.approx(0)
    worst = max(updates, key=lambda update: update.staleness)
    assert worst.worker == 0
    assert _ahead(updates) > 4


def test_when_all_wait_for_all_nothing_is_stale_and_a_version_takes_every_worker() -> None:
    updates = simulate(4, "sync", 4.0, 0.1, 3)
    assert {update.staleness for update in updates} == {0}
    assert set(Counter(update.version_applied for update in updates).values()) == {4}
    assert waiting_share(updates) > 0.4


def test_each_push_alone_makes_the_next_version() -> None:
    assert [update.version_applied for update in simulate(3, 1, 2.0, 0.1, 0)] == list(range(60))


def test_records_of_every_form_are_read() -> None:
    record = Update(1, 0, 1, 2.0, 3.0)
    words = {"worker": 1, "version_read": 0, "version_applied": 1, "start": 2.0, "end": 3.0}
    first = Update(0, 0, 0, 0.0, 1.0)
    assert updates_of([record, first]) == updates_of([words, first]) == updates_of([(1, 0, 1, 2.0, 3.0), first])
    of_lesson = updates_of([(0, 0, 0, 0), (1, 1, 0, 1), (2, 0, 1, 2)])
    assert [(u.worker, u.staleness, u.start, u.end) for u in of_lesson] == [(0, 0, 0, 1), (1, 1, 0, 2), (0, 1, 1, 3)]


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ([3], "Record 0 is 3, without worker, version_read, version_applied"),
        ([{"worker": 1, "version_read": 2}], "without version_applied"),
        ([(0, 0, 0, 2.0, 1.0)], "start 2 and end 1; that cannot be"),
        ([], "0 updates were given"),
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
    assert "workers wait 0% of the time" in staleness_view([(0, 0, 0, 0.0, 1.0), (1, 0, 1, 0.0, 2.0)]).sentence


def test_bounds_of_the_simulation_are_checked() -> None:
    with pytest.raises(ConfigError, match="bound=3 with 4 workers"):
        staleness_view(bound=3)


def test_a_figure_is_small_and_the_same_every_time() -> None:
    bundle = staleness_view()._repr_mimebundle_()
    assert len(bundle["text/html"]) + len(bundle["image/png"]) * 4 / 3 <= 60_000
    assert bundle == staleness_view()._repr_mimebundle_()
