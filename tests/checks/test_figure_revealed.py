"""A figure that is given to reveal() stays hidden until there is a guess."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import labkit
from labkit.checks import predictions


@pytest.fixture(autouse=True)
def _nothing_written() -> Iterator[None]:
    predictions._written.clear()
    yield
    predictions._written.clear()


def test_before_the_guess_there_is_only_a_sentence() -> None:
    data, _ = labkit.reveal("5.4", 0.27, labkit.schedule_explorer())._repr_mimebundle_()
    assert list(data) == ["text/plain"]
    assert data["text/plain"].startswith("Write your guess first")


def test_after_the_guess_the_figure_stands_below_the_two_numbers() -> None:
    labkit.predict("5.4", 0.5)
    figure = labkit.schedule_explorer()
    data, metadata = labkit.reveal("5.4", 0.25, figure)._repr_mimebundle_()
    assert data["text/plain"] == f"You guessed 0.5, it is 0.25: too high by a factor of 2.\n{figure.sentence}"
    assert data["text/html"].startswith("<p>You guessed 0.5, it is 0.25: too high by a factor of 2.</p>\n<div class=")
    assert data["image/png"] == figure.to_png()
    assert metadata["labkit"]["result"] == 0.25
