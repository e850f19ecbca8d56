"""A lesson's slides: a Markdown deck made from the learner's version, so that no slide holds an answer."""

from __future__ import annotations

import json

from labkit.lessons.lesson import Cell, Lesson

_BREAK = "\n\n---\n\n"


def deck(lesson: Lesson) -> str | None:
    """Return the deck of a lesson, or None if no cell is tagged ``slide`` or ``slide-only``.

    Slides are parted by ``---``, which Marp, Slidev, reveal.js and pandoc all read. Prose begins a slide; code
    tagged ``slide`` stands below the prose before it.
    """
    slides: list[str] = []
    for cell in lesson.cells:
        if "slide" in cell.tags or cell.role == "slide-only":
            if cell.kind == "code" and slides:
                slides[-1] += f"\n\n{_shown(cell)}"
            else:
                slides.append(_shown(cell))
    if not slides:
        return None
    header = f"---\nmarp: true\npaginate: true\ntitle: {json.dumps(lesson.title, ensure_ascii=False)}\n---\n\n"
    return header + _BREAK.join(slides) + "\n"


def _shown(cell: Cell) -> str:
    text = cell.student_source.strip("\n")
    return text if cell.kind == "markdown" else f"```python\n{text}\n```"
