"""Where compression pays, by lesson 10's formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labkit.errors import ConfigError
from labkit.plans.buckets import HOOKS
from labkit.widgets.compression_explorer import DEFAULT, Method, compression_explorer, pays
from labkit.widgets.hook_errors import hook_errors, norms, total_error
from tests.widgets.in_page import Evaluate

PLAIN = Method("plain", 100e6, addable=True)


def test_a_gathered_packet_pays_below_what_lesson_06_says() -> None:
    packet = Method("top 1 %", 2e6, compress_s=8e-3)
    saved = 2 * 7 / 8 * 100e6 - 7 * 2e6
    assert pays(packet, PLAIN, 8, 0.0) == (0.0, pytest.approx(saved / 8e-3))
    assert pays(packet, PLAIN, 128, 0.0) is None  # with so many ranks it sends more


def test_at_the_border_both_steps_take_equally_long() -> None:
    for method in DEFAULT[1:]:
        for ranks in (2, 8, 64):
            for speed in pays(method, DEFAULT[0], ranks, 10e-6) or ():
                if 0 < speed < math.inf:
                    one, other = (each.step_s(0.02, ranks, 10e-6, speed) for each in (method, DEFAULT[0]))
                    assert one == pytest.approx(other)


def test_what_sends_more_in_fewer_steps_pays_above_a_speed() -> None:
    gathered = Method("int8", 25e6)
    low, high = pays(gathered, PLAIN, 64, 10e-6) or (0.0, 0.0)
    assert high == math.inf
    assert gathered.step_s(0, 64, 10e-6, 2 * low) < PLAIN.step_s(0, 64, 10e-6, 2 * low)
    assert gathered.step_s(0, 64, 10e-6, low / 2) > PLAIN.step_s(0, 64, 10e-6, low / 2)


@pytest.mark.in_turn
def test_javascript_finds_the_same_times_and_borders(evaluate: Evaluate) -> None:
    methods = compression_explorer().data["methods"]
    for ranks in (2, 8, 64):
        values = {"compute": 0.02, "ranks": ranks, "latency": 10e-6, "bandwidth": 3e9}
        times = evaluate("compression", "m.map((x) => stepSeconds(x, v))", m=methods, v=values)
        assert times == pytest.approx([each.step_s(0.02, ranks, 10e-6, 3e9) for each in DEFAULT])
        expression = "m.map((x) => pays(x, m[0], v)?.map((b) => b < Infinity ? b : -1) ?? null)"
        found = evaluate("compression", expression, m=methods, v=values)
        for each, borders in zip(DEFAULT[1:], found[1:], strict=True):
            wanted = pays(each, DEFAULT[0], ranks, 10e-6)
            assert borders == (wanted and pytest.approx([b if b < math.inf else -1 for b in wanted]))


def test_losses_and_residuals_that_are_numbers_are_sent() -> None:
    words = {"num_bytes": 4, "losses": [1, math.nan, 0.5], "residuals": [0.12345, math.inf]}
    (entry,) = compression_explorer({"top": words}).data["methods"]
    assert (entry["losses"], entry["residuals"]) == ([1.0, 0.5], [0.1235])


def test_real_gradients_say_what_each_hook_sends_and_loses() -> None:
    draw = np.random.default_rng(0)
    ranks = [[draw.standard_normal((64, 64)).astype(np.float32) for _ in range(3)] for _ in range(2)]
    figure = compression_explorer(gradients=ranks)
    methods = {each["name"]: each for each in figure.data["methods"]}
    assert list(methods) == list(HOOKS)
    assert methods["none"]["bytes"] == 3 * 4 * 64 * 64
    lost = hook_errors(ranks)
    for name, each in lost.items():
        assert methods[name]["bytes"] == sum(each.num_bytes)
        assert methods[name]["errors"] == [pytest.approx(total_error(each.errors, norms(ranks)), rel=1e-3)]
        assert methods[name]["addable"] == (name != "top 1 %")


def test_words_are_checked() -> None:
    with pytest.raises(ConfigError, match="top: ratio\\? It must have num_bytes"):
        compression_explorer({"top": {"num_bytes": 1, "ratio": 2}})
    with pytest.raises(ConfigError, match="top: num_bytes\\?"):
        compression_explorer({"top": {"compress_s": 2}})
    with pytest.raises(ConfigError, match="0 methods were given"):
        compression_explorer({})


def test_a_figure_is_small_and_the_same_every_time() -> None:
    losses = [2 * math.exp(-step / 40) for step in range(150)]
    methods = {each.name: {"num_bytes": each.num_bytes, "losses": losses} for each in DEFAULT}
    bundle, size = compression_explorer(methods)._repr_mimebundle_()
    assert len(bundle["text/html"]) + len(bundle["image/png"]) * 4 / 3 <= 64_000
    assert (bundle, size) == compression_explorer(methods)._repr_mimebundle_()
    assert bundle["text/plain"] in bundle["text/html"]
