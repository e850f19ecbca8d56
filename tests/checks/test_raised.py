"""What a driver says of an error in the learner's code names the learner's line."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from typing import Any

import torch

from labkit.checks.case import Case
from labkit.checks.failures import failure_of_traceback
from labkit.checks.on_ranks.raised import line_in, raised
from labkit.checks.rooms import find
from labkit.checks.structure import returned_by, said_of_call
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


def test_an_error_outside_the_learner_s_lines_has_the_line_that_met_it() -> None:
    """A context manager without a yield: contextlib's own line raises, and no line of the learner's runs."""
    made: Any = lambda: None  # noqa: E731
    manager: Any = contextmanager(made)
    try:
        manager().__enter__()
    except TypeError:
        report = _without_this_file(traceback.format_exc())
    failure = failure_of_traceback(report, 1, find("ring_sum"), {})
    assert failure.detail == (
        "None of your lines was running then. What they returned or left is None, as where a return is missing, and "
        "met this line of contextlib.py, in __enter__:  return next(self.gen)"
    )


def test_an_error_in_a_future_s_callback_has_the_learner_s_line_and_its_own_type() -> None:
    names: dict[str, Any] = {}
    run_cell("def add_up(_):\n    parts = (1,)\n    first, second = parts\n", names)
    done: Any = torch.futures.Future()
    done.set_result(1)
    try:
        done.then(names["add_up"]).wait()
    except RuntimeError:
        report = _without_this_file(traceback.format_exc())
    failure = failure_of_traceback(report, 0, find("ring_sum"), {})
    assert failure.error == "ValueError"
    assert failure.message == (
        "Rank 0 raised ValueError: not enough values to unpack (expected 2, got 1), in a callback of a future."
    )
    assert failure.detail.endswith("line 3, in add_up:  first, second = parts")


def test_none_that_a_line_of_others_met_is_told_as_a_return_that_may_be_missing() -> None:
    report = (
        'Traceback (most recent call last):\n  File "/x/labkit/exercises/a/driver.py", line 9, in drive\n'
        "    start_gather(shards, whole)()\nTypeError: 'NoneType' object is not callable\n"
    )
    failure = failure_of_traceback(report, 0, find("ring_sum"), {})
    assert "What they returned or left is None, as where a return is missing, and met" in failure.detail


def _without_this_file(report: str) -> str:
    lines = report.splitlines()
    own = {at + more for at, line in enumerate(lines) if "test_raised.py" in line for more in (0, 1)}
    return "\n".join(line for at, line in enumerate(lines) if at not in own)


def test_what_has_another_form_is_told_by_the_call_that_returned_it() -> None:
    calls = Case("calls", 1, ({"calls": [{"function": "chunk_bounds", "args": [12, 3]}]},))
    said = "values[0] is 12 (int), expected a list."
    assert (
        said_of_call(("chunk_bounds",), calls, said)
        == "What chunk_bounds returned in call 1 is 12 (int), expected a list."
    )
    assert said_of_call(("a", "b"), Case("no calls", 1, ({},)), said) == said
    assert said_of_call(("a",), calls, "values[0].keys[1] is 3.") == "values[0].keys[1] is 3."
    entry = said_of_call(("chunk_bounds",), calls, "values[0][1] is 3.")
    assert entry == "Entry [1] of what chunk_bounds returned in call 1 is 3."
    assert returned_by(entry) == "chunk_bounds"
