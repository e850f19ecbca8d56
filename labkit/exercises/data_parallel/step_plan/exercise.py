"""What moves in a step, as a plan; and its par, played on virtual devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.judged import Mistake, judged
from labkit.checks.par import Par, Score
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.data_parallel.moves import Arguments, Move, right_plan
from labkit.exercises.data_parallel.step_plan.driver import drive
from labkit.words import plural


def plans_case(name: str, calls: Sequence[Arguments]) -> Case:
    """Return a case of step_plan: sizes, bytes of an input, of an output, of the model, of its gradients, for each."""
    return Case(name, 1, ({"calls": [cast(Value, list(call)) for call in calls]},))


def _calls(case: Case) -> list[list[Any]]:
    return cast(list[list[Any]], case.inputs[0]["calls"])


def expected(case: Case) -> list[Values]:
    """Return every plan (the oracle)."""
    return [{"plans": cast(Value, [right_plan(*call) for call in _calls(case)])}]


def _pairs(case: Case, got: Got) -> list[tuple[list[Any], Any, list[Move]]]:
    """Return (arguments, the plan that came, the right plan) for each call."""
    plans = got[0].get("plans") if isinstance(got, tuple) else None
    came = plans if isinstance(plans, list) else []
    return [(call, mine, right_plan(*call)) for call, mine in zip(_calls(case), came, strict=False)]


def _is_plan(plan: Any) -> bool:
    return isinstance(plan, list) and all(
        isinstance(m, list) and len(m) == 4 and isinstance(m[0], str) and all(type(n) is int for n in m[1:])
        for m in plan
    )


def _in_words(move: Move) -> str:
    return f"Move({move[0]!r}, src={move[1]}, dst={move[2]}, num_bytes={move[3]})"


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether every plan has the right moves in the right order."""
    for call, plan, right in _pairs(case, got):
        shown = f"step_plan({', '.join(map(str, call))})"
        if not _is_plan(plan):
            return Verdict(False, f"{shown} gave {plan!r:.80}, expected a list of Moves whose numbers are integers.")
        for place, (mine, wanted) in enumerate(zip(plan, right, strict=False)):
            if mine != wanted:
                return Verdict(
                    False,
                    f"{shown}: move {place} is {_in_words(mine)}.",
                    expected=_in_words(wanted),
                    got=_in_words(mine),
                )
        if len(plan) != len(right):
            return Verdict(False, f"{shown} has {plural(len(plan), 'move')}, expected {len(right)}.")
    return Verdict(True)


def _all_plans(test: Callable[[list[Any], list[Move], list[Move]], bool]) -> Callable[[Case, Got, Wire], bool]:
    """Return a test of every wrong plan: (arguments, what came, what is right); there must be one."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        wrong = [(call, plan, right) for call, plan, right in _pairs(case, got) if plan != right]
        return bool(wrong) and all(_is_plan(plan) and test(call, plan, right) for call, plan, right in wrong)

    return seen


def _sorted(moves: Sequence[Move]) -> list[Move]:
    return sorted(moves)


def _with_own_piece(call: list[Any], plan: list[Move], right: list[Move]) -> bool:
    return any(m[1] == m[2] for m in plan)


def _whole_batch(call: list[Any], plan: list[Move], right: list[Move]) -> bool:
    sizes, of_input, of_output, *_ = call
    amounts = {"inputs": sum(sizes) * of_input, "outputs": sum(sizes) * of_output}
    return any(m[0] in amounts and m[3] == amounts[m[0]] for m in plan)


def _equal_pieces(call: list[Any], plan: list[Move], right: list[Move]) -> bool:
    sizes, of_input, *_ = call
    inputs = [m[3] for m in plan if m[0] == "inputs"]
    same = len(inputs) > 1 and len(set(inputs)) == 1 and len(set(sizes[1:])) > 1
    return same or (
        inputs != [size * of_input for size in sizes[1:]] and set(inputs) == {sum(sizes) // len(sizes) * of_input}
    )


def _lacks(*kinds: str) -> Callable[[Case, Got, Wire], bool]:
    return _all_plans(lambda call, plan, right: plan == [m for m in right if m[0] not in kinds])


def _other_ends(call: list[Any], plan: list[Move], right: list[Move]) -> bool:
    return _sorted([[m[0], *sorted(m[1:3]), m[3]] for m in plan]) == _sorted(
        [[m[0], *sorted(m[1:3]), m[3]] for m in right]
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


EXERCISE = judged(
    id="step_plan",
    functions=("step_plan",),
    given=("Move",),
    driver=drive,
    oracle=expected,
    judge=judge,
    visible=(
        plans_case("2 devices", [([4, 4], 10, 3, 600, 600)]),
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
        "Read the table from top to bottom. For each line: for which devices is there a move, and from where to where?",
        "For every kind one loop over the devices 1, 2, ...: inputs, model and output gradients leave device 0, "
        "outputs and model gradients come to it. What belongs to samples is sizes[device] times the bytes of one.",
        'plan = [Move("inputs", 0, d, sizes[d] * input_bytes) for d in range(1, len(sizes))], then plan += ... for the '
        "other four, in the order of the table.",
    ),
    mistakes=(
        Mistake(
            "returns nothing",
            "The function returned None: return the list.",
            lambda case, got, wire: any(plan is None for _, plan, _ in _pairs(case, got)),
        ),
        Mistake("no Moves", "A plan is a list of Moves: Move(what, src, dst, num_bytes), all numbers integers.",
                lambda case, got, wire: any(not _is_plan(plan) for _, plan, _ in _pairs(case, got))),
        Mistake("moves to itself", "Device 0 has its own piece and the model already: nothing moves from 0 to 0.",
                _all_plans(_with_own_piece)),
        Mistake("backward forgotten", "After the outputs nothing moves: but backward goes the same way back. Output "
                "gradients go out, model gradients come in.", _lacks("output gradients", "model gradients")),
        Mistake("output gradients forgotten", "The loss is computed on device 0. How do the other replicas learn its "
                "gradient? That is as large as their outputs.", _lacks("output gradients")),
        Mistake("the model stays at home", "In every step the model goes to every other device.", _lacks("model")),
        Mistake("another order", "The moves are right and their order is not: kind by kind as in the table, and within "
                "a kind device by device.", _all_plans(lambda call, plan, right: _sorted(plan) == _sorted(right))),
        Mistake("the wrong way", "These bytes go the other way: source and destination are swapped.",
                _all_plans(_other_ends)),
        Mistake("the whole batch for everyone", "Each device gets its own samples only: sizes[device] times the bytes "
                "of one.", _all_plans(_whole_batch)),
        Mistake("equal pieces assumed", "The pieces are not all equal: take sizes[device].", _all_plans(_equal_pieces)),
        Mistake("gradients as large as the model", "Gradients have gradient_bytes: buffers and frozen parameters are "
                "part of the model and have none.",
                _all_plans(lambda call, plan, right: plan == right_plan(*call[:4], call[3]))),
    ),
)  # fmt: skip
