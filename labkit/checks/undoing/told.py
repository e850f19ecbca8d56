"""What is told of a wrong answer whose mistake has no name: in which line a single change lets every case pass.

Where a check fails and recognises nothing, or only what many wrong answers look like (Exercise.general), single slips
are undone in the learner's own code (changes.py), one after another, in a process of their own (trials.py). What is
told was seen: with that one change all visible cases passed. The changed line itself is not shown.

* The order is fixed and the number limited; of two runs one tells more than the other only where the time was up.
* The functions of the exercise's own cell are changed, and what they use of it: given and lent code are not.
* Their code objects are replaced in a copy of the functions that has travelled to the process, so that nothing of the
  notebook changes.
* Ranks are virtual, so where an answer fails on processes alone, or processes cannot be forked, nothing is tried.
* Where the answer touches a tensor before its message has come or left, virtual ranks see it, and that is told.
* Only `labkit.check` does this. Graders run hidden cases without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from labkit.checks.case import Failure
from labkit.checks.exercise import Exercise
from labkit.checks.outcome import CaseOutcome
from labkit.checks.par import is_bound
from labkit.checks.undoing.source import Text, texts_of
from labkit.checks.undoing.trials import try_changes
from labkit.checks.verdict import PLAIN_ERROR, Verdict
from labkit.errors import LabkitError
from labkit.worlds import chosen_start_method, local, run

SECONDS = 5.0
"""How long trying may take, of real time."""
_MOST_KEPT = 64
_told: dict[tuple[object, ...], str] = {}


def undone(exercise: Exercise, shown: CaseOutcome, functions: Mapping[str, Callable[..., Any]]) -> str:
    """Return in which lines one change lets every visible case pass, in a sentence or two, or "".

    Args:
        exercise: What was checked.
        shown: The failed case that is explained.
        functions: The learner's functions, and the given names, by name.
    """
    if not _is_tried(exercise, shown) or chosen_start_method("auto") != "zygote":
        return ""
    texts = texts_of([functions[name] for name in exercise.functions])
    if not texts:
        return ""
    assert shown.verdict is not None
    key = (exercise.id, tuple(texts), shown.case.name, shown.verdict.message)
    if key not in _told:
        if len(_told) >= _MOST_KEPT:
            _told.clear()
        _told[key] = _sentences(_found(exercise, functions, texts, shown), exercise)
    return _told[key]


def _is_tried(exercise: Exercise, shown: CaseOutcome) -> bool:
    """Return whether a failure has no name, and one change may be what lacks."""
    verdict, got = shown.verdict, shown.got
    if verdict is None or exercise.challenge is not None or shown.case not in exercise.visible:
        return False
    if isinstance(got, Failure) and got.kind in ("not_implemented", "died"):
        return False
    is_named = bool(verdict.hint) and verdict.mistake not in exercise.general
    return not is_named and not _shows_its_line(verdict, got)


def _shows_its_line(verdict: Verdict, got: object) -> bool:
    """Return whether it is an error of Python's own that came up in a line of the learner's."""
    return verdict.mistake == PLAIN_ERROR and isinstance(got, Failure) and got.detail.startswith("line ")


def _found(
    exercise: Exercise, functions: Mapping[str, Callable[..., Any]], texts: list[Text], shown: CaseOutcome
) -> list[Any]:
    failed = exercise.visible.index(shown.case)
    ends = not isinstance(shown.got, Failure) or shown.got.kind != "timeout"
    with TemporaryDirectory(prefix="labkit-undone-") as folder:
        file = Path(folder, "found")
        try:
            run(
                try_changes, exercise.id, functions, texts, failed, ends, str(file),
                on=local(1, device="cpu"), timeout=SECONDS, stall=None, init=False, echo=False,
            )  # fmt: skip
        except LabkitError:
            pass  # the time was up, or a change ended the process: what was found before it stands
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def _sentences(found: list[Any], exercise: Exercise) -> str:
    if not found:
        return ""
    if isinstance(found[0], dict):
        return f"Seen on virtual ranks: {found[0]['seen']} Wait first: what comes of it differs from run to run."
    count = len(exercise.visible)
    more = exercise.sweep is not None or (exercise.par is not None and is_bound(exercise.par))
    cases = f"{'the first' if more else 'all'} {count} cases pass" if count > 1 else "the case passes"
    they = "They also pass" if count > 1 else "It also passes"
    tried = "Tried on virtual ranks, one change" if exercise.distributed else "One change"
    return " ".join([f"{tried} is enough: {cases} {found[0]}.", *(f"{they} {each}." for each in found[1:])])
