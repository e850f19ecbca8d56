"""A loader that cuts each batch among unequal devices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.judged import Mistake, judged
from labkit.checks.structure import Each, EachKey, OneOf
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.data_parallel.shares import by_speed
from labkit.exercises.data_parallel.split_loader.driver import drive
from labkit.words import join


def loader_case(
    name: str, size: int, batch_size: int, speeds: Sequence[int], *, epochs: int = 2, **options: bool | int
) -> Case:
    """Return a case of split_loader: shuffle and seed are options of the loader."""
    given: dict[str, Value] = {
        "size": size, "batch_size": batch_size, "speeds": cast(Value, list(speeds)), "epochs": epochs, **options,
    }  # fmt: skip
    return Case(name, 1, (given,))


def _batch_sizes(case: Case) -> list[int]:
    size, most = cast(int, case.inputs[0]["size"]), cast(int, case.inputs[0]["batch_size"])
    return [min(most, size - start) for start in range(0, size, most)]


def _shares(case: Case, num_samples: int) -> dict[str, int]:
    shares = by_speed(num_samples, cast(list[int], case.inputs[0]["speeds"]))
    return {str(device): share for device, share in enumerate(shares) if share}


def expected(case: Case) -> list[Values]:
    """Return how many batches there must be; which samples they hold is judged by rules (the oracle)."""
    return [{"length": len(_batch_sizes(case))}]


def structure(case: Case) -> list[Any]:
    """Return what comes: the batches of each pass of both loaders, by device, or in words what else."""
    epochs = [Each(OneOf((EachKey(Each(int)), str)))] * cast(int, case.inputs[0]["epochs"])
    return [{"length": int, "epochs": [epochs, epochs]}]


def _loaders(got: Got) -> list[list[list[Any]]]:
    """Return for both loaders each epoch's batches."""
    found = got[0].get("epochs") if isinstance(got, tuple) else None
    return cast(list[list[list[Any]]], found) if isinstance(found, list) else []


def _samples(epoch: Sequence[Any]) -> list[int]:
    return [index for batch in epoch if isinstance(batch, dict) for piece in batch.values() for index in piece]


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether every epoch holds each sample once, cut as it must be, in an order that is allowed."""
    assert isinstance(got, tuple)
    wanted = len(_batch_sizes(case))
    if got[0].get("length") != wanted:
        return Verdict(False, f"len(loader) is {got[0].get('length')}, expected {wanted}.")
    for number, epoch in enumerate(_loaders(got)[0]):
        when = f"In pass {number}"
        found = _judge_epoch(case, epoch, when)
        if found is not None:
            return found
    first, second = _loaders(got)
    if first != second:
        return Verdict(False, "Two loaders of the same seed give different batches.")
    return _judge_order(case, first) or Verdict(True)


def _judge_epoch(case: Case, epoch: Sequence[Any], when: str) -> Verdict | None:
    strange = next((batch for batch in epoch if isinstance(batch, str)), None)
    if strange is not None:
        return Verdict(False, f"{when} the loader yields {strange}.")
    sizes = _batch_sizes(case)
    if len(epoch) != len(sizes):
        more = " or more; it does not end" if len(epoch) > 2 * sum(sizes) else ""
        return Verdict(False, f"{when} there are {len(epoch)} batches{more}, expected {len(sizes)}.")
    seen = _samples(epoch)
    if sorted(seen) != list(range(sum(sizes))):
        return Verdict(False, f"{when} {_other_samples(seen, sum(sizes))}.")
    for place, (batch, size) in enumerate(zip(epoch, sizes, strict=True)):
        mine = {device: len(piece) for device, piece in batch.items()}
        if mine != _shares(case, size):
            return Verdict(
                False,
                f"{when} batch {place} of {size} samples is cut as {mine}.",
                expected=str(_shares(case, size)),
                got=str(mine),
            )
    return None


def _other_samples(seen: Sequence[int], size: int) -> str:
    """Return "samples [3, 4] are missing and samples [7] come more than once", of each the first five."""
    found = {
        "are missing": set(range(size)) - set(seen),
        "come more than once": {index for index in seen if seen.count(index) > 1},
        "are none of the dataset's": set(seen) - set(range(size)),
    }
    return join(f"samples {sorted(some)[:5]} {words}" for words, some in found.items() if some)


def _judge_order(case: Case, epochs: Sequence[Sequence[Any]]) -> Verdict | None:
    orders = [_samples(epoch) for epoch in epochs]
    in_order = list(range(len(orders[0])))
    if case.inputs[0].get("shuffle") is False:
        if any(order != in_order for order in orders):
            return Verdict(
                False, "Without shuffle the samples come as they are: 0, 1, 2, ... over devices and batches."
            )
        return None
    if orders[0] == in_order:
        return Verdict(False, "With shuffle the samples still come in the order of the dataset.")
    if any(a == b for number, a in enumerate(orders) for b in orders[number + 1 :]):
        return Verdict(False, "Two passes have the same order.")
    return None


def _says(words: str) -> Any:
    return lambda case, got, wire: isinstance(got, tuple) and words in judge(case, got, wire).message


def _drops_the_last(case: Case, got: Got, wire: Wire) -> bool:
    sizes = _batch_sizes(case)
    return sizes[-1] < cast(int, case.inputs[0]["batch_size"]) and any(
        len(epoch) == len(sizes) - 1 for epoch in (_loaders(got) or [[]])[0]
    )


def _equal_cut(case: Case, got: Got, wire: Wire) -> bool:
    for epoch in (_loaders(got) or [[]])[0]:
        for batch in epoch:
            if isinstance(batch, dict):
                lengths = [len(piece) for piece in batch.values()]
                wanted = list(_shares(case, sum(lengths)).values())
                if lengths != wanted and max(lengths, default=0) - min(lengths, default=0) <= 1:
                    return True
    return False


def _shares_of_a_full_batch(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the last, smaller batch is dealt out by the shares of a whole one, until it is used up."""
    size, left = cast(int, case.inputs[0]["batch_size"]), _batch_sizes(case)[-1]
    dealt = {}
    for device, share in _shares(case, size).items():
        dealt[device] = min(share, left)
        left -= dealt[device]
    last = [epoch[-1] for epoch in (_loaders(got) or [[]])[0] if epoch and isinstance(epoch[-1], dict)]
    cut = [{device: len(piece) for device, piece in batch.items() if piece} for batch in last]
    wrong = {device: share for device, share in dealt.items() if share}
    return wrong != _shares(case, _batch_sizes(case)[-1]) and any(each == wrong for each in cut)


def _only_once(case: Case, got: Got, wire: Wire) -> bool:
    epochs = (_loaders(got) or [[]])[0]
    return len(epochs) > 1 and bool(epochs[0]) and not epochs[1]


_OF_NOTHING = ("non-empty TensorList", "not enough values to unpack")


def _empty_pieces(case: Case, got: Got, wire: Wire) -> bool:
    if isinstance(got, Failure):  # stack([]) and x, y = zip(*[]) find nothing to work on
        some_have_none = any(
            len(_shares(case, size)) < len(cast(list[int], case.inputs[0]["speeds"])) for size in _batch_sizes(case)
        )
        return some_have_none and any(words in got.message for words in _OF_NOTHING)
    for epoch in (_loaders(got) or [[]])[0]:
        for batch, size in zip(epoch, _batch_sizes(case), strict=False):
            if isinstance(batch, dict) and any(not piece for piece in batch.values()):
                return True
            strange = re.match(r"for device (\d+) ", batch) if isinstance(batch, str) else None
            if strange and strange[1] not in _shares(case, size):
                return True
    return False


EXERCISE = judged(
    id="split_loader",
    functions=("SplitLoader",),
    driver=drive,
    oracle=expected,
    structure=structure,
    judge=judge,
    visible=(
        loader_case("10 samples in batches of 5, speeds 3, 1 and 1, in order", 10, 5, (3, 1, 1), shuffle=False),
        loader_case("23 samples in batches of 8, shuffled", 23, 8, (1, 2), seed=7),
        loader_case("a last batch smaller than the number of devices", 25, 8, (1, 1, 1), seed=3, epochs=3),
    ),
    distributed=False,
    hints=(
        "First make the order of all samples for this pass. Then cut it into batches, and each batch into shares.",
        "random.Random(...) with a seed made of self.seed and the number of the pass gives another order each time, "
        "and the same for equal loaders. shares_by_speed(len(batch), self.speeds) for each batch, also the last.",
        "for start in range(0, len(order), self.batch_size): batch = order[start:start + self.batch_size]; then walk "
        "through the shares, take as many indices for each device, stack inputs and targets, leave out share 0, yield.",
    ),
    mistakes=(
        Mistake(
            "the last batch dropped", "The last batch is missing; it may be smaller, but it counts.", _drops_the_last
        ),
        Mistake(
            "it ends for ever",
            "The first pass is right and the second yields nothing: an iterator made in __init__ is used up. Make it "
            "in __iter__.",
            _only_once,
        ),
        Mistake(
            "it does not end", "A pass does not end: stop when every sample has been there.", _says("does not end")
        ),
        Mistake(
            "no new order",
            "Every pass has the same order: the order must depend on the pass, too. Count the passes.",
            _says("Two passes have the same order"),
        ),
        Mistake(
            "not repeatable",
            "Two loaders of the same seed differ: draw from random.Random(seed ...), not from the global generator.",
            _says("different batches"),
        ),
        Mistake("not shuffled", "shuffle is ignored.", _says("still come in the order")),
        Mistake("always shuffled", "shuffle=False is ignored.", _says("Without shuffle the samples come as they are")),
        Mistake(
            "empty pieces",
            "Leave out a device whose share is 0: an empty piece makes a mean over nothing.",
            _empty_pieces,
            certain=True,
        ),
        Mistake(
            "shares of a whole batch",
            "The last batch is smaller: its shares must come from len(batch), not from batch_size.",
            _shares_of_a_full_batch,
        ),
        Mistake(
            "speeds ignored",
            "Each batch is cut into equal pieces: use shares_by_speed(len(batch), speeds).",
            _equal_cut,
        ),
        Mistake(
            "samples lost or doubled",
            "Some samples are missing or come twice: where one device's piece ends the next one's begins.",
            _says(" samples ["),
        ),
    ),
)
