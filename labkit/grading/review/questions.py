"""The questions of a grading run that a person reads, and everybody's answers, those alike beside each other."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from labkit.errors import ConfigError
from labkit.grading.reports.results import GradedSubmission
from labkit.lessons.lesson import Lesson

_LONGEST_WORDS = 2000


@dataclass(frozen=True)
class Answer:
    """What one student, or several alike, wrote.

    Attributes:
        id: Says nothing of whose it is.
        text: As most of them wrote it.
        whose: Name and file hash of each student who wrote this, capitals, spaces and stops at the end aside.
    """

    id: str
    text: str
    whose: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Question:
    """One ``write`` of a lesson.

    Attributes:
        lesson: As graded.
        exercise: Its slug.
        title: As people read it.
        asked: What the lesson asks, above the answer's cell.
        rubric: What points are given for.
        model: The model answer.
        answers: Those alike beside each other.
        full: The most an answer can have: what the lesson's own rubric adds up to.
    """

    lesson: str
    exercise: str
    title: str
    asked: str
    rubric: Mapping[str, int]
    model: str
    answers: tuple[Answer, ...]
    full: int

    def points(self, items: Iterable[int]) -> int:
        """Return what these items of the rubric, by number, are worth together: at least 0, at most full marks."""
        worth = list(self.rubric.values())
        return max(0, min(self.full, sum(worth[item] for item in items)))


def questions(results: Sequence[GradedSubmission], lesson: Lesson, key: bytes) -> tuple[Question, ...]:
    """Return the questions that somebody has answered.

    Args:
        results: Of a grading run.
        lesson: The lesson's source, with rubrics.
        key: What answers' ids are made with; of this review alone.

    Raises:
        ConfigError: If nobody has written anything, or the lesson has no rubric for it.
    """
    found: dict[str, dict[str, list[tuple[str, tuple[str, str]]]]] = {}
    titles: dict[str, str] = {}
    for result in results:
        for each in result.exercises:
            if each.state == "to_read" and each.written.strip():
                titles[each.id] = each.name
                who = (result.name, result.submission_sha256)
                text = each.written.strip()
                found.setdefault(each.id, {}).setdefault(_plain(text), []).append((text, who))
    if not found:
        raise ConfigError("there is nothing to review: nobody has answered a `write` cell")
    if unknown := sorted(set(found) - set(lesson.rubrics)):
        raise ConfigError(f"{lesson.name} has no rubric for {', '.join(unknown)}; was it graded with another course?")
    models = {
        cell.exercise: _flowing("\n".join(line for cut in cell.cuts for line in cut.lines) or cell.source)
        for cell in lesson.cells
        if cell.role == "write"
    }
    asked = {
        cell.exercise: _asked(before.student_source)
        for before, cell in pairwise(lesson.cells)
        if cell.role == "write" and before.kind == "markdown"
    }
    return tuple(
        Question(
            lesson.name,
            exercise,
            titles[exercise],
            asked.get(exercise, ""),
            lesson.rubrics[exercise],
            models.get(exercise, ""),
            _answers(key, exercise, list(alike.values())),
            sum(lesson.rubrics[exercise].values()),
        )
        for exercise, alike in found.items()
    )


def _answers(key: bytes, exercise: str, alike: Sequence[Sequence[tuple[str, tuple[str, str]]]]) -> tuple[Answer, ...]:
    """Return what was written, those alike beside each other, from the texts that say the same and whose each is."""
    by_text = {
        Counter(text for text, _ in group).most_common(1)[0][0]: tuple(who for _, who in group) for group in alike
    }
    return tuple(Answer(_id(key, exercise, text), text, by_text[text]) for text in side_by_side(list(by_text)))


def _plain(text: str) -> str:
    """Return what two answers have in common that are to be read once: "No idea." and "no idea"."""
    return " ".join(text.casefold().split()).rstrip(" .!") or text


def _asked(prose: str) -> str:
    """Return the last paragraph of a cell, headings left out: the question."""
    paragraphs = [each.strip() for each in prose.split("\n\n") if each.strip() and not each.lstrip().startswith("#")]
    return " ".join(paragraphs[-1].split()) if paragraphs else ""


def _flowing(text: str) -> str:
    """Return prose without the ends of lines of its source; paragraphs and items of lists stay."""
    return re.sub(r"(?<=\S)[ ]?\n(?=[^\s*-])", " ", text)


def _id(key: bytes, exercise: str, text: str) -> str:
    return hmac.new(key, f"{exercise}\0{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:24]


def side_by_side(texts: Iterable[str]) -> list[str]:
    """Return texts so that each stands beside one it shares most words with: from the longest on, the nearest next."""
    left = sorted(set(texts), key=lambda text: (-len(text), text))
    words = {text: _words(text) for text in left}
    ordered: list[str] = []
    while left:
        last = words[ordered[-1]] if ordered else frozenset()
        nearest = max(range(len(left)), key=lambda at: (_likeness(last, words[left[at]]), -at))
        ordered.append(left.pop(nearest))
    return ordered


def _words(text: str) -> frozenset[str]:
    found = re.findall(r"\w+", text.casefold())[:_LONGEST_WORDS]
    return frozenset(found) | frozenset(map(" ".join, pairwise(found)))


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(1, len(one | other))
