"""The staleness view: how old the weights were that each gradient of a parameter server was made with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from labkit.errors import ConfigError
from labkit.plans.server_runs import ServerRun, read_runs
from labkit.plans.staleness import Update, ahead_of, losses, simulate
from labkit.units import format_percent
from labkit.widgets.colours import between
from labkit.widgets.explorer import Explorer
from labkit.widgets.language import DASHES, FRESH, LIGHT, SERIES, STALE
from labkit.widgets.line_names import Ending, names_at
from labkit.widgets.scene import GREY, INK, RED, Line, Mark, Rect, Scene, Text

COLOURS = (INK, *SERIES)
_LEAST_LOSS, _MOST_LOSS = 1e-4, 1e4
_SHOWN = 60  # updates of the simulation
_BOUNDS = ("sync", 0, 1, 2, 4, 8, "delay 2", "delay 4", "delay 8", "async")
_DIVISORS = ("nothing", "workers", "staleness")
_DROPS = (None, 0, 1, 2, 4, 8)
_LAWS = ("equal", "±25 %", "exponential")
_WIDTH, _LEFT, _RIGHT = 760, 74, 130


def staleness_view(
    updates: Any = None,
    *,
    bound: int | str | None = None,
    num_workers: int = 4,
    straggler: float = 3.0,
    delay: float = 0.1,
    lr: float = 1.0,
    divided: str = "workers",
    drop: int | None = None,
    law: str = "±25 %",
    num_bytes: float | None = None,
    seed: int = 0,
) -> Explorer:
    """Return a figure of a parameter server's updates: who read which version, what was dropped, who waited.

    Where losses are known, they are drawn against time and against updates, of all runs on one axis. The simulation
    compares its policy with a synchronous, a bounded and an asynchronous server. Staleness counts versions; a bound
    counts pushes, so the figure holds against it how far ahead of the slowest a worker was when it began a gradient.
    (Of N workers bounded by s, each of the others pushes at most 2s + 1 times while one computes: a staleness of up to
    (N - 1)(2s + 1).) Bounded delay d counts the gradients of all workers instead, and holds staleness itself down, to
    d + min(d, N - 1).

    Args:
        updates: What a run left behind, or a mapping of names to runs: what labkit.run returned; an object with
            `updates` and, if known, `seen` with seconds, version and loss; or records with worker, version_read,
            version_applied and, if known, start, end, dropped, sequence and, of compressed gradients, the norms error
            and residual, which are then drawn under the staleness; or lesson 06's (sequence, worker, version_read,
            version_applied). Numbers missing from the sequence are marked in red. None: a simulation with sliders.
        bound: The server's policy. How many pushes a worker may be ahead of the slowest: 0, 1, 2, 4 or 8 (stale
            synchronous parallel, Ho et al. 2013); "delay 2", "delay 4" or "delay 8": no gradient is begun before all
            are in that were begun more than so many before it (bounded delay, Li et al. 2014); "async" or "sync". With
            updates any whole number, which is held against what happened.
        num_workers: Workers of the simulation, 1 to 8.
        straggler: How many times slower worker 0 is in the simulation, 1 to 8.
        delay: Delay of the simulated network, in computing times.
        lr: Learning rate of the simulation; a synchronous server applies it to the mean of all gradients.
        divided: By what the rate of a single gradient is divided: "nothing", "workers" or "staleness".
        drop: Gradients staler than this are dropped by the simulated server: 0, 1, 2, 4 or 8; None: none is.
        law: Distribution of the simulated computing times: "equal", "±25 %" or "exponential".
        num_bytes: Size of the weights, to count what is pulled and pushed; 4 MB in the simulation.
        seed: Seed of the simulation.

    Raises:
        ConfigError: If there are no updates or more than 400, or something is not a record.
    """
    data: dict[str, Any]
    if updates is None:
        bound = "async" if bound is None else bound
        _refuse(bound, num_workers, divided, drop, law)
        runs = _simulated(bound, num_workers, straggler, delay, lr, divided, drop, law, seed)
        data = {"source": "simulated", "bound": bound, "workers": num_workers, "straggler": straggler}
        data |= {"delay": delay, "lr": lr, "divided": divided, "seed": seed, "law": law}
        data |= {"drop": "–" if drop is None else drop, "size": num_bytes or 4e6}
    else:
        runs = read_runs(updates)
        given = {"bound": bound} if isinstance(bound, int) else {}
        data = {"source": f"{len(runs[0].updates)} gradients of a run", "runs": [run.as_data() | given for run in runs]}
        if len(runs) > 1:
            data["source"] = f"{len(runs)} runs"
        data |= {"size": num_bytes} if num_bytes else {}
    late = delay if updates is None else 0.0
    numbers = {run.name: _numbers(run, late) for run in runs}
    numbers = numbers[runs[0].name] | {"runs": numbers}
    sentence = _sentence(runs[0], late)
    if updates is not None:
        sentence += "".join(f" {run.name}: {_sentence(run)}" for run in runs[1:])
    scene = _still(runs, sentence)
    return Explorer(sentence, numbers, "staleness_view.js", "stalenessView", data, scene)


def _refuse(bound: int | str, num_workers: int, divided: str, drop: int | None, law: str) -> None:
    """Raise ConfigError for what the simulation does not have."""
    if bound not in _BOUNDS or not 1 <= num_workers <= 8:
        raise ConfigError(
            f"bound={bound!r} with {num_workers} workers was asked for; the simulation has 1 to 8 workers and "
            f"bounds {', '.join(map(repr, _BOUNDS))}."
        )
    if divided not in _DIVISORS:
        raise ConfigError(f"divided={divided!r} is not known; use one of {', '.join(map(repr, _DIVISORS))}.")
    if drop not in _DROPS or law not in _LAWS:
        raise ConfigError(
            f"drop={drop!r} and law={law!r} were asked for; drop is one of {', '.join(map(repr, _DROPS))}, and law "
            f"one of {', '.join(map(repr, _LAWS))}."
        )


def _simulated(
    bound: int | str,
    num_workers: int,
    straggler: float,
    delay: float,
    lr: float,
    divided: str,
    drop: int | None,
    law: str,
    seed: int,
) -> list[ServerRun]:
    """Return the simulated run of a policy, and those it is compared with, which end when it does."""
    runs: list[ServerRun] = []
    for each in dict.fromkeys((bound, "sync", 2, "async")):
        count = _SHOWN if each == bound else 4 * _SHOWN
        made = tuple(simulate(num_workers, each, straggler, delay, seed, count, drop, law))
        found = losses(made, num_workers, lr, seed, divided)
        end = runs[0].updates[-1].end if runs else made[-1].end
        runs.append(ServerRun(_name(each), made, True, tuple(point for point in found if point[0] <= end)))
    return runs


def _name(bound: int | str) -> str:
    names = {"sync": "synchronous", "async": "asynchronous"}
    return f"≤ {bound} ahead" if isinstance(bound, int) else names.get(bound, bound)


def _numbers(run: ServerRun, delay: float = 0.0) -> dict[str, Any]:
    applied = [update for update in run.updates if not update.dropped]
    stale = sorted(update.staleness for update in applied)
    numbers: dict[str, Any] = {"mean": sum(stale) / len(stale), "most": stale[-1]}
    numbers |= {"p95": stale[math.ceil(0.95 * len(stale)) - 1], "ahead": max(ahead_of(run.updates))}
    numbers |= {"dropped": len(run.updates) - len(applied), "missing": [numbers for _, numbers in run.gaps]}
    if run.timed:
        numbers["waiting"] = waiting_share(run.updates, delay)
    if run.losses:
        numbers["loss"] = run.losses[-1][2]
    return numbers


def _sentence(run: ServerRun, delay: float = 0.0) -> str:
    numbers, updates = _numbers(run, delay), run.updates
    told = f"; {numbers['dropped']} gradients dropped" if numbers["dropped"] else ""
    told += f"; workers wait {format_percent(numbers['waiting'])} of the time" if run.timed else ""
    told += f"; loss {numbers['loss']:.3g} at the end" if run.losses else ""
    sentence = (
        f"{len(updates) - numbers['dropped']} updates of {1 + max(u.worker for u in updates)} workers: mean staleness "
        f"{numbers['mean']:.2f}, at most {numbers['most']}{told}."
    )
    if numbers["missing"]:
        sentence += f" The record lacks update {', '.join(numbers['missing'])}."
    if wrong := [(k, update) for k, update in enumerate(updates) if update.staleness < 0]:
        number, update = wrong[0]
        sentence += f" Update {number} of worker {update.worker} read version {update.version_read} but was applied to "
        sentence += f"version {update.version_applied}."
    return sentence


def waiting_share(updates: Sequence[Update], delay: float = 0.0) -> float:
    """Return the share of the workers' time, up to the last update of each, in which they neither compute nor send.

    Args:
        updates: With their times.
        delay: How long a worker's pull before each gradient but its first lasts; a push is a part of its gradient.
    """
    last = {update.worker: update.end for update in sorted(updates, key=lambda update: update.end)}
    whole = sum(last.values())
    busy = sum(update.end - update.start + (delay if update.start else 0.0) for update in updates)
    return max(1 - busy / whole, 0.0) if whole else 0.0


def _claim(run: ServerRun) -> str:
    """Return how old the gradients are that were applied."""
    applied = [update.staleness for update in run.updates if not update.dropped]
    name = run.name[0].upper() + run.name[1:]
    if not applied:
        return f"{name}: nothing applied yet"
    return f"{name}: a gradient is {sum(applied) / len(applied):.1f} updates old on average, {max(applied)} at most"


def _still(runs: Sequence[ServerRun], sentence: str) -> Scene:
    updates = runs[0].updates
    applied = [update for update in updates if not update.dropped]
    workers, end = 1 + max(u.worker for u in updates), max(u.end for u in updates) or 1.0
    most, wide, top = max([1, *(u.staleness for u in applied)]), _WIDTH - _LEFT - _RIGHT, 40

    def x(time: float) -> float:
        return _LEFT + time / end * wide

    marks: list[Mark] = [Text(10, 20, _claim(runs[0]), 14, bold=True), Text(10, top + 8, "server", 11)]
    marks.append(Line(((_LEFT, top + 4), (_LEFT + wide, top + 4)), GREY))
    marks += [Line(((x(u.end), top - 2), (x(u.end), top + 10)), INK) for u in applied]
    marks += [Line(((x(time), top - 9), (x(time), top + 17)), RED, 3, dashed=True) for time, _ in runs[0].gaps]
    marks += [Text(10, top + 34 + 24 * worker, f"worker {worker}", 11) for worker in range(workers)]
    for update in updates:
        left, width, y = x(update.start), x(update.end) - x(update.start), top + 20 + 24 * update.worker
        fill = LIGHT["blocked"] if update.dropped else between(FRESH, STALE, update.staleness / most)
        word = "✗" if update.dropped else str(update.staleness)
        wrong = update.staleness < 0
        marks.append(Rect(left, y, width, 19, fill, RED if wrong else INK, 2 if wrong else 0.6))
        if width > 13:
            marks.append(Text(left + width / 2, y + 14, word, 10, "middle", on=fill))
    counts = Counter(update.staleness for update in applied)
    tall = min(18.0, (workers * 24 + 20) / (most + 1))
    marks.append(Text(_WIDTH - _RIGHT + 20, top - 8, "with staleness", 10.5))
    for value in range(most + 1):
        below, length = top + value * tall, 60 * counts[value] / max(counts.values())
        marks.append(Rect(_WIDTH - _RIGHT + 38, below, length, tall - 2, between(FRESH, STALE, value / most), INK, 0.6))
        if tall > 10:
            marks.append(Text(_WIDTH - _RIGHT + 32, below + tall / 2 + 3, str(value), 10, "end"))
            marks.append(Text(_WIDTH - _RIGHT + 42 + length, below + tall / 2 + 3, str(counts[value]), 10))
    bottom = top + 20 + 24 * workers + 18
    if curves := [run for run in runs if run.losses]:
        marks += _curves(curves, bottom + 12)
        bottom += 158
    for piece in wrap(sentence, 124):
        marks.append(Text(10, bottom, piece, 11, fill=GREY))
        bottom += 15
    return Scene(_WIDTH, bottom, tuple(marks))


def _curves(runs: Sequence[ServerRun], top: float) -> list[Mark]:
    """Return the runs' losses against time, 100 pixels high, on a logarithmic scale."""
    every = [point for run in runs for point in run.losses if 0 < point[2] < _MOST_LOSS]
    end = max((time for time, _, _ in every), default=1.0) or 1.0
    logs = [math.log10(max(loss, _LEAST_LOSS)) for _, _, loss in every] or [0.0]
    low, span = min(logs), max(max(logs) - min(logs), 1.0)
    wide = _WIDTH - _LEFT - _RIGHT
    marks: list[Mark] = [
        Text(10, top + 12, "loss", 11),
        Text(_LEFT - 6, top + 14, f"{10 ** (low + span):.2g}", 10, "end"),
        Text(_LEFT - 6, top + 110, f"{10**low:.2g}", 10, "end"),
        Text(_LEFT + wide, top + 124, f"time {end:.3g}", 10, "end", GREY),
        Line(((_LEFT, top + 110), (_LEFT + wide, top + 110)), INK),
    ]
    endings: list[Ending] = []
    for place, run in enumerate(runs):
        colour, dash, points = COLOURS[place % 8], DASHES[place % 8], []
        for time, _, loss in run.losses:
            high = min(max((math.log10(max(loss, _LEAST_LOSS)) - low) / span, 0.0), 1.0) if loss < _MOST_LOSS else 1.0
            points.append((_LEFT + time / end * wide, top + 110 - 100 * high))
        marks.append(Line(tuple(points), colour, 3 if place == 0 else 2, dash=dash))
        if points:
            endings.append(Ending(run.name[:14], points[-1][1], colour, dash))
    return marks + names_at(endings, _LEFT + wide, top + 4, top + 110)
