"""``labkit.check``, ``labkit.challenge`` and ``labkit.hint``: what a learner calls and sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from inspect import unwrap
from typing import Any

from labkit.board.reporting import report
from labkit.checks.case import Case
from labkit.checks.challenge import plans_of
from labkit.checks.class_mistakes import with_class_hint
from labkit.checks.drive import Place, run_visible
from labkit.checks.exercise import Exercise, functions_for
from labkit.checks.outcome import CaseOutcome, explained, hint_across
from labkit.checks.par import beside, bounds, is_bound
from labkit.checks.printed import lines as printed_lines
from labkit.checks.returns import with_line
from labkit.checks.rooms import exercises, find, lesson_of
from labkit.checks.sweep import named as sweep_case
from labkit.checks.sweep import run_sweep
from labkit.checks.undoing.told import undone
from labkit.checks.verdict import Verdict
from labkit.errors import ConfigError, LabkitError
from labkit.launch.devices import place
from labkit.launch.gpus import Gpus, gpus
from labkit.words import join

LENT = "<lent "
"""How the file name of code begins that was lent to the learner."""


@dataclass(frozen=True)
class CheckResult:
    """What a check found; shown by the notebook when it is the last line of a cell.

    Attributes:
        exercise_id: "ring_sum".
        outcomes: Each case and its verdict.
        problem: Why nothing was checked, with the cure; "" when it was.
        shown: The failed case that is shown in full, None where none failed.
        across: A hint that all cases together give, or "".
        undone: Says in which lines one change lets every case pass, or ""; asked when the result is shown, for that
            takes seconds.
        par: What our own solution costs on a virtual cluster beside yours, as lines; empty unless passed.
        note: What a learner on the class board must know of it, or "".
        left_out: What was not run for want of GPUs, or "".
        passed: Whether every case passed.
    """

    exercise_id: str
    outcomes: tuple[CaseOutcome, ...] = ()
    problem: str = ""
    shown: CaseOutcome | None = None
    across: str = ""
    undone: Callable[[], str] = lambda: ""
    par: tuple[str, ...] = ()
    note: str = ""
    left_out: str = ""

    @property
    def passed(self) -> bool:
        """Return whether every case passed."""
        return not self.problem and bool(self.outcomes) and all(outcome.passed for outcome in self.outcomes)

    def __repr__(self) -> str:
        return "\n".join(text for _, text in self._lines())

    def _ipython_display_(self) -> None:
        """Show the lines, and of a failed case the timeline, opened at the event to look at first."""
        first_look = self.shown.first_look if self.shown is not None else None
        if first_look is None:
            raise NotImplementedError  # IPython then asks for _repr_mimebundle_
        from IPython.display import display

        from labkit.widgets.display import show_event

        display(self._repr_mimebundle_(), raw=True)  # type: ignore[no-untyped-call]
        show_event(first_look.timeline, first_look.row, first_look.event, first_look.reason)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the same lines as plain text and as a little HTML."""
        hues = {"pass": "#1a7f37", "fail": "#b3261e", "hint": "#6f42c1"}
        styles = {kind: f"color:color-mix(in srgb, {hue} 65%, currentColor)" for kind, hue in hues.items()}
        styles["head"] = "color:inherit;font-weight:bold"
        rows = [
            (kind, f'<span style="{styles.get(kind, "color:inherit")}">{escape(text)}</span>')
            for kind, text in self._lines()
        ]
        if self.passed:
            rows[0] = ("head", f'<span style="{styles["pass"]}">✓</span> {rows[0][1]}')
        html = f'<pre style="white-space:pre-wrap;line-height:1.35;margin:0">{self._laid_out(rows)}</pre>'
        return {"text/plain": repr(self), "text/html": html}

    def _laid_out(self, rows: list[tuple[str, str]]) -> str:
        """Return lines as HTML; where all cases passed and have no score, those that say so unfold under the first."""
        said = any(outcome.verdict and outcome.verdict.message for outcome in self.outcomes)
        cases = [row for kind, row in rows if kind == "pass"]
        if not self.passed or said or len(cases) < 2:
            return "\n".join(row for _, row in rows)
        rest = "\n".join(row for kind, row in rows[1:] if kind != "pass")
        listed = "\n".join(cases)
        return f'<details><summary style="cursor:pointer">{rows[0][1]}</summary>{listed}</details>{rest}'

    def _lines(self) -> list[tuple[str, str]]:
        on_gpus = next((outcome.on_gpus for outcome in self.outcomes if outcome.on_gpus), "") if self.passed else ""
        return self._found() + [("more", text) for text in (on_gpus, self.left_out, self.note) if text]

    def _found(self) -> list[tuple[str, str]]:
        head = f"Exercise {self.exercise_id}".strip()
        if self.problem:
            return [("head", f"{head}: not checked."), ("more", self.problem)]
        right = sum(outcome.passed for outcome in self.outcomes)
        count = len(self.outcomes)
        if self.passed:
            lines = [("head", f"{head}: passed, all {count} cases." if count > 1 else f"{head}: passed.")]
            lines += [("pass", f"  pass  {_scored(outcome)}") for outcome in self.outcomes]
            return lines + [("more", line) for line in self.par]
        lines = [("head", f"{head}: not yet, {right} of {count} cases pass.")]
        for outcome in self.outcomes:
            verdict = outcome.verdict
            if verdict is None:
                lines.append(("more", f"   --   {outcome.case.name} (not run)"))
            elif verdict.passed:
                lines.append(("pass", f"  pass  {_scored(outcome)}"))
            else:
                lines.append(("fail", f"  FAIL  {outcome.case.name}"))
                if outcome is self.shown:
                    lines += self._details(verdict, outcome.printed)
        return lines

    def _details(self, verdict: Verdict, printed: Sequence[str]) -> list[tuple[str, str]]:
        lines = [("more", f"        {line}") for line in verdict.message.splitlines()]
        if verdict.expected:
            lines.append(("more", f"        expected  {verdict.expected}"))
        if verdict.got:
            lines.append(("more", f"        got       {verdict.got}"))
        shown = printed_lines(printed)
        if shown:
            who = "ranks" if len(printed) > 1 else "code"
            lines += [
                ("more", f"        what your {who} printed in this case:"),
                *(("more", f"        {s}") for s in shown),
            ]
        hints = [hint for hint in (self.across, verdict.hint, self.undone()) if hint]
        return lines + [("hint", f"        hint: {hint}") for hint in hints[:2]]


def _scored(outcome: CaseOutcome) -> str:
    """Return the name of a case that passed and, of a design, its score beside the pars."""
    said = outcome.verdict.message if outcome.verdict is not None else ""
    return f"{outcome.case.name}: {said}" if said else outcome.case.name


def challenge(exercise_id: str, *functions: Callable[..., Any]) -> CheckResult:
    """Return what a design is worth: whether it works, and its score beside the naive answer's and the best known.

    Beating the naive answer earns the points. A learner who called ``labkit.join_class`` lets the class board know;
    for a design whose answer is a plan, the board gets the plan, scores it itself and ranks it.

    Args:
        exercise_id: Its slug.
        *functions: The functions it asks for; pass them, do not call them.
    """
    return check(exercise_id, *functions)


def check(exercise_id: str, *functions: Callable[..., Any], device: Place = "cpu") -> CheckResult:
    """Return what the exercise's visible cases say of your functions, run on real ranks.

    It never raises for a wrong answer: the result says what is wrong, with a hint. A learner who called
    ``labkit.join_class`` also lets the class board know whether it passed.

    Args:
        exercise_id: Its slug, "ring_sum".
        *functions: The functions the exercise asks for; pass them, do not call them:
            ``labkit.check("ring_sum", ring_sum)``.
        device: "cpu", or "cuda": the same cases with a GPU for each rank, on NCCL. That catches mistakes which the CPU
            forgives.
    """
    problem = _not_an_id(exercise_id, "check")
    if problem:
        return CheckResult("", problem=problem)
    try:
        exercise = find(exercise_id)
    except ConfigError as error:
        return CheckResult(str(exercise_id), problem=_sentence(str(error)))
    problem = _misuse(exercise, functions)
    if problem:
        return CheckResult(exercise.id, problem=problem)
    result = _run(exercise, functions, device)
    if result.problem or device != "cpu":
        return result
    plans = (
        plans_of(exercise, [each.got for each in result.outcomes[: len(exercise.visible)]]) if result.passed else None
    )
    verdict = result.shown.verdict if result.shown is not None else None
    mistake = verdict.mistake if verdict is not None else ""
    return replace(result, note=report(exercise.id, result.passed, plans, mistake))


def _run(exercise: Exercise, functions: tuple[Callable[..., Any], ...], device: Place) -> CheckResult:
    named = _by_name(exercise, functions)
    cases, left_out = exercise.visible, ""
    try:
        if device != "cpu":
            cases, left_out = on_gpus(exercise.visible, device, gpus())
        outcomes = run_visible(exercise, named, cases, device=device)
    except LabkitError as error:
        return CheckResult(exercise.id, problem=f"The ranks could not be started: {error}")
    try:
        outcomes = with_class_hint(exercise, outcomes)
    except ConfigError as error:
        return CheckResult(exercise.id, problem=_sentence(str(error)))
    outcomes = with_line(exercise, outcomes, named)
    if device != "cpu":
        return CheckResult(exercise.id, tuple(outcomes), shown=explained(exercise, outcomes), left_out=left_out)
    if exercise.sweep is not None:
        # Only what has passed in processes of its own runs in the learner's: there it cannot end the notebook.
        right = all(outcome.passed for outcome in outcomes)
        outcomes.append(run_sweep(exercise, named) if right else CaseOutcome(sweep_case(exercise), None))
    par: list[str] = []
    if exercise.par is not None:
        within = None
        if all(outcome.passed for outcome in outcomes):
            within, par = beside(exercise.par, named)
        if is_bound(exercise.par):
            outcomes.append(CaseOutcome(bounds(exercise.par), within))
    shown, across = explained(exercise, outcomes), hint_across(exercise, outcomes, named.values())
    return CheckResult(
        exercise.id,
        tuple(outcomes),
        shown=shown,
        across=across,
        undone=lambda: "" if shown is None or across else undone(exercise, shown, named),
        par=tuple(par),
    )


def on_gpus(cases: Sequence[Case], device: str, here: Gpus) -> tuple[tuple[Case, ...], str]:
    """Return the cases that these GPUs have room for, one for each rank, and what is left out, in words.

    Raises:
        ConfigError: If there is no such device, or no room for any case.
    """
    place(1, device, here)
    room = len(here.usable) if here.nccl else 0
    found = tuple(case for case in cases if case.world_size <= room)
    if not found:
        least, has = min(case.world_size for case in cases), f"{room} GPU{'' if room == 1 else 's'} that NCCL can use"
        raise ConfigError(
            f"every case needs a GPU for each of at least {least} ranks, and this host has {has}; "
            'leave device="cuda" out to run the ranks on the CPU.'
        )
    without = [case.name for case in cases if case not in found]
    return found, f"Left out, because they need more than the {room} GPUs here: {join(without)}." if without else ""


def call_of(exercise: Exercise) -> str:
    """Return how the exercise is checked: labkit.check("count_bytes", root_bytes, ring_bytes)."""
    return f'labkit.check("{exercise.id}", {", ".join(exercise.functions)})'


def _misuse(exercise: Exercise, functions: tuple[Any, ...]) -> str:
    for function in functions:
        if not callable(function):
            shown = "nothing (None)" if function is None else f"a {type(function).__name__}"
            return f"You gave {shown}; hand over the function itself, without calling it: {call_of(exercise)}."
        if _is_lent(function):
            return (
                f"{function.__name__} is lent: it works, and earns nothing. Write your own in the exercise's cell, "
                "run that cell, then this one."
            )
        name = getattr(function, "__name__", "")
        owner = _owner(exercise, name)
        if owner is not None and name not in exercise.functions:
            return (
                f"{name} is what exercise {owner.id} asks for; exercise {exercise.id} is about "
                f"{join(exercise.functions)}: {call_of(exercise)}."
            )
    if len(functions) != len(exercise.functions):
        count, given = len(exercise.functions), len(functions)
        wanted = f"{count} function" + ("s" if count > 1 else "")
        return f"Exercise {exercise.id} asks for {wanted}, you gave {given or 'none'}: {call_of(exercise)}."
    return ""


def _is_lent(function: Any) -> bool:
    parts = vars(function).values() if isinstance(function, type) else [unwrap(function)]
    codes = (getattr(getattr(each, "__func__", each), "__code__", None) for each in parts)
    return any(code is not None and code.co_filename.startswith(LENT) for code in codes)


def _owner(exercise: Exercise, name: str) -> Exercise | None:
    """Return the exercise of the same lesson that asks for a function of this name, or None."""
    return next((each for each in exercises(lesson_of(exercise.id)).values() if name in each.functions), None)


def _not_an_id(exercise_id: object, verb: str) -> str:
    """Return what is wrong with something that is no text where an exercise's name is wanted, or ""."""
    if isinstance(exercise_id, str):
        return ""
    more = ", chunk_bounds" if verb == "check" else ""
    name = getattr(exercise_id, "__name__", "") if callable(exercise_id) else ""
    what = f"the function {name}" if name else f"a {type(exercise_id).__name__}"
    return f'You gave {what} where the exercise\'s name belongs, in quotes: labkit.{verb}("chunk_bounds"{more}).'


def _by_name(exercise: Exercise, functions: tuple[Callable[..., Any], ...]) -> dict[str, Callable[..., Any]]:
    """Return the functions by the names the driver knows, and the given names from where they were defined."""
    namespace: dict[str, Any] = {}
    for function in functions:
        namespace |= _globals_of(function)
    wanted = functions_for(exercise, {name: namespace[name] for name in exercise.given if name in namespace})
    names = [getattr(function, "__name__", "") for function in functions]
    order = names if sorted(names) == sorted(exercise.functions) else exercise.functions
    return wanted | dict(zip(order, functions, strict=True))


def _globals_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    return getattr(unwrap(function), "__globals__", {})


@dataclass(frozen=True)
class Hint:
    """One step of an exercise's hints, as the notebook shows it."""

    text: str

    def __repr__(self) -> str:
        return self.text


_next_hint: dict[str, int] = {}


def hint(exercise_id: str) -> Hint:
    """Return the next of the exercise's three hints: a nudge, the idea, almost the line. Each call goes one further."""
    problem = _not_an_id(exercise_id, "hint")
    if problem:
        return Hint(problem)
    try:
        exercise = find(exercise_id)
    except ConfigError as error:
        return Hint(_sentence(str(error)))
    step = _next_hint.get(exercise.id, 0)
    if step == len(exercise.hints):
        return Hint(f"There are no more hints for {exercise.id}. The last one again: {exercise.hints[-1]}")
    _next_hint[exercise.id] = step + 1
    more = "" if step + 1 < len(exercise.hints) else " (the last one)"
    return Hint(f"Hint {step + 1} of {len(exercise.hints)} for {exercise.id}{more}: {exercise.hints[step]}")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
