"""What a driver says of an error in the learner's code names the learner's line."""

from __future__ import annotations

from labkit.checks.on_ranks.raised import raised
from tests.checks.lesson_cells import run_cell


def test_an_error_has_the_innermost_line_of_the_learner_s() -> None:
    names: dict[str, object] = {}
    run_cell("import torch\n\ndef load():\n    return torch.zeros(2).view(3)\n", names)
    try:
        names["load"]()  # type: ignore[operator]
    except RuntimeError as error:
        said = raised(error)
    assert said.startswith("RuntimeError: shape '[3]' is invalid for input of size 2")
    assert said.endswith(", in line 4, return torch.zeros(2).view(3)")


def test_an_error_without_a_line_is_told_without() -> None:
    assert raised(KeyError("step")) == "KeyError: 'step'"
