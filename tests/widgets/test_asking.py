"""A timeline behind a question: without a guess no picture, with it the picture and the guess."""

from __future__ import annotations

from labkit.checks.predictions import predict, reveal
from tests.timeline.small_timelines import exchange


def test_without_a_guess_there_is_the_question_alone() -> None:
    asking = exchange().ask("How much of the time is a bubble?", "%")
    assert asking.guess is None
    shown = asking._repr_mimebundle_()
    assert shown == {
        "text/plain": "How much of the time is a bubble? Guess first: the timeline is shown after that, "
        "where figures can be played with."
    }


def test_the_guess_is_a_trait_and_brings_the_picture() -> None:
    asking = exchange().ask("How much of the time is a bubble?", "%")
    asking.view.guess = 25
    assert asking.guess == 25
    shown = asking._repr_mimebundle_()
    assert shown["image/png"].startswith(b"\x89PNG")
    assert shown["text/plain"].startswith("How much of the time is a bubble? Your guess: 25 %.\n2 ranks, 2 ms")


def test_a_timeline_is_revealed_with_its_number_and_not_before_the_guess() -> None:
    timeline = exchange()
    before, _ = reveal("9.91", 50, timeline)._repr_mimebundle_()
    assert set(before) == {"text/plain"}
    predict("9.91", 40, unit="%")
    data, metadata = reveal("9.91", 50, timeline)._repr_mimebundle_()
    assert data["text/plain"].splitlines()[0] == "You guessed 40 %, it is 50 %: 20 % too low."
    assert timeline.summary() in data["text/plain"] and data["image/png"].startswith(b"\x89PNG")
    assert "text/html" not in data and metadata["labkit"]["prediction"] == "9.91"
