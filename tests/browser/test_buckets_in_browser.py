"""The bucket explorer as a reader meets it: caps stacked, DDP's steps, hooks and what they lose, hovering."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from labkit.plans.reference.bucket_plans import bucket_plan
from labkit.widgets.bucket_explorer import bucket_explorer
from labkit.widgets.compression_explorer import compression_explorer
from tests.browser.figure_pages import Open, number, set_slider, take

pytestmark = [pytest.mark.browser]
LINK = {"backward_s": 8e-3, "latency_s": 1e-6, "bandwidth_Bps": 1e9}


def sent_in(page: Any, row: str) -> list[float]:
    """Return where the transfers of a row begin, in pixels."""
    script = "each => each.map(group => group.querySelector('rect.edge').getBoundingClientRect().x)"
    found = page.eval_on_selector_all(f'[data-row="{row}"]', script)
    return list(map(float, found))


@pytest.mark.in_turn
def test_caps_stand_under_each_other_on_one_axis_and_answer_the_sliders(show: Open) -> None:
    figure = bucket_explorer([2**20] * 32, cap_mb=4, compare=(1, 25, math.inf), **LINK)
    page = show(figure)
    assert [len(sent_in(page, f"stacked {name}")) for name in ("1 MiB", "25 MiB", "one bucket")] == [32, 2, 1]
    for name, cap in (("1 MiB", 1), ("25 MiB", 25), ("one bucket", math.inf)):
        assert number(page, name) == f"{1e3 * figure.numbers['compared'][cap]:.3g} ms"
    starts = "each => each.map(bar => bar.getBoundingClientRect().x)"
    assert len(set(page.eval_on_selector_all('[data-compute$=":F"]', starts))) == 1
    before = number(page, "1 MiB")
    set_slider(page, "bandwidth", 100)
    assert number(page, "1 MiB") != before
    set_slider(page, "compare", 2)  # hooks
    assert page.locator('[data-row^="stacked"]').count() > 0
    assert number(page, "fp16").endswith("ms")
    set_slider(page, "compare", 0)
    assert page.locator('[data-row^="stacked"]').count() == 0
    assert not page.failed


@pytest.mark.long
def test_a_model_registered_backwards_overlaps_only_when_its_buckets_are_rebuilt(show: Open) -> None:
    page = show(bucket_explorer([2**20] * 8, cap_mb=2, **LINK))
    as_used = number(page, "exposed")
    set_slider(page, "registered", 1)
    assert number(page, "exposed") == as_used  # after the first step DDP has rebuilt them
    set_slider(page, "turn", 1)
    assert (number(page, "buckets"), number(page, "overlapped")) == ("1", "0.0 %")
    set_slider(page, "turn", 3)
    set_slider(page, "graph", 1)  # it searches, and keeps the order of registration
    assert page.locator('[data-compute="model:S"]').count() == 1
    assert number(page, "buckets") == "4"
    assert float(number(page, "exposed").split()[0]) > 1.5 * float(as_used.split()[0])
    set_slider(page, "graph", 2)
    assert number(page, "exposed") == as_used
    set_slider(page, "turn", 2)
    assert number(page, "buckets") == "1"
    set_slider(page, "compare", 3)
    assert "find_unused_parameters: " in page.text_content("svg[role=img]")


STAGE = "[data-part=stage]"


@pytest.mark.long
def test_the_hooks_error_stands_under_the_axis_bucket_by_bucket(show: Open) -> None:
    page = show(bucket_explorer())
    assert page.locator("[data-error]").count() == 0
    heights = []
    for hook in (1, 2, 3):
        set_slider(page, "hook", hook)
        assert page.locator("[data-error]").count() == 1
        heights.append(page.locator("[data-error]").bounding_box()["y"] - page.locator(STAGE).bounding_box()["y"])
    assert heights == sorted(heights, reverse=True)  # fp16 loses least, top 1 % most
    assert (number(page, "error of fp16"), number(page, "error of top 1 %")) == ("0.045 %", "91 %")
    assert "measured on a 40-layer letter model, 4 ranks" in page.text_content("svg[role=img]")


WIDTHS = "(all) => all.map((bar) => [Number(bar.dataset.cap), Number(bar.getAttribute('width'))])"
BREAKS = "[data-cap] + line"
AXIS = "(all) => all.map((mark) => [Number(mark.getAttribute('x')), mark.textContent])"


def _ms(words: str) -> float:
    count, unit = words.split()
    return float(count) * {"µs": 1e-3, "ms": 1, "s": 1e3}[unit]


def _title(page: Any) -> str:
    """Return what stands over a figure; a number and its unit stand on one line."""
    words = str(page.inner_text(".labkit-figure header b"))
    assert not re.search(r"\d ", words)
    return words.replace("\xa0", " ")


def _stage(page: Any) -> str:
    return str(page.text_content("[data-part=stage]")).replace("\xa0", " ")


@pytest.mark.in_turn
@pytest.mark.parametrize("width", [400, 1440])
def test_bars_are_as_long_as_what_is_exposed_and_only_one_that_is_far_longer_is_broken(show: Open, width: int) -> None:
    page = show(bucket_explorer(), width=width)
    bars = dict(page.eval_on_selector_all("[data-cap]", WIDTHS))
    assert [cap / 2**20 for cap in bars] == pytest.approx([0.1, 1, 2, 3, 5, 8, 12, 25], abs=0.01)  # others are alike
    assert min(bars, key=bars.__getitem__) == 2 * 2**20
    scales = []
    for at, cap in ((3, 1), (4, 2), (6, 5), (9, 25)):
        set_slider(page, "cap", at)
        scales.append(bars[cap * 2**20] / _ms(number(page, "exposed")))
        hidden = _title(page).split(" hides ")[1].split(" %")[0]
        assert f"{float(number(page, 'overlapped')[:-2]):.0f}" == hidden
    assert scales == pytest.approx([scales[0]] * 4, rel=0.01)
    marks = page.eval_on_selector_all("line.rule + text", AXIS)[-2:]  # of the axis below, which says the same
    (before, lower), (after, upper) = [(x, _ms(words)) for x, words in marks]
    assert (after - before) / (upper - lower) == pytest.approx(scales[0], rel=0.01)
    left = {
        float(each)
        for each in page.eval_on_selector_all("[data-cap]", "(all) => all.map((bar) => bar.x.baseVal.value)")
    }
    assert len(left) == 1 and before == pytest.approx(left.pop() + lower * scales[0], abs=1)  # from 0 on, as all bars
    assert page.locator(BREAKS).count() == 1 and bars[round(0.1 * 2**20)] > max([*bars.values()][1:])
    cut, bar = page.locator(BREAKS).bounding_box(), page.locator("[data-cap]").first.bounding_box()
    assert bar["x"] + max([*bars.values()][1:]) < cut["x"] < cut["x"] + cut["width"] < bar["x"] + bar["width"]
    set_slider(page, "latency", 100)  # 1 ms: then 80 buckets take 40 times as long as one
    bars = dict(page.eval_on_selector_all("[data-cap]", WIDTHS))
    assert page.locator(BREAKS).count() == len([wide for wide in bars.values() if wide == max(bars.values())]) == 2
    set_slider(page, "latency", 0)
    set_slider(page, "bandwidth", 25)  # 178 MB/s: under all caps nearly all is exposed
    assert page.locator(BREAKS).count() == 0


@pytest.mark.in_turn
def test_a_wrong_plan_is_told_in_the_title_and_never_best_and_caps_that_change_nothing_have_no_table(
    show: Open,
) -> None:
    fault = "Parameter 79 is in no bucket: its gradient is never averaged."
    page = show(bucket_explorer(plan=lambda sizes, cap: bucket_plan(sizes[:-1], cap)))
    assert _title(page) == f"✗ {fault}" and page.inner_text("[data-part=say]") == fault
    assert page.locator("[data-cap]").count() == 0 and "best" not in _stage(page)
    page = show(bucket_explorer(plan=lambda sizes, cap: bucket_plan(sizes[: 80 if cap > 2**20 else 79], cap)))
    assert _title(page).startswith("5 buckets: ")
    assert "Of these caps 2 MiB is best: a step takes 16.6 ms, 1.8 % less than with 5 MiB" in _stage(page)
    assert "0.1-0.5 MiB✗ wrong plan1 MiB✗ wrong plan2 MiB" in _stage(page)
    set_slider(page, "cap", 0)
    assert _title(page) == f"✗ {fault}" and "100 % less" not in _stage(page)
    page = show(bucket_explorer(plan=lambda sizes, cap: bucket_plan(sizes, 5 * 2**20)))
    assert _stage(page).strip().endswith("Under each of these caps a step takes 16.9 ms")
    page = show(bucket_explorer([2**20, 2**28]))
    assert "Of these caps" not in _stage(page)  # two gradients, two buckets under any
    page = show(bucket_explorer(plan=lambda sizes, cap: bucket_plan(sizes, cap)[::-1]))
    assert "Of these caps 25-100 MiB are best" in _stage(page)
    assert not page.failed


def test_the_caps_that_are_called_ddps_are_torchs(tmp_path: Path) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        assert DistributedDataParallel(torch.nn.Linear(2, 2)).bucket_bytes_cap == 25 * 2**20
        assert dist._DEFAULT_FIRST_BUCKET_BYTES == 2**20
    finally:
        dist.destroy_process_group()


@pytest.mark.long
def test_hovering_links_a_parameter_with_its_bucket_and_its_all_reduce(show: Open) -> None:
    page = show(bucket_explorer([2**20] * 8, cap_mb=2, **LINK))
    lit = "each => each.filter(mark => !mark.hasAttribute('opacity')).map(mark => mark.dataset.link)"
    assert len(page.eval_on_selector_all("[data-link]", lit)) == 12
    page.hover('[data-parameter="3"]')
    assert page.eval_on_selector_all("[data-link]", lit) == ["2"] * 3  # two parameters and what is sent
    title = page.get_attribute('[data-parameter="3"]', "data-tip")
    assert title.startswith("parameter 3: 1 MiB, bucket C: 2 MiB, ready 10 ms, sent ")
    page.hover('[data-sent="0"] rect.edge')
    assert set(page.eval_on_selector_all("[data-link]", lit)) == {"0"}
    page.mouse.move(1, 1)
    assert len(page.eval_on_selector_all("[data-link]", lit)) == 12
    set_slider(page, "step", 3)  # by keyboard: the bucket that was sent last is told
    assert page.inner_text("[data-part=say]").startswith("bucket C: 2 MiB, ready 10 ms")


@pytest.mark.long
def test_the_compression_explorer_counts_hooks_on_real_gradients(show: Open) -> None:
    draw = np.random.default_rng(0)
    page = show(compression_explorer(gradients=[draw.standard_normal((256, 256)).astype(np.float32)]))
    assert number(page, "none").endswith("ms")
    assert number(page, "top 1 %").split("error ")[1] == "96 %"  # of a normal gradient 1 % holds 8 % of the squares
    assert page.locator('input[data-key="against"]').count() == 0
    curves = {name: {"num_bytes": 1e6, "errors": [0.9, 0.8, 0.7], "losses": [2, 1, 0.5]} for name in ("a", "b")}
    page = show(compression_explorer(curves))
    assert "error of the mean" in page.text_content("svg[role=img]")
    assert number(page, "a").endswith("error 80 %")
    assert not page.failed


@pytest.mark.in_turn
def test_the_edge_of_a_bucket_is_dragged_and_the_cap_its_slider_and_the_step_follow_at_once(show: Open) -> None:
    page = show(bucket_explorer())
    before = page.inner_text('label:has([data-key="cap"]) output'), page.get_attribute(".labkit-figure", "data-buckets")
    edge = page.locator("[data-edge] >> nth=1").bounding_box()
    take(page, "[data-edge] >> nth=1", -edge["x"] / 4)  # the second bucket becomes smaller
    now = page.inner_text('label:has([data-key="cap"]) output'), page.get_attribute(".labkit-figure", "data-buckets")
    assert now[0] != before[0] and int(now[1]) > int(before[1])
    page.mouse.up()
    assert page.get_attribute(".labkit-figure", "data-buckets") == now[1]
    assert not page.failed


@pytest.mark.in_turn
def test_the_speed_of_the_link_is_dragged_along_its_curve(show: Open) -> None:
    page = show(compression_explorer(gradients=[np.ones((64, 64), dtype=np.float32)]))
    take(page, "[data-pick=speed]", 0)  # its middle: 3.16 GB/s
    box = page.locator("[data-pick=speed]").bounding_box()
    page.mouse.move(box["x"] + box["width"], box["y"] + 20)
    assert page.inner_text("[data-part=say]").startswith("At 1 TB/s ")
    page.mouse.move(box["x"], box["y"] + 20)
    assert page.inner_text("[data-part=say]").startswith("At 10 MB/s ")
    page.mouse.up()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 20)
    assert page.inner_text("[data-part=say]").startswith("At 3.16 GB/s ")


ON_EACH_OTHER = """(all) => { const boxes = all.map((each) => each.getBoundingClientRect());
  return boxes.flatMap((a, k) => boxes.slice(k + 1).filter((b) => Math.abs(a.top - b.top) < 4
    && Math.min(a.right, b.right) > Math.max(a.left, b.left)).map(() => all[k].textContent)); }"""


@pytest.mark.parametrize("width", [400, 700, 1440])
def test_what_is_exposed_is_said_beside_the_bar_where_it_has_room_and_marks_on_axes_stand_apart(
    show: Open, width: int
) -> None:
    page = show(bucket_explorer(), compression_explorer(), width=width)
    page.wait_for_function("document.querySelectorAll('.labkit-figure[data-live] svg[role=img]').length === 2")
    assert page.text_content("text.bad") == "! 0.94 ms" + " exposed" * (width > 400)  # in the axis's unit
    assert number(page, "exposed") == "942 µs"
    figures = page.locator("[data-part=stage]").all()
    assert [figure.locator("text").evaluate_all(ON_EACH_OTHER) for figure in figures] == [[], []]


def test_the_best_cap_is_named_and_what_a_step_takes_under_each_and_the_cap_is_the_largest_slider(show: Open) -> None:
    page = show(bucket_explorer(), width=1440)
    words = page.eval_on_selector_all("[data-part=stage] text", "(all) => all.map((each) => each.textContent)")
    heads = ["cap", "buckets", "communication", "hidden", "step", "exposed = step − 16 ms of computing"]
    begins = words.index("cap")
    assert [each.strip() for each in words[begins : begins + 6]] == heads
    assert words[0] == "80 gradients, 40 too thin to see" and number(page, "gradients") == "80"
    cells = "(all) => all.filter((cell) => cell.getAttribute('width') >= 1).length"
    assert page.eval_on_selector_all("[data-parameter]", cells) == 40
    assert "a step: 16.9 ms" in words and number(page, "step") == "16.9 ms"
    told = words[begins + 6 :][: 9 * 6]
    assert told[0::6] == [*(f"{cap} MiB" for cap in ("0.1-0.5", 1, 2, 3, 5, 8, 12, "25-100")), "DDP’s default"]
    assert told[1::6] == [str(count) for count in (80, 40, 14, 8, 5, 3, 2, 1, 2)]
    assert told[2::6] == [f"{ms} ms" for ms in (25.7, 14.5, 7.23, 5.55, 4.71, 4.15, 3.87, 3.59, 3.87)]
    assert told[3::6] == [f"{share} %" for share in (39, 67, 91, 88, 80, 69, 52, 0, 12)]
    assert told[4::6] == [f"{ms} ms" for ms in (31.7, 20.8, 16.6, 16.7, 16.9, 17.3, 17.9, 19.6, 19.4)]
    assert told[5::6] == [
        "15.7 ms", "4.76 ms", "0.64 ms  ✓ best", "0.69 ms", "0.94 msshown above", "1.27 ms", "1.85 ms",
        "3.59 msall sent after backward", "3.43 msfirst bucket full at 1 MiB, others at 25",
    ]  # fmt: skip
    rows = list(zip(*(told[column::6] for column in (2, 3, 4, 5)), strict=True))
    for sending, hidden, step, beyond in rows:  # each row adds up, as far as its numbers are told
        exposed = _ms(" ".join(beyond.replace("ms", "ms ").split()[:2]))
        assert exposed == pytest.approx(
            _ms(sending) * (1 - float(hidden[:-2]) / 100), abs=0.008 * _ms(sending)
        )  # digits left out
        assert _ms(step) == pytest.approx(16 + exposed, abs=0.06)
    bars = page.eval_on_selector_all("[data-cap]", "(all) => all.map((bar) => bar.getAttribute('fill'))")
    assert [at for at, fill in enumerate(bars) if fill == "currentColor"] == [2] and len(set(bars)) == 2  # the best
    band = page.locator("rect[fill='#8883']").bounding_box()
    shown = page.locator("[data-cap]").nth(4).bounding_box()
    assert band["y"] < shown["y"] < shown["y"] + shown["height"] < band["y"] + band["height"]
    bold = page.eval_on_selector_all("[data-part=stage] .bold", "(all) => all.map((each) => each.textContent)")
    assert bold[-6:] == ["2 MiB", "14", "7.23 ms", "91 %", "16.6 ms", "0.64 ms  ✓ best"]  # the best, and no other row
    axis = page.locator("line.rule[x1='82']").evaluate_all("(all) => all.map((each) => each.x2.baseVal.value)")
    optimizer = page.locator('[data-compute="model:O"]').evaluate(
        "(bar) => bar.x.baseVal.value + bar.width.baseVal.value"
    )
    assert max(axis) == pytest.approx(optimizer, abs=0.1)  # the clock stops with the step
    play = page.locator("[data-part=player]").bounding_box()
    assert len(_title(page).split()) <= 15
    told = "5 buckets: backward hides 80 % of 4.71 ms of communication; 0.94 ms is exposed"
    assert _title(page) == told
    saved = "Of these caps 2 MiB is best: a step takes 16.6 ms, 1.8 % less than with 5 MiB, "
    assert saved + "14 % less than with DDP’s default" in _stage(page)
    stage, sliders = (page.locator(f"[data-part={part}]").bounding_box() for part in ("stage", "sliders"))
    labels = page.locator("[data-led] label")
    tops = "(all) => all.map((label) => [...label.children].map((each) => Math.round(each.getBoundingClientRect().y)))"
    looks = """(all) => all.map((each) =>
      getComputedStyle(each).accentColor + getComputedStyle(each.parentNode).fontSize)"""
    assert len(labels.all()) == 4 and len({tuple(each) for each in labels.evaluate_all(tops)}) == 1
    assert len(set(page.locator("[data-led] input").evaluate_all(looks))) == 1  # replay's is no other slider
    assert sliders["x"] + sliders["width"] <= play["x"] and play["y"] + play["height"] <= stage["y"]  # one line
    assert page.inner_text("[data-part=player] output") == "5 of 5 buckets sent"
    assert page.inner_text("[data-part=say]").startswith(f"{told}. The step takes 16.9 ms. {saved}")
    hidden = "(place) => getComputedStyle(place).clipPath"
    assert page.eval_on_selector("[data-part=say]", hidden) == "inset(100%)"  # heard, and seen once
    wide = page.eval_on_selector_all(
        "[data-part=sliders] input", "(all) => all.map((each) => each.getBoundingClientRect().width)"
    )
    assert len(wide) == 3 and wide[0] > 1.5 * wide[1] == 1.5 * wide[2]  # the cap is what is asked
    for key, at in (("cap", 9), ("first", 2)):  # its caps by the rule of lesson 04, which exceeds none
        set_slider(page, key, at)
    assert number(page, "exposed") == "3.51 ms" and number(page, "buckets") == "2"
    for key, at in (("first", 0), ("cap", 4)):
        set_slider(page, key, at)
    assert "Of these caps 2 MiB is best" in _stage(page)
    assert "1.8 %" not in _stage(page)
    set_slider(page, "late", 4)  # then a step waits, too, and its bar is not what is exposed
    assert "exposed or waiting for the late rank = step − 16 ms of computing" in _stage(page)
    told = _title(page).split("; ")[1].split(" is ")[0]
    assert f"{told}  ✓ bestshown above" in _stage(page)  # title and row say the same
    page.focus("[data-part=stage]")
    page.keyboard.press("ArrowLeft")  # a bucket under way is said nowhere else
    assert page.eval_on_selector("[data-part=say]", hidden) == "none"
