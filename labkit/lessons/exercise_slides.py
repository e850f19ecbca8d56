"""What stands on the slide of an exercise, and what its speaker says of it."""

from __future__ import annotations

import ast
import re

from labkit.lessons.lesson import Cell, Lesson

_NOTEBOOKS = re.compile(
    r"(?:^|(?<= ))(?:If you work alone,|Hover over|Zoom into|Answer in two to five sentences)(?:`[^`]*`|[^.?`])*[.?] ?"
)

_SHORT = 100
"""Letters of a sentence that takes two lines of a slide."""

_HALF = 90
"""Letters of what one of several functions does: of more, a room reads the first clause, and its speaker has all."""

_CALL = 46
"""Letters of how one of two functions is called that stand in one line; of a longer call the room reads the name."""

_ASIDE = re.compile(r" \([^()]{,45}\)(?=[ ,.;:?]|$)")
"""How to write what is asked for by name, in brackets: one reads it where one writes."""


def task_of(lesson: Lesson, cell: Cell, prose: str) -> str:
    """Return the slide of an exercise: what each function does, or the question that stands above an answer."""
    exercise = next(each for each in lesson.exercises if each.id == cell.exercise)
    points = f" · {exercise.points} points" if exercise.points else ""
    calls = _calls(cell) if len(exercise.provides) < 3 else {}
    said = {name: text.split("\n")[0] for name, text in _docstrings(cell).items()}
    if len(exercise.provides) > 1:
        said = {name: _brief(text) for name, text in said.items()}
        calls = {name: call if len(call) <= _CALL else f"{name}(…)" for name, call in calls.items()}
    after = "\\\n  " if len(exercise.provides) < 3 else ": "  # three names have no room for lines of their own
    listed = ((calls.get(name, name), said.get(name, "")) for name in exercise.provides)
    functions = "\n".join(f"* `{call}`{after}{does}".rstrip("\\\n: ") for call, does in listed)
    functions += _more(cell, said) if len(exercise.provides) == 1 else ""
    asked = functions or _listed(_asking(prose))
    minutes = f"{exercise.minutes} minute{'s' if exercise.minutes != 1 else ''}"
    return (
        f"### {'Bonus' if exercise.bonus else 'Your turn'}: {exercise.number} {exercise.title}\n\n{asked}\n\n"
        f"**{minutes}**{points} · difficulty {exercise.difficulty} of 5"
    )


def _brief(text: str) -> str:
    """Return what one of several functions does, so short that each has two lines."""
    clause = re.split(r"[;:] ", text)[0] if len(text) > _HALF else text
    return clause.rstrip(".") + "." * bool(text)


def _more(cell: Cell, said: dict[str, str]) -> str:
    """Return the next sentence of a docstring whose first line leaves room for it, as it follows there; else ""."""
    ((name, text),) = _docstrings(cell).items() or (("", ""),)
    paragraph = " ".join(
        re.split(r"\n(?:Args|Returns|Raises):", text.partition("\n")[2])[0].strip().partition("\n\n")[0].split()
    )
    sentence = re.match(r"[^`]*?[.](?= [A-Z]|$)", paragraph)
    is_short = sentence and len(said[name]) <= _SHORT and len(sentence[0]) <= _SHORT
    return f" {sentence[0]}" if sentence and is_short else ""


def _asking(prose: str) -> str:
    """Return the paragraph that asks: the last one that says what is answered by name, or the last."""
    paragraphs = prose.strip().split("\n\n")
    named = [each for each in paragraphs if re.search(r"`\w+`: ", each)]
    return (named or paragraphs)[-1]


def _listed(question: str) -> str:
    """Return a question as a room reads it, what it asks for by name as a list.

    Without its number, which the title has; without what one does in a notebook; and answers to choose from are words.
    """
    asked = re.sub(r"^\*\*\d+\.\d+\.\*\* ", "", " ".join(question.split()))
    asked = _NOTEBOOKS.sub("", asked)
    asked = re.sub(r"`\"([^`\"]+)\"`", r"*\1*", asked)
    first, *named = re.split(r"(?:^|\s)(?=`\w+`: )", asked)
    told = "\n* ".join([first, *(_ASIDE.sub("", each) for each in named)]).strip()
    before, mark, _ = told.rpartition("?")
    return before + mark if mark and named else told  # what one reads in a notebook follows there


def told_of(cell: Cell) -> list[str]:
    """Return what the docstrings of an exercise say beyond the line on its slide; of several functions, all of it."""
    said = _docstrings(cell)
    texts = ((name, (text if len(said) > 1 else text.partition("\n")[2]).strip()) for name, text in said.items())
    return [f"`{name}`\n\n```text\n{text}\n```" for name, text in texts if text]


def _calls(cell: Cell) -> dict[str, str]:
    """Return how each function of an exercise is called: "chunk_bounds(size, num_chunks)"."""
    parsed = ast.parse(cell.student_source).body if cell.is_code_exercise else []
    nodes = (node for node in parsed if isinstance(node, ast.FunctionDef))
    return {node.name: f"{node.name}({', '.join(each.arg for each in node.args.args)})" for node in nodes}


def _docstrings(cell: Cell) -> dict[str, str]:
    nodes = ast.parse(cell.student_source).body if cell.is_code_exercise else []
    return {
        node.name: ast.get_docstring(node) or "" for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
