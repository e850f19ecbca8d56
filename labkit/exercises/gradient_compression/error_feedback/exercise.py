"""Error feedback around a compressor that rounds to whole numbers of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.judged import judged
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.error_feedback.driver import drive
from labkit.exercises.gradient_compression.findings import (
    Finding,
    judging,
    mistakes,
    near,
    normal,
    raising,
    unlike,
    wrong_value,
)
from labkit.exercises.gradient_compression.packets import COMMON


def feedback_case(name: str, seed: int, calls: Sequence[tuple[str | None, int]], step: float = 1.0) -> Case:
    """Return a case: (key, number of entries) of each call in turn, rounded to multiples of step."""
    listed: list[Value] = [
        {"key": key, "gradient": normal(seed + number, size, dtype=torch.float64)}
        for number, (key, size) in enumerate(calls)
    ]
    return Case(name, 1, ({"step": step, "calls": listed},))


def _replay(case: Case) -> Iterator[tuple[str, Tensor, Tensor, Tensor, Tensor]]:
    """Yield key, gradient, residual before, what comes back and residual after, of each call."""
    step = cast(float, case.inputs[0]["step"])
    unsent: dict[str, Tensor] = {}
    for call in cast(list[dict[str, Any]], case.inputs[0]["calls"]):
        key, gradient = f"{call['key']}", cast(Tensor, call["gradient"])
        before = unsent.get(key, torch.zeros_like(gradient))
        whole = ((gradient + before) / step).round() * step
        unsent[key] = gradient + before - whole
        yield key, gradient, before, whole, unsent[key]


def expected(case: Case) -> list[Values]:
    """Return what must come back and what must stay behind after each call (the oracle)."""
    return [{"came": [{"back": back, "residual": after} for *_, back, after in _replay(case)]}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Finding | None:
    """Return the first thing that is wrong, in the order of the calls."""
    step = cast(float, case.inputs[0]["step"])
    last: Tensor | None = None
    for number, ((key, gradient, before, back, after), came) in enumerate(
        zip(_replay(case), cast(list[dict[str, Any]], got[0].get("came") or []), strict=False)
    ):
        where = f"Call {number}" + ("" if key == "None" else f" with the key {key}")
        if "problem" in came:
            return Finding("no packet", f"{where}: {came['problem']}.")
        if came["changed"]:
            return Finding("gradient changed", f"{where} changed the gradient it was given.")
        odd = unlike(came["back"], back, f"{where}: what was unpacked")
        if odd is not None:
            return odd
        if not near(came["back"], back, 1e-9):
            plain = (gradient / step).round() * step
            other = last is not None and last.shape == gradient.shape
            if (
                not bool(before.any())
                and other
                and near(came["back"], ((gradient + cast(Tensor, last)) / step).round() * step, 1e-9)
            ):
                name = "one residual for all keys"
            elif near(came["back"], plain, 1e-9):
                name = "no memory"
            elif near(came["back"], ((gradient - before) / step).round() * step, 1e-9):
                name = "the residual has the wrong sign"
            elif near(came["back"], back + after, 1e-9):
                name = "decompress adds the residual"
            else:
                name = "a wrong packet"
            return wrong_value(name, f"{where}: what was unpacked", came["back"], back)
        kept = came["residual"]
        odd = unlike(kept, after, f"{where}: residuals[key]")
        if odd is not None:
            return Finding("no residual under the key", odd.message)
        if not near(kept, after, 1e-9):
            named = {
                "the residual has the wrong sign": -after,
                "the old residual is forgotten": gradient - back,
                "the residual is what was sent": back,
                "the residual is all there was": gradient + before,
                "residuals pile up": before + after,
            }
            name = next((name for name, wrong in named.items() if near(kept, wrong, 1e-9)), "a wrong residual")
            return wrong_value(name, f"{where}: the residual", kept, after)
        last = after
    calls = cast(list[Value], case.inputs[0]["calls"])
    if got[0]["compressed"] != len(calls):
        return Finding(
            "compresses twice",
            f"For {len(calls)} gradients the compressor compressed {got[0]['compressed']} times.",
            f"{len(calls)} times",
            f"{got[0]['compressed']} times",
        )
    return None


EXERCISE = judged(
    id="error_feedback",
    functions=("ErrorFeedback",),
    given=("Packet",),
    driver=drive,
    oracle=expected,
    judge=judging(find),
    visible=(
        feedback_case("one key, four steps", 641, [(None, 6)] * 4),
        feedback_case("two buckets of other sizes, in turn", 642, [("a", 5), ("b", 8)] * 3),
        feedback_case("two buckets of one size", 643, [("a", 5), ("b", 5), ("a", 5), ("b", 5)], step=0.5),
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
    mistakes=(
        raising(
            "one residual for all keys",
            "Residuals of buckets with other sizes met: keep one for each key, in self.residuals.",
            "must match the size of tensor",
        ),
        *mistakes(
            find,
            no_packet=COMMON["no_packet"],
            gradient_changed="compress changed the caller's gradient: gradient += residual works in place. Write "
            "corrected = gradient + residual.",
            no_memory="The packets are those of the gradients alone: the residual must be added before compressing.",
            one_residual_for_all_keys="A key was given what another key had left: keep one residual for each key.",
            the_residual_has_the_wrong_sign="The residual is what is still to be sent: corrected minus what was "
            "sent, not "
            "the other way round.",
            the_old_residual_is_forgotten="The new residual is gradient minus what was sent; it must be gradient "
            "*plus old "
            "residual* minus what was sent, or what was left over before is lost.",
            the_residual_is_what_was_sent="The residual is what was sent. It must be what was not.",
            the_residual_is_all_there_was="The residual is the whole corrected gradient; what has been sent must "
            "go off it.",
            residuals_pile_up="The old residual is in the corrected gradient already: the new one replaces it.",
            decompress_adds_the_residual="decompress gave what was sent and the residual besides; that one stays at "
            "home until it is sent. Return what the compressor makes of the packet, nothing else.",
            compresses_twice="Compress once, and keep that packet: random-k draws other places in the next call, and "
            "the residual would not belong to what is sent.",
            no_residual_under_the_key="Keep the residual in self.residuals[key], a tensor of the gradient's shape.",
        ),
    ),
)
