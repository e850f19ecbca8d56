"""The page an instructor reads: a line for each student, graded or in the gradebook, and what they add up to.

One file, light or dark; it names students: it is not for them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from labkit.checks.verdict import PLAIN_ERROR
from labkit.grading.reports.class_figures import ClassFigures, Fault, class_figures, has_score
from labkit.grading.reports.copies import Case
from labkit.grading.reports.page import page
from labkit.grading.reports.results import GradedExercise, GradedSubmission

_SCRIPT = Path(__file__).with_suffix(".js")


@dataclass(frozen=True)
class Line:
    """A student on the page.

    Attributes:
        name: Whose it is.
        href: The student's page, from this one.
        score: Points that count.
        result: What grading found, None for who handed in nothing.
        late: "20 % off", "late", or "".
        asks: How many requests to look again are open.
    """

    name: str
    href: str
    score: float
    result: GradedSubmission | None
    late: str = ""
    asks: int = 0

    @property
    def problem(self) -> str:
        """Why not all could be graded, or ""."""
        return (self.result.problem or self.result.lost) if self.result else "handed in nothing"

    @property
    def is_lost(self) -> bool:
        """Whether it was graded and nothing in it works."""
        result = self.result
        return bool(result and not result.problem and result.exercises) and not any(
            each.state in ("passed", "read", "to_read") or each.points for each in (result.exercises if result else ())
        )

    @property
    def needs_a_look(self) -> bool:
        """Whether whoever grades looks at it first."""
        return bool(self.is_unread or self.asks or self.is_lost)

    @property
    def chip(self) -> str:
        """What lateness did: "late: 20 % off 84", "late", or ""."""
        if "off" not in self.late:
            return self.late
        earned = self.result.score if self.result else 0.0
        return f"late: {self.late}" + (f" {earned:g}" if self.score < earned else "")

    @property
    def is_unread(self) -> bool:
        """Whether it was handed in and could not be graded."""
        return bool(self.result and self.result.problem)


@dataclass(frozen=True)
class _Bar:
    """Students who have so many points.

    Attributes:
        label: "10–19", of the last "80–84".
        count: How many students.
        share: Its height, 1 of the highest bar.
    """

    label: str
    count: int
    share: float


def class_page(lines: Sequence[Line], title: str, cases: Sequence[Case] | None = None, *, desk: bool = False) -> bytes:
    """Return the page of a class of at least one who handed in something.

    Args:
        lines: Everybody's, in any order.
        title: The lesson's heading.
        cases: Submissions that are alike, None where that was not looked at.
        desk: Whether students' pages have boxes for comments and answers.
    """
    students = sorted(lines, key=lambda line: (line.name.casefold(), line.href))
    handed_in = [(line, line.result) for line in students if line.result is not None]
    figures = class_figures([result for _, result in handed_in], [line.score for line, _ in handed_in])
    names = {each.id: each.name for _, result in handed_in for each in result.exercises}
    packs = {
        kind: [(line, used) for line, result in handed_in
               if (used := [each for each in result.exercises if each.pack == kind])]
        for kind in ("answer", "unnamed")
    }  # fmt: skip
    faults = _numbered(figures)
    script = _SCRIPT.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return page(
        "class_page.html",
        packed=packs["answer"],
        unnamed=packs["unnamed"],
        title=title,
        figures=figures,
        bars=_bars(figures),
        top=max(1.0, figures.max_score + figures.most_bonus, *(line.score for line in students)),
        faults=faults,
        faults_of=_faults_of(faults),
        mistake_of=_mistake_of,
        desk=desk,
        bin_of={line.href: figures.bin_of(line.score) for line, result in handed_in if has_score(result, line.score)},
        cases=cases,
        shown={line.result.name: line for line, _ in handed_in if line.result},
        students=sorted(students, key=_need),
        looked_at=_looked_at(students),
        ungraded=sum(not has_score(result, line.score) for line, result in handed_in),
        **_in_the_middle(figures),
        unread=[line for line in students if line.is_unread],
        bonus_of=_bonus_of,
        names=names,
        exercises=[(each, names[each].partition(" ")[0]) for each in names],
        bonus=[each.name.partition(" ")[0] for each in figures.exercises if not each.max_points],
        state_of=_state_of,
        unnamed_faults=any(not fault.named for each in figures.exercises for fault in each.faults),
        counted=_counted,
        script=Markup(script),
        policy=Markup(f"; frame-src 'self' file:; script-src 'sha256-{digest}'"),
    )


def _need(line: Line) -> tuple[bool, bool, bool, bool, float]:
    """Return what sorts students by need: those to look at first, then who handed in nothing, then fewest points."""
    return not line.is_unread, not line.asks, not line.is_lost, line.result is not None, line.score


def _looked_at(students: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    """Return who stands first beside those not graded: "1 asks to look again", "2 have nothing that works yet"."""
    asks = [line for line in students if line.asks and not line.is_unread]
    lost = [line for line in students if line.is_lost and not line.asks]
    said = [
        (f"{len(asks)} {'asks' if len(asks) == 1 else 'ask'} to look again", asks),
        (f"{len(lost)} {'has' if len(lost) == 1 else 'have'} nothing that works yet", lost),
    ]
    return [(words, lines) for words, lines in said if lines]


def _numbered(figures: ClassFigures) -> list[tuple[str, Fault]]:
    """Return all faults with the slugs of their exercises; the place is the number that the page knows one by."""
    return [(each.id, fault) for each in figures.exercises for fault in each.faults]


def _faults_of(faults: Sequence[tuple[str, Fault]]) -> dict[str, list[int]]:
    """Return the numbers of the faults of each submission."""
    found: dict[str, list[int]] = {}
    for number, (_, fault) in enumerate(faults):
        for name in fault.who:
            found.setdefault(name, []).append(number)
    return found


def _mistake_of(each: GradedExercise) -> str:
    """Return the name of what is wrong in an exercise, or ""."""
    return each.mistake if each.state == "failed" and each.mistake != PLAIN_ERROR else ""


def _state_of(line: Line) -> Mapping[str, GradedExercise]:
    """Return a student's exercises by their slugs."""
    return {each.id: each for each in line.result.exercises} if line.result else {}


def _bonus_of(line: Line) -> float:
    """Return the points of bonus in a score, 0 where it has none or is not the sum of what was earned."""
    result = line.result
    return result.bonus if result and abs(line.score - result.score) < 1e-9 else 0.0


def _in_the_middle(figures: ClassFigures) -> dict[str, str]:
    """Return median and mean as they are told, both with a decimal where one of them needs it."""
    told = {"median": f"{figures.median:.1f}", "mean": f"{figures.mean:.1f}"}
    is_whole = all(each.endswith(".0") for each in told.values())
    return {name: each.removesuffix(".0") if is_whole else each for name, each in told.items()}


def _counted(number: int, what: str, more: str = "") -> str:
    return f"{number} {what if number == 1 else more or what + 's'}"


def _bars(figures: ClassFigures) -> list[_Bar]:
    step, bins = figures.step, figures.bins
    most, last = max(1, *bins), len(bins) - 1
    top = max(figures.max_score + figures.most_bonus, last * step)
    ends = [f"{top:g}" if at == last else f"{(at + 1) * step - 1}" for at in range(len(bins))]
    labels = [f"{at * step}" + (f"–{end}" if end != f"{at * step}" else "") for at, end in enumerate(ends)]
    return [_Bar(label, count, count / most) for label, count in zip(labels, bins, strict=True)]
