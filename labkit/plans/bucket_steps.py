"""What each rank computed and sent in one step: of a model, or read from a run's timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.errors import ConfigError
from labkit.plans.buckets import Link, Sent
from labkit.timeline.span import Lane, Span
from labkit.timeline.timeline import Timeline

_KINDS = ("all_reduce", "reduce_scatter", "all_gather")
_LETTERS = {"forward": "F", "backward": "B", "optimizer": "O"}
_MOST_ROWS, _MOST_BUCKETS = 4, 200


@dataclass(frozen=True)
class Row:
    """One rank in one step, in seconds from a moment on that all ranks share.

    Attributes:
        rank: Whose.
        compute: ("F" forward, "S" DDP's search, "B" backward or "O" optimizer, start, end).
        sent: Its buckets, in order.
    """

    rank: int
    compute: tuple[tuple[str, float, float], ...]
    sent: tuple[Sent, ...]

    @property
    def computed(self) -> float:
        """Return when the last gradient was complete."""
        return max((end for letter, _, end in self.compute if letter != "O"), default=0.0)

    @property
    def end(self) -> float:
        """Return when the step was over."""
        return max([end for _, _, end in self.compute] + [each.end for each in self.sent], default=0.0)


def modelled(
    sent: Sequence[Sent], link: Link, forward_s: float, optimizer_s: float, rank: int = 0, search_s: float = 0.0
) -> Row:
    """Return rank 0's row, or with any other rank that of the slowest; search_s is spent between the passes."""
    late = link.skew_s if rank else 0.0
    forward_s += search_s
    begin = forward_s + late
    shifted = [
        Sent(
            each.num_bytes,
            begin + each.ready,
            forward_s + each.all_ready,
            forward_s + each.start,
            forward_s + each.end,
        )
        for each in sent
    ]
    over = max([begin + link.backward_s, *(each.end for each in shifted)])
    search = (("S", begin - search_s, begin),) if search_s else ()
    last = (("B", begin, begin + link.backward_s), ("O", over, over + optimizer_s))
    return Row(rank, (("F", 0.0, begin - search_s), *search, *last), tuple(shifted))


def measured(timeline: Timeline, step: int = -1) -> list[Row]:
    """Return one step of a run, rank by rank, from the first rank's begin of forward on.

    A bucket's transfer is taken to begin when every rank has launched it and the one before it is through.

    Args:
        timeline: Of a run with spans "forward" and "backward" and an all_reduce for each bucket.
        step: Which of its steps: 0 is the first, -1 the last.

    Raises:
        ConfigError: If there are no such spans, or not so many steps.
    """
    steps = [_one_step(timeline, rank, step) for rank in range(timeline.num_ranks)]
    zero = min(spans[0].start_ns for spans in steps)
    launched = [[span for span in spans if span.kind in _KINDS][:_MOST_BUCKETS] for spans in steps]
    if not all(launched):
        rank = next(rank for rank, spans in enumerate(launched) if not spans)
        raise ConfigError(f"Rank {rank} has no all_reduce after its forward pass, so there are no buckets to show.")
    rows = []
    for rank, spans in enumerate(steps):
        compute = [(_LETTERS[s.name], _s(s.start_ns - zero), _s(s.end_ns - zero)) for s in spans if s.name in _LETTERS]
        sent: list[Sent] = []
        for number, span in enumerate(launched[rank]):
            ready = _s(span.start_ns - zero)
            others = [each[number].start_ns for each in launched if number < len(each)]
            all_ready, end = _s(max(others) - zero), _s(span.end_ns - zero)
            start = max(all_ready, sent[-1].end if sent else 0.0)
            sent.append(Sent(float(span.bytes), ready, all_ready, min(start, end), end))
        rows.append(Row(rank, tuple(compute), tuple(sent)))
    return rows


def worth_showing(rows: Sequence[Row]) -> list[Row]:
    """Return at most four of the ranks: the first ones, and the one that launches latest."""
    if len(rows) <= _MOST_ROWS:
        return list(rows)
    latest = max(rows[1:], key=lambda row: sum(each.ready for each in row.sent))
    return [rows[0], latest]


def communication(row: Row) -> float:
    """Return for how long a row's buckets travel, together, seconds."""
    return sum(each.end - each.start for each in row.sent)


def exposed(row: Row) -> float:
    """Return for how long buckets travel after a row's backward is over, seconds."""
    return sum(max(0.0, each.end - max(each.start, row.computed)) for each in row.sent)


def waiting(row: Row) -> float:
    """Return for how long a row, its backward over, waits for a bucket that a later rank has not got ready, seconds."""
    free = [row.computed, *(max(each.end, row.computed) for each in row.sent)]
    return sum(max(0.0, each.start - before) for each, before in zip(row.sent, free, strict=False))


def run_numbers(rows: Sequence[Row]) -> dict[str, float]:
    """Return a run's numbers: of rank 0, and its skew."""
    first = rows[0]
    return {
        "step_s": first.end,
        "communication_s": communication(first),
        "exposed_s": exposed(first),
        "waiting_s": waiting(first),
        "skew_s": skew(rows),
    }


def skew(rows: Sequence[Row]) -> float:
    """Return the longest time between the first and the last rank's launch of one bucket."""
    every = [[each.ready for each in bucket] for bucket in zip(*(row.sent for row in rows), strict=False)]
    return max((max(times) - min(times) for times in every), default=0.0)


def _one_step(timeline: Timeline, rank: int, step: int) -> list[Span]:
    spans = sorted(timeline.spans(rank=rank).rows(), key=lambda span: (span.start_ns, -span.end_ns))
    begins = [span.start_ns for span in spans if span.name == "forward"]
    if not begins or not any(span.name == "backward" for span in spans):
        raise ConfigError(
            f'Rank {rank} has no spans "forward" and "backward": wrap them in labkit.span("forward") and '
            'labkit.span("backward").'
        )
    if not -len(begins) <= step < len(begins):
        raise ConfigError(f"Step {step} was asked for; rank {rank} took {len(begins)}, 0 to {len(begins) - 1}.")
    wanted = [s for s in spans if s.name in _LETTERS or (s.lane == Lane.COMMUNICATION and s.kind in _KINDS)]
    begin, after = begins[step], [*begins, None][step % len(begins) + 1]
    return [span for span in wanted if span.start_ns >= begin and (after is None or span.start_ns < after)]


def _s(nanoseconds: int) -> float:
    return nanoseconds / 1e9
