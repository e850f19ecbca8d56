"""bucket_design: a design. Which gradients travel together, for three models on two networks; the answer is data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from labkit.checks import values
from labkit.checks.case import Case, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import Each, OneOf
from labkit.checks.wire import Wire
from labkit.exercises.ddp.bucket_design.driver import drive
from labkit.exercises.ddp.models import MODELS, NETWORKS, Gradients
from labkit.exercises.ddp.timing import Step, end_us, least_us, merged, one_bucket

Plan = list[list[int]]


def design_case(name: str, model: Gradients, network: tuple[int, int]) -> Case:
    """Return a case: a model's gradients, and (start_us, bytes_per_us) of a network."""
    num_bytes, ready_us = model
    start_us, bytes_per_us = network
    given = {"num_bytes": num_bytes, "ready_us": ready_us, "start_us": start_us, "bytes_per_us": bytes_per_us}
    return Case(name, 1, (cast(Values, given),))


def asked(case: Case) -> Step:
    """Return what a plan is made for."""
    inputs = case.inputs[0]
    return Step(
        values.integers(inputs, "num_bytes"),
        values.integers(inputs, "ready_us"),
        values.integer(inputs, "start_us"),
        values.integer(inputs, "bytes_per_us"),
    )


def structure(case: Case) -> list[Any]:
    """Return what comes: a list of lists of indices, or in words what else."""
    return [{"plan": OneOf((Each(Each(OneOf((int, str)))), str))}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what makes it no plan: a gradient that never travels, or travels twice; or a plan that cannot overlap."""
    step, plan = asked(case), got[0]["plan"]
    count = len(step.num_bytes)
    if not isinstance(plan, list) or any(type(index) is not int for bucket in cast(Any, plan) for index in bucket):
        came = plan if isinstance(plan, str) else repr(plan)
        shown = came if len(came) <= 60 else f"{came[:57]}..."
        yield Finding(_FORM, f"bucket_design returned {shown}, not a list of lists of indices.")
        return
    flat = [index for bucket in cast(Plan, plan) for index in bucket]
    outside = [index for index in flat if not 0 <= index < count]
    if outside:
        yield Finding(_OUTSIDE, f"There is no parameter {outside[0]}; they are 0 to {count - 1}.")
    missing = sorted(set(range(count)) - set(flat))
    if missing:
        yield Finding(_MISSING, f"Parameter {missing[0]} is in no bucket: its gradient is never averaged.")
    twice = next((index for index in flat if flat.count(index) > 1), None) if len(flat) != len(set(flat)) else None
    if twice is not None:
        yield Finding(_TWICE, f"Parameter {twice} is in two buckets: its gradient would be averaged twice.")
    if [] in plan:
        yield Finding(_EMPTY, f"Bucket {plan.index([])} is empty.")
    latest = max(step.ready_us, default=0)
    if len(plan) > 1 and max(step.ready_us[index] for index in cast(Plan, plan)[0]) == latest:
        yield Finding(_WAITS, f"The first of {len(plan)} buckets waits until {latest} µs, when backward is over.")


def exposed_ms(case: Case, got: tuple[Values, ...]) -> float:
    """Return for how long communication goes on when backward is over, in ms."""
    step = asked(case)
    return _exposed(step, end_us(step, cast(Plan, got[0]["plan"])))


def pars(case: Case) -> Pars:
    """Return what one bucket, MG-WFBP's plan and the best known one leave exposed."""
    step = asked(case)
    ends = (end_us(step, one_bucket(step)), end_us(step, merged(step)), least_us(step))
    return Pars(*(_exposed(step, end) for end in ends))


def _exposed(step: Step, end: int) -> float:
    return (end - max(step.ready_us)) / 1000


_FORM, _OUTSIDE, _MISSING, _TWICE = "no plan", "no such parameter", "a parameter is lost", "a parameter twice"
_EMPTY, _WAITS = "an empty bucket", "the first bucket waits for everything"


EXERCISE = declared(
    id="bucket_design",
    functions=("bucket_design",),
    driver=drive,
    oracle=lambda case: [],
    structure=structure,
    looks=(find,),
    visible=tuple(
        design_case(f"{model_name}, {network_name}", model(), network)
        for model_name, model in MODELS.items()
        for network_name, network in NETWORKS.items()
    ),
    distributed=False,
    hints=(
        "When can the network start, and how much communication is left after backward? Large buckets spoil one of "
        "the two, small buckets the other.",
        "Go through the gradients in the order in which they are ready. A bucket that travels while backward computes "
        "costs nothing. So let the current bucket grow as long as the network is busy. Should it wait for one gradient "
        "more? That costs time, and saves a start. Or count backwards: if the last bucket holds the last k gradients, "
        "when should those before be through, and which k is best?",
        "order = sorted(range(len(ready_us)), key=lambda i: (ready_us[i], -i)). best[n] = the end of the best plan of "
        "the first n gradients, and that plan; it is the least of max(best[k], ready of gradient n - 1) + start_us + "
        "bytes of order[k:n] / bytes_per_us, over all k < n.",
    ),
    mistakes=(
        Mistake(_FORM, "Return a list of buckets; a bucket is a list of indices into num_bytes."),
        Mistake(_OUTSIDE, "A bucket holds indices, not bytes or times: 0 is the first parameter of the model."),
        Mistake(_MISSING,
                "Every parameter must be in a bucket. Did you keep the bucket that was filling when the loop ended?"),
        Mistake(_TWICE, "Every parameter belongs in exactly one bucket: begin the next bucket with an empty list."),
        Mistake(_EMPTY,
                "Begin a new bucket only if the last one holds something: a parameter may be larger than your limit."),
        Mistake(_WAITS,
                "Buckets leave in the order of your list, and a bucket leaves when its last gradient is ready. Which "
                "gradients are ready first? ready_us says so: they are those of the model's last layers."),
    ),
    challenge=Challenge("ms exposed", exposed_ms, pars, plan="plan", reference="MG-WFBP"),
)  # fmt: skip
