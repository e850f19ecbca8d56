"""Who handed in what others handed in: first the identical, as groups of any size, then rare likeness beyond the task.

Identical means the same file, or exercise cells that are the same without their names, comments, texts and spaces. A
short answer that many find by themselves makes nobody alike: what counts is code of one's own, beyond what was handed
out, and much of it. A hint where to look, never a verdict.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from labkit.grading.reports.idle_code import runs_text, without_idle
from labkit.grading.reports.packs import is_in
from labkit.grading.reports.similarity import similar, tokens
from labkit.words import join

_LEAST_TOKENS = 80
_LEAST_SHARE = 0.5


@dataclass(frozen=True)
class Work:
    """One submission as it is compared.

    Attributes:
        name: Its student's; unique.
        answers: The source of each exercise cell that is not as it was handed out, by exercise.
        sha256: Of the whole file, or "".
        origin: "" for this class; else where it comes from, such as an earlier year's folder.
        owner: Whose; what one person or team handed in twice is no case. "" is the name's.
        problem: Why it could not be read, "" for one that could.
    """

    name: str
    answers: Mapping[str, str]
    sha256: str = ""
    origin: str = ""
    owner: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Case:
    """Submissions that are alike.

    Attributes:
        names: Whose, in order.
        kind: "the same file", "the same answers" or "much the same".
        share: How much of the smallest one's own code the others have too, 0 to 1.
        exercises: Where, most first.
        id: The same as long as the same files are alike.
    """

    names: tuple[str, ...]
    kind: str
    share: float
    exercises: tuple[str, ...]
    id: str = ""


@dataclass(frozen=True)
class Copies:
    """What was found.

    Attributes:
        cases: The identical first, larger groups first; then pairs that are much the same.
        from_pack: Exercises whose cell is a handed out pack's answer, by student.
        unread: What could not be compared, and why, by student.
        people: Whose files are by the roster, by their names; of nobody known nothing.
    """

    cases: tuple[Case, ...]
    from_pack: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    people: Mapping[str, str] = field(default_factory=dict)

    def called(self, names: Iterable[str]) -> list[str]:
        """Return whose these files are, once each; a file of nobody known goes by its own name."""
        return list(dict.fromkeys(self.people.get(name, name) for name in names))


def copies(works: Sequence[Work], handed_out: Mapping[str, str], packs: Sequence[Mapping[str, str]] = ()) -> Copies:
    """Return who is alike among this class, and between it and earlier ones.

    Args:
        works: Everybody's, those of earlier years among them.
        handed_out: The source of each exercise cell as it was given to all.
        packs: Answers that were handed out, by exercise; cells that are one of them count for nobody.
    """
    given: dict[str, set[str]] = defaultdict(set)
    for pack in packs:
        for exercise, source in pack.items():
            given[exercise].add(source)
    whole = {exercise: {_fingerprint(source) for source in answers} for exercise, answers in given.items()}
    task = {exercise: len(tokens(source)) for exercise, source in handed_out.items()}
    cells: list[dict[str, str]] = []
    sizes: list[dict[str, int]] = []
    from_pack: dict[str, tuple[str, ...]] = {}
    for work in works:
        prints = {exercise: _fingerprint(source) for exercise, source in work.answers.items()}
        packed = tuple(
            exercise
            for exercise, answers in given.items()
            if prints.get(exercise) in whole[exercise]
            or any(is_in(answer, work.answers.values(), handed_out.get(exercise, "")) for answer in answers)
        )
        if packed and not work.origin:
            from_pack[work.name] = packed
        cells.append({exercise: each for exercise, each in prints.items() if exercise not in packed})
        sizes.append({each: max(0, len(tokens(work.answers[each])) - task.get(each, 0)) for each in cells[-1]})
    groups = _groups(works, cells, sizes)
    ids = {work.name: _identity(work) for work in works}
    ours = {work.name for work in works if not work.origin}
    found = [case for case in (_case(works, cells, sizes, group) for group in groups) if ours & set(case.names)]
    stand_in = [group[0] for group in groups]
    copied = {row for group in groups for row in group} - set(stand_in)
    left = {
        work.name: {exercise: work.answers[exercise] for exercise in cells[row]}
        for row, work in enumerate(works)
        if row not in copied
    }
    for pair in similar(left, handed_out):
        if {pair.first, pair.second} & ours:
            found.append(Case((pair.first, pair.second), "much the same", pair.share, pair.exercises))
    owners = {work.name: work.owner or work.name for work in works}
    found = [case for case in found if len({owners[name] for name in case.names}) > 1]
    named = [replace(each, id=_hash("\0".join(sorted(ids[name] for name in each.names)))[:8]) for each in found]
    return Copies(tuple(named), from_pack, {work.name: words for work in works if (words := _not_compared(work))})


def _not_compared(work: Work) -> str:
    """Return what of a submission was not compared, and why; "" for nothing."""
    hidden = () if work.problem or work.origin else runs_text(work.answers)
    return work.problem or (
        f"{join(hidden)} runs a text as code (exec, eval), so look at it yourself" if hidden else ""
    )


def _groups(
    works: Sequence[Work], cells: Sequence[Mapping[str, str]], sizes: Sequence[Mapping[str, int]]
) -> list[list[int]]:
    """Return the groups of rows that are identical, directly or through one another, largest first."""
    count = len(works)
    same = np.zeros((count, count), dtype=np.float32)
    holders: dict[str, dict[int, int]] = defaultdict(dict)  # in whichever cell it stands: an answer may be moved
    for row, own in enumerate(cells):
        for exercise, each in own.items():
            holders[each][row] = max(sizes[row][exercise], holders[each].get(row, 0))
    for having in holders.values():
        if len(having) > 1:
            same[np.ix_([*having], [*having])] += min(having.values())
    total = np.array([sum(each.values()) for each in sizes], dtype=np.float32)
    alike = (same >= _LEAST_TOKENS) & (same >= _LEAST_SHARE * np.minimum(total[:, None], total[None, :]))
    files: dict[str, list[int]] = defaultdict(list)
    for row, work in enumerate(works):
        if work.sha256 and cells[row]:
            files[work.sha256].append(row)
    for rows in files.values():
        alike[np.ix_(rows, rows)] = True
    np.fill_diagonal(alike, False)
    seen: set[int] = set()
    groups = []
    for row in range(count):
        if row in seen or not alike[row].any():
            continue
        group, waiting = {row}, [row]
        while waiting:
            near = {int(each) for each in np.flatnonzero(alike[waiting.pop()])} - group
            group |= near
            waiting += near
        seen |= group
        groups.append(sorted(group, key=lambda each: (works[each].origin, works[each].name)))
    return sorted(groups, key=lambda group: (-len(group), works[group[0]].name))


def _case(
    works: Sequence[Work], cells: Sequence[Mapping[str, str]], sizes: Sequence[Mapping[str, int]], group: list[int]
) -> Case:
    names = tuple(works[row].name for row in group)
    shared: dict[str, int] = defaultdict(int)
    for exercise in {each for row in group for each in cells[row]}:
        having: dict[str, list[int]] = defaultdict(list)
        for row in group:
            if exercise in cells[row]:
                having[cells[row][exercise]].append(row)
        for print_, rows in having.items():
            elsewhere = any(print_ in cells[row].values() for row in group if row not in rows)
            if len(rows) > 1 or elsewhere:
                shared[exercise] = max(shared[exercise], sizes[rows[0]][exercise])
    smallest = max(1, min(sum(sizes[row].values()) for row in group))
    files = {works[row].sha256 for row in group}
    kind = "the same file" if len(files) == 1 and "" not in files else "the same answers"
    share = round(min(1.0, sum(shared.values()) / smallest), 4)
    exercises = tuple(sorted(shared, key=lambda each: (-shared[each], each)))
    return Case(names, kind, 1.0 if kind == "the same file" else share, exercises)


def _fingerprint(source: str) -> str:
    return _hash(" ".join(tokens(without_idle(source))))


def _identity(work: Work) -> str:
    answers = json.dumps(sorted(work.answers.items()))
    return f"{work.origin}\0{work.name}\0{work.sha256 or _hash(answers)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
