"""Guesses are written down, and shown beside what came out; bad use is answered in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import labkit
from labkit.checks import predictions
from labkit.grading.guesses import Guess
from labkit.lessons.source import load
from labkit.widgets.guess_picture import how_far

SOURCES = sorted((Path(__file__).parents[2] / "solutions").glob("[0-9][0-9]_*.py"))


@pytest.fixture(autouse=True)
def _nothing_written() -> Iterator[None]:
    predictions._written.clear()
    yield
    predictions._written.clear()


def test_a_guess_is_written_down_and_shown_beside_the_result() -> None:
    assert repr(labkit.predict("step_ms", 0.27, unit="ms")) == "Your guess for step_ms is written down: 0.27 ms."
    revealed = labkit.reveal("step_ms", 0.81)
    assert repr(revealed) == "You guessed 0.27 ms, it is 0.81 ms: too low by a factor of 3."
    data, metadata = revealed._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png"} and data["image/png"].startswith(b"\x89PNG")
    assert metadata["labkit"] == {"prediction": "step_ms", "result": 0.81, "unit": "ms"}
    assert metadata["image/png"] == {"width": 560, "height": 138}


def test_nothing_is_revealed_before_the_guess() -> None:
    text = repr(labkit.reveal("step_ms", 0.81))
    assert (
        text == 'Write your guess first: run the cell above that begins labkit.predict("step_ms", ...), then this one.'
    )
    assert "0.81" not in text and labkit.reveal("step_ms", 0.81)._repr_mimebundle_()[1] == {}
    assert "put yours in place of None" in repr(labkit.predict("step_ms", None))
    assert "with your guess in place of None" in repr(labkit.reveal("step_ms", 0.81))


def test_several_guesses_of_one_exercise_are_kept_apart_and_a_new_one_replaces_the_old() -> None:
    labkit.predict("step_ms", 1)
    labkit.predict("loss_at_end", 2)
    labkit.predict("step_ms", 3)
    assert (labkit.reveal("step_ms", 3).guess, labkit.reveal("loss_at_end", 3).guess) == (3, 2)


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("guess", "result", "said"),
    [
        (2.0, 2, "exactly"),
        (100, 100.2, "within 1 %"),
        (1.0, 1.07, "7 % too low"),
        (1.0, 0.8, "25 % too high"),
        (100, 1400, "too low by a factor of 14"),
        (1400, 100, "too high by a factor of 14"),
        (0, 3, "off by 3"),
        (-2, 3, "off by 5"),
        ("tree", "ring", "not what you said"),
        (True, True, "as you said"),
    ],
)
def test_how_far_off_a_guess_was_is_said_in_words(guess: Any, result: Any, said: str) -> None:
    labkit.predict("step_ms", guess)
    assert repr(labkit.reveal("step_ms", result)).endswith(f": {said}.")


@pytest.mark.parametrize(
    ("guess", "result", "said"),
    [
        (40, 28.57, "11 percentage points too high"),
        (-3, 2.5, "5.5 percentage points too low"),
        (7, 8, "1 percentage point too low"),
    ],
)
def test_percentages_are_compared_in_points(guess: float, result: float, said: str) -> None:
    labkit.predict("share", guess, unit="%")
    assert repr(labkit.reveal("share", result)).endswith(f": {said}.")
    assert str(Guess("share", guess, "%", result)).endswith(said)
    assert how_far(guess, result, "%") == said


@pytest.mark.parametrize(("guess", "result"), [("tree", "ring"), (True, False), (1, 1e300), (5e-324, 1), (2, "two")])
def test_what_no_axis_can_show_gets_no_picture(guess: Any, result: Any) -> None:
    labkit.predict("step_ms", guess)
    data, metadata = labkit.reveal("step_ms", result)._repr_mimebundle_()
    assert set(data) == {"text/plain"} and metadata["labkit"]["result"] == result


def test_a_tensor_or_array_of_one_element_counts_as_its_number() -> None:
    labkit.predict("step_ms", 1)
    assert labkit.reveal("step_ms", torch.tensor([2.0])).result == 2.0
    assert labkit.reveal("step_ms", np.float64(2.5)).result == 2.5
    assert "a Tensor" in repr(labkit.reveal("step_ms", torch.ones(3)))


@pytest.mark.parametrize("guess", [[1], {"a": 1}, float("inf"), float("nan"), print, 1j])
def test_what_is_no_plain_value_is_not_written_down(guess: Any) -> None:
    assert "A guess is a plain number such as 0.5, a word in quotes or True" in repr(labkit.predict("step_ms", guess))
    assert "Write your guess first" in repr(labkit.reveal("step_ms", 1))


@pytest.mark.parametrize("identity", [5.2, "5.2", None, "step ms", "Step"])
def test_an_id_that_is_none_is_answered_with_the_right_form(identity: Any) -> None:
    assert 'labkit.predict("root_megabytes", ...)' in repr(labkit.predict(identity, 1))
    assert 'labkit.reveal("root_megabytes", ...)' in repr(labkit.reveal(identity, 1))


@pytest.mark.in_turn
@pytest.mark.parametrize("path", SOURCES, ids=[path.stem for path in SOURCES])
def test_every_call_of_predict_in_a_lesson_is_revealed_below_it(path: Path) -> None:
    below: list[str] = []
    for cell in reversed(load(path).cells):
        found = re.match(r'labkit\.predict\("([^"]+)"', cell.source) if cell.role == "predict" else None
        assert not found or any(re.search(rf'labkit\.reveal\(\s*"{found[1]}",', later) for later in below), found
        below.append(cell.source)
