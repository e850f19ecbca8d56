"""The visual language by numbers: what must be told apart can be, with any colour vision, on either ground."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from labkit.widgets import language
from labkit.widgets.colours import ink_on
from labkit.widgets.palette import CATEGORIES
from tests.widgets.colour_vision import VISIONS, contrast, distance, least_distance

SOURCES = Path(language.__file__).parent
PHASES = ["forward", "backward", "optimizer", "send", "receive", "collective", "host"]
GROUNDS = {"light": (language.LIGHT, "#ffffff"), "dark": (language.DARK, "#121212")}


@pytest.mark.parametrize("ground", GROUNDS)
def test_phases_and_calls_are_apart_for_every_colour_vision(ground: str) -> None:
    colours, _ = GROUNDS[ground]
    assert least_distance([colours[name] for name in PHASES]) >= 11
    assert min(distance(colours["wrong"], colours[name], vision) for name in PHASES for vision in VISIONS) >= 11


@pytest.mark.parametrize("ground", GROUNDS)
def test_no_bar_is_black_or_white_and_each_stands_out_or_has_an_edge(ground: str) -> None:
    colours, paper = GROUNDS[ground]
    edged = {"backward", "receive", "host"} if ground == "light" else set()
    for name in PHASES:
        assert contrast(colours[name], "#000000") >= 1.4 and contrast(colours[name], "#ffffff") >= 1.15, name
        assert contrast(colours[name], paper) >= (1.4 if name in edged else 2.7), name
    for name in ("wrong", "path", "ink", "quiet"):
        assert contrast(colours[name], paper) >= 4.5, name


@pytest.mark.parametrize("ground", GROUNDS)
def test_words_are_read_on_every_bar(ground: str) -> None:
    colours, _ = GROUNDS[ground]
    bars = [colours[name] for name in PHASES] + list(language.TINTS)
    assert min(contrast(ink_on(bar), bar) for bar in bars) >= 4.5


def test_a_tint_is_no_phase_and_its_letter_comes_with_it() -> None:
    for tint in language.TINTS:
        for name in [*PHASES[:-1], "wrong"]:
            assert min(distance(tint, language.LIGHT[name], vision) for vision in VISIONS) >= 7.5, (tint, name)
    assert least_distance(list(language.TINTS)) >= 7.5
    assert [language.letter(k) for k in (0, 25, 26)] == ["A", "Z", "A1"]


def test_a_weight_s_gradient_is_backward_s_colour_in_dots_and_blocked_time_is_hatched() -> None:
    named = {category.name: category for category in CATEGORIES}
    assert named["backward weight"].colour == named["backward"].colour
    assert [name for name, each in named.items() if each.dotted] == ["backward weight"]
    assert [name for name, each in named.items() if each.hatched] == ["blocked"]


def test_no_view_has_a_hue_of_its_own() -> None:
    known = set(re.findall(r"#[0-9a-f]{6}", json.dumps(language._LANGUAGE)))
    grey = {"#000000", "#ffffff", "#dedede", "#999999", "#DDDDDD", "#8c8c8c", "#797979"}
    for path in [*SOURCES.glob("*.py"), *(SOURCES / "js").rglob("*.js")]:
        own = set(re.findall(r'["\'`](#[0-9a-fA-F]{6})\b', path.read_text(encoding="utf-8")))
        assert own <= known | grey, path.name
