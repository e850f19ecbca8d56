"""Where a result of another form was returned is told: the function, and its line."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import labkit
from labkit.checks.case import Case
from labkit.checks.failures import failure_of_traceback
from labkit.checks.on_ranks.model_state import loss_of
from labkit.checks.returns import return_lines
from labkit.checks.rooms import find
from labkit.checks.structure import returned_by, said_of_call
from tests.checks.lesson_cells import namespace, run_cell


def test_the_line_that_returned_another_form_is_shown() -> None:
    wrong = "def bubble_share(num_stages, num_microbatches):\n    share = 'a half'\n    return share\n"
    names = namespace(number="08", extra=wrong)
    functions = (names[name] for name in find("bubble").functions)
    text = repr(labkit.check("bubble", *functions))
    assert "What bubble_share returned in call 1 is a half, expected a number. Your code returns it here:" in text
    assert ":3:  return share" in text


def test_lines_are_the_functions_own() -> None:
    def returns(source: str) -> list[str]:
        names: dict[str, Any] = {}
        run_cell(source, names)
        return [line.rpartition(":  ")[2] for line in return_lines(names["made"])]

    inner = "def made(x):\n    def within():\n        return 1\n    if x:\n        return within\n    return 2\n"
    assert returns(inner) == ["return within", "return 2"]
    assert returns("def made(x):\n    yield x\n    return 2\n") == []
    assert returns("def made(x):\n    x += 1\n") == []


def test_a_driver_s_key_is_told_as_the_function_s_result() -> None:
    case, returned = Case("one", 1, ({},)), {"rows": "pull_rows", "losses": "hybrid_step"}
    said = said_of_call(("pull_rows", "push_rows"), case, "rows has shape (3,), expected (6, 3).", returned)
    assert said == "What pull_rows returned has shape (3,), expected (6, 3)."
    assert returned_by(said) == "pull_rows"
    said = said_of_call(("hybrid_step",), case, "Rank 1: losses[0] is None, expected a tensor.", returned)
    assert said == "Rank 1: what hybrid_step returned in call 1 is None, expected a tensor."
    assert returned_by(said) == "hybrid_step"
    assert said_of_call(("pull_rows",), case, "calls[0][1].keys has shape (3,).", returned).startswith("calls[0]")
    assert returned_by("values[0] is None.") == ""


def test_a_model_that_returns_nothing_is_told_so_without_torchs_line() -> None:
    with pytest.raises(TypeError, match=r"calling your model returned nothing \(None\), not a tensor"):
        loss_of(None, torch.zeros(2))
    report = (
        'Traceback (most recent call last):\n  File "/x/labkit/checks/on_ranks/model_state.py", line 39, in loss_of\n'
        '    raise TypeError(f"calling your model returned {came}")\nTypeError: calling your model returned nothing\n'
    )
    assert failure_of_traceback(report, 1, find("ring_sum"), {}).detail == ""
