"""A room's guesses on a slide: every guess is in a bar, what came out is marked, and the deck shows both together."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from types import SimpleNamespace as Node

import pytest

from labkit.errors import ConfigError
from labkit.lessons.presentation import lesson_slides
from labkit.lessons.reveal import deck_html
from labkit.lessons.room_guesses import guesses_on, histogram
from labkit.lessons.source import parse

LESSON = """# %% [markdown]
# # Rings
#
# **How many times faster?**

# %% tags=["predict"]
labkit.predict("faster", 2.0)

# %%
labkit.reveal("faster", 3.5, figure)
"""


def counts_of(svg: str) -> tuple[list[int], float]:
    """Return how many guesses each bar holds, and at which of them the line of what came out stands."""
    bars = re.findall(r"<g><rect x=\"([\d.]+)\".*?<text[^>]*>(\d*)</text>", svg)
    (line,) = re.findall(r"<path class=\"out\" d=\"M([\d.]+) ", svg)
    return [int(count or 0) for _, count in bars], (float(line) - float(bars[0][0]) + 4) / 60


@pytest.mark.parametrize(
    ("guesses", "result", "place"),
    [
        ([1, 2, 2.5, 8, 8.0], 3.5, 3),
        ([0.01, 1, 100, 2], 100.0, 3.5),
        ([5, 5], 5, 0.5),
        ([5], 9, 1),
        (["two", "one", "two"], "one", 1.5),
        ([*range(24)], 12, 12 * 12 / 23),
        ([10**k for k in range(13)], 1e12, 12),
    ],
)
def test_every_guess_is_in_a_bar_and_what_came_out_is_marked(
    guesses: list[object], result: object, place: float
) -> None:
    counts, at = counts_of(histogram(guesses, result))
    assert sum(counts) == len(guesses) and at == pytest.approx(place, abs=0.01) and len(counts) <= 12


def test_a_deck_shows_the_boards_guesses_beside_what_came_out(tmp_path: Path) -> None:
    board = tmp_path / "class.sqlite"
    with sqlite3.connect(board) as base:
        base.execute("CREATE TABLE guess (nickname TEXT, guess TEXT, value TEXT, unit TEXT, at_s REAL)")
        rows = [(f"n{k}", "faster", json.dumps(value), "", 0.0) for k, value in enumerate((2, 4, 4))]
        base.executemany("INSERT INTO guess VALUES (?, ?, ?, ?, ?)", rows)
    base.close()
    assert guesses_on(board) == {"faster": [2, 4, 4]}
    lesson = parse(LESSON, "09_x.py")
    output = {
        "data": {"text/plain": "You guessed 2.\nA figure.", "image/png": "aaaa"},
        "metadata": {"labkit": {"prediction": "faster", "result": 3.5}},
    }
    cells = [Node(id=cell.id, cell_type=cell.kind, outputs=[output]) for cell in lesson.cells]
    for guesses, shown in ((guesses_on(board), True), (None, False)):
        html = deck_html(lesson_slides(lesson, Node(cells=cells), guesses), "Rings")
        assert "How many times faster?" in html and ('aria-label="3 guesses of the room"' in html) == shown
    with pytest.raises(ConfigError, match="holds no guesses"):
        guesses_on(tmp_path / "none.sqlite")
