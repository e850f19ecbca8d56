"""A guess and a result on one number line."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from labkit.widgets.canvas import SHARP
from labkit.widgets.guess_picture import WIDTH, draw, how_far, is_logarithmic, to_png


def test_the_axis_names_the_unit_and_both_marks_lie_on_it() -> None:
    figure = draw(100, 1400, "MB")
    (axes,) = figure.axes
    assert axes.get_xlabel() == "MB"
    assert [line.get_xdata()[0] for line in axes.lines] == [100, 1400]  # type: ignore[index]
    assert [text.get_text() for text in axes.texts] == ["guess 100", "result 1400"]
    low, high = axes.get_xlim()
    assert low < 0 and high > 1400, "a linear line begins at zero, so that lengths can be compared"


def test_the_two_marks_differ_in_form_as_in_colour() -> None:
    guess, result = draw(1, 2, "").axes[0].lines
    assert guess.get_marker() != result.get_marker() and guess.get_color() != result.get_color()


@pytest.mark.parametrize(
    ("guess", "result", "logarithmic"),
    [(0.01, 5.5, True), (100, 1400, False), (0, 5, False), (-1, 50, False), (30, 1, True), (1, 1, False)],
)
def test_numbers_of_different_size_stand_on_powers_of_ten(guess: float, result: float, logarithmic: bool) -> None:
    assert is_logarithmic(guess, result) == logarithmic
    assert draw(guess, result, "s").axes[0].get_xscale() == ("log" if logarithmic else "linear")


@pytest.mark.parametrize(
    ("guess", "result", "words"),
    [
        (100, 1400, "×14 too low"),
        (3, 2, "×1.5 too high"),
        (0, 5, "5 too low"),
        (-1, 1, "2 too low"),
        (102, 100, "2 % too high"),
        (5, 5, "exactly right"),
    ],
)
def test_a_guess_reads_how_far_off_it_is(guess: float, result: float, words: str) -> None:
    assert how_far(guess, result) == words
    assert words in [text.get_text() for text in draw(guess, result, "s").texts]


@pytest.mark.in_turn
@pytest.mark.parametrize(("guess", "result"), [(0, 0), (-3, -2), (1e30, 1e-30), (1e-30, 0), (-1e30, 1e30)])
def test_any_two_numbers_give_a_small_picture(guess: float, result: float) -> None:
    png = to_png(guess, result, "")
    image = Image.open(io.BytesIO(png))
    assert image.width == SHARP * WIDTH and image.height < SHARP * 160 and len(png) < 20_000
