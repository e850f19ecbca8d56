"""The staleness view and the ring's chunks as a reader meets them: dropped gradients, gaps, bounds, pieces."""

from __future__ import annotations

from typing import Any

import pytest

import labkit
from labkit.checks.ring_player import ring_player
from labkit.widgets.staleness_view import staleness_view
from tests.browser.figure_pages import Open, number, set_slider
from tests.widgets import ring_programs

pytestmark = [pytest.mark.browser]

GAP = [(0, 0, 0, 0), (1, 1, 0, 1), (4, 0, 1, 4), (5, 2, 1, 5)]


def _each(page: Any, selector: str, of: str) -> list[Any]:
    return list(page.eval_on_selector_all(selector, f"each => each.map(mark => {of})"))


@pytest.mark.long
def test_what_lacks_in_the_record_is_a_red_tick_where_it_lacks(show: Open) -> None:
    page = show(staleness_view(GAP))
    assert _each(page, "[data-gap]", "mark.dataset.gap") == ["2 to 3"]
    assert number(page, "missing from the record") == "2 to 3"
    places = "[data-version], [data-gap]"
    assert _each(page, places, "+mark.getAttribute('x1')")[-1] == pytest.approx(
        sum(_each(page, "[data-version='1'], [data-version='4']", "+mark.getAttribute('x1')")) / 2
    )
    red = page.eval_on_selector("[data-gap]", "tick => getComputedStyle(tick).stroke")
    assert red == page.eval_on_selector("dd.bad", "number => getComputedStyle(number).color")


@pytest.mark.long
def test_a_bound_is_held_against_pushes_and_its_line_is_drawn(show: Open) -> None:
    page = show(staleness_view(bound=2, straggler=4))
    assert _each(page, "[data-bound]", "mark.dataset.bound") == ["2"]
    assert number(page, "furthest ahead of the slowest") == "2 ≤ 2 ✓"
    assert number(page, "most").endswith("≤ (N−1)(2s+1) = 15 ✓")
    broken = show(staleness_view([(k, 0, k, k) for k in range(4)] + [(4, 1, 0, 4)], bound=2))
    assert number(broken, "furthest ahead of the slowest") == "3 ≤ 2 ✗"
    assert "bad" in broken.get_attribute('[data-number="furthest ahead of the slowest"]', "class")


@pytest.mark.long
def test_a_server_that_drops_stale_gradients_applies_none_that_is_staler(show: Open) -> None:
    page = show(staleness_view(straggler=4))
    assert page.locator("[data-dropped]").count() == 0
    set_slider(page, "drop", 3)  # 2: the list begins with none, 0, 1
    assert number(page, "most") == "2 ≤ 2 ✓"
    dropped = page.locator("[data-dropped]").count()
    assert number(page, "dropped") == f"{dropped} of {60 + dropped}" and dropped > 5
    assert all(tau > 2 for tau in _each(page, "[data-dropped]", "+mark.dataset.tau"))
    assert set(_each(page, "[data-waits]", "mark.dataset.waits")) == set()
    page.click("[data-dropped]")
    assert "dropped at version" in page.inner_text("[data-part=say]")


@pytest.mark.long
def test_bytes_versions_held_and_the_law_of_times_follow_step_and_sliders(show: Open) -> None:
    page = show(staleness_view(num_workers=2, straggler=3, law="equal", delay=0, num_bytes=1e6))
    set_slider(page, "step", 3)  # worker 1 pushes at 1, 2 and 3; at 3 worker 0 too, whose number is smaller
    assert _each(page, "[data-held]", "mark.textContent") == ["v0", "v2"]
    assert page.inner_text("[data-part=say]").startswith("Update 2: worker 0 read version 0, applied to version 2: ")
    assert number(page, "pulled and pushed") == "6 MB"
    set_slider(page, "law", 2)
    assert not page.inner_text("[data-part=say]").startswith("Update 2: worker 0")


@pytest.mark.in_turn
def test_the_number_of_chunks_changes_steps_time_and_what_is_sent(show: Open) -> None:
    page = show(ring_player(num_ranks=4, num_bytes=16e6, latency_s=1e-3, bandwidth_Bps=1e9))
    assert number(page, "time, model") == number(page, "2(N−1)(α + B/Nβ)") == "30 ms"
    set_slider(page, "chunks", 8)
    assert number(page, "2(N−1)⌈C/N⌉(α + B/Cβ)") == number(page, "time, model") == "36 ms"
    assert number(page, "sent by a rank") == "24 MB"
    set_slider(page, "step", 6)  # the first half, two chunks a rank in turns
    assert number(page, "each rank r owns chunk (r+1) mod N alone") == "✓"
    whole = "mark.dataset.step + ':' + mark.dataset.rank + ',' + mark.dataset.chunk"
    cells = _each(page, '[data-count="4"]', whole)
    assert cells == ["6:0,1", "6:0,5", "6:1,2", "6:1,6", "6:2,3", "6:2,7", "6:3,0", "6:3,4"]
    set_slider(page, "chunks", 1)
    assert number(page, "time, model") == "102 ms"
    assert page.locator("[data-chunk]").count() == 4
    assert not page.failed


@pytest.mark.in_turn
def test_a_real_ring_that_is_wrong_fails_the_invariant_in_red(show: Open) -> None:
    page = show(ring_player(ring_programs.sends_the_next_chunk_on_rank_2, on=labkit.virtual(4)))
    set_slider(page, "step", 6)
    owns = "each rank r owns chunk (r+1) mod N alone"
    assert number(page, owns) == "✗"
    assert "bad" in page.get_attribute(f'[data-number="{owns}"]', "class")
    assert page.locator('[data-key="chunks"]').count() == 0  # what was really sent is not cut anew
