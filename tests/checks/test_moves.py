"""How weights moved where they did not move as they should."""

from __future__ import annotations

import pytest
import torch

from labkit.checks.moves import how_moved

BEGIN = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
GRADIENT = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64)
LR = 0.5
WANTED = BEGIN - LR * GRADIENT


@pytest.mark.parametrize(
    ("came", "said"),
    [
        (WANTED, ""),
        (BEGIN, "They have not moved."),
        (BEGIN + LR * GRADIENT, "They moved as far as they should, the wrong way."),
        (BEGIN - GRADIENT, "They moved 2 times as far as they should."),
        (-LR * GRADIENT, "That is by how much they should have moved: the weights before were lost."),
        (BEGIN - LR, "All moved by -0.5: the gradient had no part in that."),
        (BEGIN - LR * GRADIENT.square(), "How far each moved goes with the square of its gradient."),
        (BEGIN - BEGIN * GRADIENT, "How far each moved is multiplied by where it began: is that the learning rate?"),
        (BEGIN - (LR + GRADIENT), "They moved 2 times as far as they should, and each by -0.5 besides."),
        (WANTED + 0.25, "They moved as far as they should, and each by 0.25 besides."),
        (BEGIN - LR * GRADIENT.flip(0), ""),
    ],
)
def test_what_holds_for_all_weights_is_said(came: torch.Tensor, said: str) -> None:
    assert how_moved(BEGIN, came, WANTED).strip() == said


def test_of_two_weights_no_line_is_drawn_through_both() -> None:
    assert how_moved(BEGIN[:2], torch.tensor([0.1, 0.7], dtype=torch.float64), WANTED[:2]) == ""
