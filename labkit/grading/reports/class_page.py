"""The page an instructor reads after grading a class: one file that needs nothing else, light or dark.

It names students: it is not for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from labkit.grading.reports.class_figures import NUM_BINS, ClassFigures, ExerciseFigures, class_figures
from labkit.grading.reports.page import MARKS, WORDS, page, shown
from labkit.grading.reports.results import GradedSubmission
from labkit.grading.reports.similarity import Pair


def class_page(results: Sequence[GradedSubmission], title: str, pairs: Sequence[Pair] = ()) -> bytes:
    """Return the page of a class of at least one.

    Args:
        results: Everybody's, in any order.
        title: The lesson's heading.
        pairs: Submissions that resemble each other.
    """
    figures = class_figures(results)
    parts = [
        _head(figures, title),
        _distribution(figures),
        _exercises(figures),
        _similar(pairs, {each.id: each.name for result in results for each in result.exercises}),
        _students(results),
        "<footer>For instructors: it names students. Points rest on hidden cases, all or none an exercise.</footer>",
    ]
    return page(f"{shown(title, 200)}: the class", ("feedback.css", "class.css"), parts, main='<main class="class">')


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _head(figures: ClassFigures, title: str) -> str:
    unread = f", {figures.num_unread} of them could not be graded" if figures.num_unread else ""
    return (
        f'<header><p class="lesson">{shown(title, 300)}</p>'
        f"<h1>{_count(figures.num_students, 'submission')}{unread}</h1><p>Median <strong>{figures.median:g}</strong>, "
        f"mean <strong>{figures.mean:.1f}</strong> of {figures.max_score:g} points.</p></header>"
    )


def _distribution(figures: ClassFigures) -> str:
    left, bottom, height, step = 40, 150, 130, 62
    most = max(figures.bins)
    bars = []
    for at, count in enumerate(figures.bins):
        x, tall = left + at * step, height * count / most
        tenth = 100 // NUM_BINS
        label = f"{at * tenth}–{(at + 1) * tenth - 1}" if at < NUM_BINS - 1 else f"{at * tenth}+"
        bars.append(
            f"<g><title>{label} % of full marks: {_count(count, 'student')}</title>"
            f'<rect x="{x + 4}" y="{bottom - tall:.1f}" width="{step - 8}" height="{tall:.1f}" rx="3"/>'
            f'<text x="{x + step / 2:g}" y="{bottom - tall - 5:.1f}">{count or ""}</text>'
            f'<text class="axis" x="{x + step / 2:g}" y="{bottom + 17}">{label}</text></g>'
        )
    spread = ", ".join(f"{count} from {at * 10} %" for at, count in enumerate(figures.bins) if count)
    return (
        '<section class="card"><h2>How points are spread</h2>'
        f'<svg class="bars" viewBox="0 0 {left * 2 + step * NUM_BINS} {bottom + 40}" role="img" '
        f'aria-label="Students by share of full marks: {spread}">'
        f'<line x1="{left}" x2="{left + step * NUM_BINS}" y1="{bottom}" y2="{bottom}"/>{"".join(bars)}'
        f'<text class="axis" x="{left + step * NUM_BINS / 2:g}" y="{bottom + 36}">% of full marks (bonus included); '
        "above each bar: students</text></svg></section>"
    )


def _exercises(figures: ClassFigures) -> str:
    key = "".join(f'<span class="key {state}">{word}</span>' for state, word in WORDS.items())
    rows = "".join(_exercise(each) for each in figures.exercises)
    return (
        f'<section class="card"><h2>How each exercise went</h2><p class="points">{key}</p><div class="wide"><table>'
        '<thead><tr><th scope="col">Exercise</th><th scope="col">Works</th><th scope="col">Students</th>'
        f'<th scope="col">What went wrong most often</th></tr></thead><tbody>{rows}</tbody></table></div></section>'
    )


def _exercise(each: ExerciseFigures) -> str:
    total = max(1, sum(each.counts.values()))
    spans = "".join(
        f'<span class="{state}" style="width:{100 * count / total:.2f}%" title="{count} {WORDS[state]}"></span>'
        for state, count in each.counts.items()
        if count
    )
    told = ", ".join(f"{count} {WORDS[state]}" for state, count in each.counts.items() if count)
    faults = "".join(
        f"<li><b>{fault.count}×</b> {shown(fault.words, 200)}{'' if fault.named else ' <i>(as told)</i>'}</li>"
        for fault in each.faults
    )
    points = f"{each.max_points:g} points" if each.max_points else "bonus"
    return (
        f'<tr><th scope="row">{shown(each.name, 120)}<small>{points}</small></th>'
        f'<td class="number">{100 * each.success:.0f} %</td>'
        f'<td><div class="stack" role="img" aria-label="{told}">{spans}</div></td>'
        f"<td>{f'<ul>{faults}</ul>' if faults else '–'}</td></tr>"
    )


def _similar(pairs: Sequence[Pair], names: Mapping[str, str]) -> str:
    if not pairs:
        return (
            '<section class="card"><h2>Submissions that resemble each other</h2><p>None beyond what the task and '
            "the code that was given explain.</p></section>"
        )
    rows = "".join(
        f'<tr><th scope="row">{_link(pair.first)} and {_link(pair.second)}</th>'
        f'<td class="number">{100 * pair.share:.0f} %</td>'
        f"<td>{', '.join(shown(names.get(each, each), 120) for each in pair.exercises)}</td></tr>"
        for pair in pairs
    )
    return (
        '<section class="card"><h2>Submissions that resemble each other</h2><p>A hint where to look, never a verdict: '
        "working together may be allowed, a short task has few right answers, and two may have read the same page. "
        "Compared are the exercise cells, names and comments aside, without what was handed out and with little weight "
        "for what many wrote. Read both before you speak to anybody.</p>"
        '<div class="wide"><table><thead><tr><th scope="col">Students</th><th scope="col">Shared</th>'
        f'<th scope="col">Mostly in</th></tr></thead><tbody>{rows}</tbody></table></div></section>'
    )


def _students(results: Sequence[GradedSubmission]) -> str:
    ordered = sorted(results, key=lambda result: result.name)
    ids = [each.id for each in ordered[0].exercises]
    heads = "".join(f'<th scope="col">{shown(each.number or each.id, 60)}</th>' for each in ordered[0].exercises)
    rows = []
    for result in ordered:
        states = {each.id: each.state for each in result.exercises}
        marks = "".join(_state(states.get(each, "not_graded")) for each in ids)
        rows.append(
            f'<tr><th scope="row">{_link(result.name)}</th><td class="number">{result.score:g}</td>{marks}'
            f"<td>{shown(result.problem, 90)}</td></tr>"
        )
    return (
        '<section class="card"><h2>Everybody</h2><div class="wide"><table class="states"><thead><tr>'
        f'<th scope="col">Student</th><th scope="col">Points</th>{heads}<th scope="col"></th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _state(state: str) -> str:
    mark, word = MARKS.get(state, "?"), WORDS.get(state, state)
    seen, read = f'<b aria-hidden="true">{mark}</b>', f'<span class="sr">{shown(word, 300)}</span>'
    return f'<td class="{shown(state, 20)}">{seen}{read}</td>'


def _link(name: str) -> str:
    return f'<a href="{quote(name)}/feedback.html">{shown(name, 80)}</a>'
