"""Which line of the learner's returned a result of another form than the one that is asked for."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from textwrap import dedent
from types import FunctionType
from typing import Any

from labkit.checks.exercise import Exercise
from labkit.checks.outcome import CaseOutcome, explained
from labkit.checks.structure import returned_by
from labkit.timeline.source_lines import shown_source

_MOST_LINES = 2


def with_line(
    exercise: Exercise, outcomes: Sequence[CaseOutcome], functions: Mapping[str, Callable[..., Any]]
) -> list[CaseOutcome]:
    """Return the outcomes, the explained one with the line that returned what has another form and no hint explains.

    Args:
        exercise: What was checked.
        outcomes: Of its visible cases.
        functions: The learner's, by name.
    """
    shown = explained(exercise, outcomes)
    verdict = shown.verdict if shown is not None else None
    if shown is None or verdict is None or verdict.hint:
        return list(outcomes)
    function = inspect.unwrap(functions.get(returned_by(verdict.message), print))
    lines = return_lines(function) if isinstance(function, FunctionType) else []
    if not 0 < len(lines) <= _MOST_LINES:
        return list(outcomes)
    here = "Your code returns it here:" if len(lines) == 1 else "Your code returns here:"
    told = replace(shown, verdict=replace(verdict, message="\n".join([f"{verdict.message} {here}", *lines])))
    return [told if each is shown else each for each in outcomes]


def return_lines(function: FunctionType) -> list[str]:
    """Return the lines on which a function returns a value, each as "Cell In[5], line 7:  return rows[where]".

    Nothing comes where its source cannot be read, and of a generator.
    """
    try:
        source, first = inspect.getsourcelines(function)
        tree = ast.parse(dedent("".join(source)))
    except (OSError, TypeError, SyntaxError):
        return []
    if inspect.isgeneratorfunction(function):
        return []
    file = function.__code__.co_filename
    found = []
    for node in sorted(_own_returns(tree.body[0]), key=lambda each: each.lineno):
        where, code = shown_source(f"{file}:{first + node.lineno - 1}")
        found.append(f"{where}:  {code}")
    return found


def _own_returns(function: ast.AST) -> list[ast.Return]:
    """Return the return statements of a function, but not those of functions within it."""
    found: list[ast.Return] = []
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return):
            found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return found
