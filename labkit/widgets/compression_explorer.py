"""The compression explorer: at which speed of the link a step with compressed gradients is faster."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.errors import ConfigError
from labkit.plans.buckets import HOOKS, MEMORY_BPS
from labkit.units import format_time
from labkit.widgets.explorer import Explorer
from labkit.widgets.hook_errors import Array, as_ranks, hook_errors, norms, total_error
from labkit.widgets.language import DASHES, LIGHT, SERIES
from labkit.widgets.line_names import Ending, names_at
from labkit.widgets.scene import GREY, INK, Line, Mark, Scene, Text

_MOST_METHODS, _MOST_LOSSES = 8, 200
COLOURS = (INK, *SERIES)
_LOW, _HIGH, _SHOWN = 1e7, 1e12, 1e9
_WIDTH, _LEFT, _TOP, _TALL = 760, 66, 44, 210


@dataclass(frozen=True)
class Method:
    """How gradients travel.

    Attributes:
        name: Its name.
        num_bytes: Of one rank's packet in a step.
        compress_s: Compressing and unpacking, together.
        addable: Whether packets are summed by an all_reduce; else every rank gathers all of them.
        losses: Loss after each step, or empty.
        residuals: Norm of what error feedback still owes after each step, or empty.
        errors: Norm of (what arrives - the mean of the ranks) over that of the mean, in each step, or empty.
    """

    name: str
    num_bytes: float
    compress_s: float = 0.0
    addable: bool = False
    losses: tuple[float, ...] = ()
    residuals: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()

    def step_s(self, compute_s: float, num_ranks: int, latency_s: float, bandwidth: float) -> float:
        """Return the time of a step on links of that bandwidth, bytes per second."""
        steps, share = (2 * (num_ranks - 1), num_ranks) if self.addable else (num_ranks - 1, 1)
        return compute_s + self.compress_s + steps * (latency_s + self.num_bytes / share / bandwidth)


DEFAULT = (
    Method("float32", 100e6, addable=True),
    Method("bfloat16", 50e6, 0.3e-3, addable=True),
    Method("int8", 25e6, 0.6e-3),
    Method("top 1 %", 2e6, 8e-3),
)
"""25 million parameters; compress_s as lesson 10 estimates it from memory traffic, for an example."""


def compression_explorer(
    methods: Mapping[str, Mapping[str, Any]] | Sequence[Method] | None = None,
    *,
    gradients: Sequence[Any] | None = None,
    num_ranks: int = 8,
    compute_s: float = 20e-3,
    latency_s: float = 10e-6,
) -> Explorer:
    """Return a figure of a step's time against the link's speed, one line for each way to send gradients.

    The first method is the baseline for the others. Losses, norms of residuals and errors, where given, are drawn
    against seconds, bytes or steps.

    Args:
        methods: For each name num_bytes, and optionally compress_s, addable, losses, residuals and errors; at most 8.
            By default, those of 25 million parameters, or of ``gradients``.
        gradients: A real gradient for each parameter, or such a list for each rank: bytes and errors of the hooks fp16,
            PowerSGD and top 1 % are counted on them; their times are passes over memory, as in ``bucket_explorer``.
        num_ranks: 2 to 128.
        compute_s: Forward and backward of a step.
        latency_s: Latency of a message, in seconds.

    Raises:
        ConfigError: If there is no method, or a word is not one of these.
    """
    if methods is None:
        methods = DEFAULT if gradients is None else _counted(as_ranks(gradients))
    every = tuple(_method(name, words) for name, words in methods.items()) if isinstance(methods, Mapping) else methods
    if not 1 <= len(every) <= _MOST_METHODS:
        raise ConfigError(f"{len(every)} methods were given; give 1 to {_MOST_METHODS}, the uncompressed one first.")
    entries = []
    for each in every:
        entry: dict[str, Any] = {"name": each.name, "bytes": each.num_bytes, "compress": each.compress_s}
        entry["addable"] = each.addable
        for name, curve in (("losses", each.losses), ("residuals", each.residuals), ("errors", each.errors)):
            if curve:
                entry[name] = [float(f"{value:.4g}") for value in curve[:_MOST_LOSSES] if math.isfinite(value)]
        entries.append(entry)
    data = {"source": "", "methods": entries, "ranks": num_ranks, "compute": compute_s, "latency": latency_s}
    borders = {each.name: pays(each, every[0], num_ranks, latency_s) for each in every[1:]}
    told = "; ".join(f"{name} {_in_words(border)}" for name, border in borders.items())
    sentence = f"Faster than {every[0].name} with {num_ranks} ranks: {told or 'nothing is compared'}."
    scene = _still(every, num_ranks, compute_s, latency_s, sentence)
    return Explorer(
        sentence, {"faster_between": borders}, "compression_explorer.js", "compressionExplorer", data, scene
    )


def pays(method: Method, plain: Method, num_ranks: int, latency_s: float) -> tuple[float, float] | None:
    """Return the bandwidths (bytes per second) between which a method's step is faster; None where it never is."""

    def bytes_on_a_link(each: Method) -> float:
        return each.step_s(0.0, num_ranks, 0.0, 1.0) - each.compress_s

    def rest(each: Method) -> float:
        return each.step_s(0.0, num_ranks, latency_s, math.inf)

    saved, costs = bytes_on_a_link(plain) - bytes_on_a_link(method), rest(method) - rest(plain)
    if costs <= 0 <= saved:
        return 0.0, math.inf
    if costs * saved <= 0:
        return None
    return (0.0, saved / costs) if costs > 0 else (saved / costs, math.inf)


def _method(name: str, words: Mapping[str, Any]) -> Method:
    known = {"num_bytes", "compress_s", "addable", "losses", "residuals", "errors"}
    if unknown := set(words) - known or {"num_bytes"} - set(words):
        about = ", ".join(sorted(unknown))
        raise ConfigError(
            f"{name}: {about}? It must have num_bytes and may have compress_s, addable, losses, residuals and errors."
        )
    num_bytes, compress_s = float(words["num_bytes"]), float(words.get("compress_s", 0))
    curves = (tuple(map(float, words.get(key, ()))) for key in ("losses", "residuals", "errors"))
    return Method(name, num_bytes, compress_s, bool(words.get("addable")), *curves)


def _counted(ranks: Sequence[Sequence[Array]]) -> tuple[Method, ...]:
    """Return the hooks with what they send and lose of these gradients."""
    total, sizes = float(sum(each.nbytes for each in ranks[0])), norms(ranks)
    found = [Method("none", total, addable=True)]
    for name, lost in hook_errors(ranks).items():
        hook, error = HOOKS[name], total_error(lost.errors, sizes)
        compress_s = hook.passes * total / MEMORY_BPS
        found.append(Method(name, sum(lost.num_bytes), compress_s, not hook.gathered, errors=(error,)))
    return tuple(found)


def _in_words(speeds: tuple[float, float] | None) -> str:
    if speeds is None:
        return "nowhere"
    low, high = (f"{each / 1e9:.3g} GB/s" for each in speeds)
    return f"above {low}" if speeds[0] else "at any speed" if speeds[1] == math.inf else f"below {high}"


def _claim(names: Sequence[str], times: Sequence[float]) -> str:
    """Return which method makes a step fastest at the speed that is looked at first, and how much faster."""
    best = min(range(len(times)), key=times.__getitem__)
    at = f"At {_SHOWN / 1e9:g} GB/s"
    if not best:
        return f"{at} nothing is faster than {names[0]}"
    faster = times[0] / times[best]
    return f"{at} {names[best]} makes a step {faster:.{int(faster < 10)}f} times as fast"


def _still(methods: Sequence[Method], num_ranks: int, compute_s: float, latency_s: float, sentence: str) -> Scene:
    speeds = [_LOW * (_HIGH / _LOW) ** (k / 50) for k in range(51)]
    curves = [[each.step_s(compute_s, num_ranks, latency_s, speed) for speed in speeds] for each in methods]
    low, high = (math.log10(pick(min(c) if pick is min else max(c) for c in curves)) for pick in (min, max))
    wide = _WIDTH - _LEFT - 150

    def y(seconds: float) -> float:
        return _TOP + _TALL * (1 - (math.log10(seconds) - low) / ((high - low) or 1))

    times = [each.step_s(compute_s, num_ranks, latency_s, _SHOWN) for each in methods]
    marks: list[Mark] = [
        Text(10, 20, _claim([each.name for each in methods], times), 14, bold=True),
        Text(_LEFT, _TOP - 8, "time of a step", 10.5, fill=GREY),
    ]
    for power in range(math.ceil(low), math.floor(high) + 1):
        marks.append(Line(((_LEFT, y(10.0**power)), (_LEFT + wide, y(10.0**power))), LIGHT["line"], 0.5))
        marks.append(Text(_LEFT - 6, y(10.0**power) + 4, format_time(10.0 ** (power + 9)), 10.5, "end"))
    for power in range(7, 13):
        x = _LEFT + (power - 7) / 5 * wide
        marks.append(Text(x, _TOP + _TALL + 18, f"{10.0 ** (power - 9):g}", 10.5, "middle"))
    marks.append(Text(_LEFT + wide / 2, _TOP + _TALL + 34, "link, GB/s", 11, "middle"))
    marks.append(Line(((_LEFT, _TOP + _TALL), (_LEFT + wide, _TOP + _TALL)), INK))
    here = _LEFT + math.log(_SHOWN / _LOW) / math.log(_HIGH / _LOW) * wide
    marks.append(Line(((here, _TOP), (here, _TOP + _TALL)), INK, dashed=True))
    endings: list[Ending] = []
    for place, (each, curve) in enumerate(zip(methods, curves, strict=True)):
        points = tuple((_LEFT + k / 50 * wide, y(seconds)) for k, seconds in enumerate(curve))
        marks.append(Line(points, COLOURS[place % 8], 2.5, dash=DASHES[place % 8]))
        endings.append(Ending(each.name, points[-1][1], COLOURS[place % 8], DASHES[place % 8]))
    marks += names_at(endings, _LEFT + wide, _TOP, _TOP + _TALL)
    marks.append(Text(10, _TOP + _TALL + 54, sentence, 11, fill=GREY))
    return Scene(_WIDTH, _TOP + _TALL + 64, tuple(marks))
