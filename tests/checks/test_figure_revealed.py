"""A figure that is given to reveal() stays hidden until there is a guess."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from matplotlib.figure import Figure

import labkit
from labkit.checks import predictions


@pytest.fixture(autouse=True)
def _nothing_written() -> Iterator[None]:
    predictions._written.clear()
    yield
    predictions._written.clear()


def test_before_the_guess_there_is_only_a_sentence() -> None:
    data, _ = labkit.reveal("idle_share", 0.27, labkit.schedule_explorer())._repr_mimebundle_()
    assert list(data) == ["text/plain"]
    assert data["text/plain"].startswith("Write your guess first")


def test_after_the_guess_the_figure_stands_below_the_two_numbers() -> None:
    labkit.predict("idle_share", 0.5)
    figure = labkit.schedule_explorer()
    data, metadata = labkit.reveal("idle_share", 0.25, figure)._repr_mimebundle_()
    assert data["text/plain"] == f"You guessed 0.5, it is 0.25: too high by a factor of 2.\n{figure.sentence}"
    assert data["text/html"].startswith("<p>You guessed 0.5, it is 0.25: too high by a factor of 2.</p>\n<div class=")
    assert data["image/png"] == figure.to_png()
    assert metadata["labkit"]["result"] == 0.25


def test_a_table_comes_with_its_number_as_text_and_not_before_the_guess() -> None:
    rows = ["cap   size", "  5   7.56"]
    hidden, _ = labkit.reveal("idle_share", 7.56, rows)._repr_mimebundle_()
    assert "7.56" not in str(hidden)
    labkit.predict("idle_share", 8)
    shown, metadata = labkit.reveal("idle_share", 7.56, rows)._repr_mimebundle_()
    assert shown == {"text/plain": "You guessed 8, it is 7.56: 6 % too high.\ncap   size\n  5   7.56"}
    assert metadata["labkit"]["result"] == 7.56
    assert labkit.reveal("idle_share", 7.56, "one line")._repr_mimebundle_()[0]["text/plain"].endswith("\none line")


def test_a_figure_of_matplotlib_comes_with_its_number() -> None:
    figure = Figure()
    figure.subplots().set_title("ring = tree at 5.7 <MB>")
    assert list(labkit.reveal("tree_wins_below", 5.7, figure)._repr_mimebundle_()[0]) == ["text/plain"]
    labkit.predict("tree_wins_below", 5.7)
    data, _ = labkit.reveal("tree_wins_below", 5.7, figure)._repr_mimebundle_()
    assert data["text/plain"] == "You guessed 5.7, it is 5.7: exactly.\nring = tree at 5.7 <MB>"
    assert data["image/png"].startswith(b"\x89PNG") and 'alt="ring = tree at 5.7 &lt;MB&gt;"' in data["text/html"]
    assert data["text/html"].startswith("<p>You guessed 5.7, it is 5.7: exactly.</p>\n<img ")
