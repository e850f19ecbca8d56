"""Explorers as a reader meets them: in a page without a kernel, in JupyterLab, in a converted notebook."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest

import labkit
from labkit.checks.ring_player import ring_player
from labkit.plans.all_reduce_plan import Record, Send
from labkit.plans.reference.rings import ring_plan
from labkit.widgets.bucket_explorer import bucket_explorer
from labkit.widgets.compression_explorer import DEFAULT, compression_explorer
from labkit.widgets.explorer import Explorer
from labkit.widgets.schedule_explorer import schedule_explorer
from labkit.widgets.staleness_view import staleness_view
from tests.browser.figure_pages import ILLEGAL, Open, drag, number, set_slider
from tests.widgets import ring_programs

pytestmark = [pytest.mark.browser]


def wrong_plan(rank: int, size: int) -> list[Record]:
    return [
        replace(record, chunk=(record.chunk + 2) % size)
        if rank == 1 and record.step == 1 and not isinstance(record, Send)
        else record
        for record in ring_plan(rank, size)
    ]


@pytest.mark.in_turn
def test_the_step_slider_and_the_buttons_say_where_each_chunk_is(show: Open) -> None:
    page = show(ring_player(ring_plan))
    counts = "cells => cells.map(cell => +cell.dataset.count)"
    assert page.get_attribute(".labkit-figure", "data-step") == "3"  # each rank has its first complete chunk
    set_slider(page, "step", 0)
    assert page.eval_on_selector_all("[data-chunk]", counts) == [1] * 16
    set_slider(page, "step", 3)
    squares = "cells => cells.filter(cell => cell.dataset.count === '4').map(c => c.dataset.rank + c.dataset.chunk)"
    assert sorted(page.eval_on_selector_all("[data-chunk]", squares)) == ["01", "12", "23", "30"]
    assert number(page, "each rank r owns chunk (r+1) mod N alone") == "✓"
    page.click("[data-act=next]")
    assert number(page, "chunks complete") == "8 of 16"
    assert page.inner_text("[data-part=say]") == "Step 4: 0→1 A, 1→2 B, 2→3 C, 3→0 D."
    assert not page.failed


@pytest.mark.long
def test_keys_step_and_reach_the_ends(show: Open) -> None:
    page = show(ring_player(ring_plan))
    page.focus("[data-part=stage]")
    at = lambda: page.get_attribute(".labkit-figure", "data-step")  # noqa: E731
    for key, step in (
        ("Home", "0"),
        ("ArrowRight", "1"),
        ("]", "2"),
        ("ArrowLeft", "1"),
        ("End", "6"),
        ("Home", "0"),
        ("[", "0"),
    ):
        page.keyboard.press(key)
        assert at() == step, key
    page.keyboard.press("t")
    assert page.is_visible("[data-part=table]")
    assert "chunk D" in page.inner_text("[data-part=table]")
    page.keyboard.press("?")
    assert "Space plays" in page.inner_text("[data-part=help]")


@pytest.mark.in_turn
def test_play_runs_to_the_end_and_stands_still_where_motion_is_unwanted(show: Open) -> None:
    page = show(ring_player(ring_plan, num_ranks=2))
    page.click("summary")
    page.select_option("select", "4")
    page.focus("[data-part=stage]")
    page.keyboard.press(" ")
    page.wait_for_selector('.labkit-figure[data-step="2"]')
    page.wait_for_selector('[data-act=play][aria-label="play"]')
    still = show(ring_player(ring_plan), reduced_motion="reduce")
    still.click("[data-act=play]")
    assert "nothing plays by itself" in still.get_attribute("[data-act=play]", "aria-label")
    still.wait_for_timeout(1200)  # longer than a step lasts
    assert still.get_attribute(".labkit-figure", "data-step") == "4"


@pytest.mark.in_turn
def test_under_reduced_motion_a_figure_is_a_filmstrip_that_marks_where_its_reader_stands(show: Open) -> None:
    page = show(labkit.figure("ring"), reduced_motion="reduce")
    told = "texts => texts.map(each => each.textContent).filter(words => /^[0-9]+[.] /.test(words))"
    for frames in ("1569", "1469"):
        shown = page.eval_on_selector_all("svg[role=img] text", told)
        marked = page.eval_on_selector_all("svg[role=img] text.bold", told)
        step = int(page.get_attribute(".labkit-figure", "data-step"))
        assert "".join(words[0] for words in shown) == frames
        assert marked == [f"{step + 1}. {page.inner_text('[data-part=say]')}"]
        page.click("[data-act=next]")


@pytest.mark.long
def test_sliders_recompute_the_formula_at_once(show: Open) -> None:
    page = show(ring_player(num_ranks=4, num_bytes=1e9, latency_s=1e-6, bandwidth_Bps=1e11))
    assert number(page, "2(N−1)(α + B/Nβ)") == "15 ms"
    assert number(page, "sent by a rank") == "1.5 GB"
    set_slider(page, "n", 6)  # the list begins with 2
    assert number(page, "2(N−1)(α + B/Nβ)") == "17.5 ms"
    assert page.eval_on_selector_all("[data-chunk]", "cells => cells.length") == 64
    set_slider(page, "slow", 2)
    assert number(page, "time, model") == "70 ms"
    assert number(page, "busbw") == "25 GB/s"


@pytest.mark.long
def test_a_wrong_chunk_is_red_with_the_one_expected(show: Open) -> None:
    page = show(ring_player(wrong_plan))
    assert page.inner_text("[data-part=say]") == "Step 1: rank 1 expected B from rank 0, got D."
    cell = page.query_selector('[data-grid="1:0"]')
    assert "bad" in cell.get_attribute("class")
    assert "B? D" in page.text_content("svg[role=img] >> nth=0")
    set_slider(page, "step", 6)
    assert "bad" in page.get_attribute('[data-number="chunks complete"]', "class")


@pytest.mark.long
def test_a_real_ring_that_sends_the_wrong_chunk_is_red_at_that_message(show: Open) -> None:
    page = show(ring_player(ring_programs.sends_the_next_chunk_on_rank_2, on=labkit.virtual(4)))
    assert page.inner_text("[data-part=say]") == "Step 0: rank 3 expected C from rank 2, got D."
    assert "bad" in page.get_attribute('[data-grid="0:2"]', "class")
    assert page.locator('[data-send="1>2:1"].bad').count() == 0


@pytest.mark.in_turn
def test_the_picture_stands_where_scripts_do_not_run(show: Open) -> None:
    figure = ring_player(ring_plan)
    page = show(figure, java_script_enabled=False)
    image = page.query_selector("img")
    assert image.get_attribute("alt") == figure.sentence
    assert image.bounding_box()["width"] == 760


@pytest.mark.long
def test_two_equal_figures_live_side_by_side_and_ask_no_address(show: Open) -> None:
    page = show(ring_player(ring_plan), ring_player(ring_plan), ring_player(num_ranks=3))
    page.wait_for_function("document.querySelectorAll('.labkit-figure[data-live] svg[role=img]').length === 3")
    page.click("[data-act=next] >> nth=1")
    steps = page.eval_on_selector_all(".labkit-figure", "each => each.map(figure => figure.dataset.step)")
    assert steps == ["3", "4", "2"]
    assert [url for url in page.asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert not page.failed


LOSSES = {each.name: {"num_bytes": each.num_bytes, "losses": [2.3, 1.4, 0.9, 0.7]} for each in DEFAULT}


def views() -> list[Explorer]:
    return [ring_player(ring_plan), schedule_explorer(), bucket_explorer(), staleness_view(), compression_explorer()]


def further_views() -> list[Explorer]:
    rings = [ring_player(num_ranks=8), ring_player(num_ranks=16), ring_player(wrong_plan)]
    schedules = [schedule_explorer(ILLEGAL, num_stages=2, num_microbatches=2), schedule_explorer(memory_limit=3)]
    rest = [bucket_explorer(skew_s=2e-3, first_mb=1), staleness_view(bound=2), compression_explorer(LOSSES)]
    return [*rings, *schedules, *rest]


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("made", "width", "theme"),
    [
        (views, 640, "dark"),
        pytest.param(further_views, 640, "dark", marks=pytest.mark.long),
        pytest.param(views, 1400, "light", marks=pytest.mark.long),
        pytest.param(further_views, 1400, "light", marks=pytest.mark.long),
    ],
)
def test_nothing_is_cut_off_in_any_view(show: Open, made: Callable[[], list[Explorer]], width: int, theme: str) -> None:
    figures = made()
    page = show(*figures, width=width, theme=theme)
    page.wait_for_function(f"document.querySelectorAll('.labkit-figure[data-live] svg').length === {len(figures)}")
    outside = """figures => figures.flatMap(figure => {
        const svg = figure.querySelector('svg[role=img]'), box = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text, rect')].filter(each => {
            const at = each.getBoundingClientRect();
            const beside = at.left < box.left - 2 || at.right > innerWidth;
            return beside || at.bottom > box.bottom + 2 || at.top < box.top - 2;
        }).map(each => figure.dataset.figure + each.outerHTML);
    })"""
    assert page.eval_on_selector_all(".labkit-figure", outside) == []
    assert not page.failed


@pytest.mark.long
def test_the_bucket_explorer_shows_ranks_hooks_and_the_first_bucket(show: Open) -> None:
    page = show(bucket_explorer([2**20] * 8, cap_mb=4, backward_s=8e-3, latency_s=1e-6, bandwidth_Bps=1e9))
    letters = "each => each.map(bar => bar.dataset.compute)"
    assert page.eval_on_selector_all("[data-compute]", letters) == ["model:F", "model:B", "model:O"]
    assert number(page, "buckets") == "2"
    set_slider(page, "first", 2)  # 1 MiB, as torch's DDP begins
    assert number(page, "buckets") == "3"
    plain = number(page, "communication")
    set_slider(page, "hook", 1)
    assert number(page, "bytes") == "4 MiB"
    assert float(number(page, "communication").split()[0]) < 0.6 * float(plain.split()[0])
    set_slider(page, "late", 0.2)  # the slowest rank is late by a fifth of backward
    assert number(page, "skew") == "1.6 ms"
    assert page.eval_on_selector_all("[data-compute^=slowest]", "each => each.length") == 3
    assert page.eval_on_selector_all("[data-late]", "each => each.length") > 0


@pytest.mark.long
def test_the_bucket_explorer_cuts_and_sends_anew_at_once(show: Open) -> None:
    page = show(bucket_explorer([2**20] * 8, cap_mb=2, backward_s=8e-3, latency_s=1e-6, bandwidth_Bps=1e9))
    assert number(page, "buckets") == "4"
    of = "each => Object.fromEntries(each.map(cell => [cell.dataset.parameter, +cell.dataset.bucket]))"
    assert page.eval_on_selector_all("[data-parameter]", of) == {str(k): (7 - k) // 2 for k in range(8)}
    set_slider(page, "cap", 11)
    assert number(page, "buckets") == "1"
    assert number(page, "overlapped") == "0.0 %"
    assert number(page, "step") == number(page, "no overlap")


@pytest.mark.long
def test_the_staleness_view_lists_what_an_update_missed(show: Open) -> None:
    page = show(staleness_view([(0, 0, 0, 0), (1, 1, 0, 1), (2, 2, 0, 2), (3, 0, 1, 3)]))
    assert number(page, "most") == "2"
    assert page.inner_text("[data-part=say]").endswith("staleness 2; it missed update 1, update 2.")
    lit = page.eval_on_selector_all("[data-missed='1']", "each => each.map(mark => mark.dataset.version)")
    assert lit == ["1", "2"]
    page.click("[data-act=back]")
    assert page.inner_text("[data-part=say]").endswith("staleness 2; it missed update 0, update 1.")


@pytest.mark.long
def test_under_a_bound_nobody_is_further_ahead(show: Open) -> None:
    page = show(staleness_view(straggler=6))
    assert int(number(page, "furthest ahead of the slowest")) > 8
    set_slider(page, "bound", 3)
    assert number(page, "furthest ahead of the slowest") == "2 ≤ 2 ✓"
    set_slider(page, "bound", 0)
    assert number(page, "most") == "0 ≤ 0 ✓"
    set_slider(page, "bound", 7)  # bounded delay, which counts the gradients of all
    assert page.inner_text('[data-choice="bound"][aria-pressed="true"]') == "delay 4"
    assert number(page, "most").endswith(" ≤ d + min(d, N−1) = 7 ✓")


@pytest.mark.long
def test_losses_of_three_servers_stand_on_one_axis_and_answer_the_sliders(show: Open) -> None:
    page = show(staleness_view(num_workers=8, straggler=1, lr=0.4, divided="nothing"))
    lines = "each => each.map(line => line.dataset.run)"
    assert page.eval_on_selector_all("[data-run]", lines) == ["asynchronous", "synchronous", "≤ 2 ahead"]

    def loss(name: str) -> float:
        each = "each => each.map(dd => [dd.dataset.number, dd.textContent])"
        texts = page.eval_on_selector_all("[data-number]", each)
        return next(float(value) for label, value in texts if label.startswith(f"{name}: loss at"))

    stale = loss("asynchronous")
    assert stale > 3 * loss("synchronous")
    set_slider(page, "divided", 1)
    assert loss("asynchronous") < stale / 3
    set_slider(page, "against", 1)
    assert "loss against updates" in page.text_content("svg[role=img]")
    page.click('[data-update="7"]')
    assert page.inner_text("[data-part=say]").startswith("Update 7: ")


@pytest.mark.long
def test_the_compression_explorer_names_the_fastest_at_each_speed(show: Open) -> None:
    page = show(compression_explorer())
    best = lambda: page.get_attribute(".labkit-figure", "data-best")  # noqa: E731
    assert best() == "top 1 %"
    set_slider(page, "step", 32)
    assert best() == "bfloat16"
    set_slider(page, "step", 50)
    assert best() == "float32"
    assert "faster below 20.3 GB/s" in number(page, "top 1 %")


@pytest.mark.in_turn
def test_a_converted_notebook_plays_offline(browser: Any, tmp_path: Path) -> None:
    figure = ring_player(ring_plan)
    data = {**figure._repr_mimebundle_()[0], "image/png": ""}
    cell = nbformat.v4.new_code_cell("figure", outputs=[nbformat.v4.new_output("display_data", data=data)])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "saved.ipynb")
    command = [sys.executable, "-m", "nbconvert", "--to", "html", str(tmp_path / "saved.ipynb")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((tmp_path / "saved.html").as_uri(), wait_until="commit")
    page.wait_for_selector(".labkit-figure[data-live] svg[role=img]")
    page.click("[data-act=next]")
    assert page.get_attribute(".labkit-figure", "data-step") == "4"
    context.close()


@pytest.mark.long
def test_in_jupyterlab_no_key_reaches_the_notebook_and_a_saved_figure_plays_again(lab: Any) -> None:
    calls = "import labkit\nlabkit.ring_player()", "labkit.schedule_explorer(num_stages=2, num_microbatches=2)"
    cells = [nbformat.v4.new_code_cell(call) for call in calls]
    lab.open("player.ipynb", cells)
    lab.run_all(timeout_s=60)
    lab.page.wait_for_selector(".labkit-figure[data-live] svg[role=img]")
    count = lab.page.locator(".jp-Cell").count()
    lab.page.click("[data-part=stage]")
    for key in ("b", "a", "d", "d", "Enter", "ArrowRight", "ArrowRight"):
        lab.page.keyboard.press(key)
    assert lab.page.get_attribute(".labkit-figure", "data-step") == "5"
    schedule = lab.page.locator(".labkit-figure >> nth=1")
    schedule.locator("[data-part=stage]").focus()
    for key in (".", ">", "b", "c", "u", "a"):
        lab.page.keyboard.press(key)
    assert schedule.locator("[data-critical]").count() > 0
    drag(lab.page, "1:B0", -3 * lab.page.locator('[data-op="1:B0"] >> nth=0').bounding_box()["width"])
    assert schedule.locator("[data-part=say]").inner_text().startswith("Stage 1: B0 stands before F0.")
    assert lab.page.locator(".jp-Cell").count() == count
    lab.screenshot("explorer")
    saved = lab.saved("player.ipynb")
    assert set(saved.cells[0].outputs[0].data) == {"text/html", "image/png", "text/plain"}
    lab.page.goto(f"{lab.url}/lab/workspaces/again/tree/player.ipynb")  # nothing is run this time
    lab.page.wait_for_selector(".labkit-figure[data-live] svg[role=img]")
    lab.page.click("[data-act=next]")
    assert lab.page.get_attribute(".labkit-figure", "data-step") == "4"
    assert lab.page.inner_text(".jp-CodeCell .jp-InputPrompt") == "[1]:"


@pytest.mark.long
def test_stripes_and_arrows_are_each_figures_own_so_that_a_hidden_one_takes_none_away(show: Open) -> None:
    page = show(schedule_explorer(), schedule_explorer(), ring_player(num_ranks=4))  # two alike, as a notebook may hold
    page.wait_for_function("document.querySelectorAll('.labkit-figure[data-live] svg[role=img]').length === 3")
    named = """(figure) => [...figure.querySelectorAll("[fill^='url'], [marker-end^='url']")].map((mark) => {
      const name = mark.getAttribute("marker-end") ?? mark.getAttribute("fill");
      return figure.contains(document.getElementById(name.slice(5, -1)));
    })"""
    for figure in page.query_selector_all(".labkit-figure"):
        assert set(figure.evaluate(named)) == {True}
