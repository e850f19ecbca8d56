"""What a room has guessed, from the class board's file, as bars on the slide that shows what came out."""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from labkit.errors import ConfigError

MOST_BARS = 12
_WIDTH, _HEIGHT, _STEP = 720, 110, 60


def guesses_on(board: Path) -> dict[str, list[Any]]:
    """Return everybody's guesses, by what is guessed.

    Args:
        board: What was --results of labkit board.

    Raises:
        ConfigError: If it is no board's file.
    """
    try:
        base = sqlite3.connect(f"file:{board}?mode=ro", uri=True)
        try:
            rows = base.execute("SELECT guess, value FROM guess").fetchall()
        finally:
            base.close()
    except sqlite3.Error as error:
        raise ConfigError(f"{board} holds no guesses ({error}); name the file that labkit board wrote") from None
    found: dict[str, list[Any]] = {}
    for guess, value in rows:
        found.setdefault(str(guess), []).append(json.loads(value))
    return found


def histogram(guesses: Sequence[Any], result: Any) -> str:
    """Return the guesses as an SVG of at most 12 bars; the one that holds what came out is marked.

    Args:
        guesses: Numbers, words or flags; as what came out where that is a number.
        result: What came out.
    """
    if isinstance(result, int | float) and not isinstance(result, bool):
        numbers = [float(each) for each in guesses if isinstance(each, int | float) and not isinstance(each, bool)]
        bars, at = _bins(numbers, float(result))
    else:
        counts = Counter(map(str, guesses)).most_common(MOST_BARS)
        bars, at = counts, next((k for k, (word, _) in enumerate(counts) if word == str(result)), -1)
    most = max((count for _, count in bars), default=1)
    left = (_WIDTH - _STEP * len(bars)) / 2
    drawn = []
    for k, (label, count) in enumerate(bars):
        tall = 62 * count / most
        x = left + _STEP * k
        rect = f'<rect x="{x + 4:g}" y="{80 - tall:.1f}" width="{_STEP - 8}" height="{max(tall, 1):.1f}"/>'
        number = f'<text x="{x + _STEP / 2:g}" y="{75 - tall:.1f}">{count or ""}</text>'
        kind = ' class="came-out"' if k == at else ""
        drawn.append(f'<g{kind}>{rect}{number}<text x="{x + _STEP / 2:g}" y="98">{escape(label)}</text></g>')
    said = f"{len(guesses)} guesses of the room" if len(guesses) != 1 else "1 guess of the room"
    box = f'class="guesses" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{said}"'
    return f"<svg {box}>{''.join(drawn)}</svg>"


def _bins(numbers: Sequence[float], result: float) -> tuple[list[tuple[str, int]], int]:
    """Return label and count of each bar, and which holds the result; a logarithmic axis beyond two decades."""
    low, high = min([*numbers, result]), max([*numbers, result])
    spread = low > 0 and high / low > 100
    to = math.log10 if spread else float
    width = (to(high) - to(low)) / MOST_BARS or 1.0

    def place(value: float) -> int:
        return min(MOST_BARS - 1, int((to(value) - to(low)) / width))

    counts = Counter(map(place, numbers))
    begins = [to(low) + width * k for k in range(1 + place(high))]
    return [(f"{10**each if spread else each:.3g}", counts[k]) for k, each in enumerate(begins)], place(result)
