"""Error feedback around a compressor that no exercise asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.compare import near, wrong_value
from labkit.checks.declared import Mistake, declared
from labkit.checks.draws import normal
from labkit.checks.finding import Finding
from labkit.checks.values import integer, number, record, records, tensor
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression import packets
from labkit.exercises.gradient_compression.error_feedback.driver import drive
from labkit.exercises.gradient_compression.unpacked import ROUNDING, WINDOW, rounded, unpacked

Shape = int | tuple[int, ...]
_ONE_FOR_ALL, _FOR_ONE_COMPRESSOR = "one residual for all keys", "made for one compressor"
_ALL_SENT, _ROUND_TRIP = "0 where anything was sent", "of another packet"
_OTHERS_LOST, _SHARED = "residuals of other keys are lost", "the packet is changed in place"
_ITSELF, _PARTS = "the gradient itself, with no residual yet", "parts taken for values and places"
_UNLIKE = "a residual of another shape or dtype"
_ONLY_OLD, _ADDED, _BEFORE = "only the residual is sent", "what was sent is added", "the residual stays as it was"


def feedback_case(
    name: str, seed: int, calls: Sequence[tuple[str | None, Shape]], step: float = 1.0, kind: str = ROUNDING
) -> Case:
    """Return a case: (key, entries or shape) of each call in turn, rounded to multiples of step, or three kept."""
    shapes = [(size,) if isinstance(size, int) else size for _, size in calls]
    listed: list[Value] = [
        {"key": key, "gradient": normal(seed + number, *shapes[number], dtype=torch.float64)}
        for number, (key, _) in enumerate(calls)
    ]
    compressor: Value = {"kind": kind, "step": step, "start": 2, "length": 3, "shares": True}
    return Case(name, 1, ({"compressor": compressor, "calls": listed},))


@dataclass(frozen=True)
class _Step:
    """What must happen in one call: the residual before, what comes back, the residual after."""

    key: str
    gradient: Tensor
    before: Tensor
    back: Tensor
    after: Tensor


def _replay(case: Case) -> Iterator[_Step]:
    unsent: dict[str, Tensor] = {}
    for call in records(case.inputs[0], "calls"):
        key, gradient = f"{call['key']}", tensor(call, "gradient")
        before = unsent.get(key, torch.zeros_like(gradient))
        back = unpacked(record(case.inputs[0], "compressor"), gradient + before)
        unsent[key] = gradient + before - back
        yield _Step(key, gradient, before, back, unsent[key])


def expected(case: Case) -> list[Values]:
    """Return what must come back and what must stay behind after each call (the oracle)."""
    calls: list[Value] = [{"unpacked": each.back, "residual": each.after, "changed": False} for each in _replay(case)]
    return [{"calls": calls, "compressed": len(calls)}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong, in the order of the calls."""
    last: Tensor | None = None
    calls = records(got[0], "calls")
    for place, (right, came) in enumerate(zip(_replay(case), calls, strict=True)):
        where = f"Call {place}" + ("" if right.key == "None" else f" with the key {right.key}")
        if "problem" in came:
            yield Finding("no packet", f"{where}: {came['problem']}.")
        if came["changed"]:
            name = "gradient changed" if bool(right.before.any()) else _ITSELF
            yield Finding(name, f"{where} changed the gradient it was given.")
        back = tensor(came, "unpacked")
        if not near(back, right.back):
            yield wrong_value(_wrong_packet(case, right, back, last), f"{where}: what was unpacked", back, right.back)
        kept = came["residual"]
        if not isinstance(kept, Tensor):
            yield Finding("no residual under the key", f"{where}: residuals[key] is not a tensor.")
        elif kept.shape != right.after.shape or kept.dtype != right.after.dtype:
            is_, should = (f"{tuple(each.shape)} of {each.dtype}" for each in (kept, right.after))
            yield Finding(_UNLIKE, f"{where}: residuals[key] is {is_}, the gradient {should}.", should, is_)
        elif not near(kept, right.after):
            yield wrong_value(_wrong_residual(case, right, kept), f"{where}: the residual", kept, right.after)
        last = right.after
    compressed = integer(got[0], "compressed")
    if compressed != len(calls):
        message = f"For {len(calls)} gradients the compressor compressed {compressed} times."
        yield Finding("compresses twice", message, f"{len(calls)} times", f"{compressed} times")


def _wrong_packet(case: Case, right: _Step, back: Tensor, last: Tensor | None) -> str:
    def sent(gradient: Tensor) -> Tensor:
        return unpacked(record(case.inputs[0], "compressor"), gradient)

    several = len({call["key"] for call in records(case.inputs[0], "calls")}) > 1
    ways = [
        (_OTHERS_LOST if several else "no memory", lambda: sent(right.gradient)),
        ("the residual has the wrong sign", lambda: sent(right.gradient - right.before)),
        (_ONLY_OLD, lambda: sent(right.before)),
        ("decompress adds the residual", lambda: right.back + right.after),
    ]
    if record(case.inputs[0], "compressor")["kind"] == WINDOW:  # whose packets share memory
        ways.insert(0, (_SHARED, lambda: torch.zeros_like(right.back)))
    if last is not None and last.shape == right.gradient.shape and not bool(right.before.any()):
        ways.insert(0, (_ONE_FOR_ALL, lambda: sent(right.gradient + last)))
    return as_if(back, ways, near) or "a wrong packet"


def _wrong_residual(case: Case, right: _Step, kept: Tensor) -> str:
    corrected, about = right.gradient + right.before, record(case.inputs[0], "compressor")
    ways = [
        ("the residual has the wrong sign", lambda: -right.after),
        ("the old residual is forgotten", lambda: right.gradient - right.back),
        ("the residual is what was sent", lambda: right.back),
        ("the residual is all there was", lambda: corrected),
        ("residuals pile up", lambda: right.before + right.after),
        (_ADDED, lambda: corrected + right.back),
        (_BEFORE, lambda: right.before),
        (_ALL_SENT, lambda: torch.where(right.back != 0, 0.0, corrected)),
        (_ROUND_TRIP, lambda: right.gradient - unpacked(about, right.gradient)),
        (_ROUND_TRIP, lambda: corrected - unpacked(about, right.gradient)),
        (_FOR_ONE_COMPRESSOR, lambda: corrected - corrected.round()),
        (_FOR_ONE_COMPRESSOR, lambda: corrected - rounded(corrected, number(about, "step"))),
        (_FOR_ONE_COMPRESSOR, lambda: corrected - integer(about, "start")),  # the first part of a window
        (_FOR_ONE_COMPRESSOR, lambda: corrected - 7 * right.back),  # the product of both parts of what is rounded
    ]
    return as_if(kept, ways, near) or "a wrong residual"


def _sizes_meet(case: Case, got: Got, wire: Wire, *, keys: bool) -> bool:
    """Return whether sizes did not fit: residuals of several keys, or a residual and a part of the packet."""
    several = len({call["key"] for call in records(case.inputs[0], "calls")}) > 1
    return isinstance(got, Failure) and "must match the size of tensor" in got.message and several is keys


def _takes_parts(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the line that failed reads the packet's parts."""
    return isinstance(got, Failure) and "IndexError" in got.message and ".parts" in got.detail.rpartition("\n")[2]


EXERCISE = declared(
    id="error_feedback",
    functions=("ErrorFeedback",),
    given=("Packet",),
    driver=drive,
    oracle=expected,
    looks=(find,),
    mistakes=(
        Mistake(_ONE_FOR_ALL,
                "A key got another key's residual: keep one residual for each key, in self.residuals.",
                seen=partial(_sizes_meet, keys=True), certain=True),
        packets.NO_PACKET,
        packets.NOTHING_BACK,
        Mistake("gradient changed",
                "compress changed the caller's gradient: gradient += residual works in place. Write corrected = "
                "gradient + residual."),
        Mistake(_ITSELF,
                "With no residual yet, what you work on is the caller's gradient itself, and something changes it in "
                "place, such as corrected -= or index assignment. Begin with gradient.clone()."),
        Mistake(_PARTS,
                "A packet's parts are the compressor's own affair: only top-k sends values and places. "
                "self.compressor.decompress(packet) tells what was sent, whatever the parts are.",
                seen=_takes_parts, certain=True),
        Mistake("no memory",
                "The packets are those of the gradients alone: the residual must be added before compressing."),
        Mistake(_OTHERS_LOST,
                "The packet is that of the gradient alone: when the other key had its turn, this key's residual was "
                "lost. A call replaces the residual of its own key and leaves the others."),
        Mistake(_SHARED,
                "What was sent came back as 0. A packet may share memory with the tensor that it was made of, as a "
                "slice does, and an operation in place on that tensor (residual -= ...) changes the packet, too: put a "
                "new tensor into residuals."),
        Mistake(_ONLY_OLD,
                "The packet is what the old residual alone would give: what is compressed is the gradient plus the "
                "residual."),
        Mistake(_ADDED, "What was sent was added to the corrected gradient: subtract it, the rest is what is left."),
        Mistake(_BEFORE,
                "The residual is the one from before this call: put corrected minus what was sent in its place."),
        Mistake(_ALL_SENT,
                "The residual is 0 wherever something was sent. That is right for top-k, which sends entries as they "
                "are. A compressor with fewer bits sends an entry in part: subtract what decompress makes of the "
                "packet."),
        Mistake(_ROUND_TRIP,
                "The residual is what compressing the gradient alone leaves out. The packet that is sent was made of "
                "gradient + residual: what that one leaves out is the new residual."),
        Mistake(_FOR_ONE_COMPRESSOR,
                "The residual is right with one compressor and wrong with another: "
                "self.compressor.decompress(packet) tells what was sent.",
                seen=partial(_sizes_meet, keys=False), certain=True),
        Mistake("the residual has the wrong sign",
                "The residual is what is still to be sent: corrected minus what was sent, not the other way round."),
        Mistake("the old residual is forgotten",
                "The new residual is gradient minus what was sent; it must be gradient *plus old residual* minus "
                "what was sent, or what was left over before is lost."),
        Mistake("the residual is what was sent", "The residual is what was sent. It must be what was not."),
        Mistake("the residual is all there was",
                "The residual is the whole corrected gradient; subtract what was sent."),
        Mistake("residuals pile up",
                "The corrected gradient already contains the old residual: the new one replaces it."),
        Mistake("decompress adds the residual",
                "decompress returned what was sent plus the residual, which stays on this rank until it is sent. "
                "Return what the compressor makes of the packet, nothing else."),
        Mistake("compresses twice",
                "Compress once, and keep that packet: random-k draws other places in the next call, and the "
                "residual would not belong to what is sent."),
        Mistake("no residual under the key",
                "When compress returns, self.residuals[key] holds the residual. decompress also unpacks other ranks' "
                "packets, so it is too late there."),
        Mistake(_UNLIKE,
                "The residual keeps the gradient's shape and dtype, as corrected minus what was sent has them. "
                "torch.zeros(shape) is float32 whatever the gradient is: torch.zeros_like(gradient) is not."),
    ),
    visible=(
        feedback_case("one key, four steps", 641, [(None, (2, 3))] * 4),
        feedback_case("two buckets of other sizes, in turn", 642, [("a", 5), ("b", 8)] * 3),
        feedback_case("two buckets of one size", 643, [("a", 5), ("b", 5), ("a", 5), ("b", 5)], step=0.5),
        feedback_case("a compressor that keeps some entries", 644, [(None, 7)] * 3, kind=WINDOW),
    ),
    distributed=False,
    hints=(
        "Follow one entry of 0.3 through three steps, with a compressor that rounds to whole numbers. What should "
        "be in "
        "the residual after each?",
        "corrected = gradient + residual of this key (nothing at first); packet = compress(corrected); the residual "
        "becomes corrected minus what decompress makes of the packet.",
        "corrected = gradient + self.residuals.get(key, 0); packet = self.compressor.compress(corrected); "
        "self.residuals[key] = corrected - self.compressor.decompress(packet); return packet",
    ),
)  # fmt: skip
