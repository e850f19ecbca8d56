"""The bucket explorer: which gradients travel together, when, and how much of it backward hides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import Any

from labkit.errors import ConfigError
from labkit.timeline.timeline import Timeline
from labkit.widgets.bucket_rows import Row, measured, modelled, skew, worth_showing
from labkit.widgets.buckets import HOOKS, Link, bucket_plan, checked, sent
from labkit.widgets.explorer import Explorer
from labkit.widgets.scene import GREY, INK, RED, Line, Mark, Rect, Scene, Text, ink_on

_CAPS_MB = (0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 12, 25, 50, 100)
COLOURS = ("#0072b2", "#ddaa33", "#56b4e9", "#d55e00", "#332288", "#bbbbbb")
_COMPUTE = {"F": "#8f8f8f", "B": "#c4c4c4", "O": "#e6e6e6"}
_MOST_PARAMETERS = 400
_WIDTH, _LEFT, _RIGHT = 760, 82, 14
_BACKWARD_S = 10e-3


def bucket_explorer(
    sizes: Sequence[int] = (384 * 384 * 4, 384 * 4) * 40,
    plan: Callable[[list[int], int], Any] | None = None,
    *,
    cap_mb: float = 5,
    first_mb: float = 0,
    hook: str = "none",
    forward_s: float | None = None,
    backward_s: float | None = None,
    optimizer_s: float | None = None,
    skew_s: float = 0,
    num_ranks: int = 8,
    latency_s: float = 20e-6,
    bandwidth_Bps: float = 12.5e9,  # noqa: N803  as the lessons write it
    run: Timeline | None = None,
) -> Explorer:
    """Return a figure that shows the buckets of one step: what is in them, when they travel, what of that is exposed.

    Gradients are complete evenly over backward, last layer first; a bucket's ring all_reduce takes
    2(N-1)(latency + bytes/N/bandwidth), one at a time, and begins when the slowest rank has its gradients too.

    Args:
        sizes: Bytes of each parameter's gradient in the order of the model; without it 40 layers of 384 x 384.
        plan: plan(sizes, cap_bytes) returns the buckets, lists of indices; None is the rule of lesson 03.
        cap_mb: What a bucket may hold to begin with, in units of 2**20 bytes.
        first_mb: What the first bucket may hold; 0: as the others. torch's DDP begins with 1.
        hook: What is done to a bucket before it is sent: "none", "fp16", "PowerSGD, rank 4" or "top 1 %".
        forward_s: Time of forward; half of backward's without it.
        backward_s: Time of backward; of a run its own, else 10 ms.
        optimizer_s: Time of the optimizer; a tenth of backward's without it.
        skew_s: How much later than rank 0 the slowest rank is.
        num_ranks: 2 to 64.
        latency_s: Of a message.
        bandwidth_Bps: Of a link, bytes per second.
        run: The timeline of a run with spans "forward" and "backward" (and "optimizer"), drawn under the model.

    Raises:
        ConfigError: If there are no sizes, or too many, or the plan is no list of lists, or the run has no step in it.
    """
    sizes = [int(size) for size in sizes]
    if not 0 < len(sizes) <= _MOST_PARAMETERS or min(sizes) <= 0:
        raise ConfigError(f"{len(sizes)} sizes were given; 1 to {_MOST_PARAMETERS} are shown, each of 1 byte or more.")
    if hook not in HOOKS:
        raise ConfigError(f"hook={hook!r} was asked for; there are {', '.join(map(repr, HOOKS))}.")
    rows = [] if run is None else measured(run)
    lasted = {letter: end - start for letter, start, end in rows[0].compute} if rows else {}
    backward_s = backward_s or lasted.get("B") or _BACKWARD_S
    forward_s = lasted.get("F", backward_s / 2) if forward_s is None else forward_s
    optimizer_s = lasted.get("O", 0.0 if rows else backward_s / 10) if optimizer_s is None else optimizer_s
    caps = sorted({cap_mb, *_CAPS_MB})
    link = Link(backward_s, num_ranks, latency_s, bandwidth_Bps, skew_s, hook)
    data: dict[str, Any] = {"sizes": sizes, "caps": [round(cap * 2**20) for cap in caps], "cap": round(cap_mb * 2**20)}
    data |= {"first": round(first_mb * 2**20), "hook": hook, "late": min(skew_s / backward_s, 1)}
    data |= {"forward": forward_s, "backward": backward_s, "optimizer": optimizer_s}
    data |= {"ranks": num_ranks, "latency": latency_s, "bandwidth": bandwidth_Bps}
    data["source"] = f"{sum(sizes) / 1e6:.4g} MB of gradients"
    shown, problem = bucket_plan(sizes, data["cap"], data["first"]), ""
    if plan is not None:
        name = getattr(plan, "__name__", "plan")
        data["source"] += f", plan: {name}"
        made = [checked(plan(list(sizes), cap), len(sizes)) for cap in data["caps"]]
        if made != [(bucket_plan(sizes, cap), "") for cap in data["caps"]]:
            shown, problem = made[caps.index(cap_mb)]
            data |= {"plans": [buckets for buckets, _ in made], "faults": [text for _, text in made]}
    times = sent(sizes, shown, link)
    model = [modelled(times, link, forward_s, optimizer_s, rank) for rank in ((0, 1) if skew_s else (0,))]
    comm, exposed = sum(each.end - each.start for each in times), model[0].end - optimizer_s - forward_s - backward_s
    numbers: dict[str, Any] = {"buckets": len(shown), "step_s": model[0].end, "communication_s": comm}
    numbers |= {"exposed_s": exposed, "overlapped": max(0.0, 1 - exposed / comm) if comm else 0.0, "skew_s": skew_s}
    sentence = (
        f"{len(shown)} buckets of at most {cap_mb:g} MiB: {1e3 * comm:.3g} ms of communication, "
        f"{1e3 * exposed:.3g} ms of it exposed after {1e3 * backward_s:.3g} ms of backward."
    )
    if rows:
        numbers["run"] = _numbers(rows)
        data["run"] = [_as_data(row) for row in worth_showing(rows)]
        data["measured"] = {word.removesuffix("_s").replace("_", " "): value for word, value in numbers["run"].items()}
        data["source"] += f"; below: the last step of {run!r}"
        told = numbers["run"]
        sentence += f" This run: a step of {1e3 * told['step_s']:.3g} ms, {1e3 * told['exposed_s']:.3g} ms exposed."
    scene = _still(sizes, shown, model, worth_showing(rows), sentence, problem)
    return Explorer(f"{sentence} {problem}".strip(), numbers, "bucket_explorer.js", "bucketExplorer", data, scene)


def _numbers(rows: Sequence[Row]) -> dict[str, float]:
    """Return a run's numbers: of rank 0, and its skew."""
    first = rows[0]
    last = max(each.end for each in first.sent)
    return {
        "step_s": first.end,
        "communication_s": sum(each.end - each.start for each in first.sent),
        "exposed_s": max(0.0, last - first.computed),
        "skew_s": skew(rows),
    }


def _as_data(row: Row) -> list[Any]:
    compute = [[letter, _short(start), _short(end)] for letter, start, end in row.compute]
    sent_ = [[s.num_bytes, *map(_short, (s.ready, s.all_ready, s.start, s.end))] for s in row.sent]
    return [row.rank, compute, sent_]


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _still(
    sizes: Sequence[int],
    plan: Sequence[Sequence[int]],
    model: Sequence[Row],
    run: Sequence[Row],
    sentence: str,
    problem: str,
) -> Scene:
    end = max(row.end for row in [*model, *run])

    def x(time: float) -> float:
        return _LEFT + time / end * (_WIDTH - _LEFT - _RIGHT)

    of = {index: number for number, bucket in enumerate(plan) for index in bucket}
    marks: list[Mark] = [Text(10, 18, "Buckets of one step", 14, bold=True), Text(10, 47, "gradients", 11)]
    _, begin, over = next(each for each in model[0].compute if each[0] == "B")
    summed, total = 0, sum(sizes)
    for index in reversed(range(len(sizes))):
        left = x(begin + summed / total * (over - begin))
        summed += sizes[index]
        width = x(begin + summed / total * (over - begin)) - left
        number = of.get(index)
        fill = "none" if number is None else COLOURS[number % len(COLOURS)]
        marks.append(Rect(left, 32, width, 22, fill, RED if number is None else INK, 2 if number is None else 0.4))
    y = 66.0
    for row in [*model, *run]:
        if run and row is run[0]:
            marks.append(Text(10, y + 8, "this run", 11, bold=True))
            y += 14
        name = f"rank {row.rank}" if row in run else ("slowest" if row.rank else "rank 0")
        marks += _row(name, row, x, y)
        y += 50
    for words, colour in ((sentence, GREY), (problem, RED)):
        for piece in wrap(words, 124):
            y += 16
            marks.append(Text(10, y, piece, 11, fill=colour))
    return Scene(_WIDTH, round(y + 10), tuple(marks))


def _row(name: str, row: Row, x: Callable[[float], float], y: float) -> list[Mark]:
    marks: list[Mark] = [Text(10, y + 14, name, 11), Text(10, y + 35, "all-reduce", 10, fill=GREY)]
    words = {"F": "forward", "B": "backward", "O": "optimizer"}
    for letter, start, end in (each for each in row.compute if each[2] > each[1]):
        width, fill = x(end) - x(start), _COMPUTE[letter]
        marks.append(Rect(x(start), y, width, 19, fill, INK, 0.8))
        if width > 60:
            marks.append(Text(x(start) + width / 2, y + 14, words[letter], 10.5, "middle", ink_on(fill)))
    for number, each in enumerate(row.sent):
        fill, left, width = COLOURS[number % len(COLOURS)], x(each.start), x(each.end) - x(each.start)
        marks.append(Rect(left, y + 22, width, 19, fill, INK, 0.8))
        if width > 16:
            marks.append(Text(left + width / 2, y + 36, str(number), 10.5, "middle", ink_on(fill)))
        if each.end > row.computed:
            marks.append(Line(((x(max(each.start, row.computed)), y + 21), (x(each.end), y + 21)), INK, 4))
    marks.append(Line(((x(row.computed), y - 3), (x(row.computed), y + 45)), INK, 1.2, dashed=True))
    return marks
