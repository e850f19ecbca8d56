"""The explorers' programs in a page: pure functions, what is sent, and colours."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from labkit.widgets import bucket_explorer, compression_explorer, programs, schedule_explorer
from labkit.widgets.explorer import Explorer
from labkit.widgets.language import SERIES
from labkit.widgets.ring_player import player_of_plans
from labkit.widgets.sharding_player import sharding_player
from labkit.widgets.staleness_view import staleness_view
from tests.widgets.colour_vision import contrast
from tests.widgets.in_page import Evaluate, Modules

FIGURES: dict[str, Callable[[], Explorer]] = {
    "buckets": bucket_explorer.bucket_explorer,
    "compression": compression_explorer.compression_explorer,
    "ring": lambda: player_of_plans(None, 4, 16e6, 5e-6, 450e9),
    "schedule": schedule_explorer.schedule_explorer,
    "sharding": sharding_player,
    "staleness": staleness_view,
}
DRAWN = "((view) => view.draw(Object.fromEntries(view.sliders.map((s) => [s.key, s.value])), 2, 700))"


@pytest.mark.in_turn
def test_what_the_explorers_functions_claim_holds(modules: Modules) -> None:
    found = modules.run("explorer_claims.js")
    assert not found["failed"] and found["passed"] > 20


@pytest.mark.in_turn
@pytest.mark.parametrize("folder", FIGURES)
def test_what_is_sent_draws_and_says_what_the_source_does(evaluate: Evaluate, folder: str) -> None:
    figure = FIGURES[folder]()
    drawn = evaluate(folder, f"{DRAWN}({figure.view}(data))", data=figure.data)
    assert (
        drawn["say"] and (drawn["numbers"] or drawn["compared"]) and any(letter.isdigit() for letter in drawn["title"])
    )
    program = f"{programs.explorer(figure.script)} return labkit.{figure.view};"
    sent = evaluate(folder, f"{DRAWN}(new Function(program)()(data))", data=figure.data, program=program)
    assert sent == drawn


@pytest.mark.parametrize(("ground", "ink"), [("#ffffff", "#1a1a1a"), ("#111111", "#e8e8e8")])
def test_lines_stand_out_on_light_and_dark_ground(ground: str, ink: str) -> None:
    def mixed(colour: str) -> str:
        """Return color-mix(in srgb, colour 72%, currentColor)."""
        parts = ([int(each[at : at + 2], 16) for at in (1, 3, 5)] for each in (colour, ink))
        return "#" + "".join(f"{round(0.72 * one + 0.28 * other):02x}" for one, other in zip(*parts, strict=True))

    assert min(contrast(mixed(colour), ground) for colour in SERIES) >= 2
