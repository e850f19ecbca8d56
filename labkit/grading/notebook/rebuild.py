"""Put a submission's answers into the pristine notebook; nothing else of it counts.

Taken are the cells that answer `exercise` and `design` cells with what they need from elsewhere in the file, the text
of `write` cells, and the literals in `predict`, `find` and `why` cells, by reading their syntax trees. Edited checks,
metadata, outputs and other cells do not matter; they are named.
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

from labkit.cells import calls_shell
from labkit.checks.answer_cell import read_answer
from labkit.checks.question import Literal
from labkit.grading.limits import Limits
from labkit.grading.notebook.literals import sane_answer, take_answer, take_prediction
from labkit.grading.notebook.notebook_format import load_nbformat
from labkit.lessons.found_answers import Asked, Taken, take, where
from labkit.lessons.lesson import CODE_TASKS, TASKS
from labkit.lessons.needed_code import names_made, needed, reached, unread
from labkit.lessons.prediction_cell import PredictionCell
from labkit.lessons.statements import FUTURE, Code, Statement
from labkit.lessons.submitted_cell import SubmittedCell
from labkit.lessons.write_cell import is_unwritten

_MOST_STRAYS = 50
"""Cells without marks that are looked at for the answer to one question."""


@dataclass(frozen=True)
class Rebuilt:
    """A pristine notebook with a student's answers.

    Attributes:
        notebook: nbformat node, without outputs.
        cells: The cells hidden cases are run with: id, name, kind ("given", "needed" for what an answer takes along,
            "exercise") and source.
        predictions: Each prediction that was taken, by its name.
        unchanged: Exercises whose cell is as it was handed out.
        notes: What was left out, was missing or came twice, in sentences for the student.
        answered: What each ``find`` and ``why`` says that was answered, by its exercise's slug.
        written: The text of each ``write`` that was written, by its exercise's slug.
        lost: Of each exercise whose cell was not found as it must be, or that uses what cannot be taken along, where
            that is and what to do, in words.
    """

    notebook: Any
    cells: tuple[Mapping[str, str], ...]
    predictions: Mapping[str, PredictionCell]
    unchanged: tuple[str, ...]
    notes: tuple[str, ...]
    answered: Mapping[str, Mapping[str, Literal]] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)

    def sources(self) -> dict[str, str]:
        """Return what answers each exercise whose functions are run, with what it takes along, by the exercise."""
        found: dict[str, str] = {}
        for cell in self.cells:
            if cell["kind"] != "given":
                earlier = found.get(cell["name"])
                found[cell["name"]] = cell["source"] if earlier is None else f"{earlier.rstrip()}\n\n\n{cell['source']}"
        return found

    def answers(self) -> list[tuple[str, str]]:
        """Return id and source of each cell of the student's that is run: what hidden cases are drawn from."""
        return [(cell["id"], cell["source"]) for cell in self.cells if cell["kind"] != "given"]

    def cells_until(self, exercise: str) -> tuple[Mapping[str, str], ...]:
        """Return the cells down to an exercise's, which a kernel has run when the exercise is checked."""
        places = [
            place for place, cell in enumerate(self.cells) if (cell["name"], cell["kind"]) == (exercise, "exercise")
        ]
        return self.cells[: places[-1] + 1] if places else self.cells


def rebuild(submitted: Sequence[SubmittedCell], pristine: Mapping[str, Any], limits: Limits | None = None) -> Rebuilt:
    """Return the pristine notebook with the answers of `submitted`.

    Args:
        submitted: The cells of the submission.
        pristine: The notebook learners get, as JSON.
        limits: The longest cell that is taken.
    """
    return _Rebuilding(submitted, pristine, limits or Limits()).rebuilt()


class _Rebuilding:
    def __init__(self, submitted: Sequence[SubmittedCell], pristine: Mapping[str, Any], limits: Limits) -> None:
        self.submitted, self.limits = submitted, limits
        self.notebook = load_nbformat().from_dict(copy.deepcopy(dict(pristine)))
        self.code = Code((cell for cell in submitted if cell.kind == "code"), limits.cell_source_bytes)
        self.texts = [cell for cell in submitted if cell.kind in ("markdown", "raw")]
        self.used: set[int] = set()
        self.notes: list[str] = []
        self.cells: list[Mapping[str, str]] = []
        self.predictions: dict[str, PredictionCell] = {}
        self.unchanged: list[str] = []
        self.answered: dict[str, Mapping[str, Literal]] = {}
        self.written: dict[str, str] = {}
        self.lost: dict[str, str] = {}
        self.settled: dict[str, tuple[int, int]] = {}
        self.given: set[str] = set()
        self.asked = _asked(self.notebook)
        self.originals = {cell.source.strip() for cell in self.notebook.cells}
        self._ids = {cell.id for cell in self.notebook.cells}

    def rebuilt(self) -> Rebuilt:
        """Return the notebook, cell by cell."""
        cells = []
        for cell in self.notebook.cells:
            tags = cell.metadata.get("tags", [])
            before: list[Any] = []
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
            asked = self.asked.get(cell.id)
            if asked is not None and asked.task in CODE_TASKS:
                before = self._exercise(asked)
            elif asked is not None:
                self._other(asked)
            elif cell.cell_type == "code" and "predict" in tags:
                take_prediction(cell, self.code.cells, self.used, self.notes, self.predictions)
            elif cell.cell_type == "code":
                self._note_edit(cell, tags)
                if "given" in tags:
                    self.given |= names_made(cell.source)
                    named = {"id": cell.id, "name": f"cell {cell.id}", "kind": "given"}
                    self.cells.append({**named, "source": cell.source})
            cells += [*before, cell]
        self.notebook.cells = cells
        self._note_rest()
        return Rebuilt(
            self.notebook, tuple(self.cells), self.predictions, tuple(self.unchanged), tuple(self.notes), self.answered,
            self.written, self.lost,
        )  # fmt: skip

    # ---- what is run

    def _exercise(self, asked: Asked) -> list[Any]:
        """Fill in an exercise's cell, and return the cells that its answer needs before it."""
        cell = asked.cell
        taken = take(asked, self.code, self._others(asked))
        self.used |= {each.position for each in (*taken.own, *taken.marked)}
        self.used |= {each.position for each in taken.parts}
        if not taken.own and not taken.parts:
            self._lose(asked)
        too_long = [each for each in taken.own if len(each.source.encode()) > self.limits.cell_source_bytes]
        for each in too_long:
            self.notes.append(
                f"Exercise {asked.number}: its cell is {len(each.source) >> 10} KB long; "
                f"the limit is {self.limits.cell_source_bytes >> 10} KB, so it counts as not done."
            )
        sources = [each.source for each in taken.own]
        if taken.parts:
            sources.append("\n".join(each.text for each in taken.parts))
        if too_long or all(source.strip() == cell.source.strip() for source in sources):
            self.unchanged.append(asked.slug)
            self._append(asked, "exercise", cell.id, cell.source)
            return []
        self._note_taken(asked, taken)
        sources[-1] = "\n".join([sources[-1], *self._put_on(asked, taken)])
        along = self._needed(asked, taken)
        before = [*(["\n\n".join(each.text for each in along)] if along else []), *sources[:-1]]
        for place, source in enumerate(before):
            self._append(asked, "needed", f"{cell.id}-{place}", source)
        self._append(asked, "exercise", cell.id, sources[-1])
        cell.source = sources[-1]
        added = [self._added(cell, place, source) for place, source in enumerate(before)]
        for each in (*added, cell):
            self.notes += [f"Exercise {asked.number}: {words}" for words in _without_shell(each)]
        return added

    def _others(self, asked: Asked) -> set[int]:
        """Return the places of cells that are not this exercise's alone: handed out for something else, or used."""
        others = set(self.used)
        for each in self.code.cells:
            of_another = each.exercise not in ("", asked.slug) and not set(CODE_TASKS).isdisjoint(each.tags)
            if of_another or (each.id in self._ids and each.id != asked.cell.id):
                others.add(each.position)
        return others

    def _needed(self, asked: Asked, taken: Taken) -> list[Statement]:
        """Return the statements of other cells that an answer needs, and remember what runs."""
        own = [statement for each in taken.own for statement in self.code.of(each)] + list(taken.parts)
        _, names = reached(asked.provides, own)
        names |= {FUTURE} - {name for each in own for name in each.binds}
        earlier = {name for each in self.asked.values() if each.slug in self._placed() for name in each.provides}
        found = needed(names, self.code, taken.check, self.settled, self.given | earlier | set(asked.provides))
        found = [each for each in found if each not in own]
        uses = names.union(*(each.uses for each in (*found, *own)))
        self._note_unread(asked, uses, self.given | {name for each in self.asked.values() for name in each.provides})
        for each in (*found, *own):
            self.settled |= dict.fromkeys(each.binds, each.order)
        self.used |= {each.position for each in found}
        if found:
            places = ", ".join(map(str, sorted({each.position for each in found})))
            self.notes.append(f"Exercise {asked.number}: what it needs of cell {places} of your file was taken along.")
        return found

    def _note_unread(self, asked: Asked, uses: set[str], there: set[str]) -> None:
        """Say which names and modules an answer uses that cannot be taken along."""
        missing, computed = unread(uses - {FUTURE}, self.code, there)
        modules = [each.strip("<>") for each in missing if each.startswith("<")]
        words = []
        if modules := [each for each in modules if each not in sys.modules and find_spec(each) is None]:
            words.append(
                f"it imports {', '.join(modules)}, which no cell writes and which is not installed where notebooks are "
                "graded; put that code into a cell and hand in again"
            )
        if computed and (names := [each for each in missing if not each.startswith("<")]):
            words.append(
                f"it uses {', '.join(names)}, which no cell makes in a way that is taken along "
                f"(cell {', '.join(map(str, computed))} of the file runs a text or writes a file); "
                f"write `{names[0]} = ...` in a cell and hand in again"
            )
        if words:
            self.lost[asked.slug] = "; ".join(words)
            self.notes.append(f"Exercise {asked.number}: {self.lost[asked.slug]}.")

    def _put_on(self, asked: Asked, taken: Taken) -> list[str]:
        """Return what other cells above the check put on an answer, ``ring_sum.calls = 0``."""
        own = {each.position for each in taken.own} | {each.position for each in taken.parts}
        put_on = [
            each
            for each in self.code.all()
            if each.fills & set(asked.provides) and each.position not in own and each.position < taken.check
        ]
        self.used |= {each.position for each in put_on}
        return [each.text for each in put_on]

    def _placed(self) -> set[str]:
        return {cell["name"] for cell in self.cells if cell["kind"] == "exercise"}

    def _append(self, asked: Asked, kind: str, identity: str, source: str) -> None:
        self.cells.append({"id": identity, "name": asked.slug, "kind": kind, "source": source})

    @staticmethod
    def _added(cell: Any, place: int, source: str) -> Any:
        added = copy.deepcopy(cell)
        added.id, added.source, added.metadata = f"{cell.id}-{place}"[-64:], source, {}
        return added

    def _note_taken(self, asked: Asked, taken: Taken) -> None:
        marked = {each.position for each in taken.marked}
        if new := [str(each.position) for each in taken.own if each.position not in marked]:
            cells = f"cell {', '.join(new)} of your file was"
            self.notes.append(f"Exercise {asked.number}: {cells} taken, by what it holds: it has no marks.")
        if taken.parts:
            names = ", ".join(sorted({name for each in taken.parts for name in each.binds}))
            place = taken.parts[0].position
            self.notes.append(f"Exercise {asked.number}: {names} was taken out of cell {place} of your file.")
        left = marked - {each.position for each in taken.own}
        if len(marked) > 1 and left and len(left) < len(marked):
            kept = next(each.position for each in taken.own if each.position in marked)
            self.notes.append(
                f"Exercise {asked.number} has more than one cell; cell {kept} was taken, "
                f"not cell {', '.join(map(str, sorted(left)))} of the file."
            )

    def _lose(self, asked: Asked) -> None:
        self.lost[asked.slug] = where(self.submitted, asked)
        self.notes.append(f"Exercise {asked.number}: {self.lost[asked.slug]}, so it counts as not done.")

    # ---- what is read

    def _other(self, asked: Asked) -> None:
        """Take the literals or the text that answer an exercise of which nothing runs."""
        cell = asked.cell
        among = self.texts if asked.task == "write" else self.code.cells
        found = [each for each in among if asked.marks(each)]
        if asked.task != "write":
            named = [each for each in self._strays() if asked.slug in each.source][:_MOST_STRAYS]
            found += [each for each in named if sane_answer(each.source, asked.slug)]
        if not found:
            self._lose(asked)
            self.unchanged.append(asked.slug)
            return
        self.used |= {each.position for each in found}
        taken = next((each for each in found if _says_something(each, asked)), found[0])
        if asked.task == "write" and (below := self._below(taken)):
            self.used |= {each.position for each in below}
            own = [taken] if _says_something(taken, asked) else []
            text = "\n\n".join(each.source.strip() for each in (*own, *below))
            taken = replace(taken, source=text[: self.limits.cell_source_bytes])
            places = ", ".join(str(each.position) for each in below)
            self.notes.append(f"Exercise {asked.number}: the text of cell {places} below its own was taken along.")
        if len(found) > 1:
            others = ", ".join(str(each.position) for each in found if each is not taken)
            self.notes.append(
                f"Exercise {asked.number} has more than one cell; "
                f"cell {taken.position} was taken, not cell {others} of the file."
            )
        if not _says_something(taken, asked):
            self.unchanged.append(asked.slug)
        elif asked.task == "write":
            self.written[asked.slug] = cell.source = taken.source
        else:
            take_answer(cell, asked.slug, asked.number, taken.source, self.answered, self.unchanged, self.notes)

    def _below(self, cell: SubmittedCell) -> list[SubmittedCell]:
        """Return the new cells of text right below a cell: a learner went on there, or left the cell as it was."""
        at = next(place for place, each in enumerate(self.submitted) if each is cell)
        new = []
        for each in self.submitted[at + 1 :]:
            known = each.id in self._ids or each.exercise or each.source.strip() in self.originals
            if known or each.kind != "markdown":
                break
            new.append(each)
        return [each for each in new if each.source.strip()]

    def _strays(self) -> list[SubmittedCell]:
        """Return the code cells that say nowhere what they are: a tool dropped ids and metadata, or they are new."""
        return [each for each in self.code.cells if not each.exercise and each.id not in self._ids]

    # ---- what is told

    def _note_edit(self, cell: Any, tags: Sequence[str]) -> None:
        found = [each for each in self.code.cells if each.id == cell.id]
        if found and found[0].source.strip() != cell.source.strip():
            kind = next((tag for tag in ("check", "given", "figure") if tag in tags), "")
            self.notes.append(
                f"The {kind + ' ' if kind else ''}cell {cell.id} was changed (it begins "
                f"{_first_line(found[0].source)!r}); grading uses the original. Only exercise cells are taken."
            )
        self.used |= {each.position for each in found}

    def _note_rest(self) -> None:
        for each in self.code.cells:
            if each.position not in self.used and each.source.strip() and each.source.strip() not in self.originals:
                self.notes.append(_left_out(each))


def _asked(notebook: Any) -> dict[str, Asked]:
    """Return the exercises of a notebook by the id of their cell."""
    manifest = {each["id"]: each for each in notebook.metadata.get("labkit", {}).get("exercises", [])}
    found = {}
    for cell in notebook.cells:
        task = next((tag for tag in cell.metadata.get("tags", []) if tag in TASKS), None)
        if task is not None:
            slug = str(cell.metadata.labkit.exercise)
            about = manifest.get(slug, {})
            provides = tuple(about.get("provides", ()))
            found[cell.id] = Asked(cell, slug, str(about.get("number") or slug), task, provides)
    return found


def _says_something(cell: SubmittedCell, asked: Asked) -> bool:
    """Return whether a cell differs from what was handed out and is not empty."""
    if cell.source.strip() == asked.cell.source.strip():
        return False
    if asked.task == "write":
        return not is_unwritten(cell.source)
    read = read_answer(cell.source, asked.slug)
    return read is None or not read.is_empty


def _without_shell(cell: Any) -> list[str]:
    """Let a cell start no program in the notebook that is run, and return what is told of that."""
    try:
        ast.parse(cell.source)
        return []
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        lines = cell.source.splitlines(keepends=True)
    calls = [line.strip() for line in lines if calls_shell(line)]
    cell.source = "".join(f"# {line}" if calls_shell(line) else line for line in lines)
    return [
        f"`{call[:60]}` did nothing: where notebooks are graded there is no shell and no network." for call in calls
    ]


def _left_out(cell: SubmittedCell) -> str:
    begins = f"Cell {cell.position} of your file (it begins {_first_line(cell.source)!r})"
    if set(cell.tags) & {"given", "check", "predict", "parameters", "figure"}:
        return f"{begins} differs from the notebook that is graded; grading uses the original."
    return f"{begins} was left out: it is not one of the notebook's exercise cells, and no answer needs it."


def _first_line(source: str) -> str:
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    return lines[0][:60] if lines else ""
