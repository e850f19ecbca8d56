"""What a rank runs of who_am_i."""

from __future__ import annotations

from typing import cast

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.start_here.on_ranks import plain


def drive(functions: Functions, inputs: Values) -> Values:
    """Call who_am_i with each environment; return its pair, or the name of the error it raised (who_am_i)."""
    answers: list[Value] = []
    for environment in cast(list[dict[str, str]], inputs["environments"]):
        try:
            answers.append(plain(functions["who_am_i"](dict(environment))))
        except NotImplementedError:
            raise
        except Exception as error:
            answers.append({"raised": type(error).__name__})
    return {"answers": answers}
