"""Makes the README's moving picture: python docs/ring_picture.py writes ring.svg beside this file.

A real run of lesson 02's ring, four ranks on this machine, slowed down; of several runs the shortest, which other
work disturbed least. Every chunk travels when its message did. Where nothing may move, the end is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from jinja2 import Environment

import labkit
from labkit.lessons import source
from labkit.timeline import Timeline

HERE = Path(__file__).parent
SOLUTION = HERE.parent / "solutions" / "02_ring_all_reduce.py"
RANKS, NUM_BYTES, SHOWN_S = 4, 32_000_000, 9.0
PLACES = ((150, 34), (490, 34), (490, 190), (150, 190))
"""Where each rank's box is; the ring goes clockwise."""
TINTS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
CELL, GAP = 24, 4

PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 350" role="img" aria-labelledby="title">
<title id="title">Four ranks sum a tensor in a ring: each sends one chunk at a time to its neighbour</title>
<style>
text { font: 15px system-ui, sans-serif; fill: #59636e }
.link { stroke: #8c959f; stroke-width: 2; fill: none }
.frame { fill: none; stroke: #8c959f }
{% for name, frames in animations -%}
.{{ name }} { animation: {{ name }} {{ duration }}s linear infinite }
@keyframes {{ name }} { {% for at, style in frames %}{{ "%.3f" | format(at) }}% { {{ style }} } {% endfor %}}
{% endfor -%}
.token { opacity: 0 }
@media (prefers-reduced-motion: reduce) { * { animation: none !important } }
</style>
<path class="link" d="M222 56H418 M490 90V178 M418 212H222 M150 178V90"/>
{% for rank, x, y, label, cells in ranks -%}
<text x="{{ x }}" y="{{ label }}" text-anchor="middle">rank {{ rank }}</text>
{% for name, left, tint, letter in cells -%}
<rect class="{{ name }}" x="{{ left }}" y="{{ y }}" width="{{ cell }}" height="44" fill="{{ tint }}"
 style="transform-origin: 0 {{ y + 44 }}px"/>
<rect class="frame" x="{{ left }}" y="{{ y }}" width="{{ cell }}" height="44"/>
{% endfor -%}
{% endfor -%}
{% for name, tint, letter in tokens -%}
<g class="token {{ name }}"><circle r="13" fill="{{ tint }}"/>
 <text y="5" text-anchor="middle" style="fill: #fff">{{ letter }}</text></g>
{% endfor -%}
<path class="link" d="M40 330H600"/>
<circle class="clock" cx="40" cy="330" r="6" fill="#59636e" transform="translate(560)"/>
<text x="40" y="316">0</text>
<text x="600" y="316" text-anchor="end">{{ "%.0f" | format(total_ms) }} ms for {{ megabytes }} MB</text>
</svg>
"""


def drop_in() -> tuple[Callable[..., object], Callable[..., Any]]:
    """Return the solution's all-reduce and its plan; only the lesson's given and exercise cells are run."""
    names: dict[str, Any] = {"__name__": "lesson_02"}
    for cell in source.load(SOLUTION).cells:
        if cell.role == "given" or cell.is_code_exercise:
            exec(compile(cell.source, cell.id, "exec", dont_inherit=True), names)
    return names["ring_sum"], names["ring_plan"]


def all_reduce_once(ring: Callable[..., object]) -> None:
    """Sum a tensor over all ranks, once to warm up and once in the region that is shown."""
    tensor = torch.ones(NUM_BYTES // 4)
    ring(tensor)
    dist.barrier()
    with labkit.span("ring_all_reduce"):
        ring(tensor)


def shown(run: labkit.Run) -> Timeline:
    """Return what lies in the named region."""
    timeline = run.timeline
    regions = timeline.name == "ring_all_reduce"
    begin, end = timeline.start_ns[regions].min(), timeline.end_ns[regions].max()
    return timeline.select((timeline.start_ns >= begin) & (timeline.end_ns <= end) & ~regions)


def moves(timeline: Timeline) -> list[tuple[int, int, float, float]]:
    """Return of each message its sender, its step, and its begin and end as shares of the run."""
    begin, length = int(timeline.start_ns.min()), timeline.makespan_ns
    calls = {(rank, kind): [] for rank in range(RANKS) for kind in ("isend", "irecv")}  # type: ignore[var-annotated]
    for row in timeline.rows():
        if row.kind in ("isend", "irecv"):
            calls[row.rank, row.kind].append(row)
    return [
        (rank, step, (max(sent.start_ns, got.start_ns) - begin) / length, (got.end_ns - begin) / length)
        for rank in range(RANKS)
        for step, (sent, got) in enumerate(zip(calls[rank, "isend"], calls[(rank + 1) % RANKS, "irecv"], strict=True))
    ]


def picture(timeline: Timeline, plan: Callable[..., Any]) -> str:
    """Return the SVG: chunks travel when their messages did, and a cell grows with each contribution it holds."""
    animations: list[tuple[str, list[tuple[float, str]]]] = []
    tokens, levels = [], {(rank, chunk): [(0.0, 1)] for rank in range(RANKS) for chunk in range(RANKS)}
    chunk_of = {
        (rank, op.step): op.chunk for rank in range(RANKS) for op in plan(rank, RANKS) if type(op).__name__ == "Send"
    }
    for rank, step, start, end in sorted(moves(timeline), key=lambda move: move[3]):
        chunk, to, name = chunk_of[rank, step], (rank + 1) % RANKS, f"m{rank}{step}"
        (ax, ay), (bx, by) = PLACES[rank], PLACES[to]
        a, b = 94 * start, 94 * end  # the last six per cent stand still
        there, gone = f"transform: translate({bx}px, {by + 22}px)", "opacity: 0"
        here = f"transform: translate({ax}px, {ay + 22}px)"
        animations.append(
            (
                name,
                [
                    *((0, f"{here}; {gone}"), (a, f"{here}; {gone}"), (a + 0.01, f"{here}; opacity: 1")),
                    *((b, f"{there}; opacity: 1"), (b + 0.01, f"{there}; {gone}"), (100, f"{there}; {gone}")),
                ],
            )
        )
        tokens.append((name, TINTS[chunk], "ABCD"[chunk]))
        levels[to, chunk].append((b, min(step + 2, RANKS)))
    ranks = []
    for rank, (x, y) in enumerate(PLACES):
        left, cells = x - 2 * CELL - 1.5 * GAP, []
        for chunk in range(RANKS):
            name, steps = f"c{rank}{chunk}", levels[rank, chunk]
            frames = []
            for (at, level), (until, _) in zip(steps, [*steps[1:], (100.0, 0)], strict=True):
                style = f"transform: scaleY({level / RANKS})"
                frames += [(at + (0.01 if at else 0), style), (until, style)]
            animations.append((name, frames))
            cells.append((name, left + chunk * (CELL + GAP), TINTS[chunk], "ABCD"[chunk]))
        ranks.append((rank, x, y, y - 12 if y < 150 else y + 64, cells))
    animations.append(("clock", [(0, "transform: none"), (94, "transform: translate(560px)")]))
    return Environment(autoescape=True).from_string(PICTURE).render(
        animations=animations, ranks=ranks, tokens=tokens, duration=SHOWN_S, cell=CELL,
        total_ms=timeline.makespan_ns / 1e6, megabytes=NUM_BYTES // 10**6,
    )  # fmt: skip


if __name__ == "__main__":
    ring, ring_plan = drop_in()
    runs = [shown(labkit.run(all_reduce_once, ring, on=labkit.local(RANKS, device="cpu"))) for _ in range(10)]
    best = min(runs, key=lambda each: each.makespan_ns)
    (HERE / "ring.svg").write_text(picture(best, ring_plan), encoding="utf-8")
