"""Explorers as a reader meets them: in a page without a kernel, in JupyterLab, in a converted notebook."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from labkit.checks.ring_player import ring_player
from labkit.widgets.bucket_explorer import bucket_explorer
from labkit.widgets.compression_explorer import DEFAULT, compression_explorer
from labkit.widgets.explorer import Explorer
from labkit.widgets.ring_plans import ring_plan
from labkit.widgets.schedule_explorer import schedule_explorer
from labkit.widgets.staleness_view import staleness_view

pytestmark = [pytest.mark.browser]

PAGE = "<!doctype html><meta charset=utf-8><style>:root{{color-scheme:{theme}}}</style><body>{body}"
Open = Callable[..., Any]


def wrong_plan(rank: int, size: int) -> list[dict[str, Any]]:
    plan = ring_plan(rank, size)
    for record in plan:
        if rank == 1 and record["step"] == 1 and record["kind"] != "Send":
            record["chunk"] = (record["chunk"] + 1) % size
    return plan


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens figures in a page; every address asked for and every error is kept."""
    contexts = []

    def show(*figures: Explorer, width: int = 1000, theme: str = "light", **options: Any) -> Any:
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(PAGE.format(theme=theme, body="".join(figure.to_html() for figure in figures)))
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.asked, page.failed = [], []
        context.on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: page.failed.append(str(error)))
        page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_selector(".labkit-figure[data-live] svg[role=img]", state="attached")
        return page

    yield show
    for context in contexts:
        context.close()


def _number(page: Any, label: str) -> str:
    return str(page.inner_text(f'[data-number="{label}"]'))


def _set(page: Any, key: str, position: int) -> None:
    script = "(input, to) => { input.value = to; input.dispatchEvent(new Event('input', { bubbles: true })); }"
    page.eval_on_selector(f'input[data-key="{key}"]', script, position)


def test_the_step_slider_and_the_buttons_say_where_each_chunk_is(show: Open) -> None:
    page = show(ring_player(ring_plan))
    counts = "cells => cells.map(cell => +cell.dataset.count)"
    assert page.eval_on_selector_all("[data-chunk]", counts) == [1] * 16
    _set(page, "step", 3)
    assert page.get_attribute(".labkit-figure", "data-step") == "3"
    squares = "cells => cells.filter(cell => cell.dataset.count === '4').map(c => c.dataset.rank + c.dataset.chunk)"
    assert sorted(page.eval_on_selector_all("[data-chunk]", squares)) == ["01", "12", "23", "30"]
    assert _number(page, "each rank r owns chunk (r+1) mod N alone") == "✓"
    page.click("[data-act=next]")
    assert _number(page, "chunks complete") == "8 of 16"
    assert page.inner_text("[data-part=say]") == "Step 4: 0→1 c0, 1→2 c1, 2→3 c2, 3→0 c3."
    assert not page.failed


def test_keys_step_and_reach_the_ends(show: Open) -> None:
    page = show(ring_player(ring_plan))
    page.focus("[data-part=stage]")
    at = lambda: page.get_attribute(".labkit-figure", "data-step")  # noqa: E731
    for key, step in (("ArrowRight", "1"), ("]", "2"), ("ArrowLeft", "1"), ("End", "6"), ("Home", "0"), ("[", "0")):
        page.keyboard.press(key)
        assert at() == step, key
    page.keyboard.press("t")
    assert page.is_visible("[data-part=table]")
    assert "chunk 3" in page.inner_text("[data-part=table]")
    page.keyboard.press("?")
    assert "space plays" in page.inner_text("[data-part=help]")


def test_play_runs_to_the_end_and_stands_still_where_motion_is_unwanted(show: Open) -> None:
    page = show(ring_player(ring_plan, num_ranks=2))
    page.select_option("select", "4")
    page.focus("[data-part=stage]")
    page.keyboard.press(" ")
    page.wait_for_selector('.labkit-figure[data-step="2"]', timeout=20_000)
    page.wait_for_selector('[data-act=play][aria-label="play"]', timeout=20_000)
    still = show(ring_player(ring_plan), reduced_motion="reduce")
    still.click("[data-act=play]")
    assert "nothing plays by itself" in still.get_attribute("[data-act=play]", "aria-label")
    still.wait_for_timeout(1200)  # longer than a step lasts
    assert still.get_attribute(".labkit-figure", "data-step") == "1"


def test_sliders_recompute_the_formula_at_once(show: Open) -> None:
    page = show(ring_player(num_ranks=4, num_bytes=1e9, latency_s=1e-6, bandwidth_Bps=1e11))
    assert _number(page, "2(N−1)(α + B/Nβ)") == "15 ms"
    assert _number(page, "sent by a rank") == "1.5 GB"
    _set(page, "n", 6)  # the list begins with 2
    assert _number(page, "2(N−1)(α + B/Nβ)") == "17.5 ms"
    assert page.eval_on_selector_all("[data-chunk]", "cells => cells.length") == 64
    _set(page, "slow", 2)
    assert _number(page, "time, model") == "70 ms"
    assert _number(page, "busbw") == "25 GB/s"


def test_a_wrong_chunk_is_red_with_the_one_expected(show: Open) -> None:
    page = show(ring_player(wrong_plan))
    assert page.inner_text("[data-part=say]").startswith("Step 0:")
    _set(page, "step", 2)
    assert page.inner_text("[data-part=say]") == "Step 1: rank 1 expected c0 from rank 0, got c3."
    cell = page.query_selector('[data-grid="1:0"]')
    assert "bad" in cell.get_attribute("class")
    assert "c0? c3" in page.text_content("svg[role=img] >> nth=0")
    _set(page, "step", 6)
    assert "bad" in page.get_attribute('[data-number="chunks complete"]', "class")


def test_the_picture_stands_where_scripts_do_not_run(show: Open) -> None:
    figure = ring_player(ring_plan)
    page = show(figure, java_script_enabled=False)
    image = page.query_selector("img")
    assert image.get_attribute("alt") == figure.sentence
    assert image.bounding_box()["width"] == 760


def test_two_equal_figures_live_side_by_side_and_ask_no_address(show: Open) -> None:
    page = show(ring_player(ring_plan), ring_player(ring_plan), ring_player(num_ranks=3))
    page.wait_for_function("document.querySelectorAll('.labkit-figure[data-live] svg[role=img]').length === 3")
    page.click("[data-act=next] >> nth=1")
    steps = page.eval_on_selector_all(".labkit-figure", "each => each.map(figure => figure.dataset.step)")
    assert steps == ["0", "1", "0"]
    assert [url for url in page.asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert not page.failed


def test_a_figure_that_asks_shows_nothing_before_the_guess_and_both_after_it(show: Open) -> None:
    page = show(schedule_explorer().ask("Which bubble?", "%"))
    assert not page.is_visible("svg[role=img]")
    page.keyboard.press("End")
    page.click("text=This is my guess")  # nothing is written: nothing happens
    assert not page.is_visible("svg[role=img]")
    page.fill("input[type=number]", "40")
    page.click("text=This is my guess")
    assert page.is_visible("svg[role=img]")
    assert _number(page, "your guess, Which bubble?") == "40 %"
    assert _number(page, "gpipe: bubble") == "27.3 %"


ILLEGAL = [["F0", "F1", "B0", "B1"], ["F0", "B1", "F1", "B0"]]
LOSSES = {each.name: {"num_bytes": each.num_bytes, "losses": [2.3, 1.4, 0.9, 0.7]} for each in DEFAULT}


@pytest.mark.parametrize(("width", "theme"), [(640, "dark"), (1400, "light")])
def test_nothing_is_cut_off_in_any_view(show: Open, width: int, theme: str) -> None:
    figures = [ring_player(ring_plan), ring_player(num_ranks=8), ring_player(num_ranks=16), ring_player(wrong_plan)]
    figures += [schedule_explorer(), schedule_explorer(ILLEGAL, num_stages=2, num_microbatches=2), bucket_explorer()]
    figures += [staleness_view(), staleness_view(bound=2), compression_explorer(), compression_explorer(LOSSES)]
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


def test_the_schedule_explorer_counts_the_bubble_for_other_numbers_at_once(show: Open) -> None:
    page = show(schedule_explorer())
    shares = "each => each.map(words => +words.dataset.bubble)"
    assert page.eval_on_selector_all("[data-bubble]", shares) == pytest.approx([3 / 11, 3 / 11], abs=1e-6)
    _set(page, "p", 3)  # the list of numbers of stages is 2, 3, 4, 8
    assert page.eval_on_selector_all("[data-bubble]", shares) == pytest.approx([7 / 15, 7 / 15], abs=1e-6)
    _set(page, "m", 4)
    assert page.eval_on_selector_all("[data-bubble]", shares) == pytest.approx([7 / 23, 7 / 23], abs=1e-6)
    peaks = page.eval_on_selector_all("[data-peak]", "each => each.map(words => words.dataset.peak)")
    assert peaks == [f"{stage}:16" for stage in range(8)] + [f"{stage}:{8 - stage}" for stage in range(8)]
    _set(page, "tm", 0.5)
    assert _number(page, "difference from the formula") != "0.0 %"


def test_scrubbing_a_schedule_and_following_a_microbatch_fade_the_rest(show: Open) -> None:
    page = show(schedule_explorer(num_stages=2, num_microbatches=2))
    clear = "each => each.filter(op => !op.closest('g[opacity]')).map(op => op.dataset.op)"
    assert len(page.eval_on_selector_all("[data-op]", clear)) == 16
    _set(page, "step", 1)
    assert page.eval_on_selector_all("[data-op]", clear) == ["0:F0", "0:F1", "1:F0"] * 2
    page.focus("[data-part=stage]")
    page.keyboard.press("End")
    _set(page, "follow", 1)
    assert page.eval_on_selector_all("[data-op]", clear) == ["0:F1", "0:B1", "1:F1", "1:B1"] * 2


def test_an_illegal_order_is_red_with_the_dependency_it_breaks(show: Open) -> None:
    page = show(schedule_explorer(ILLEGAL, num_stages=2, num_microbatches=2))
    stuck = page.eval_on_selector_all("[data-stuck].bad", "each => each.map(cell => cell.dataset.stuck)")
    assert stuck == ["0:B0", "0:B1", "1:B1", "1:F1", "1:B0"]
    assert page.inner_text("[data-part=say]") == "Stage 1: B1 stands before F1."


def test_the_bucket_explorer_cuts_and_sends_anew_at_once(show: Open) -> None:
    page = show(bucket_explorer([2**20] * 8, cap_mb=2, backward_s=8e-3, latency_s=1e-6, bandwidth_Bps=1e9))
    assert _number(page, "buckets") == "4"
    of = "each => Object.fromEntries(each.map(cell => [cell.dataset.parameter, +cell.dataset.bucket]))"
    assert page.eval_on_selector_all("[data-parameter]", of) == {str(k): (7 - k) // 2 for k in range(8)}
    _set(page, "cap", 11)
    assert _number(page, "buckets") == "1"
    assert _number(page, "overlapped") == "0.0 %"
    assert _number(page, "step") == _number(page, "no overlap")


def test_the_staleness_view_lists_what_an_update_missed(show: Open) -> None:
    page = show(staleness_view([(0, 0, 0, 0), (1, 1, 0, 1), (2, 2, 0, 2), (3, 0, 1, 3)]))
    assert _number(page, "most") == "2"
    assert page.inner_text("[data-part=say]").endswith("staleness 2; it missed update 1, update 2.")
    lit = page.eval_on_selector_all("[data-missed='1']", "each => each.map(mark => mark.dataset.version)")
    assert lit == ["1", "2"]
    page.click("[data-act=back]")
    assert page.inner_text("[data-part=say]").endswith("staleness 2; it missed update 0, update 1.")


def test_under_a_bound_nobody_is_further_ahead(show: Open) -> None:
    page = show(staleness_view(straggler=6))
    assert int(_number(page, "furthest ahead of the slowest")) > 8
    _set(page, "bound", 3)
    assert _number(page, "furthest ahead of the slowest") == "2 ≤ 2 ✓"
    _set(page, "bound", 0)
    assert _number(page, "most") == "0"


def test_the_compression_explorer_names_the_fastest_at_each_speed(show: Open) -> None:
    page = show(compression_explorer())
    best = lambda: page.get_attribute(".labkit-figure", "data-best")  # noqa: E731
    assert best() == "top 1 %"
    _set(page, "step", 32)
    assert best() == "bfloat16"
    _set(page, "step", 50)
    assert best() == "float32"
    assert "faster below 20.3 GB/s" in _number(page, "top 1 %")


def test_a_converted_notebook_plays_offline(browser: Any, tmp_path: Path) -> None:
    figure = ring_player(ring_plan)
    data = {**figure._repr_mimebundle_(), "image/png": ""}
    cell = nbformat.v4.new_code_cell("figure", outputs=[nbformat.v4.new_output("display_data", data=data)])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "saved.ipynb")
    command = [sys.executable, "-m", "nbconvert", "--to", "html", str(tmp_path / "saved.ipynb")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((tmp_path / "saved.html").as_uri(), wait_until="commit")
    page.wait_for_selector(".labkit-figure[data-live] svg[role=img]", timeout=30_000)
    page.click("[data-act=next]")
    assert page.get_attribute(".labkit-figure", "data-step") == "1"
    context.close()


def test_in_jupyterlab_no_key_reaches_the_notebook_and_a_saved_figure_plays_again(lab: Any) -> None:
    cells = [nbformat.v4.new_code_cell("import labkit\nlabkit.ring_player()")]
    lab.open("player.ipynb", cells)
    lab.run_all(timeout_s=60)
    lab.page.wait_for_selector(".labkit-figure[data-live] svg[role=img]", timeout=20_000)
    count = lab.page.locator(".jp-Cell").count()
    lab.page.click("[data-part=stage]")
    for key in ("b", "a", "d", "d", "Enter", "ArrowRight", "ArrowRight"):
        lab.page.keyboard.press(key)
    assert lab.page.get_attribute(".labkit-figure", "data-step") == "2"
    assert lab.page.locator(".jp-Cell").count() == count
    lab.screenshot("explorer")
    saved = lab.saved("player.ipynb")
    assert set(saved.cells[0].outputs[0].data) == {"text/html", "image/png", "text/plain"}
    lab.page.goto(f"{lab.url}/lab/workspaces/again/tree/player.ipynb")  # nothing is run this time
    lab.page.wait_for_selector(".labkit-figure[data-live] svg[role=img]", timeout=60_000)
    lab.page.click("[data-act=next]")
    assert lab.page.get_attribute(".labkit-figure", "data-step") == "1"
    assert lab.page.inner_text(".jp-CodeCell .jp-InputPrompt") == "[1]:"
