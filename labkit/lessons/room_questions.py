"""What a slide asks the room, on one slide with the picture that it asks about."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from labkit.errors import LessonError

if TYPE_CHECKING:
    from labkit.lessons.presentation import Slide

_FEW_LETTERS = 110
"""Of what a slide says before it asks the room: more keeps a slide of its own."""
_FIRST_FRAME = "<!-- with: first frame -->"
_BESIDE = re.compile(r"<!-- beside: (.+), (.+) -->")
_STARTED = re.compile(r'figure\.start\("(f[0-9a-f]+)",labkit\.storyboard,')


def to_be_found(title: str, slides: list[Slide], shown_here: list[Slide]) -> list[Slide]:
    """Return the slides of a recorded run so that they tell nothing of what is to be found in it.

    A slide before it that asks the room in few words is asked in vain while nothing is seen: it is taken from `slides`,
    and its heading and what it asks stand with the run. So is one that names a run to stand beside it; then the title
    says how long both take.

    Args:
        title: Of the exercise; a run is titled by it where the room is asked nothing.
        slides: Those before it.
        shown_here: Those of the run.
    """
    before = slides[-1].body if slides and slides[-1].kind == "prose" else ""
    named = _BESIDE.search(before)
    if named and len(shown_here) == 1 and shown_here[0].runs:
        run = replace(shown_here[0], notes=_notes(slides.pop(), shown_here[0]))
        return [_with_reference(run, named[1], named[2], slides)]
    heading, rest, question = _asked(before)
    rest = " ".join(rest.split())
    if not question or len(shown_here) != 1 or len(rest) > _FEW_LETTERS or set("|*`$") & set(rest):
        return [replace(slide, title=question or title) for slide in shown_here]
    run = replace(shown_here[0], notes=_notes(slides.pop(), shown_here[0]))
    if not rest:
        return [replace(run, title=question)]
    stop = "" if rest.endswith((".", "!", ":")) else "."
    return [replace(run, title=heading, asks=f"{rest}{stop} **{question}**")]


def ask_with_first_frame(slides: list[Slide], shown_here: Sequence[Slide]) -> None:
    """Let the last of the slides ask the room beside the first frame of the story that comes next, if it says so."""
    if not slides or _FIRST_FRAME not in slides[-1].body or not shown_here:
        return
    story = shown_here[0]
    if started := _STARTED.search(story.body):
        heading, rest, question = _asked(slides[-1].body)
        mark = started[1]
        first = re.sub(r'"begin":\d+', '"begin":0', story.body.replace(mark, f"f0{mark[1:]}"), count=1)
        asks = f"{' '.join(rest.split())} **{question}**"
        slides[-1] = replace(story, body=first, title=heading, asks=asks, notes=_notes(slides[-1]))


def _notes(*slides: Slide) -> list[str]:
    """Return what the speaker says of slides that become one, in their order."""
    return [
        each for slide in slides for each in (*re.findall(r"<!-- notes: (.*?) -->", slide.body, re.S), *slide.notes)
    ]


def _with_reference(slide: Slide, reference: str, name: str, slides: Sequence[Slide]) -> Slide:
    """Return the slide of a recorded run with a run of an earlier comparison above it, on one axis.

    Args:
        slide: Of the run.
        reference: The name of the earlier run.
        name: How the recorded one is called.
        slides: Those before.
    """
    earlier = (run for each in slides if each.runs for run in json.loads(each.runs))
    beside = next((run for run in earlier if run["name"] == reference), None)
    if beside is None:
        raise LessonError(f"A slide asks for the run {reference!r} beside {name!r}, but no slide before it shows one.")
    (own,) = json.loads(slide.runs)
    both = [beside | {"overlay": False}, own | {"name": name}]
    runs = json.dumps(both, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    times = f"{own['span'] / beside['span']:.2g}"
    return replace(slide, title=f"{name[:1].upper()}{name[1:]}: {times} times as long", runs=runs)


def _asked(body: str) -> tuple[str, str, str]:
    """Return a slide's heading, what it says, and the last question that it asks the room; "" if it asks none."""
    said, _, asked = body.partition("**To the room:** ")
    heading, _, rest = said.partition("\n\n")
    questions = re.findall(r"[^.?!]+\?", asked.partition("\n\n")[0])
    question = " ".join(questions[-1].split()) if questions else ""
    return heading.lstrip("# "), rest, question[:1].upper() + question[1:]
