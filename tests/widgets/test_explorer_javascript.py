"""The explorers' programs in a page: pure functions, what is sent, and colours."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from labkit.widgets import bucket_explorer, bucket_still, compression_explorer, programs, schedule_explorer
from labkit.widgets.explorer import Explorer
from labkit.widgets.ring_player import player_of_plans
from labkit.widgets.staleness_view import staleness_view
from tests.widgets.colour_vision import contrast, least_distance
from tests.widgets.in_page import SOURCES, Evaluate, Modules

FIGURES: dict[str, Callable[[], Explorer]] = {
    "buckets": bucket_explorer.bucket_explorer,
    "compression": compression_explorer.compression_explorer,
    "ring": lambda: player_of_plans(None, 4, 16e6, 5e-6, 450e9),
    "schedule": schedule_explorer.schedule_explorer,
    "staleness": staleness_view,
}
DRAWN = "((view) => view.draw(Object.fromEntries(view.sliders.map((s) => [s.key, s.value])), 2, 700))"


def test_what_the_explorers_functions_claim_holds(modules: Modules) -> None:
    found = modules.run("explorer_claims.js")
    assert not found["failed"] and found["passed"] > 20


@pytest.mark.parametrize("folder", FIGURES)
def test_what_is_sent_draws_and_says_what_the_source_does(evaluate: Evaluate, folder: str) -> None:
    figure = FIGURES[folder]()
    drawn = evaluate(folder, f"{DRAWN}({figure.view}(data))", data=figure.data)
    assert drawn["say"] and drawn["numbers"]
    program = f"{programs.explorer(figure.script)} return labkit.{figure.view};"
    sent = evaluate(folder, f"{DRAWN}(new Function(program)()(data))", data=figure.data, program=program)
    assert sent == drawn


PALETTES = {
    "buckets": list(bucket_still.COLOURS),
    "compression": list(compression_explorer.COLOURS)[1:],
    "schedule": list(dict.fromkeys(schedule_explorer.FILL.values())),
}


@pytest.mark.parametrize("folder", PALETTES)
def test_colours_are_apart_for_every_colour_vision_and_the_same_in_picture_and_program(folder: str) -> None:
    assert least_distance(PALETTES[folder]) >= 16
    modules = [*(SOURCES / "figure").glob("*.js"), *(SOURCES / folder).glob("*.js")]
    program = "".join(path.read_text() for path in modules)
    assert [colour for colour in PALETTES[folder] if colour not in program] == []


@pytest.mark.parametrize(("ground", "ink"), [("#ffffff", "#1a1a1a"), ("#111111", "#e8e8e8")])
def test_lines_stand_out_on_light_and_dark_ground(ground: str, ink: str) -> None:
    def mixed(colour: str) -> str:
        """Return color-mix(in srgb, colour 72%, currentColor)."""
        parts = ([int(each[at : at + 2], 16) for at in (1, 3, 5)] for each in (colour, ink))
        return "#" + "".join(f"{round(0.72 * one + 0.28 * other):02x}" for one, other in zip(*parts, strict=True))

    assert min(contrast(mixed(colour), ground) for colour in PALETTES["compression"]) >= 2
