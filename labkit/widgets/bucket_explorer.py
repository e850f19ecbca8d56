"""The bucket explorer: which gradients travel together, when, and how much of it backward hides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.errors import ConfigError
from labkit.plans import bucket_steps
from labkit.plans.bucket_steps import Row, communication, measured, modelled, run_numbers, worth_showing
from labkit.plans.buckets import HOOKS, Link, checked, sent
from labkit.plans.reference.bucket_plans import GRAPHS, bucket_plan, ddp_plan
from labkit.timeline.timeline import Timeline
from labkit.widgets import measured_hooks
from labkit.widgets.bucket_still import still
from labkit.widgets.explorer import Explorer
from labkit.widgets.hook_errors import as_ranks, hook_errors, norms, total_error
from labkit.words import plural

_SIZES = (384 * 384 * 4, 384 * 4) * 40
_CAPS_MB = (0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 12, 25, 50, 100)
_MOST_PARAMETERS = 400
_BACKWARD_S = 10e-3

_More = tuple[list[tuple[str, Row]], str, dict[str, Any]]
"""Rows that are drawn too, what is said of them, and their numbers."""


def bucket_explorer(
    sizes: Sequence[int] | None = None,
    plan: Callable[[list[int], int], Any] | None = None,
    *,
    cap_mb: float = 5,
    first_mb: float = 0,
    compare: Sequence[float] = (),
    used: Sequence[int] | None = None,
    graph: str = "default",
    step: int = 3,
    hook: str = "none",
    gradients: Sequence[Any] | None = None,
    forward_s: float | None = None,
    backward_s: float | None = None,
    optimizer_s: float | None = None,
    search_s: float | None = None,
    skew_s: float = 0,
    num_ranks: int = 8,
    latency_s: float = 20e-6,
    bandwidth_Bps: float = 12.5e9,  # noqa: N803  as the lessons write it
    run: Timeline | None = None,
    run_steps: Sequence[int] = (-1,),
) -> Explorer:
    """Return a figure that shows the buckets of one step: what is in them, when they travel, how much is exposed.

    Gradients become ready evenly over backward, last layer first; a bucket's ring all_reduce takes 2(N-1)(latency +
    bytes/N/bandwidth), one at a time, and begins when the slowest rank has its gradients too.

    Args:
        sizes: Bytes of each parameter's gradient in the order of registration; without it 40 layers of 384 x 384.
        plan: plan(sizes, cap_bytes) returns the buckets, lists of indices; None is the rule of lesson 04, in the order
            that torch's DDP takes (``buckets.ddp_plan``).
        cap_mb: What a bucket may hold to begin with, in units of 2**20 bytes.
        first_mb: What the first bucket may hold; 0: as the others. torch's DDP begins with 1.
        compare: Caps to stack on one axis, math.inf for one bucket; without it, the figure offers 1, 25 and a single
            bucket.
        used: Indices into sizes in the order in which forward uses them, if that is not the order of registration.
        graph: What DDP is told: "default", "find_unused_parameters" or "static_graph".
        step: 1, 2, or 3 for all later ones: DDP rebuilds its buckets after 1, with a static graph after 2.
        hook: What is done to a bucket before it is sent: "none", "fp16", "PowerSGD, rank 4" or "top 1 %".
        gradients: A real gradient for each parameter, or such a list for each rank: what hooks send and lose is
            measured on them. Without sizes, their bytes are the sizes.
        forward_s: Time of forward; half of backward's without it.
        backward_s: Time of backward; by default the run's own, else 10 ms.
        optimizer_s: Time of the optimizer; a tenth of backward's without it.
        search_s: Time of DDP's search for unused parameters; without it as measured on a CPU, 2 µs a parameter.
        skew_s: How much later than rank 0 the slowest rank is.
        num_ranks: Number of ranks, 2 to 64.
        latency_s: Latency of a message, in seconds.
        bandwidth_Bps: Rate of a link, bytes per second.
        run: The timeline of a run with spans "forward" and "backward" (and "optimizer"), drawn under the model.
        run_steps: Which of the run's steps are drawn: 0 is the first, -1 the last.

    Raises:
        ConfigError: If there are no sizes, or too many, or the plan is not a list of lists, or the run has no such
            step.
    """
    ranks = None if gradients is None else as_ranks(gradients)
    own = sizes is None and ranks is None
    sizes = [int(size) for size in _bytes_of(sizes, ranks)]
    _refuse(sizes, ranks, used, hook, graph, compare)
    rows = [] if run is None else [measured(run, each) for each in run_steps]
    link, phases = _times(rows, forward_s, backward_s, optimizer_s, (num_ranks, latency_s, bandwidth_Bps, skew_s, hook))
    searched = measured_hooks.SEARCH_S * len(sizes) if search_s is None else search_s
    model = _Model(sizes, used, graph, step, round(first_mb * 2**20), link, phases, searched, _hooks(sizes, ranks, own))
    return _Figure(model, cap_mb, compare, rows, run_steps, repr(run)).explorer(plan)


def _bytes_of(sizes: Sequence[int] | None, ranks: Sequence[Sequence[Any]] | None) -> Sequence[int]:
    if sizes is not None:
        return sizes
    return _SIZES if ranks is None else [each.nbytes for each in ranks[0]]


def _times(
    rows: Sequence[Sequence[Row]],
    forward_s: float | None,
    backward_s: float | None,
    optimizer_s: float | None,
    rest: tuple[int, float, float, float, str],
) -> tuple[Link, tuple[float, float]]:
    """Return backward and the link, and the times of forward and optimizer: as given, as the run's, else shares."""
    lasted = {letter: end - start for letter, start, end in rows[-1][0].compute} if rows else {}
    backward_s = backward_s or lasted.get("B") or _BACKWARD_S
    forward_s = lasted.get("F", backward_s / 2) if forward_s is None else forward_s
    optimizer_s = lasted.get("O", 0.0 if rows else backward_s / 10) if optimizer_s is None else optimizer_s
    return Link(backward_s, *rest), (forward_s, optimizer_s)


@dataclass
class _Model:
    """A step as it is computed: the arguments of bucket_explorer, completed.

    Attributes:
        phases: Seconds of forward and of the optimizer; backward's are the link's.
        made: The buckets and the fault of a plan of somebody's own, by cap; empty where it is the rule of lesson 04.
    """

    sizes: list[int]
    used: Sequence[int] | None
    graph: str
    step: int
    first: int
    link: Link
    phases: tuple[float, float]
    search_s: float
    hooks: Mapping[str, Any]
    made: dict[float, tuple[list[list[int]], str]] = field(default_factory=dict)

    @property
    def order(self) -> list[int]:
        """Indices of the parameters as forward uses them."""
        return list(range(len(self.sizes)) if self.used is None else self.used)

    def take(self, plan: Callable[[list[int], int], Any], caps: Sequence[float]) -> None:
        """Have the buckets made by `plan`, if they differ from the rule's."""
        made = {cap: checked(plan(list(self.sizes), round(cap * 2**20)), len(self.sizes)) for cap in caps}
        if any(made[cap] != (bucket_plan(self.sizes, cap * 2**20), "") for cap in caps):
            self.made = made

    def at(self, cap: float) -> tuple[list[list[int]], list[Row]]:
        """Return the buckets under a cap in MiB, and the rows of rank 0 and, where one is late, of the slowest."""
        if self.made:
            shown = self.made[cap][0] if cap in self.made else [list(range(len(self.sizes)))]
        else:
            shown = ddp_plan(self.sizes, cap * 2**20, self.first, self.order, self.graph, self.step)
        times = sent(self.sizes, shown, self.link, self.order, self.hooks["hooks"][self.link.hook].get("bytes"))
        searched = self.search_s if self.graph == "find_unused_parameters" and not self.made else 0.0
        whose = (0, 1) if self.link.skew_s else (0,)
        return shown, [modelled(times, self.link, *self.phases, rank, searched) for rank in whose]

    def as_data(self) -> dict[str, Any]:
        """Return what the page computes with."""
        link, (forward_s, optimizer_s) = self.link, self.phases
        data: dict[str, Any] = {"first": self.first, "hook": link.hook, "late": min(link.skew_s / link.backward_s, 1)}
        data |= {**self.hooks, "forward": forward_s, "backward": link.backward_s, "optimizer": optimizer_s}
        data |= {"search": self.search_s, "ranks": link.num_ranks, "latency": link.latency_s}
        data |= {"bandwidth": link.bandwidth_Bps, "graph": self.graph, "turn": self.step}
        return data if self.used is None else data | {"used": list(self.used)}


@dataclass
class _Figure:
    """What is drawn of a model and of a run, and the sentences about it."""

    model: _Model
    cap_mb: float
    compare: Sequence[float]
    rows: Sequence[Sequence[Row]]
    run_steps: Sequence[int]
    whose_run: str

    def explorer(self, plan: Callable[[list[int], int], Any] | None) -> Explorer:
        """Return the figure, its buckets made by `plan` where there is one."""
        model = self.model
        caps = sorted({self.cap_mb, *_CAPS_MB, *(cap for cap in self.compare if cap < math.inf)})
        source = f"{float(f'{sum(model.sizes) / 2**20:.3g}'):g} MiB of gradients"
        if plan is not None:
            source += f", plan: {getattr(plan, '__name__', 'plan')}"
            model.take(plan, caps)
        stack = [None if cap == math.inf else round(cap * 2**20) for cap in self.compare or (1, 25, math.inf)]
        data: dict[str, Any] = {"sizes": model.sizes, "caps": [round(cap * 2**20) for cap in caps]}
        data |= {"cap": round(self.cap_mb * 2**20), **model.as_data(), "compare": stack}
        data |= {"compared": "caps" if self.compare else "nothing", "source": source}
        if model.made:
            data |= {"plans": [model.made[cap][0] for cap in caps], "faults": [model.made[cap][1] for cap in caps]}
        shown, modelled_rows = model.at(self.cap_mb)
        numbers, sentence = self._told(shown, modelled_rows[0])
        drawn = [("model" if row is modelled_rows[0] else "slowest", row) for row in modelled_rows]
        for more, words, told in (self._stacked(), self._measured(data)):
            drawn += more
            numbers |= told
            sentence += words
        if self.rows:
            steps = "steps" if len(self.rows) > 1 else "the last step"
            data["source"] += f"; below: {steps} of {self.whose_run}"
        problem = model.made[self.cap_mb][1] if model.made else ""
        scene = still(model.sizes, shown, model.order, drawn, sentence, problem)
        words = f"{sentence} {problem}".strip()
        return Explorer(words, numbers, "bucket_explorer.js", "bucketExplorer", data, scene)

    def _told(self, shown: Sequence[Sequence[int]], row: Row) -> tuple[dict[str, Any], str]:
        """Return the numbers of the model, and what they say."""
        comm, exposed, waits = communication(row), bucket_steps.exposed(row), bucket_steps.waiting(row)
        link, hooks, num_buckets = self.model.link, self.model.hooks, sum(map(bool, shown))
        numbers: dict[str, Any] = {"buckets": num_buckets, "step_s": row.end, "communication_s": comm}
        numbers |= {"exposed_s": exposed, "waiting_s": waits, "skew_s": link.skew_s}
        numbers["overlapped"] = 1 - exposed / comm if comm else 0.0
        if "norms" in hooks:
            numbers["errors"] = {name: total_error(each["errors"], hooks["norms"]) for name, each in _lossy(hooks)}
        sentence = (
            f"{plural(num_buckets, 'bucket')} of at most {self.cap_mb:g} MiB: {1e3 * comm:.3g} ms of communication, "
            f"{1e3 * exposed:.3g} ms of it exposed after {1e3 * link.backward_s:.3g} ms of backward."
        )
        return numbers, sentence + (f" Rank 0 waits {1e3 * waits:.3g} ms for the slowest rank." if waits else "")

    def _stacked(self) -> _More:
        """Return the rows of the caps that are compared, what is said of them, and their numbers."""
        if not self.compare:
            return [], "", {}
        stacked = {cap: self.model.at(cap)[1][0] for cap in self.compare}
        named = {cap: "one bucket" if cap == math.inf else f"{cap:g} MiB" for cap in self.compare}
        told = ", ".join(f"{named[cap]}: {1e3 * row.end:.3g} ms" for cap, row in stacked.items())
        compared = {"compared": {cap: row.end for cap, row in stacked.items()}}
        return [(named[cap], row) for cap, row in stacked.items()], f" A step with {told}.", compared

    def _measured(self, data: dict[str, Any]) -> _More:
        """Return the rows of the run, what is said of it, and its numbers; tell the page of it."""
        if not self.rows:
            return [], "", {}
        told = run_numbers(self.rows[-1])
        worth = [(at, row) for at, each in zip(self.run_steps, self.rows, strict=True) for row in worth_showing(each)]
        labels = [_label(number, row, len(self.rows) > 1) for number, row in worth]
        data["run"] = [[label, *_as_data(row)] for label, (_, row) in zip(labels, worth, strict=True)]
        data["measured"] = {word.removesuffix("_s").replace("_", " "): value for word, value in told.items()}
        words = f" This run: a step of {1e3 * told['step_s']:.3g} ms, {1e3 * told['exposed_s']:.3g} ms exposed."
        return [(f"run, {label}", row) for label, (_, row) in zip(labels, worth, strict=True)], words, {"run": told}


def _refuse(
    sizes: Sequence[int],
    ranks: Sequence[Sequence[Any]] | None,
    used: Sequence[int] | None,
    hook: str,
    graph: str,
    compare: Sequence[float],
) -> None:
    """Raise ConfigError for what cannot be shown."""
    if not 0 < len(sizes) <= _MOST_PARAMETERS or min(sizes) <= 0:
        raise ConfigError(f"{len(sizes)} sizes were given; 1 to {_MOST_PARAMETERS} are shown, each of 1 byte or more.")
    if ranks is not None and len(ranks[0]) != len(sizes):
        raise ConfigError(
            f"{len(sizes)} sizes and {len(ranks[0])} gradients were given; give one of each for every parameter."
        )
    if used is not None and sorted(used) != list(range(len(sizes))):
        raise ConfigError(f"used has {len(used)} indices; it must have each of 0 to {len(sizes) - 1} once.")
    for name, value, known in (("hook", hook, tuple(HOOKS)), ("graph", graph, GRAPHS)):
        if value not in known:
            raise ConfigError(f"{name}={value!r} is not known; use one of {', '.join(map(repr, known))}.")
    if any(not cap > 0 for cap in compare):
        raise ConfigError(
            f"compare={list(compare)} has a cap that is not above 0 MiB; use one that is, or math.inf for a single "
            "bucket."
        )


def _hooks(sizes: Sequence[int], ranks: Sequence[Sequence[Any]] | None, own: bool) -> dict[str, Any]:
    """Return what the page is told of hooks: cost, bytes of each parameter, and errors where gradients are known."""
    lost = {} if ranks is None else hook_errors(ranks)
    hooks: dict[str, dict[str, Any]] = {name: {"passes": hook.passes} for name, hook in HOOKS.items()}
    for name, hook in list(HOOKS.items())[1:]:
        hooks[name] |= {"bytes": lost[name].num_bytes if lost else [_short(hook.packed(size)) for size in sizes]}
        hooks[name] |= {"gathered": True} if hook.gathered else {}
        if lost or own:
            errors = lost[name].errors if lost else measured_hooks.ERRORS[name]
            hooks[name]["errors"] = [float(f"{value:.3g}") for value in errors]
    if not (lost or own):
        return {"hooks": hooks}
    sizes_of = norms(ranks) if ranks is not None else measured_hooks.NORMS
    words = measured_hooks.WORDS if ranks is None else f"on your gradients of {len(ranks)} rank{'s' * (len(ranks) > 1)}"
    return {"hooks": hooks, "norms": [float(f"{value:.3g}") for value in sizes_of], "measuredOn": words}


def _lossy(hooks: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, each) for name, each in hooks["hooks"].items() if "errors" in each]


def _label(number: int, row: Row, several: bool) -> str:
    step = "last step" if number == -1 else f"step {number + 1}"
    return f"rank {row.rank}, {step}" if several else f"rank {row.rank}"


def _as_data(row: Row) -> list[Any]:
    compute = [[letter, _short(start), _short(end)] for letter, start, end in row.compute]
    sent_ = [[s.num_bytes, *map(_short, (s.ready, s.all_ready, s.start, s.end))] for s in row.sent]
    return [compute, sent_]


def _short(value: float) -> float:
    return float(f"{value:.6g}")
