"""A figure behind a question: without a guess nothing of it, with the guess both."""

from __future__ import annotations

from typing import Any

import pytest

import labkit
from labkit.checks.predictions import predict, reveal
from labkit.errors import ConfigError
from tests.timeline.small_timelines import exchange

QUESTION = "How much of the time is a bubble?"


@pytest.mark.parametrize("figure", [exchange(), labkit.schedule_explorer(num_stages=3, num_microbatches=5)])
def test_without_a_guess_there_is_the_question_alone(figure: Any) -> None:
    asking = figure.ask(QUESTION, "%")
    assert asking.guess is None
    data, metadata = asking._repr_mimebundle_()
    assert data == {
        "text/plain": f"{QUESTION} Guess first: the picture comes after that, here or from .answer(your guess)."
    }
    assert metadata == {}


def test_the_guess_brings_the_picture() -> None:
    asking = exchange().ask(QUESTION, "%").answer(25)
    assert asking.guess == 25
    data, _ = asking._repr_mimebundle_()
    assert data["image/png"].startswith(b"\x89PNG")
    assert data["text/plain"].startswith(f"{QUESTION} Your guess: 25 %.\n2 ranks, 2 ms")


def test_an_explorer_comes_whole_with_the_guess_above_it() -> None:
    figure = labkit.schedule_explorer(num_stages=3, num_microbatches=5)
    data, _ = figure.ask(QUESTION, "%").answer(40.5)._repr_mimebundle_()
    assert data["text/html"] == f"<p>{QUESTION} Your guess: 40.5 %.</p>\n{figure.to_html()}"
    assert data["image/png"] == figure.to_png() and data["text/plain"].endswith(figure.sentence)


@pytest.mark.parametrize("guess", [True, "40", float("nan"), None])
def test_what_is_no_number_is_no_guess(guess: Any) -> None:
    asking = exchange().ask(QUESTION)
    with pytest.raises(ConfigError, match=r"A guess is a number such as 0\.5, not "):
        asking.answer(guess)
    assert asking.guess is None


def test_a_timeline_is_revealed_with_its_number_and_not_before_the_guess() -> None:
    timeline = exchange()
    before, _ = reveal("waiting_share", 50, timeline)._repr_mimebundle_()
    assert set(before) == {"text/plain"}
    predict("waiting_share", 40, unit="%")
    data, metadata = reveal("waiting_share", 50, timeline)._repr_mimebundle_()
    assert data["text/plain"].splitlines()[0] == "You guessed 40 %, it is 50 %: 10 percentage points too low."
    assert timeline.summary() in data["text/plain"] and data["image/png"].startswith(b"\x89PNG")
    assert "text/html" not in data and metadata["labkit"]["prediction"] == "waiting_share"
