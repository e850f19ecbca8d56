"""Wrong answers that learners really give, with the mistake that a check must name, and right ones in other styles.

They stand in ``wrong.py`` beside an exercise. Tests run them, instructors read them; releases, wheels and sandboxes
leave them out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class WrongAnswer:
    """Source that defines the exercise's functions; everything else of the lesson is right.

    Attributes:
        name: What is wrong, in a few words.
        mistake: Name of the mistake that must be recognised.
        written: Python source, run after the lesson's given and exercise cells; "" for the lesson's answer, changed.
        changes: Each piece of text that is replaced, and by what.
    """

    name: str
    mistake: str
    written: str = ""
    changes: tuple[tuple[str, str], ...] = ()

    def source(self, answer: str) -> str:
        """Return its source, given the lesson's own answer to the exercise."""
        return replaced(self.written or answer, *self.changes)


class WrongAnswers(list[WrongAnswer]):
    """The wrong answers to one exercise, and legal variants: source of right answers, by what is different."""

    def __init__(self) -> None:
        super().__init__()
        self.variants: dict[str, str] = {}

    def wrong(self, name: str, mistake: str, source: str) -> None:
        """Add an answer."""
        self.append(WrongAnswer(name, mistake, source))

    def changed(self, name: str, mistake: str, *changes: tuple[str, str]) -> None:
        """Add the lesson's answer with each of the texts replaced, so that nothing else is wrong."""
        self.append(WrongAnswer(name, mistake, changes=changes))

    def within(self, source: str) -> Callable[[str, str, str], None]:
        """Return a function that adds an answer: this source, with what it is given in place of ``...``, indented."""
        before, _, after = source.partition("...")
        line = before.rpartition("\n")[2]
        indent = "\n" + line[: len(line) - len(line.lstrip())]

        def add(name: str, mistake: str, body: str) -> None:
            self.wrong(name, mistake, before + indent.join(body.strip("\n").splitlines()) + after)

        return add

    def changing(self, source: str) -> Callable[..., None]:
        """Return a function that adds an answer: this source, changed as `changed` changes the lesson's answer."""

        def add(name: str, mistake: str, *changes: tuple[str, str]) -> None:
            self.append(WrongAnswer(name, mistake, source, changes))

        return add

    def right(self, name: str, source: str) -> None:
        """Add a right answer in another style than the lesson's, which a check must let pass."""
        self.variants[name] = source


def replaced(source: str, *changes: tuple[str, str]) -> str:
    """Return the source with each piece of text, which must be there, replaced."""
    for old, new in changes:
        assert old in source, f"the answer has no {old!r}"
        source = source.replace(old, new)
    return source
