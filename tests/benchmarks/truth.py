"""What the virtual cluster predicts of this host, measured before, between and after, beside what runs on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import mean, median, stdev
from typing import Any

import labkit
from labkit.calibration import as_text, assemble, gather
from labkit.hardware import Hardware
from tests.benchmarks import truth_jobs as jobs
from tests.benchmarks.table import Bar, table

KB, MB = 2**10, 2**20
LEAST_LIMIT, MOST_SPREAD = 0.15, 0.25
CROWDED = "more ranks than cores"


@dataclass
class Experiment:
    """One function, run for real and in virtual time.

    Attributes:
        name: What it is.
        function: Returns the seconds of its steps on every rank.
        num_ranks: Ranks.
        unfair: Why the model does not claim it, "" where it does: no more ranks than cores, steps over a millisecond.
        measured: Seconds of a step in each repeat: the mean of its steps, each that of the slowest rank.
        predicted: Seconds of a step in virtual time.
    """

    name: str
    function: Callable[[], list[float]]
    num_ranks: int = 2
    unfair: str = ""
    measured: list[float] = field(default_factory=list)
    predicted: float = 0.0

    @property
    def fair(self) -> bool:
        """Whether the model claims it."""
        return not self.unfair

    @property
    def error(self) -> float:
        """By which share the prediction is off."""
        return self.predicted / median(self.measured) - 1

    @property
    def spread(self) -> float:
        """The standard deviation of the repeats, as a share of their median."""
        return stdev(self.measured) / median(self.measured) if len(self.measured) > 1 else 0.0


def experiments() -> list[Experiment]:
    """Return all of them."""
    found = [Experiment(f"DDP step, {name}", partial(jobs.ddp, name, 6)) for name in jobs.MODELS]
    found.append(Experiment("convolutions, ranks apart", partial(jobs.apart, "convolutions", 6)))
    found.append(Experiment("pipeline of 2 stages, 4 microbatches", partial(jobs.pipeline, 4, 6)))
    for size in (64 * KB, MB, 4 * MB, 16 * MB):
        label = f"{size // KB} KB" if size < MB else f"{size // MB} MB"
        unfair = "about a millisecond" if size < MB else ""
        found.append(Experiment(f"ring of messages, {label}", partial(jobs.all_reduce, size, 12, jobs.ring), 2, unfair))
        found.append(Experiment(f"gloo's all_reduce, {label}", partial(jobs.all_reduce, size, 12), 2, unfair))
    found.append(
        Experiment("ring of messages, 4 MB, 4 ranks", partial(jobs.all_reduce, 4 * MB, 12, jobs.ring), 4, CROWDED)
    )
    found.append(Experiment("DDP step, MLP, 4 ranks", partial(jobs.ddp, "MLP", 4), 4, CROWDED))
    return found


def measure(asked: list[Experiment], num_repeats: int) -> Hardware:
    """Run all of them for real, one after the other, and all of them again; return the host, measured in between.

    It is measured as often as they are, for a shared host is not as fast in one minute as in the next.
    """
    gathered = gather()
    for _ in range(num_repeats):
        for one in asked:
            world = labkit.local(one.num_ranks, device="cpu", threads_per_rank=1)
            one.measured.append(_of_a_step(labkit.run(one.function, on=world, echo=False).results))
        gathered += gather()
    return assemble(gathered)


def predict(asked: list[Experiment], host: Hardware) -> None:
    """Run all of them in virtual time on the host as it was measured."""
    for one in asked:
        run = labkit.run(one.function, on=labkit.virtual(one.num_ranks, gpu=host), echo=False)
        one.predicted = _of_a_step(run.results)


def _of_a_step(results: list[list[float]]) -> float:
    """Return what a step took on its slowest rank: the mean of its steps, as what a step consists of was measured."""
    return mean(max(step) for step in zip(*results, strict=True))


def report(asked: list[Experiment], host: Hardware) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the table, the bars and the figures."""
    rows = [
        [
            one.name, f"{one.predicted * 1e3:.2f} ms", f"{median(one.measured) * 1e3:.2f} ms", f"{one.error:+.0%}",
            f"{one.spread:.0%}", one.unfair,
        ]
        for one in asked
    ]  # fmt: skip
    text = f"Predicted beside measured on this host\n{as_text(host)}\n"
    text += table(["", "predicted", "measured", "off", "spread", "not held, for it is"], rows)
    bars = []
    for title, some in (
        ("DDP steps of three models", [one for one in asked if one.name.startswith("DDP") and one.fair]),
        ("convolutions, ranks apart", [one for one in asked if one.name == "convolutions, ranks apart"]),
        ("convolutions with DDP", [one for one in asked if one.name == "DDP step, convolutions"]),
        ("rings and all_reduce over sizes", [one for one in asked if "ring" in one.name or "gloo" in one.name]),
        ("a pipeline of two stages", [one for one in asked if "pipeline" in one.name]),
        ("all rows that have a limit", [one for one in asked if one.fair]),
    ):
        fair = [one for one in some if one.fair]
        spread = median(one.spread for one in fair)
        limit = max(LEAST_LIMIT, 2 * spread)
        error = median(abs(one.error) for one in fair) if spread <= MOST_SPREAD else None
        busy = "" if error is not None else f"; repeats differ by {spread:.0%}, the host was busy"
        bars.append(Bar(f"{title}: median error at most {limit:.0%} (15 % or twice the spread){busy}", error, limit))
    figures = [
        {"name": one.name, "predicted_s": one.predicted, "measured_s": one.measured, "fair": one.fair} for one in asked
    ]
    return text, bars, {"experiments": figures, "host": host.made_on}


def run(quick: bool) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the table, the bars and the figures."""
    asked = experiments()
    host = measure(asked, 2 if quick else 5)
    predict(asked, host)
    return report(asked, host)
