"""The ring player: who sends which chunk in which step, and what every rank then holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labkit.errors import ConfigError
from labkit.plans.all_reduce import execute
from labkit.plans.all_reduce_facts import Outcome
from labkit.plans.all_reduce_plan import Fault
from labkit.plans.reference.rings import ring_plan
from labkit.plans.watched_ring import Watched, message_times, watched_ring
from labkit.timeline.timeline import Timeline
from labkit.widgets.colours import between
from labkit.widgets.explorer import Explorer
from labkit.widgets.language import LIGHT, letter, tint
from labkit.widgets.scene import GREY, INK, RED, Mark, Rect, Scene, Text

_MOST_RANKS, _MOST_OF_A_PLAN, _MOST_CHUNKS = 16, 8, 16
_WIDTH, _MOST_FAULTS = 760, 12


def player_of_plans(
    plan: Callable[..., Any] | Sequence[Any] | None,
    num_ranks: int,
    num_bytes: float,
    latency_s: float,
    bandwidth: float,
    num_chunks: int = 0,
) -> Explorer:
    """Return the player of the ring (None), of a function's plans for 2 to 8 ranks, or of the plans of all ranks.

    Args:
        plan: plan(rank, world_size), or one plan for each rank, or None.
        num_ranks: How many to begin with.
        num_bytes: Size of the tensor for the times.
        latency_s: Latency of a message, in seconds.
        bandwidth: Of a link, bytes per second.
        num_chunks: Of the ring, 1 to 16; 0: as many as ranks.

    Raises:
        ConfigError: If the plans are no lists of records, or the ranks are too many.
    """
    if num_chunks and (plan is not None or not 1 <= num_chunks <= _MOST_CHUNKS):
        raise ConfigError(
            f"num_chunks={num_chunks} was asked for; the ring takes 1 to {_MOST_CHUNKS} chunks, a plan "
            "as many as it has ranks."
        )
    if callable(plan):
        source, worlds = f"plan: {_name(plan)}", _plans_of(plan, num_ranks)
    elif plan is not None:
        source, worlds = "plan given as lists", {len(plan): _played(plan)}
    else:
        if not 2 <= num_ranks <= _MOST_RANKS:
            raise ConfigError(f"num_ranks={num_ranks} was asked for; the ring player shows 2 to {_MOST_RANKS}.")
        source = "plan: ring all-reduce"
        worlds = {num_ranks: execute([ring_plan(rank, num_ranks, num_chunks) for rank in range(num_ranks)], num_chunks)}
    shown = worlds.get(num_ranks) or next(iter(worlds.values()))
    data = {"n": shown.num_ranks, "size": num_bytes, "latency": latency_s, "bandwidth": bandwidth}
    more: dict[str, Any] = {"chunks": num_chunks} if plan is None else {"played": _all_as_data(worlds)}
    return _player(shown, source, data | more)


def player_of_run(
    results: Sequence[Watched], timeline: Timeline | None, source: str, latency_s: float, bandwidth: float
) -> Explorer:
    """Return the player of what was really sent, with the times of the messages beside a model's.

    Args:
        results: What was watched on every rank.
        timeline: When the messages were under way.
        source: What was run, and where.
        latency_s: Of the model.
        bandwidth: Of the model, bytes per second.
    """
    size, times = len(results), message_times(timeline)
    played = watched_ring(results, [ring_plan(rank, size) for rank in range(size)])
    shown = [[*whom, float(f"{start:.4g}"), float(f"{end:.4g}")] for *whom, start, end in times]
    data = {"n": size, "size": 8 * size, "latency": latency_s, "bandwidth": bandwidth}
    return _player(played, source, data | {"played": _all_as_data({size: played}), "times": shown})


def _player(shown: Outcome, source: str, data: Mapping[str, Any]) -> Explorer:
    numbers = {
        "steps": len(shown.steps),
        "complete": shown.num_complete(),
        "faults": len(shown.faults),
        "complete_chunks": [shown.complete_chunks(step) for step in range(len(shown.steps))],
    }
    data = {"title": "Ring all-reduce", "source": source, **data}
    return Explorer(_sentence(shown, source), numbers, "ring_player.js", "ringPlayer", data, _still(shown, source))


def _all_as_data(worlds: Mapping[int, Outcome]) -> Mapping[int, Any]:
    return {size: as_data(world) for size, world in worlds.items()}


def _plans_of(make_plan: Callable[..., Any], num_ranks: int) -> dict[int, Outcome]:
    if not 2 <= num_ranks <= _MOST_OF_A_PLAN:
        raise ConfigError(
            f"num_ranks={num_ranks} was asked for; the ring player plays plans of 2 to {_MOST_OF_A_PLAN} ranks."
        )
    asked = _played([make_plan(rank, num_ranks) for rank in range(num_ranks)])
    worlds = {}
    for size in range(2, _MOST_OF_A_PLAN + 1):
        try:
            worlds[size] = asked if size == num_ranks else _played([make_plan(rank, size) for rank in range(size)])
        except Exception as error:  # the learner's function may raise anything; the figure says for how many ranks
            text = f"{_name(make_plan)} fails for {size} ranks: {type(error).__name__}: {error}"
            worlds[size] = Outcome(size, size, (), (Fault("raises", text, 0),))
    return worlds


def _played(plans: Sequence[Any]) -> Outcome:
    """Return what comes of plans; raises ConfigError if one is no list of records."""
    outcome = execute(plans)
    if refused := next((fault for fault in outcome.faults if fault.kind == "no_plan"), None):
        raise ConfigError(refused.text)
    return outcome


def as_data(played: Outcome) -> Mapping[str, Any]:
    """Return what was played as the player's program reads it."""
    steps = [
        {
            "sends": [[t.src, t.chunk, t.dst, t.into, int(t.wrong)] for t in step.transfers],
            "writes": [[w.rank, w.chunk, w.content.mask, int(w.content.wrong)] for w in step.writes],
        }
        for step in played.steps
    ]
    faults = [[max(place, 0), fault.rank, _told(fault)] for place, fault in _in_order(played)]
    return {"steps": steps, "faults": faults[:_MOST_FAULTS]}


def _in_order(played: Outcome) -> list[tuple[int, Fault]]:
    """Return the place of its step and each fault, step by step."""
    return sorted(((played.place_of(fault), fault) for fault in played.faults), key=lambda found: found[0])


def _told(fault: Fault) -> str:
    """Return what a fault is, with chunks by their letters, as the picture has them."""
    if fault.kind == "raises":  # the words of the learner's own function
        return fault.text
    return re.sub(r"\bc(\d+)\b", lambda found: letter(int(found[1])), fault.text)


def _sentence(played: Outcome, source: str) -> str:
    size = played.num_ranks
    text = f"Ring all-reduce of {size} ranks in {len(played.steps)} steps ({source}): "
    text += f"{played.num_complete()} of {size * played.num_chunks} chunks are complete at the end."
    return text + "".join(f" {_told(fault)}" for _, fault in _in_order(played)[:1])


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _claim(played: Outcome) -> str:
    """Return what the plan costs; of one that is wrong, how far it comes."""
    complete, every = played.num_complete(), played.num_ranks * played.num_chunks
    if played.faults or complete < every:
        few, become = (f"Only {complete}", "become") if complete > 1 else ("Only 1" if complete else "None", "becomes")
        return f"{few} of {every} chunks {become} complete"
    sent = Counter(transfer.src for step in played.steps for transfer in step.transfers)
    share = f"{max(sent.values(), default=0)}/{played.num_chunks}"
    return f"{played.num_ranks} ranks sum a tensor; each sends {share} of it"


def _still(played: Outcome, source: str) -> Scene:
    """Return what every rank holds at the start and after each step, as small tables side by side."""
    size, panels, across = played.num_ranks, len(played.steps) + 1, played.num_chunks
    in_a_row = min(panels, max(1, (_WIDTH - 40) // (across * 8 + 14)))
    in_a_row = -(-panels // -(-panels // in_a_row))
    cell = min((_WIDTH - 40) / in_a_row / (across + 0.9), 30.0)
    wide, tall = cell * (across + 0.9), cell * size + 34
    marks: list[Mark] = [
        Text(12, 20, _claim(played), 14, bold=True),
        Text(12, 37, f"{size} ranks, {source}; a row is a rank, a column a chunk", 11, fill=GREY),
    ]
    first = next((step for step in played.steps if any(write.content.wrong for write in step.writes)), None)
    culprits = {(write.rank, write.chunk) for write in (first.writes if first else ()) if write.content.wrong}
    for panel in range(panels):
        left, top = 34 + panel % in_a_row * wide, 64 + panel // in_a_row * tall
        title = "start" if panel == 0 else f"after {'step ' if cell * size > 55 else ''}{panel - 1}"
        marks.append(Text(left, top - 5, title, 10.5))
        for rank, chunks in enumerate(played.contents(panel)):
            if panel % in_a_row == 0:
                marks.append(Text(left - 6, top + (rank + 0.5) * cell + 4, str(rank), 10, "end", GREY))
            for chunk, content in enumerate(chunks):
                count, x, y = content.mask.bit_count(), left + chunk * cell, top + rank * cell
                fill = between("#dedede", tint(chunk), (count - 0.5) / (size - 0.5) if size > 1 else 1.0)
                follows = content.wrong and (rank, chunk) not in culprits
                edge, line = ((LIGHT["consequence"] if follows else RED), 2.0) if content.wrong else (INK, 0.6)
                marks.append(Rect(x + 0.5, y + 0.5, cell - 1.5, cell - 1.5, fill, edge, line, follows))
                if cell >= 12 or content.wrong:
                    word = "✗" if content.wrong else (letter(chunk) if cell >= 20 else "") + str(count)
                    marks.append(Text(x + cell / 2, y + cell / 2 + 4, word, min(11, cell), "middle", on=fill))
    bottom = 64 + -(-panels // in_a_row) * tall - 12
    for place, (_, fault) in enumerate(_in_order(played)[:3]):
        marks.append(Text(12, bottom + 14 * place, _told(fault)[:118], 11, fill=RED))
    return Scene(_WIDTH, round(bottom + 14 * min(len(played.faults), 3) + 4), tuple(marks))
