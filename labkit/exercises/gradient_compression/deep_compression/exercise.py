"""Deep gradient compression: clipping, momentum and a share that shrinks, in front of top-k."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Value, Values
from labkit.checks.compare import near, wrong_value
from labkit.checks.declared import Mistake, declared
from labkit.checks.draws import normal
from labkit.checks.finding import Finding
from labkit.checks.values import integer, number, records, tensor
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression import packets
from labkit.exercises.gradient_compression.deep_compression.driver import drive


def deep_case(
    name: str,
    seed: int,
    calls: Sequence[tuple[str | None, Sequence[int]]],
    *,
    ratio: float = 0.1,
    momentum: float = 0.9,
    max_norm: float = 1e9,
    num_ranks: int = 1,
    warmup: int = 0,
    gaps: bool = False,
) -> Case:
    """Return a case: (key, shape) of each call in turn, and what the compressor is made with."""
    of_calls: list[Value] = [
        {
            "key": key,
            "gradient": normal(seed + place, *shape, dtype=torch.float64),
            "layout": "not contiguous" if gaps else "contiguous",
        }
        for place, (key, shape) in enumerate(calls)
    ]
    made: dict[str, Value] = {"ratio": ratio, "momentum": momentum, "max_norm": max_norm, "num_ranks": num_ranks}
    return Case(name, 1, (made | {"warmup": warmup, "calls": of_calls},))


@dataclass(frozen=True)
class _Way:
    """How a step is taken: right by default; every flag turns one rule off."""

    clips: bool = True
    alone: bool = False
    always: bool = False
    entries: bool = False
    of_ranks: bool = False
    nesterov: bool = False
    dampens: bool = False
    from_one: bool = False
    late: bool = False
    afterwards: bool = False
    remembers: bool = True
    corrects: bool = True
    masks: bool = True
    clears: bool = True
    warms: bool = True
    by_key: bool = True
    counts_all: bool = False
    begins_whole: bool = False
    sinks: bool = False
    never_off: bool = False
    norm: float = 2.0
    one_tensor: bool = False
    fades: bool = False
    cycles: bool = False


_WRONG = {
    "not clipped": _Way(clips=False),
    "clipped as if alone": _Way(alone=True),
    "clipped after the momentum": _Way(afterwards=True),
    "no residual": _Way(remembers=False),
    "no momentum": _Way(corrects=False),
    "momentum of what was sent": _Way(masks=False),
    "what was sent stays": _Way(clears=False),
    "no warm-up": _Way(warms=False),
    "one state for all keys": _Way(by_key=False),
    "warm-up counts all keys": _Way(counts_all=True),
    "every gradient is scaled": _Way(always=True),
    "each entry is clipped": _Way(entries=True),
    "clipped by the number of ranks": _Way(of_ranks=True),
    "Nesterov's momentum": _Way(nesterov=True),
    "the gradient is dampened": _Way(dampens=True),
    "warm-up counts from one": _Way(from_one=True),
    "the residual is clipped": _Way(clips=False, late=True),
    "warm-up begins with everything": _Way(begins_whole=True),
    "the share sinks below the ratio": _Way(sinks=True),
    "warm-up where there is none": _Way(never_off=True),
    "clipped by another norm": _Way(norm=math.inf),
    "clipped by the sum of magnitudes": _Way(norm=1.0),
    "the residual fades": _Way(fades=True),
    "warm-up by the remainder": _Way(cycles=True),
    "a copy is cleared": _Way(masks=False, clears=False),
    "velocity and residual are one tensor": _Way(one_tensor=True),
}
"""What an answer looks like that breaks one rule."""


def _replay(case: Case, way: _Way) -> Iterator[Tensor]:
    """Yield what is unpacked in each call."""
    made = case.inputs[0]
    velocities: dict[str, Tensor] = {}
    residuals: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    for place, call in enumerate(records(made, "calls")):
        key, gradient = f"{call['key']}" if way.by_key else "", tensor(call, "gradient")
        blank = torch.zeros_like(gradient)
        num_ranks, momentum = integer(made, "num_ranks"), number(made, "momentum")
        limit = number(made, "max_norm") / (1.0 if way.alone else num_ranks if way.of_ranks else math.sqrt(num_ranks))
        if way.entries:
            gradient = gradient.clamp(-limit, limit)
        elif way.always:
            gradient = gradient * (limit / float(gradient.norm()))
        elif way.clips and not way.afterwards:
            gradient = _clipped(gradient, limit, way.norm)
        part = (1 - momentum) * gradient if way.dampens else gradient
        velocity = momentum * velocities.get(key, blank) + part if way.corrects else gradient
        if way.afterwards:
            velocity = _clipped(velocity, limit)
        step = gradient + momentum * velocity if way.nesterov else velocity
        residual = (momentum if way.fades else 1) * (residuals.get(key, blank) if way.remembers else blank) + step
        if way.one_tensor and key in residuals:
            velocity = residual = 2 * velocity
        residual = _clipped(residual, limit) if way.late else residual
        calls = place if way.counts_all else counts.get(key, 0) + way.from_one
        there = _largest(residual, _share(case, calls, way))
        yield torch.where(there, residual, 0.0)
        counts[key] = counts.get(key, 0) + 1
        residuals[key] = residual.masked_fill(there, 0.0) if way.clears else residual
        velocities[key] = velocity.masked_fill(there, 0.0) if way.masks else velocity


def _clipped(gradient: Tensor, limit: float, norm: float = 2.0) -> Tensor:
    return gradient * min(1.0, limit / float(gradient.norm(norm)))


def _share(case: Case, call: int, way: _Way) -> float:
    ratio, warmup = number(case.inputs[0], "ratio"), integer(case.inputs[0], "warmup")
    if not way.warms or not (warmup or way.never_off):
        return ratio
    stage = call % max(warmup, 1) if way.cycles else call // max(warmup, 1)
    share = 0.25 ** ((not way.begins_whole) + stage)
    return share if way.sinks else max(ratio, share)


def _largest(residual: Tensor, share: float) -> Tensor:
    count = max(1, int(share * residual.numel()))
    there = torch.zeros(residual.numel(), dtype=torch.bool)
    there[residual.abs().flatten().topk(count).indices] = True
    return there.view(residual.shape)


def expected(case: Case) -> list[Values]:
    """Return what must come back in each call (the oracle)."""
    calls: list[Value] = [{"unpacked": each, "changed": False, "bytes": 0} for each in _replay(case, _Way())]
    return [{"calls": calls}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong, in the order of the calls."""
    came, asked = records(got[0], "calls"), records(case.inputs[0], "calls")
    for place, (right, mine, call) in enumerate(zip(_replay(case, _Way()), came, asked, strict=True)):
        where = f"Call {place}" + ("" if call["key"] is None else f" with the key {call['key']}")
        if "problem" in mine:
            yield Finding("no packet", f"{where}: {mine['problem']}.")
        if mine["changed"]:
            yield Finding("gradient changed", f"{where} changed the gradient it was given.")
        back = tensor(mine, "unpacked")
        if not near(back, right):
            ways = [(name, partial(_call, case, way, place)) for name, way in _WRONG.items()]
            name = _in_every_call(case, got) or as_if(back, ways, near)
            if not name and int((back != 0).sum()) != int((right != 0).sum()):
                name = "another share"
            yield wrong_value(name or "a wrong packet", f"{where}: what was unpacked", back, right)
        most = int((right != 0).sum()) * 12
        if integer(mine, "bytes") > most:
            message = f"{where}: the packet has {mine['bytes']} bytes, and {most} are enough."
            yield Finding("too many bytes", message, f"at most {most} bytes", f"{mine['bytes']} bytes")


def _in_every_call(case: Case, got: tuple[Values, ...]) -> str:
    """Return which broken rule gives what came in all calls, or ""."""
    came = [tensor(each, "unpacked") for each in records(got[0], "calls")]
    for name, way in _WRONG.items():
        try:
            if all(near(mine, there) for mine, there in zip(came, _replay(case, way), strict=True)):
                return name
        except RuntimeError:  # residuals of other sizes met
            continue
    return ""


def _call(case: Case, way: _Way, place: int) -> Tensor:
    """Return what comes back in one call of an answer that breaks a rule; another shape where keys meet."""
    try:
        return [*_replay(case, way)][place]
    except RuntimeError:  # residuals of other sizes met
        return torch.zeros(0, dtype=torch.float64)


EXERCISE = declared(
    id="deep_compression",
    functions=("DeepCompression",),
    given=("Packet", "num_kept", "TopK"),
    driver=drive,
    oracle=expected,
    looks=(find,),
    mistakes=(
        Mistake("one state for all keys",
                "Keys got mixed up: velocity, residual and the number of calls each belong to one key.",
                says=("must match the size of tensor",), certain=True),
        packets.GAPS,
        packets.NO_PACKET,
        packets.CHANGED,
        packets.NOTHING_BACK,
        Mistake("not clipped",
                "The gradient is not clipped: if its norm is more than max_norm / sqrt(num_ranks), scale it down to "
                "that, before anything else."),
        Mistake("clipped as if alone",
                "Each rank clips to max_norm / sqrt(num_ranks): the sum of N such gradients has about sqrt(N) times "
                "the norm of one."),
        Mistake("clipped after the momentum", "Clip the gradient before it goes into the velocity, not the velocity."),
        Mistake("no residual",
                "The velocity adds up in a residual, of which the largest entries are sent. What is not sent stays: "
                "only where an entry is sent the residual becomes 0."),
        Mistake("no momentum",
                "velocity = momentum * velocity + gradient comes before the residual: residual += velocity. Only "
                "where an entry is sent the velocity becomes 0."),
        Mistake("momentum of what was sent",
                "Clear what is sent from the velocity too, or old momentum pushes an entry that has just been sent."),
        Mistake("what was sent stays", "Clear what is sent from the residual."),
        Mistake("no warm-up", "While it warms up, more entries are kept: max(ratio, 0.25 ** (1 + call // warmup))."),
        Mistake("warm-up counts all keys",
                "The warm-up counts the calls of one key: DDP calls once for each bucket in a step."),
        Mistake("every gradient is scaled",
                "A gradient was scaled up: only one whose norm is above max_norm / sqrt(num_ranks) changes. Multiply "
                "by min(1, limit / norm)."),
        Mistake("each entry is clipped",
                "Each entry was clamped. Clipping looks at the norm of the whole gradient and scales all entries by "
                "one factor."),
        Mistake("clipped by the number of ranks",
                "The limit is max_norm / sqrt(num_ranks), not max_norm / num_ranks: the sum of N independent gradients "
                "is sqrt(N) times as long as one."),
        Mistake("Nesterov's momentum",
                "The residual grows by more than the velocity: no gradient is added beside it (that is Nesterov's)."),
        Mistake("the gradient is dampened",
                "velocity = momentum * velocity + gradient, with the whole gradient: it is no running mean."),
        Mistake("warm-up counts from one",
                "The calls of a key count from 0: the first w of them keep a quarter."),
        Mistake("the residual is clipped",
                "The residual was scaled down, but it is the gradient that is clipped, before it goes into the "
                "velocity."),
        Mistake("warm-up begins with everything",
                "The first stage keeps a quarter, not all: the exponent is 1 + n // w."),
        Mistake("the share sinks below the ratio",
                "After some stages fewer entries are kept than ratio says: max(ratio, 0.25 ** (1 + n // w))."),
        Mistake("warm-up where there is none",
                "With warmup = 0 there is no warm-up: the share is `ratio` from the first call on.",
                says=("division or modulo by zero", "division by zero"), certain=True),
        Mistake("clipped by another norm",
                "The gradient was measured by its largest entry. Its norm is gradient.norm(), the root of the sum of "
                "squares."),
        Mistake("clipped by the sum of magnitudes",
                "The gradient was measured by the sum of its magnitudes. Its norm is gradient.norm(), the root of the "
                "sum of squares."),
        Mistake("the residual fades",
                "The old residual was multiplied by the momentum: that is the velocity's factor. What has not been "
                "sent waits in full."),
        Mistake("warm-up by the remainder",
                "A stage lasts w calls: it is n // w. The remainder n % w begins anew every w calls."),
        Mistake("a copy is cleared",
                "What is sent was cleared neither from the velocity nor from the residual. Of a tensor that is not "
                "contiguous, flatten() and reshape(-1) make a copy, and the 0 goes into the copy: make both contiguous "
                "first."),
        Mistake("velocity and residual are one tensor",
                "From the second call on, velocity and residual are the same tensor: both names were given the first "
                "gradient's, and an operation in place changes both. residual = old residual + velocity makes a new "
                "one."),
        Mistake("another share", "Keep num_kept(share, entries) entries of the residual, with the share of this call."),
        Mistake("too many bytes", "The packet holds the kept values and their places as int32, as TopK's does."),
    ),
    visible=(
        deep_case("one key, five steps", 681, [(None, (40,))] * 5),
        deep_case("clipped, four ranks", 682, [(None, (30,))] * 4, max_norm=2.0, num_ranks=4),
        deep_case("two keys that warm up", 683, [("a", (80,)), ("b", (24,))] * 5, ratio=0.04, warmup=2),
        deep_case("a matrix, not contiguous", 684, [(None, (5, 8))] * 4, gaps=True),
    ),
    distributed=False,
    hints=(
        "Follow one entry of 0.1 through three steps that do not send it, once with momentum before the residual and "
        "once after. What has accumulated?",
        "For each key: a velocity, a residual, a number of calls. Clip; velocity = momentum * velocity + gradient; "
        "residual += velocity; top-k of the residual; zero what was sent in both.",
        "packet = TopK(share).compress(residual); places = packet.parts[1].long(); residual.view(-1)[places] = 0; "
        "velocity.view(-1)[places] = 0.",
    ),
)  # fmt: skip
