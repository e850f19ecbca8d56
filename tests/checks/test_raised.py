"""What a driver says of an error in the learner's code names the learner's line."""

from __future__ import annotations

from labkit.checks.on_ranks.raised import line_in, raised
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


def test_a_traceback_s_text_has_that_line_too() -> None:
    report = (
        'Traceback (most recent call last):\n  File "<cell 3>", line 7, in load\n    return state["step"]\n'
        '  File "/usr/lib/python3.11/site-packages/torch/x.py", line 9, in y\n    z()\nKeyError: 1\n'
    )
    assert line_in(report) == ', in line 7, return state["step"]'
    assert line_in("KeyError: 1") == ""
