"""parallel_apply: replicas that meet, so that only threads can run them, and end in the opposite order.

Where another rank stands opposite, each replica's output needs a number that comes once all have begun.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.opposite import Ask, asked, asker, give
from labkit.checks.on_ranks.other_kind import kind_for
from labkit.checks.values import flag, listed, tensors

_TURN_SECONDS = 0.02
_MEET_TURNS, _LINGER_TURNS = 60, 10
"""How often a thread looks: where others run in its place, each turn takes as much longer as what it waits for."""
_BEGUN, _ENDED = 1, 2


class BadSampleError(Exception):
    """An exception that cannot be made from a text alone, as many are."""

    def __init__(self, sample: int, reason: str) -> None:
        super().__init__(f"sample {sample}: {reason}")
        self.sample = sample


@dataclass
class _Meeting:
    """What the replicas of one call share: where they meet, who has ended, who has failed."""

    count: int
    failing: dict[int, str]
    ask: Ask | None = None
    in_order: bool = False
    met: bool = True
    together: int = 0
    finished: list[int] = field(default_factory=list)
    came: dict[int, float] = field(default_factory=dict)
    recording: dict[int, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lock, self.begun, self.all_begun = threading.Lock(), 0, threading.Event()
        self.ended = [threading.Event() for _ in range(self.count)]

    def meet(self) -> None:
        with self.lock:
            self.begun += 1
            if self.begun == self.count:
                self.all_begun.set()
        if self.met and not _within(_MEET_TURNS, self.all_begun.wait):
            self.met, self.together = False, self.together or self.begun

    def waits_for(self, number: int) -> int | None:
        """Return whose end a replica waits for: the next one's; where some fail, a failing one the next failing one's.

        So whoever asks for results in order does not wait for all of them where an early one fails.
        """
        after = range(number + 1, self.count)
        if self.in_order and number in self.failing:
            return next((each for each in reversed(range(number)) if each in self.failing), None)
        if not self.failing:
            return next(iter(after), None)
        return next((each for each in after if each in self.failing), None) if number in self.failing else None

    def lingers(self, number: int) -> int:
        """Return how many turns a replica stays after its work: who does not wait for the end is seen."""
        return _LINGER_TURNS * (number + 1 if self.failing else number + 1 == self.count)

    def factor(self, number: int) -> float:
        """Return the number that a replica's output needs, once all replicas have asked for theirs."""
        return self.ask(_BEGUN, number) if self.ask else 1.0

    def has_ended(self, number: int) -> None:
        if self.ask:
            self.came[number] = self.ask(_ENDED, number)
        self.ended[number].set()


class _Replica(nn.Module):
    """x * weight * scale, once all replicas have begun and, where none fails, the one after this has ended."""

    def __init__(self, number: int, weight: float, meeting: _Meeting) -> None:
        nn.Module.__init__(self)  # it may be of another class: see kind_for
        self.number, self.meeting = number, meeting
        self.weight = nn.Parameter(torch.tensor(weight, dtype=torch.float64))

    def forward(self, *, x: Tensor, scale: float = 1.0) -> Tensor:
        meeting, number = self.meeting, self.number
        try:
            meeting.recording[number] = torch.is_grad_enabled()
            meeting.meet()
            factor = meeting.factor(number)
            other = meeting.waits_for(number)
            if meeting.met and other is not None:
                _within(_MEET_TURNS, meeting.ended[other].wait)
            if number in meeting.failing:
                self.read_a_bad_sample(meeting.failing[number])
            _within(meeting.lingers(number), threading.Event().wait)
            output = x * self.weight * scale * factor
            meeting.finished.append(number)
            return output
        finally:
            meeting.has_ended(number)

    def read_a_bad_sample(self, kind: str) -> None:
        sample = 100 + self.number
        if kind == "BadSampleError":
            raise BadSampleError(sample, "cannot be read")
        raise {"ValueError": ValueError, "KeyError": KeyError}[kind](f"sample {sample}")


def _within(turns: int, came: Callable[[float], bool]) -> bool:
    return any(came(_TURN_SECONDS) for _ in range(turns))


def drive(functions: Functions, inputs: Values) -> Values:
    """Call parallel_apply on replicas that wait for one another (parallel_apply).

    Inputs: weights and x (one for each replica), scale (None: no keyword), failing (replica -> name of its exception),
    gradients (whether they are on where it is called); in_order (whether failing replicas fail in their order, and not
    the last one first); one_function (whether all replicas are one plain function that
    is told its number); opposite (whether another rank stands opposite, whose inputs
    are begun and ended: what a replica is given when all have begun, and when it has ended).
    """
    if "begun" in inputs:
        return _stand_opposite(listed(inputs, "begun"), listed(inputs, "ended"))
    weights = listed(inputs, "weights")
    failing = {int(number): kind for number, kind in cast(dict[str, str], inputs["failing"]).items()}
    meeting = _Meeting(len(weights), failing, asker() if inputs.get("opposite") else None, bool(inputs.get("in_order")))
    replica = kind_for(_Replica, inputs)
    modules: list[nn.Module] = [replica(number, weight, meeting) for number, weight in enumerate(weights)]
    more = {} if inputs["scale"] is None else {"scale": inputs["scale"]}
    given: list[dict[str, Any]] = [{"x": x.clone(), **more} for x in tensors(inputs, "x")]
    replicas: list[Any] = list(modules)
    if inputs.get("one_function"):
        replicas = [lambda row, **batch: modules[row](**batch)] * len(modules)
        given = [{"row": number, **batch} for number, batch in enumerate(given)]
    with torch.set_grad_enabled(flag(inputs, "gradients")):
        try:
            outputs = functions["parallel_apply"](replicas, given)
        except NotImplementedError:
            raise
        except Exception as error:
            if not failing:
                raise
            return {"raised": _seen(error), **_seen_of(meeting)}
    if not isinstance(outputs, list | tuple):
        return {"outputs": f"a {type(outputs).__name__}", **_seen_of(meeting)}
    return {
        "outputs": [each.detach().clone() if isinstance(each, Tensor) else None for each in outputs],
        "tracked": [
            _is_recorded(each, meeting.recording.get(number, False), inputs) for number, each in enumerate(outputs)
        ],
        **_seen_of(meeting),
    }


def _is_recorded(output: Value, in_thread: bool, inputs: Values) -> bool:
    """Return whether gradients reach an output, or were recorded in its thread where they should not be."""
    reaches = isinstance(output, Tensor) and output.requires_grad
    return reaches and in_thread if flag(inputs, "gradients") else reaches or in_thread


def _seen_of(meeting: _Meeting) -> dict[str, Value]:
    """Return who has finished by now, how many have begun and ran together, and what came for those that ended."""
    finished = cast(list[Value], sorted(meeting.finished))
    seen: dict[str, Value] = {"finished": finished, "begun": meeting.begun, "met": meeting.met}
    seen["together"] = meeting.together or meeting.begun
    return seen | ({"came": [meeting.came[number] for number in sorted(meeting.came)]} if meeting.ask else {})


def _stand_opposite(begun: list[float], ended: list[float]) -> Values:
    """Give every replica its number once all have begun, and another when it has ended."""
    waiting: list[tuple[int, int]] = []
    for tag, what, number in asked(2 * len(begun)):
        if what == _ENDED:
            give(tag, ended[number])
            continue
        waiting.append((tag, number))
        if len(waiting) == len(begun):
            for each, of in waiting:
                give(each, begun[of])
    return {"gave": 2 * len(begun)}


def _seen(error: Exception) -> Value:
    """Return what an exception says: its type, its text, whether the line that failed can be found."""
    whole = "".join(traceback.format_exception(error))
    return {"type": type(error).__name__, "text": str(error)[:500], "shows_line": "read_a_bad_sample" in whole}
