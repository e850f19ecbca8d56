"""What moves in a step, as a plan; and its par, played on virtual devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.par import Par, Score
from labkit.checks.structure import ANYTHING
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.exercises.data_parallel.moves import Arguments, Move, right_plan
from labkit.exercises.data_parallel.step_plan.driver import drive
from labkit.words import join, plural


def plans_case(name: str, calls: Sequence[Arguments]) -> Case:
    """Return a case of step_plan: sizes, bytes of an input, of an output, of the model, of its gradients, for each."""
    return Case(name, 1, ({"calls": [list(call) for call in calls]},))


def _calls(case: Case) -> list[list[Any]]:
    return listed(case.inputs[0], "calls")


def expected(case: Case) -> list[Values]:
    """Return every plan (the oracle)."""
    return [{"plans": [right_plan(*call) for call in _calls(case)]}]


def _is_plan(plan: Any) -> bool:
    return isinstance(plan, list) and all(
        isinstance(m, list) and len(m) == 4 and isinstance(m[0], str) and all(type(n) is int for n in m[1:])
        for m in plan
    )


def _in_words(move: Move) -> str:
    return f"Move({move[0]!r}, src={move[1]}, dst={move[2]}, num_bytes={move[3]})"


def structure(case: Case) -> list[Any]:
    """Return which keys there are; what they hold is looked at here."""
    return [{"plans": [ANYTHING] * len(_calls(case))}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield the first wrong move of every wrong plan."""
    calls, plans = _calls(case), listed(got[0], "plans")
    wrong = [(call, plan) for call, plan in zip(calls, plans, strict=True) if plan != right_plan(*call)]
    mistake = _of_plans(wrong)
    for call, plan in wrong:
        shown, right = f"step_plan({', '.join(map(str, call))})", right_plan(*call)
        if not _is_plan(plan):
            name = _NOTHING if plan is None else _NO_MOVES
            came = plan if isinstance(plan, str) else repr(plan)
            came = came if len(came) <= 80 else f"{came[:77]}..."
            yield Finding(name, f"{shown} gave {came}, expected a list of Moves whose numbers are integers.")
            continue
        place = next((at for at, pair in enumerate(zip(plan, right, strict=False)) if pair[0] != pair[1]), None)
        if place is None:
            yield Finding(mistake, f"{shown} has {plural(len(plan), 'move')}, expected {len(right)}.")
        else:
            mine, wanted = _in_words(plan[place]), _in_words(right[place])
            off = "" if mistake else _off(plan[place], right[place])
            yield Finding(mistake, f"{shown}: move {place} is {mine}. {off}".strip(), wanted, mine)


def _off(mine: Move, wanted: Move) -> str:
    """Return which fields of a move are wrong."""
    if mine[0] != wanted[0]:
        return f"A move of {wanted[0]!r} belongs here."
    wrong = [name for name, one, other in zip(("src", "dst", "num_bytes"), mine[1:], wanted[1:], strict=True)
             if one != other]  # fmt: skip
    return f"Its {join(wrong)} {'is' if len(wrong) == 1 else 'are'} wrong."


def _of_plans(wrong: Sequence[tuple[list[Any], Any]]) -> str:
    """Return the mistake that all wrong plans of a case show, or ""."""
    if not all(_is_plan(plan) for _, plan in wrong):
        return ""
    plans = [plan for _, plan in wrong]
    ways = [(name, lambda make=make: [make(call) for call, _ in wrong]) for name, make in _WAYS]
    found = as_if(plans, ways, lambda mine, other: mine == other)
    if found:
        return found
    if any(move[1] == move[2] for plan in plans for move in plan):
        return _TO_ITSELF
    right = [right_plan(*call) for call, _ in wrong]
    if all(plan[: len(theirs)] == theirs for plan, theirs in zip(plans, right, strict=True)):
        return _MORE
    if [sorted(plan) for plan in plans] == [sorted(plan) for plan in right]:
        return _ORDER
    return _OTHER_WAY if [_ends_sorted(plan) for plan in plans] == [_ends_sorted(plan) for plan in right] else ""


def _ends_sorted(plan: Sequence[Move]) -> list[Move]:
    return sorted([what, *sorted(ends), size] for what, *ends, size in plan)


def _without(*kinds: str) -> Callable[[list[Any]], list[Move]]:
    return lambda call: [move for move in right_plan(*call) if move[0] not in kinds]


def _of_pieces(sizes_of: Callable[[list[int]], list[int]], *kinds: str) -> Callable[[list[Any]], list[Move]]:
    """Return the plan in which these kinds have other sizes."""

    def plan(call: list[Any]) -> list[Move]:
        other = right_plan(sizes_of(call[0]), *call[1:])
        return [theirs if theirs[0] in kinds else mine for mine, theirs in zip(right_plan(*call), other, strict=True)]

    return plan


def _of_the_batch(call: list[Any]) -> list[Move]:
    """Return the plan in which the bytes given are those of the whole batch."""
    whole = sum(call[0])
    return [[*move[:3], move[3] // whole] if move[0] in _SAMPLES else move for move in right_plan(*call)]


def _gradients_of(place: int) -> Callable[[list[Any]], list[Move]]:
    """Return the plan in which one device alone sends its model gradients."""

    def plan(call: list[Any]) -> list[Move]:
        moves = right_plan(*call)
        gradients = [move for move in moves if move[0] == "model gradients"]
        return [move for move in moves if move[0] != "model gradients"] + gradients[place:][:1]

    return plan


def _all_samples(sizes: list[int]) -> list[int]:
    return [sum(sizes)] * len(sizes)


def _equal_sizes(sizes: list[int]) -> list[int]:
    return [sum(sizes) // len(sizes)] * len(sizes)


def _one_each(sizes: list[int]) -> list[int]:
    return [1] * len(sizes)


def _of_the_one_before(sizes: list[int]) -> list[int]:
    return [sizes[device - 1] for device in range(len(sizes))]


def _sizes_of_first(sizes: list[int]) -> list[int]:
    return [sizes[0]] * len(sizes)


_NOTHING, _NO_MOVES, _TO_ITSELF, _BACKWARD, _OUTPUT_GRADIENTS, _AT_HOME = (
    "returns nothing", "no Moves", "moves to itself", "backward forgotten", "output gradients forgotten",
    "the model is not copied",
)  # fmt: skip
_ORDER, _OTHER_WAY, _ALL, _EQUAL, _AS_MODEL = (
    "another order", "the wrong way", "the whole batch for everyone", "equal pieces assumed",
    "gradients as large as the model",
)  # fmt: skip
_NO_BUFFERS, _ONE_DEVICE = "buffers stay", "one device's gradients alone"
_MORE, _EACH_SAMPLES, _HANDED_ON = (
    "moves after the end",
    "model gradients of each sample",
    "handed on, device by device",
)
_ONE_SAMPLE, _NEIGHBOUR, _AS_INPUTS = "the bytes of one sample", "another device's samples", "as large as the inputs"
_SAMPLES = ("inputs", "outputs", "output gradients")
_WAYS: tuple[tuple[str, Callable[[list[Any]], list[Move]]], ...] = (
    (_BACKWARD, _without("output gradients", "model gradients")),
    (_OUTPUT_GRADIENTS, _without("output gradients")),
    (_AT_HOME, _without("model")),
    (_NO_BUFFERS, lambda call: [[*m[:3], call[4]] if m[0] == "model" else m for m in right_plan(*call)]),
    (
        _EACH_SAMPLES,
        lambda call: [[*m[:3], m[3] * call[0][m[1]]] if m[0] == "model gradients" else m for m in right_plan(*call)],
    ),
    (_HANDED_ON, lambda call: [[m[0], m[2] - 1, *m[2:]] if m[0] == "model" else m for m in right_plan(*call)]),
    (_AS_MODEL, lambda call: right_plan(*call[:4], call[3])),
    (_ALL, _of_pieces(_all_samples, "inputs")),
    (_ALL, _of_pieces(_all_samples, *_SAMPLES)),
    (_ONE_SAMPLE, _of_pieces(_one_each, "inputs")),
    (_ONE_SAMPLE, _of_pieces(_one_each, "output gradients")),
    (_ONE_SAMPLE, _of_the_batch),
    (_ONE_DEVICE, _gradients_of(-1)),
    (_ONE_DEVICE, _gradients_of(0)),
    (_ONE_SAMPLE, _of_pieces(_one_each, "outputs", "output gradients")),
    (_ONE_SAMPLE, _of_pieces(_one_each, *_SAMPLES)),
    (_EQUAL, _of_pieces(_equal_sizes, *_SAMPLES)),
    (_NEIGHBOUR, _of_pieces(_of_the_one_before, *_SAMPLES)),
    (_EQUAL, _of_pieces(_sizes_of_first, *_SAMPLES)),
    (
        _AS_INPUTS,
        lambda call: [
            [*m[:3], call[0][m[2]] * call[1]] if m[0] == "output gradients" else m for m in right_plan(*call)
        ],
    ),
)


def play(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Play the learner's plan on virtual devices: 256 samples each, a model of 17 MB.

    Not the setting of the guess that follows in the lesson.
    """
    rank = dist.get_rank()
    plan = functions["step_plan"]([256] * dist.get_world_size(), 4096, 4096, 16_793_600, 16_793_600)
    for move in plan:
        if rank in (move.src, move.dst):
            buffer = torch.empty(move.num_bytes, dtype=torch.uint8, device="meta")
            if rank == move.src:
                dist.send(buffer, dst=move.dst)
            else:
                dist.recv(buffer, src=move.src)


EXERCISE = declared(
    id="step_plan",
    functions=("step_plan",),
    given=("Move",),
    driver=drive,
    oracle=expected,
    structure=structure,
    looks=(find,),
    visible=(
        plans_case("2 devices", [([6, 4], 10, 3, 600, 600)]),
        plans_case("3 devices, uneven, buffers and a frozen layer", [([4, 3, 2], 20, 8, 700, 500)]),
        plans_case("one device; four devices", [([5], 10, 3, 600, 600), ([2, 2, 1, 1], 7, 5, 90, 80)]),
    ),
    distributed=False,
    par=Par(
        what="what moves in a step, 256 samples on each device and 17 MB of parameters",
        where="4 x H100, PCIe 5",
        program=play,
        world_size=4,
        score=Score(time_ns=2_340_852, bytes_sent=56_672_256, peak_bytes=33_587_200),
        cluster={"gpu": "h100", "link": "pcie5"},
    ),
    hints=(
        "Walk through a step: what must a device have before it can compute, and what must device 0 have before it "
        "can go on?",
        "For every kind one loop over the devices 1, 2, ...: inputs, model and output gradients leave device 0, "
        "outputs and model gradients come to it. What belongs to samples is sizes[device] times the bytes of one.",
        'plan = [Move("inputs", 0, d, sizes[d] * input_bytes) for d in range(1, len(sizes))], then plan += ... for the '
        "other four, in the order of the kinds.",
    ),
    mistakes=(
        Mistake(_NOTHING, "The function returned None: return the list."),
        Mistake(_NO_MOVES, "A plan is a list of Moves: Move(what, src, dst, num_bytes), all numbers integers."),
        Mistake(_TO_ITSELF, "Device 0 has its own piece and the model already: nothing moves from 0 to 0."),
        Mistake(_BACKWARD,
                "Your plan stops after the outputs, but backward needs moves too: output gradients go out, model "
                "gradients come in."),
        Mistake(_OUTPUT_GRADIENTS,
                "The loss is computed on device 0. How do the other replicas learn its gradient? That is as large as "
                "their outputs."),
        Mistake(_AT_HOME, "In every step the model goes to every other device."),
        Mistake(_ORDER,
                "The moves are right but their order is not: kind by kind, and within a kind device by device."),
        Mistake(_OTHER_WAY, "These bytes go the other way: source and destination are swapped."),
        Mistake(_ALL, "Each device gets its own samples only: sizes[device] times the bytes of one."),
        Mistake(_EQUAL, "The pieces are not all equal: take sizes[device]."),
        Mistake(_NO_BUFFERS,
                "A model has model_bytes: its buffers and its frozen parameters go out with it, though they have no "
                "gradient."),
        Mistake(_ONE_SAMPLE,
                "input_bytes and output_bytes are those of one sample; a device has sizes[device] of them, and an "
                "output's gradient is as large as the output."),
        Mistake(_NEIGHBOUR,
                "These are the samples of the device before: sizes begins with device 0, so device d has sizes[d]."),
        Mistake(_MORE,
                "The plan is right, and then goes on: the last moves are the model gradients. Inputs need no gradient, "
                "and the updated model goes out at the beginning of the next step."),
        Mistake(_EACH_SAMPLES,
                "A copy of the model has gradients once, however many samples it saw: backward adds them up on its "
                "device."),
        Mistake(_ONE_DEVICE,
                "Each copy of the model has gradients of its own, from its own samples, and device 0 adds them up: "
                "every other device sends its gradients."),
        Mistake(_HANDED_ON,
                "The model is handed on from one device to the next. Everything in this step comes from device 0 or "
                "goes there."),
        Mistake(_AS_INPUTS, "An output's gradient has as many bytes as the output, not as the input."),
        Mistake(_AS_MODEL,
                "Gradients have gradient_bytes: buffers and frozen parameters are part of the model and have none."),
    ),
)  # fmt: skip
