"""What a compressor did to the entries that came back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Value
from labkit.checks.exercise import Exercise
from labkit.checks.values import tensors
from labkit.exercises.start_here.answers import NOTHING, NOTHING_HINT, Look, as_if, find_of, nothing, oracle_of
from labkit.exercises.start_here.damaged.driver import drive

Pair = tuple[list[float], list[float]]


def gradients_case(name: str, pairs: Sequence[Pair]) -> Case:
    """Return a case of damaged: pairs of a gradient before and after."""
    before, after = ([torch.tensor(pair[side]) for pair in pairs] for side in (0, 1))
    return Case(name, 1, ({"before": cast(list[Value], before), "after": cast(list[Value], after)},))


def _pair(case: Case, place: int) -> Pair:
    before, after = (cast(list[Tensor], case.inputs[0][side])[place] for side in ("before", "after"))
    return before.tolist(), after.tolist()


def _pairs(case: Case) -> list[Pair]:
    return [_pair(case, place) for place in range(len(tensors(case.inputs[0], "before")))]


def _places(pair: Pair) -> list[Value]:
    return [place for place, (was, is_) in enumerate(zip(*pair, strict=True)) if is_ and is_ != was]


def expected(case: Case) -> list[Value]:
    """Return the places of the entries that came back changed."""
    return [_places(pair) for pair in _pairs(case)]


def _call(case: Case, place: int) -> str:
    before, after = _pair(case, place)
    return f"damaged({_numbers(before)}, {_numbers(after)})"


def _numbers(values: list[float]) -> str:
    return f"[{', '.join(f'{value:g}' for value in values)}]"


def _all_that_differ(case: Case, place: int) -> Value:
    return [at for at, (was, is_) in enumerate(zip(*_pair(case, place), strict=True)) if is_ != was]


def _by_magnitude(case: Case, place: int) -> Value:
    return [at for at, (was, is_) in enumerate(zip(*_pair(case, place), strict=True)) if is_ and abs(is_) != abs(was)]


def _signs_alone(case: Case, place: int) -> Value:
    return [at for at, (was, is_) in enumerate(zip(*_pair(case, place), strict=True)) if is_ and was * is_ < 0]


def _a_count(case: Case, came: Sequence[Value], right: Sequence[Value]) -> bool:
    return any(isinstance(answer, int) for answer in came)


def _flags(case: Case, came: Sequence[Value], right: Sequence[Value]) -> bool:
    return any(
        isinstance(answer, str) or (isinstance(answer, list) and any(type(each) is not int for each in answer))
        for answer in came
    )


_DROPPED, _MAGNITUDES, _SIGNS = "dropped counted as damaged", "magnitudes compared", "signs alone"
_COUNT, _FLAGS = "a count instead of places", "a tensor or flags instead of places"
_LOOKS: Mapping[str, Look] = {
    NOTHING: nothing,
    _DROPPED: as_if(_all_that_differ),
    _MAGNITUDES: as_if(_by_magnitude),
    _SIGNS: as_if(_signs_alone),
    _COUNT: _a_count,
    _FLAGS: _flags,
}
MISTAKES = {
    NOTHING: NOTHING_HINT,
    _DROPPED: (
        "Entries that came back as 0 were dropped, which a compressor may do. An entry is damaged if it came back as "
        "some other value."
    ),
    _MAGNITUDES: (
        "You compare magnitudes, so -2 and 2 look the same to you, as they do to the post. Compare the values."
    ),
    _SIGNS: "A wrong sign is damage, but not the only one: an entry that came back twice as large, or that was 0 "
    "before, is damaged too.",
    _COUNT: "Return the places of the damaged entries as a list, not how many there are.",
    _FLAGS: (
        "Return a list of whole numbers, the places: nonzero() gives the places of a mask, flatten().tolist() makes a "
        "list of them."
    ),
}

EXERCISE = Exercise(
    id="damaged",
    functions=("damaged",),
    driver=drive,
    oracle=oracle_of(expected),
    find=find_of(expected, _call, _LOOKS),
    visible=(
        gradients_case("nothing dropped, nothing damaged", [([1.0, -2.0, 3.0], [1.0, -2.0, 3.0])]),
        gradients_case("some dropped, none damaged", [([0.1, -2.0, 0.3, 4.0], [0.0, -2.0, 0.0, 4.0])]),
        gradients_case(
            "signs lost", [([0.1, -2.0, 0.3, -4.0], [0.0, 2.0, 0.0, 4.0]), ([3.0, -3.0, 0.5], [3.0, 3.0, 0.0])]
        ),
        gradients_case("values scaled, a zero that came back as something", [([0.0, 2.0, -1.0], [5.0, 4.0, -1.0])]),
    ),
    distributed=False,
    hints=(
        "An entry that was dropped comes back as what? Is that damage?",
        "Compare entry by entry: damaged is what is not zero afterwards and not what it was. Return the places, not "
        "the values.",
        "((after != 0) & (after != before)).nonzero().flatten().tolist()",
    ),
    mistakes=MISTAKES,
)
