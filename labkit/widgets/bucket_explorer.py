"""The bucket explorer: which gradients travel together, when, and how much of that backward hides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from labkit.errors import ConfigError
from labkit.widgets.buckets import Link, bucket_plan, checked, sent
from labkit.widgets.explorer import Explorer
from labkit.widgets.scene import GREY, INK, RED, Line, Mark, Rect, Scene, Text, ink_on

_CAPS_MB = (0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 12, 25, 50, 100)
COLOURS = ("#0072b2", "#ddaa33", "#56b4e9", "#d55e00", "#332288", "#bbbbbb")
_MOST_PARAMETERS = 400
_WIDTH, _LEFT, _RIGHT = 760, 82, 14


def bucket_explorer(
    sizes: Sequence[int] = (384 * 384 * 4, 384 * 4) * 40,
    plan: Callable[[list[int], int], Any] | None = None,
    *,
    cap_mb: float = 5,
    backward_s: float = 10e-3,
    num_ranks: int = 8,
    latency_s: float = 20e-6,
    bandwidth_Bps: float = 12.5e9,  # noqa: N803  as the lessons write it
) -> Explorer:
    """Return a figure that shows the buckets of one step: what is in them, when they travel, what of that is exposed.

    Gradients are complete evenly over backward, last layer first; a bucket's ring all_reduce takes
    2(N-1)(latency + bytes/N/bandwidth), one at a time.

    Args:
        sizes: Bytes of each parameter's gradient in the order of the model; without it 40 layers of 384 x 384.
        plan: plan(sizes, cap_bytes) returns the buckets, lists of indices; None is torch's rule.
        cap_mb: What a bucket may hold to begin with, in units of 2**20 bytes.
        backward_s: Time of backward.
        num_ranks: 2 to 64.
        latency_s: Of a message.
        bandwidth_Bps: Of a link, bytes per second.

    Raises:
        ConfigError: If there are no sizes, or too many, or the plan is no list of lists.
    """
    sizes = [int(size) for size in sizes]
    if not 0 < len(sizes) <= _MOST_PARAMETERS or min(sizes) <= 0:
        raise ConfigError(f"{len(sizes)} sizes were given; 1 to {_MOST_PARAMETERS} are shown, each of 1 byte or more.")
    caps = sorted({cap_mb, *_CAPS_MB})
    link = Link(backward_s, num_ranks, latency_s, bandwidth_Bps)
    data: dict[str, Any] = {"sizes": sizes, "caps": [round(cap * 2**20) for cap in caps], "cap": round(cap_mb * 2**20)}
    data |= {"backward": backward_s, "ranks": num_ranks, "latency": latency_s, "bandwidth": bandwidth_Bps}
    data["source"] = f"{sum(sizes) / 1e6:.4g} MB of gradients"
    shown, problem = bucket_plan(sizes, data["cap"]), ""
    if plan is not None:
        name = getattr(plan, "__name__", "plan")
        data["source"] += f", plan: {name}"
        made = [checked(plan(list(sizes), cap), len(sizes)) for cap in data["caps"]]
        shown, problem = made[caps.index(cap_mb)]
        if [buckets for buckets, _ in made] != [bucket_plan(sizes, cap) for cap in data["caps"]]:
            data |= {"plans": [buckets for buckets, _ in made], "faults": [text for _, text in made]}
    times = sent(sizes, shown, link)
    step = max([backward_s, *(each.end for each in times)])
    comm = sum(each.end - each.start for each in times)
    numbers = {"buckets": len(shown), "step_s": step, "communication_s": comm, "exposed_s": step - backward_s}
    numbers["overlapped"] = 1 - (step - backward_s) / comm if comm else 0.0
    sentence = (
        f"{len(shown)} buckets of at most {cap_mb:g} MiB: {1e3 * comm:.3g} ms of communication, "
        f"{1e3 * (step - backward_s):.3g} ms of it exposed after {1e3 * backward_s:.3g} ms of backward. {problem}"
    ).strip()
    scene = _still(sizes, shown, link, sentence, problem)
    return Explorer(sentence, numbers, "bucket_explorer.js", "bucketExplorer", data, scene)


def _still(sizes: Sequence[int], plan: Sequence[Sequence[int]], link: Link, sentence: str, problem: str) -> Scene:
    times = sent(sizes, plan, link)
    end = max([link.backward_s, *(each.end for each in times)])

    def x(time: float) -> float:
        return _LEFT + time / end * (_WIDTH - _LEFT - _RIGHT)

    of = {index: number for number, bucket in enumerate(plan) for index in bucket}
    marks: list[Mark] = [
        Text(10, 18, "Buckets of one step", 14, bold=True),
        *(Text(10, y, word, 11) for y, word in ((47, "gradients"), (85, "backward"), (115, "all-reduce"))),
        Rect(x(0), 70, x(link.backward_s) - x(0), 22, "#b8b8b8", INK),
    ]
    summed, total = 0, sum(sizes)
    for index in reversed(range(len(sizes))):
        left = x(summed / total * link.backward_s)
        summed += sizes[index]
        width = x(summed / total * link.backward_s) - left
        number = of.get(index)
        fill = "none" if number is None else COLOURS[number % len(COLOURS)]
        marks.append(Rect(left, 32, width, 22, fill, RED if number is None else INK, 2 if number is None else 0.4))
    for number, each in enumerate(times):
        fill, left, width = COLOURS[number % len(COLOURS)], x(each.start), x(each.end) - x(each.start)
        marks += [Rect(left, 100, width, 22, fill, INK), Line(((x(each.ready), 92), (x(each.ready), 100)))]
        if width > 16:
            marks.append(Text(left + width / 2, 115, str(number), 10.5, "middle", ink_on(fill)))
    if end > link.backward_s:
        marks.append(Line(((x(link.backward_s), 99), (x(end), 99)), INK, 4))
    marks.append(Line(((x(link.backward_s), 62), (x(link.backward_s), 128)), INK, 1.2, dashed=True))
    marks.append(Text(10, 146, sentence.removesuffix(problem).strip(), 11, fill=GREY))
    marks += [Text(10, 162, problem, 11, fill=RED)] if problem else []
    return Scene(_WIDTH, 172 if problem else 156, tuple(marks))
