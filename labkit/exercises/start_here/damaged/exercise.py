"""What a compressor did to the entries that came back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Got, Value
from labkit.checks.declared import Mistake
from labkit.checks.values import tensors
from labkit.checks.wire import Wire
from labkit.exercises.start_here.answers import NOTHING, answers, values_of
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
    """Return the indices of the entries that came back changed."""
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


def _tolerant(case: Case, place: int) -> Value:
    """Return what is left where a difference of a few in a thousand passes for none."""
    return [at for at, (was, is_) in enumerate(zip(*_pair(case, place), strict=True)) if is_ and abs(is_ - was) > 1e-2]


def _relative(case: Case, place: int) -> Value:
    """Return what is left where a thousandth of an entry, and a hundred-millionth, pass for nothing, as in isclose."""
    pair = enumerate(zip(*_pair(case, place), strict=True))
    return [at for at, (was, is_) in pair if is_ and abs(is_ - was) > 1e-8 + 1e-3 * abs(was)]


def _not_zero_before(case: Case, place: int) -> Value:
    return [at for at, (was, is_) in enumerate(zip(*_pair(case, place), strict=True)) if was and is_ and is_ != was]


def _shrunk(case: Case, place: int) -> Value:
    return [at for at, (was, is_) in enumerate(zip(*_pair(case, place), strict=True)) if is_ and abs(is_) < abs(was)]


def _kept(case: Case, place: int) -> Value:
    return [at for at, is_ in enumerate(_pair(case, place)[1]) if is_]


def _new_values(case: Case, place: int) -> Value:
    before, after = _pair(case, place)
    return [at for at, is_ in enumerate(after) if is_ and is_ not in before]


def _grown(case: Case, place: int) -> Value:
    return [at for at, (was, is_) in enumerate(zip(*_pair(case, place), strict=True)) if is_ and is_ > was]


def _small_ones_dropped(case: Case, place: int) -> Value:
    pair = enumerate(zip(*_pair(case, place), strict=True))
    return [at for at, (was, is_) in pair if abs(is_) > 1e-4 and is_ != was]


def _among_the_kept(case: Case, place: int) -> Value:
    kept = [(was, is_) for was, is_ in zip(*_pair(case, place), strict=True) if is_]
    return [at for at, (was, is_) in enumerate(kept) if is_ != was]


def _one_without_its_list(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether one damaged entry came as a number, and others as a list."""
    mine, right = values_of(got), expected(case)
    if not mine:
        return False  # it failed
    bare = [value == places[0] for value, places in zip(mine, right, strict=True)
            if type(value) is int and isinstance(places, list) and len(places) == 1]  # fmt: skip
    return bool(bare) and all(bare) and len(bare) < len(mine)


def _no_order(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether these are the right places, not all of them in order."""
    mine, right = values_of(got), expected(case)
    return (
        bool(mine)
        and mine != right
        and all(
            isinstance(each, list) and all(type(at) is int for at in each) and sorted(cast(list[int], each)) == wanted
            for each, wanted in zip(mine, right, strict=True)
        )
    )


def _a_count(case: Case, got: Got, wire: Wire) -> bool:
    return all(type(answer) is int for answer in values_of(got)) and bool(values_of(got))


def _flags(case: Case, got: Got, wire: Wire) -> bool:
    return any(
        isinstance(answer, str) or (isinstance(answer, list) and any(type(each) is not int for each in answer))
        for answer in values_of(got)
    ) or values_of(got) == [[int(at in places) for at in range(len(_pair(case, number)[0]))]
                            for number, places in enumerate(map(_places, _pairs(case)))]  # fmt: skip


EXERCISE = answers(
    id="damaged",
    functions=("damaged",),
    driver=drive,
    expected=expected,
    call=_call,
    visible=(
        gradients_case("nothing dropped, nothing damaged", [([1.0, -2.0, 3.0], [1.0, -2.0, 3.0])]),
        gradients_case("some dropped, none damaged", [([0.1, -2.0, 0.3, 4.0], [0.0, -2.0, 0.0, 4.0])]),
        gradients_case(
            "signs lost",
            [
                ([0.1, -2.0, 0.3, -4.0], [0.0, 2.0, 0.0, 4.0]),
                ([3.0, -3.0, 0.5], [3.0, 3.0, 0.0]),
                ([1.0, 2.0], [-3.0, 2.0]),
            ],
        ),
        gradients_case("values scaled, a zero that came back as something", [([0.0, 2.0, -1.0], [5.0, 4.0, -1.0])]),
        gradients_case(
            "one rounded in its sixth digit",
            [([0.5, 3.0, -2.0], [0.5, 3.00001, 0.0]), ([4e-7, 2.0, 1.0], [3e-7, 3e-7, 0.5])],
        ),
    ),
    hints=(
        "An entry that was dropped comes back as what? Is that damage?",
        "Compare entry by entry: damaged is what is not zero afterwards and not what it was. Return the indices, not "
        "the values.",
        "((after != 0) & (after != before)).nonzero().flatten().tolist()",
    ),
    mistakes=(
        NOTHING,
        Mistake("dropped counted as damaged",
                "Entries that came back as 0 were dropped, which a compressor may do. An entry is damaged if it came "
                "back as some other value.", {"answers": _all_that_differ}),
        Mistake("magnitudes compared",
                "You compare magnitudes, so -2 and 2 look the same to you, as they do to the post. Compare the values.",
                {"answers": _by_magnitude}),
        Mistake("compared with a tolerance",
                "An entry that changed in its last digits counts as unchanged for you. It must be exactly what it was: "
                "compare with !=, not with isclose or a tolerance.", {"answers": (_tolerant, _relative)}),
        Mistake("small entries taken for dropped",
                "You leave out entries that are small afterwards. Dropped means 0: an entry of 3e-07 was not dropped, "
                "and must be exactly what it was.", {"answers": _small_ones_dropped}),
        Mistake("all that was kept",
                "You name all entries that are not 0 afterwards. Damaged are those that are not what they "
                "were.",
                {"answers": _kept}),
        Mistake("values that stood elsewhere",
                "A value passes if it stood anywhere in the gradient before. Compare place by place: entry i "
                "afterwards with entry i before.", {"answers": _new_values}),
        Mistake("only what has grown",
                "You name entries that became larger. One that became smaller, and not 0, is damaged, too: ask whether "
                "it is what it was (!=).", {"answers": _grown}),
        Mistake("signs alone",
                "A wrong sign is damage, but not the only one: an entry that came back twice as large, or that was 0 "
                "before, is damaged too.", {"answers": _signs_alone}),
        Mistake("zeros left out",
                "You leave out entries that were 0 before. Such an entry that comes back as something else is damaged, "
                "too: only a 0 afterwards is allowed.", {"answers": _not_zero_before}),
        Mistake("places among the kept",
                "You count places among the entries that are not 0 afterwards. Return each one's index in the whole "
                "gradient: compare before you leave out the dropped ones, or look up where the kept ones stand.",
                {"answers": _among_the_kept}),
        Mistake("a list of one made a number",
                "Where one entry is damaged you return its index and no list: squeeze() drops a dimension of length 1, "
                "also the one that counts entries. flatten() keeps it.", seen=_one_without_its_list),
        Mistake("only what has shrunk",
                "You name entries whose magnitude became smaller. A larger one, or one with another sign, is damaged, "
                "too: ask whether it is what it was (!=).", {"answers": _shrunk}),
        Mistake("not in order", "These are the right places; give them in order, smallest first.", seen=_no_order),
        Mistake("a count instead of places",
                "Return the indices of the damaged entries as a list, not how many there are.", seen=_a_count),
        Mistake("a tensor or flags instead of places",
                "Return a list of whole numbers, the indices: nonzero() gives those of a mask, flatten().tolist() "
                "makes a list of them.", seen=_flags),
    ),
)  # fmt: skip
