"""No lesson shows what a guess is about before `labkit.reveal` has seen the guess."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest

LESSONS = sorted((Path(__file__).parents[2] / "solutions").glob("*.ipynb"))
BESIDE = {
    "distance_at_end": "the distance without compression",
    "plain_attribute": "the buffer's count",
    "distinct_keys": "how often one key came",
    "hours_between": "how seldom one GPU breaks",
}
"""Guesses whose reveal stands in a cell that prints something else too, and what."""
PICTURES = {"overlapped_step_ms": "the step that is to be made faster"}
"""Guesses with a picture between question and reveal, and of what."""


@dataclass(frozen=True)
class Guess:
    """What is revealed, and all that a reader met between the question and that."""

    id: str
    result: Any
    between: tuple[Any, ...]
    beside: tuple[Any, ...]

    def spoils(self, text: str) -> bool:
        """Return whether a text has the number; whole numbers below ten are everywhere."""
        if isinstance(self.result, bool | str) or (self.result == int(self.result) and abs(self.result) < 10):
            return False
        numbers = [float(found) for found in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\d)", text.replace(",", ""))]
        wanted = (self.result, 100 * self.result) if abs(self.result) < 1 else (self.result,)
        return any(abs(number - value) <= 0.005 * abs(value) for number in numbers for value in wanted)


def texts(cell: Any) -> str:
    put_out = (str(each.get("text", "")) + str(each.get("data", {}).get("text/plain", "")) for each in outputs(cell))
    return (cell.source if cell.cell_type == "markdown" else "") + "\n".join(put_out)


def outputs(cell: Any) -> list[Any]:
    return list(cell.get("outputs", ()))


def guesses(path: Path) -> Iterator[Guess]:
    cells = nbformat.read(path, as_version=4).cells  # type: ignore[no-untyped-call]
    asked: dict[str, int] = {}
    for place, cell in enumerate(cells):
        if cell.cell_type != "code":
            continue
        asked |= dict.fromkeys(re.findall(r'^labkit\.predict\("([^"]+)"', cell.source, re.MULTILINE), place)
        for output in outputs(cell):
            about = output.get("metadata", {}).get("labkit", {})
            if "prediction" in about:
                between = tuple(cells[asked[about["prediction"]] + 1 : place])
                beside = tuple(each for each in outputs(cell) if each is not output)
                yield Guess(about["prediction"], about["result"], between, beside)


@pytest.mark.in_turn
@pytest.mark.parametrize("path", LESSONS, ids=[path.stem for path in LESSONS])
def test_nothing_tells_the_number_between_the_question_and_the_guess(path: Path) -> None:
    found = list(guesses(path))
    assert found
    for guess in found:
        for cell in guess.between:
            if "check" not in cell.metadata.get("tags", ()):
                assert not guess.spoils(texts(cell)), f"{guess.id}: {texts(cell)}"
            if guess.id not in PICTURES:
                assert not any("image/png" in each.get("data", {}) for each in outputs(cell)), guess.id
        assert guess.id in BESIDE or not guess.beside, f"{guess.id}: {guess.beside}"
        assert not any(guess.spoils(str(each.get("text", ""))) for each in guess.beside), guess.id


def test_the_test_sees_what_would_tell() -> None:
    guess = Guess("measured_bubble", 0.25586, (), ())
    assert guess.spoils("five runs: 0.231 0.256 0.281") and guess.spoils("waits 25.6% of the time")
    assert not guess.spoils("the formula says 0.111, 2.56 or 256")
    assert Guess("root_megabytes", 1400, (), ()).spoils("that makes 1,400 MB") and not Guess(
        "ranks_waiting", 3, (), ()
    ).spoils("3 of 4")
