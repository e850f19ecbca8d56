"""Finding the rank that computes wrongly, by computing some gradients twice, and doing without its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from labkit.checks.case import Case, Values
from labkit.checks.compare import listing
from labkit.checks.declared import Mistake, declared
from labkit.checks.draws import generator, part_of
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes
from labkit.checks.structure import ANYTHING, Each
from labkit.checks.values import integer, tensors, text
from labkit.checks.wire import Wire
from labkit.exercises.when_machines_fail.computing_twice.driver import NUM_ELEMENTS, drive, flipped

MOST = 3
"""So often a rank may compute where something is wrong; where nothing is, once."""


BYTES = 8
"""Of an element."""
_MANTISSA = 52
"""Bits of a float64's mantissa."""


def twice_case(
    name: str, seed: int, num_ranks: int, broken: int = -1, wrong: str = "both", bit: int = 30, *, apart: bool = False
) -> Case:
    """Return a case of computing_twice.

    Args:
        name: In words.
        seed: Draws the gradients.
        num_ranks: At least 3.
        broken: The rank that computes wrongly, -1 for none.
        wrong: What it computes wrongly: "own", the gradient it brings; "here", what it computes in the call; "both".
        bit: Which bit of an element is wrong; drawn where another rank computes.
        apart: Whether another rank computes gradients again, so that it is seen how often.
    """
    draw = generator(seed, "gradients")
    right = [torch.randint(1, 1000, (NUM_ELEMENTS,), generator=draw).double() for _ in range(num_ranks)]
    brought = list(right)
    if apart:  # neither rank has what tells which bit of what the other has was changed
        bits = [2 * (part_of(seed, "rank", rank) % (_MANTISSA // 2)) + rank for rank in range(2)]
        bit = bits[1]
    if broken >= 0 and wrong != "here":
        drawn = right[broken]
        brought[broken] = flipped(drawn, bits[0] if apart else bit)
        right[broken] = flipped(drawn, bits[1]) if apart else drawn
    known: Values = {"gradients": [*right], "broken": broken, "wrong": wrong, "bit": bit, "apart": apart}
    if apart:
        return Case(name, 2, ({"gradients": [*brought], "apart": True}, known))
    return Case(name, 1, ({**known, "brought": [*brought]},))


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield why the run failed, a wrong verdict on who is broken, a wrong mean, and what was computed in vain."""
    came, inputs = got[0], case.inputs[-1]
    broken, gradients = integer(inputs, "broken"), tensors(inputs, "gradients")
    if problem := str(came["problem"]):
        yield Finding(_ALONE if _waits(problem) else "", f"{_story(case)} The run failed: {problem}")
        return
    rows: Any = came["ranks"]
    computed: Any = came["computed"]
    for rank in range(len(gradients)):
        row = rows[rank] if len(rows) == len(gradients) else None
        if not _is_pair(row):
            yield Finding(_FORM, f"Rank {rank} returned {row!s:.80}, expected a tensor and a rank or None.", rank=rank)
            return
    said = [row["broken"] for row in rows]
    if any(each != said[0] for each in said):
        told = ", ".join(f"rank {rank} {_who(each)}" for rank, each in enumerate(said))
        yield Finding(_ALONE, f"{_story(case)} Ranks disagree: {told}.")
    elif said[0] != broken:
        text = f"{_story(case)} All ranks return {_who(said[0])}, expected {_who(broken)}."
        checks_wrongly = said[0] == -1 and inputs["wrong"] == "here" and any(computed)
        name = _CHECKER if checks_wrongly else _unseen(said[0], broken, computed)
        yield Finding(name, text, _who(broken), _who(said[0]))
    right = torch.stack(gradients).mean(0)
    for rank, row in enumerate(rows):
        mean = row["mean"]
        if not _same(mean, right):
            what = f"{_story(case)} The mean is wrong on rank {rank}."
            yield Finding(_named(case, mean), what, listing(right), _shown(mean, right), rank)
    most = MOST if broken >= 0 else 1
    for rank, each in enumerate(computed):
        if len(each) > most:
            text = f"{_story(case)} Rank {rank} computed {len(each)} gradients, and may compute {most}."
            yield Finding(_TOO_MUCH, text, str(most), str(len(each)), rank)
    asked = [message for message in wire.messages if message.src == 1]
    if case.world_size > 1 and len(asked) > most * len(gradients):
        text = f"{len(asked)} gradients were computed on all ranks together, and {most * len(gradients)} may be."
        yield Finding(_TOO_MUCH, text, str(most * len(gradients)), str(len(asked)))
    if len(computed) != len(rows) or not all(computed):
        yield Finding(_NEVER, "Not every rank computed a gradient again.")


def _num_checked(case: Case) -> int:
    """Return how many gradients must be computed again, at least: each rank's."""
    return len(tensors(case.inputs[0], "gradients"))


def _is_pair(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("mean"), Tensor) and type(row.get("broken")) is int


def _story(case: Case) -> str:
    inputs = case.inputs[-1]
    broken, wrong = integer(inputs, "broken"), text(inputs, "wrong")
    if broken < 0:
        return "No rank computes wrongly."
    what = {"own": "its own gradient", "here": "what it calls compute for", "both": "all gradients"}[wrong]
    return f"Rank {broken} computes {what} wrongly."


def _who(broken: Any) -> str:
    return "None" if broken == -1 else str(broken)


def _waits(problem: str) -> bool:
    return any(word in problem for word in ("wait", "deadlock", "Watchdog", "called", "did not"))


def _unseen(said: int, broken: int, computed: list[list[int]]) -> str:
    """Return the mistake of a wrong verdict on who is broken."""
    if broken == -1:
        return _BATCHES
    if said != -1:
        return _WRONG_ONE
    if any(rank in each for rank, each in enumerate(computed)):
        return _ITSELF
    return _TOLERANT if any(computed) else _NEVER


def _same(came: Tensor, wanted: Tensor) -> bool:
    return (
        came.shape == wanted.shape
        and came.dtype == wanted.dtype
        and bool(((came.double() - wanted).abs() <= 1e-12 * wanted.abs()).all())
    )


def _shown(mean: Tensor, right: Tensor) -> str:
    """Return a wrong mean as text, and by how much it is off where that is too little to show."""
    text = listing(mean)
    if text != listing(right) or mean.shape != right.shape:
        return text
    if mean.dtype != right.dtype:
        return f"{text} in {mean.dtype}"
    off = (mean - right).abs()
    return f"{text}, element {int(off.argmax())} off by {float(off.max()):.2g}"


def _named(case: Case, mean: Tensor) -> str:
    """Return the mistake that gives this mean."""
    inputs = case.inputs[-1]
    broken, gradients, bit = integer(inputs, "broken"), tensors(inputs, "gradients"), integer(inputs, "bit")
    if _same(mean, torch.stack(gradients).sum(0)):
        return _SUM
    if any(_same(mean, each) for each in gradients):
        return _ONE
    for one in range(len(gradients)) if broken >= 0 else ():
        others = [flipped(each, bit) if rank == one else each for rank, each in enumerate(gradients)]
        if _same(mean, torch.stack(others).mean(0)):
            return _STAYS if one == broken else _WORD
        for out in ({one}, {one, (one + 1) % len(gradients)}):
            left = torch.stack([each for rank, each in enumerate(gradients) if rank not in out])
            if any(_same(mean, left.sum(0) / count) for count in range(len(left), len(gradients) + 1)):
                return _LEFT_OUT
    return ""


_FORM, _ALONE, _ITSELF, _NEVER, _TOLERANT, _BATCHES, _WRONG_ONE, _STAYS, _WORD, _LEFT_OUT, _SUM, _TOO_MUCH = (
    "not a pair", "one rank knows", "checks itself", "never computes twice", "small differences let pass",
    "other batches compared", "blames the wrong one", "the wrong gradient stays", "the checker's word",
    "a batch is left out", "sum instead of mean", "computes too much",
)  # fmt: skip


_CHECKER, _ONE = "a checker cannot be broken", "one gradient for all"


def _structure(case: Case) -> list[Any]:
    """Rank 0 says what it has found; the others that they served."""
    return [
        {"ranks": Each(ANYTHING), "computed": Each(Each(int)), "problem": str},
        *[{"served": int}] * (case.world_size - 1),
    ]


EXERCISE = declared(
    id="computing_twice",
    functions=("checked_mean",),
    driver=drive,
    oracle=lambda case: [],
    structure=_structure,
    least=lambda case: {} if case.world_size == 1 else {0: Bytes(into=_num_checked(case) * NUM_ELEMENTS * BYTES)},
    looks=(find,),
    mistakes=(
        Mistake(_FORM, "Return two things: the mean as a tensor, and the broken rank as an int, or None."),
        Mistake(_ALONE, "What one rank has seen, the others do not know. Gather what was compared, let every rank draw "
                "the same conclusion from it, and make the same calls."),
        Mistake(_ITSELF, "A broken rank that checks itself makes the same mistake again. Let another rank compute its "
                "gradient."),
        Mistake(_NEVER, "Nothing was computed a second time. Each rank's batch is its own, so there is nothing to "
                "compare its gradient with until another rank computes it, too."),
        Mistake(_TOLERANT, "A wrong bit can be a small difference. Right ranks get the same bits, so compare all bits, "
                "of every element."),
        Mistake(_BATCHES, "Gradients of different batches differ on sound ranks, too. Compare two computations of the "
                "same rank's batch."),
        Mistake(_WRONG_ONE, "Two results differ, and either may be the wrong one: the checker can be broken, too. A "
                "third rank decides."),
        Mistake(_STAYS, "You found who is broken, and its wrong gradient still went into the mean. Put in the one that "
                "another rank computed."),
        Mistake(_WORD, "The broken rank checked a right gradient, and its wrong result went into the mean."),
        Mistake(_CHECKER, "This rank's own gradient is right, and what it computes for another one is wrong: then the "
                "checker is broken. Name it."),
        Mistake(_ONE, "Every rank put in the same gradient. Only the rank whose own one is wrong takes what another "
                "rank computed for it."),
        Mistake(_LEFT_OUT, "A batch is missing in the mean. Another rank can compute that gradient: put it in."),
        Mistake(_SUM, "Divide by the number of ranks."),
        Mistake(_TOO_MUCH, "Once each while nothing is wrong: then one rank checks one other. Only who is in doubt is "
                "computed again."),
    ),
    visible=(
        twice_case("4 ranks, all sound", 261, 4),
        twice_case("4 ranks, the last one is broken", 262, 4, 3),
        twice_case("4 ranks, rank 3 was wrong once", 263, 4, 3, "own"),
        twice_case("3 ranks, rank 0 is wrong as it checks", 264, 3, 0, "here"),
        twice_case("5 ranks, rank 1 is broken, its last bit is wrong", 265, 5, 1, bit=0),
    ),
    distributed=False,
    seconds=60.0,
    hints=(
        "Each rank computes one other rank's gradient. If the two results differ, who of the two is broken? Whom can "
        "you ask?",
        "Rank r also computes the gradient of rank r + 1. Gather both digests of every rank: tensor.view(torch.int64)"
        ".sum() is one. Where the two digests of a gradient differ, a third rank computes it and broadcasts it.",
        "For each rank whose two digests differ: right = compute(one) on rank (one + 1) % size, broadcast from there. "
        "If its digest is not the one that rank `one` gave, `one` is broken, else its checker. On rank `one`: gradient "
        "= right. At last all_reduce and divide.",
    ),
)  # fmt: skip
