"""A design: a model too large for its devices, with the optimizer of some layers in the host's memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, cast

from labkit.checks.case import Case, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING
from labkit.checks.wire import Wire
from labkit.exercises.sharded_training.jobs import GB, job_of
from labkit.exercises.sharded_training.offload_plan.driver import drive
from labkit.exercises.sharded_training.step_designs import (
    ILLEGAL,
    NO_PLAN,
    TOO_MUCH,
    flags_of,
    last_layers,
    misfits,
)
from labkit.plans.offloaded_step import Host, OffloadPlan, offload_fault, offloaded_cost
from labkit.plans.sharded_step import Job, StepPlan


def offload_case(name: str, *, host_gb_s: float = 12, adam_per_s: float = 0.25e9, **job: Any) -> Case:
    """Return a case of offload_plan; see job_of for what else may be given."""
    about = job_of(**{"width": 5120, "num_layers": 40, **job})
    host = Host(link_bytes_s=host_gb_s * GB, adam_params_s=adam_per_s)
    return Case(name, 1, ({"job": dict(vars(about)), "host": dict(vars(host))},))


def _asked(case: Case) -> tuple[Job, Host]:
    given = cast(dict[str, dict[str, Any]], case.inputs[0])
    return Job.of(given["job"]), Host(**given["host"])


def _plan(values: Values) -> OffloadPlan | None:
    data = values["plan"]
    if not isinstance(data, dict) or set(data) != {"microbatch", "keep", "save", "host"}:
        return None
    keep, save, host = (flags_of(data[name]) for name in ("keep", "save", "host"))
    if type(data["microbatch"]) is not int or keep is None or save is None or host is None:
        return None
    return OffloadPlan(StepPlan(data["microbatch"], keep, save), host)


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield why this is no plan, or why it does not fit."""
    (job, host), returned = _asked(case), f"offload_plan returned {got[0]['plan']!s:.90}, expected an OffloadPlan."
    yield from misfits(
        job,
        _plan(got[0]),
        returned,
        partial(offload_fault, job),
        lambda plan: offloaded_cost(job, host, plan).peak_bytes,
    )


def score(case: Case, got: tuple[Values, ...]) -> float:
    """Return the seconds of a step by the plan that came."""
    plan = _plan(got[0])
    assert plan is not None
    return offloaded_cost(*_asked(case), plan).seconds


def pars(case: Case) -> Pars:
    """Return the seconds with everything in the host's memory, of Twin-Flow at its best setting, and of the best.

    The first has the largest microbatch that fits and computes everything again. Twin-Flow is ZeRO-Offload++'s (2023):
    the optimizer of some layers stays on the device; here with the best microbatch and as many saved activations as
    fit. The best known may keep the last layer whole, too.
    """
    return _pars(*_asked(case))


@lru_cache(maxsize=64)
def _pars(job: Job, host: Host) -> Pars:
    sizes = [each for each in range(1, job.num_samples + 1) if job.num_samples % each == 0]
    none = last_layers(0, job)
    plain = {
        (size, moved): offloaded_cost(job, host, OffloadPlan(StepPlan(size, none, none), last_layers(moved, job)))
        for size in sizes
        for moved in range(job.num_layers + 1)
    }
    fitting = {each: found.seconds for each, found in plain.items() if found.peak_bytes <= job.memory_bytes}
    largest = max(size for size, _ in fitting)
    twin_flow, one_whole = (
        min(
            _most_saved(job, host, size, last_layers(kept, job), last_layers(moved, job))
            for size in sizes
            for moved in range(job.num_layers + 1)
        )
        for kept in (0, 1)
    )
    return Pars(fitting[largest, job.num_layers], twin_flow, min(twin_flow, one_whole))


def _most_saved(job: Job, host: Host, size: int, keep: tuple[bool, ...], moved: tuple[bool, ...]) -> float:
    """Return the seconds with as many activations saved as fit: the more the faster; infinity where nothing fits."""
    found, low, high = float("inf"), 0, job.num_layers
    while low <= high:
        middle = (low + high) // 2
        cost = offloaded_cost(job, host, OffloadPlan(StepPlan(size, keep, last_layers(middle, job)), moved))
        if cost.peak_bytes <= job.memory_bytes:
            found, low = min(found, cost.seconds), middle + 1
        else:
            high = middle - 1
    return found


EXERCISE = declared(
    id="offload_plan",
    functions=("offload_plan",),
    driver=drive,
    oracle=lambda case: [],
    structure=lambda case: [{"plan": ANYTHING}],
    looks=(find,),
    mistakes=(
        Mistake(NO_PLAN,
                "Return OffloadPlan(StepPlan(microbatch, keep, save), host), with a tuple of bools for each layer in "
                "keep, save and host."),
        Mistake(ILLEGAL,
                "microbatch divides job.num_samples; keep, save and host have job.num_layers entries each."),
        Mistake(TOO_MUCH,
                "offloaded_cost(job, host, plan).peak_bytes says what a plan needs. Move more layers' optimizer to "
                "the host, save fewer activations, or take a smaller microbatch, until it is at most "
                "job.memory_bytes."),
    ),
    visible=(
        offload_case("13 B on eight devices of 24 GB"),
        offload_case("the same with a faster host", adam_per_s=0.5e9),
        offload_case("the same with a slow host and 32 GB", adam_per_s=0.1e9, memory_gb=32),
    ),
    hints=(
        "Whose update can the host do while the device is still at work? Whose has nothing left to hide behind?",
        "Backward goes from the last layer to the first. The last layers' gradients come early, so their update is "
        "hidden; the first layers' is not: keep their optimizer on the device. What you spare in memory buys "
        "microbatch and saved activations.",
        "Try every microbatch that divides, every number of layers to move and to save, counted from the last, and "
        "keep none whole: of those with peak_bytes <= memory_bytes take the one with the fewest seconds.",
    ),
    distributed=False,
    challenge=Challenge("s", score, pars, plan="plan", reference="Twin-Flow"),
)  # fmt: skip
