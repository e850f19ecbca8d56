"""What a room has guessed, from the class board's file, as bars on the slide that shows what came out."""

from __future__ import annotations

import json
import math
import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from labkit.errors import ConfigError

MOST_BARS = 12
_WIDTH, _HEIGHT, _STEP = 720, 120, 60
_FLOOR, _TALL = 96, 56


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
    """Return the guesses as an SVG of at most 12 bars, with a line where what came out falls.

    Args:
        guesses: Numbers, words or flags; as what came out where that is a number.
        result: What came out.
    """
    told = str(result)
    if isinstance(result, int | float) and not isinstance(result, bool):
        numbers = [float(each) for each in guesses if isinstance(each, int | float) and not isinstance(each, bool)]
        bars, at = _bars(numbers, float(result))
        told = f"{result:.3g}"
    else:
        bars = Counter(map(str, guesses)).most_common(MOST_BARS)
        at = next((k + 0.5 for k, (word, _) in enumerate(bars) if word == told), -1.0)
    most = max((count for _, count in bars), default=1)
    left = (_WIDTH - _STEP * len(bars)) / 2
    drawn = []
    for k, (label, count) in enumerate(bars):
        tall = _TALL * count / most
        x = left + _STEP * k
        rect = f'<rect x="{x + 4:g}" y="{_FLOOR - tall:.1f}" width="{_STEP - 8}" height="{max(tall, 1):.1f}"/>'
        number = f'<text x="{x + _STEP / 2:g}" y="{_FLOOR - 5 - tall:.1f}">{count or ""}</text>'
        drawn.append(f'<g>{rect}{number}<text x="{x + _STEP / 2:g}" y="{_HEIGHT - 6}">{escape(label)}</text></g>')
    if at >= 0:
        x = left + _STEP * at
        drawn.append(
            f'<path class="out" d="M{x:g} 20V{_FLOOR}"/><text class="out" x="{x:g}" y="15">{escape(told)}</text>'
        )
    said = f"{len(guesses)} guesses of the room" if len(guesses) != 1 else "1 guess of the room"
    box = f'class="guesses" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{said}"'
    return f"<svg {box}>{''.join(drawn)}</svg>"


def _bars(numbers: Sequence[float], result: float) -> tuple[list[tuple[str, int]], float]:
    """Return label and count of each bar, and where the result falls, in bars from the left: 2.0 is behind the second.

    Each number has its bar where there are few; else bars are equally wide, on a logarithmic axis beyond two decades.
    """
    counts = sorted(Counter(numbers).items())
    if len(counts) <= MOST_BARS:
        values = [value for value, _ in counts]
        at = bisect_left(values, result)
        exact = at < len(values) and values[at] == result
        return [(f"{value:.4g}", count) for value, count in counts], at + (0.5 if exact else 0.0)
    low, high = min([*numbers, result]), max([*numbers, result])
    spread = low > 0 and high / low > 100
    to = math.log10 if spread else float
    width = (to(high) - to(low)) / MOST_BARS

    def place(value: float) -> float:
        return (to(value) - to(low)) / width

    held = Counter(min(MOST_BARS - 1, int(place(number))) for number in numbers)
    begins = [to(low) + width * k for k in range(MOST_BARS)]
    return [(f"{10**each if spread else each:.3g}", held[k]) for k, each in enumerate(begins)], place(result)
