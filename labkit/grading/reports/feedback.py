"""The page a student reads: one HTML file that needs nothing else, for any width, light or dark."""

from __future__ import annotations

from labkit.grading.guesses import guess_picture
from labkit.grading.reports.page import MARKS, WORDS, page, shown
from labkit.grading.score import CaseResult, ExerciseResult, StudentResult


def feedback_html(result: StudentResult, lesson_title: str) -> bytes:
    """Return the page: points, and for each exercise what was tried, what came back, and the hint."""
    parts = [
        _head(result, lesson_title),
        _problem(result),
        _contents(result),
        *(_exercise(each) for each in result.exercises if not result.problem),
        _left_out(result),
        _notebook(result),
        _predictions(result),
        "<footer>Points rest on hidden cases: other inputs and other numbers of ranks than the ones in the notebook. "
        "An exercise earns all its points or none.</footer>",
    ]
    return page(f"{shown(result.name, 100)}: {shown(lesson_title, 200)}", ("feedback.css",), parts)


def _head(result: StudentResult, lesson_title: str) -> str:
    share = 100 * min(1.0, result.score / result.max_score) if result.max_score else 0.0
    return (
        f'<header><p class="lesson">{shown(lesson_title, 200)}</p><h1>{shown(result.name, 100)}</h1>'
        f'<p class="score"><strong>{result.score:g}</strong> of {result.max_score:g} points</p>'
        f'<div class="bar" role="img" aria-label="{share:.0f} percent"><span style="width:{share:.1f}%"></span></div>'
        f"<p>{_opening(result)}</p></header>"
    )


def _opening(result: StudentResult) -> str:
    if result.problem:
        return "We could not read this submission. Nothing is lost: here is what to do."
    passed = sum(each.state == "passed" for each in result.exercises)
    total = len(result.exercises)
    if passed == total:
        return f"Everything works. All {total} exercises pass on cases you had not seen."
    failed = sum(each.state == "failed" for each in result.exercises)
    open_ = total - passed - failed
    words = [f"{passed} of {total} exercises work." if passed else "No exercise passes all its hidden cases yet."]
    if failed:
        words.append(
            f"For the {'one that does' if failed == 1 else f'{failed} that do'} not yet, "
            "you find below what was tried, what came back, and where to look."
        )
    if open_:
        words.append(f"{open_} {'is' if open_ == 1 else 'are'} not started.")
    return " ".join(words)


def _problem(result: StudentResult) -> str:
    return (
        f'<section class="card failed"><p class="problem">{shown(result.problem)}</p></section>'
        if result.problem
        else ""
    )


def _contents(result: StudentResult) -> str:
    if result.problem:
        return ""
    items = []
    for each in result.exercises:
        mark, word = MARKS[each.state], WORDS[each.state]
        slug, number = shown(each.exercise.id, 60), shown(each.exercise.number or each.exercise.id, 60)
        items.append(
            f'<li class="{each.state}"><a href="#{slug}"><b aria-hidden="true">{mark}</b> {number}'
            f'<span class="sr"> {word}</span></a></li>'
        )
    return f'<nav aria-label="Exercises"><ol>{"".join(items)}</ol></nav>'


def _exercise(each: ExerciseResult) -> str:
    mark, word = MARKS[each.state], WORDS[each.state]
    points = f"{each.score:g} of {each.exercise.points:g} points" + (" (bonus)" if each.exercise.bonus else "")
    return (
        f'<section class="card {each.state}" id="{shown(each.exercise.id, 60)}"><h2><b aria-hidden="true">{mark}</b> '
        f'{shown(each.exercise.name, 200)}</h2><p class="points"><span class="word">{word}</span> · {points}</p>'
        f"{_said(each)}{_cases(each)}</section>"
    )


def _said(each: ExerciseResult) -> str:
    if each.state == "passed":
        return ""
    if each.state == "not_done":
        return "<p>The cell is as it was handed out, so there was nothing to try yet.</p>"
    failure = each.first_failure
    if failure is None:
        return "<p>Not all cases could be tried.</p>"
    message, _, detail = failure.message.partition("\n")
    parts = [
        f"<dl><dt>Tried</dt><dd>{shown(failure.name, 300)}</dd><dt>Came back</dt><dd>{shown(message)}",
        f"<pre>{shown(detail)}</pre>" if detail.strip() else "",
        "</dd></dl>",
        f'<p class="hint"><b>Where to look.</b> {shown(failure.hint)}</p>' if failure.hint else "",
        failure.picture,
    ]
    return "".join(parts)


def _cases(each: ExerciseResult) -> str:
    if not each.cases:
        return ""
    passed = sum(case.passed for case in each.cases)
    items = "".join(_case(case) for case in each.cases)
    untried = each.num_cases - len(each.cases)
    rest = f'<li class="not_done">{untried} more not tried</li>' if untried else ""
    return (
        f"<details><summary>{passed} of {each.num_cases} hidden cases pass</summary>"
        f'<ul class="cases">{items}{rest}</ul></details>'
    )


def _case(case: CaseResult) -> str:
    mark, state = ("✓", "passed") if case.passed else ("✗", "failed")
    said = "" if case.passed else f": {shown(case.message.splitlines()[0] if case.message else '', 300)}"
    return f'<li class="{state}"><b>{mark}</b> {shown(case.name, 300)}{said}</li>'


def _left_out(result: StudentResult) -> str:
    if not result.notes:
        return ""
    items = "".join(f"<li>{shown(note, 600)}</li>" for note in result.notes[:60])
    more = f"<li>and {len(result.notes) - 60} more</li>" if len(result.notes) > 60 else ""
    return f'<section class="card"><h2>What was not taken</h2><ul>{items}{more}</ul></section>'


def _notebook(result: StudentResult) -> str:
    if not result.notebook_summary:
        return ""
    items = "".join(
        f"<dt>{shown(cell, 100)}</dt><dd>{_said_by_cell(said)}</dd>" for cell, said in result.cell_notes[:40]
    )
    listed = f"<dl>{items}</dl>" if items else ""
    return (
        '<section class="card"><h2>Your notebook, run from top to bottom</h2>'
        f"<p>{shown(result.notebook_summary)} This earns no points; it shows you what a reader of it would see.</p>"
        f"{listed}</section>"
    )


def _said_by_cell(said: str) -> str:
    first, _, rest = said.partition("\n")
    return shown(first, 500) + (f"<pre>{shown(rest, 1500)}</pre>" if rest.strip() else "")


def _predictions(result: StudentResult) -> str:
    if not result.predictions:
        return ""
    items = "".join(
        f"<dt><code>{shown(each.name, 60)}</code></dt><dd>{shown(str(each), 400)}{guess_picture(each)}</dd>"
        for each in result.predictions
    )
    return f'<section class="card"><h2>What you predicted, and what came out</h2><dl>{items}</dl></section>'
