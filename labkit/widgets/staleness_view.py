"""The staleness view: how old the weights were that each gradient of a parameter server was made with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from labkit.errors import ConfigError
from labkit.widgets.explorer import Explorer
from labkit.widgets.scene import GREY, INK, RED, Line, Mark, Rect, Scene, Text, between, ink_on
from labkit.widgets.staleness import Update, are_timed, simulate, updates_of

_MOST_UPDATES = 400
_BOUNDS = ("sync", 0, 1, 2, 4, 8, "async")
_WIDTH, _LEFT, _RIGHT = 760, 74, 130


def staleness_view(
    updates: Sequence[Any] | None = None,
    *,
    bound: int | str | None = None,
    num_workers: int = 4,
    straggler: float = 3.0,
    delay: float = 0.1,
    seed: int = 0,
) -> Explorer:
    """Return a figure of a parameter server's updates: who read which version, what was missed, who waited.

    Args:
        updates: Records of a run with worker, version_read, version_applied and, if known, start and end; or lesson
            04's (sequence, worker, version_read, version_applied). None: a simulation with sliders.
        bound: How many pushes a worker may be ahead of the slowest: 0, 1, 2, 4 or 8, "async" or "sync". With updates
            any whole number, which is held against what happened.
        num_workers: Of the simulation, 1 to 8.
        straggler: How many times slower worker 0 is in the simulation, 1 to 8.
        delay: Of the simulated network, in computing times.
        seed: Of the simulation.

    Raises:
        ConfigError: If there are no updates or more than 400, or a record is none.
    """
    data: dict[str, Any]
    if updates is None:
        bound = "async" if bound is None else bound
        if bound not in _BOUNDS or not 1 <= num_workers <= 8:
            raise ConfigError(
                f"bound={bound!r} with {num_workers} workers was asked for; the simulation has 1 to 8 workers and "
                f"bounds {', '.join(map(repr, _BOUNDS))}."
            )
        found = simulate(num_workers, bound, straggler, delay, seed)
        data = {"source": "simulated", "bound": bound, "workers": num_workers, "straggler": straggler}
        data |= {"delay": delay, "seed": seed}
    else:
        found = updates_of(updates)
        rows = [[u.worker, u.version_read, u.version_applied, _short(u.start), _short(u.end)] for u in found]
        data = {"source": f"{len(found)} updates of a run", "updates": rows}
        data |= {"bound": bound} if isinstance(bound, int) else {}
        data["timed"] = are_timed(updates)
    if not 0 < len(found) <= _MOST_UPDATES:
        raise ConfigError(f"{len(found)} updates were given; 1 to {_MOST_UPDATES} are shown.")
    stale = [update.staleness for update in found]
    numbers = {"mean": sum(stale) / len(stale), "most": max(stale)}
    told = ""
    if data.get("timed", True):
        numbers["waiting"] = waiting_share(found)
        told = f"; workers wait {numbers['waiting']:.0%} of the time"
    sentence = (
        f"{len(found)} updates of {1 + max(u.worker for u in found)} workers: staleness {numbers['mean']:.2f} in the "
        f"mean, {numbers['most']} at most{told}."
    )
    if wrong := [(k, update) for k, update in enumerate(found) if update.staleness < 0]:
        number, update = wrong[0]
        sentence += f" Update {number} of worker {update.worker} read version {update.version_read} but was applied to "
        sentence += f"version {update.version_applied}."
    return Explorer(sentence, numbers, "staleness_view.js", "stalenessView", data, _still(found, sentence))


def waiting_share(updates: Sequence[Update]) -> float:
    """Return the share of the workers' time, up to the last update of each, in which they have nothing to compute."""
    last = {update.worker: update.end for update in sorted(updates, key=lambda update: update.end)}
    whole = sum(last.values())
    return 1 - sum(update.end - update.start for update in updates) / whole if whole else 0.0


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _still(updates: Sequence[Update], sentence: str) -> Scene:
    workers, end = 1 + max(u.worker for u in updates), max(u.end for u in updates) or 1.0
    most, wide, top = max(1, *(u.staleness for u in updates)), _WIDTH - _LEFT - _RIGHT, 40

    def x(time: float) -> float:
        return _LEFT + time / end * wide

    marks: list[Mark] = [Text(10, 20, "Staleness of each update", 14, bold=True), Text(10, top + 8, "server", 11)]
    marks.append(Line(((_LEFT, top + 4), (_LEFT + wide, top + 4)), GREY))
    marks += [Line(((x(u.end), top - 2), (x(u.end), top + 10)), INK) for u in updates]
    marks += [Text(10, top + 34 + 24 * worker, f"worker {worker}", 11) for worker in range(workers)]
    for update in updates:
        left, width, y = x(update.start), x(update.end) - x(update.start), top + 20 + 24 * update.worker
        fill = between("#fff0d9", "#8c2d04", update.staleness / most)
        wrong = update.staleness < 0
        marks.append(Rect(left, y, width, 19, fill, RED if wrong else INK, 2 if wrong else 0.6))
        if width > 13:
            marks.append(Text(left + width / 2, y + 14, str(update.staleness), 10, "middle", ink_on(fill)))
    counts = Counter(update.staleness for update in updates)
    tall = min(18.0, (workers * 24 + 20) / (most + 1))
    marks.append(Text(_WIDTH - _RIGHT + 20, top - 8, "with staleness", 10.5))
    for value in range(most + 1):
        below, length = top + value * tall, 60 * counts[value] / max(counts.values())
        marks.append(
            Rect(_WIDTH - _RIGHT + 38, below, length, tall - 2, between("#fff0d9", "#8c2d04", value / most), INK, 0.6)
        )
        if tall > 10:
            marks.append(Text(_WIDTH - _RIGHT + 32, below + tall / 2 + 3, str(value), 10, "end"))
            marks.append(Text(_WIDTH - _RIGHT + 42 + length, below + tall / 2 + 3, str(counts[value]), 10))
    bottom = top + 20 + 24 * workers + 18
    marks.append(Text(10, bottom, sentence[:125], 11, fill=GREY))
    return Scene(_WIDTH, bottom + 12, tuple(marks))
