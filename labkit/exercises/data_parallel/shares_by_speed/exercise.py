"""Shares by speed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from labkit.checks.case import Case
from labkit.checks.declared import Mistake
from labkit.checks.formulas import Call, Counted, calls_case, formulas
from labkit.exercises.data_parallel.shares import by_speed
from labkit.exercises.data_parallel.shares_by_speed.driver import drive

_SHARES, _SECONDS = "shares_by_speed", "slowest_seconds"


def _each_seconds(shares: Sequence[int], speeds: Sequence[int]) -> list[float]:
    return [share / speed for share, speed in zip(shares, speeds, strict=True)]


def _slowest(shares: Sequence[int], speeds: Sequence[int]) -> float:
    return max(_each_seconds(shares, speeds))


COUNTED: Counted = {_SHARES: by_speed, _SECONDS: _slowest}


def speeds_case(name: str, calls: Sequence[tuple[int, Sequence[int]]], *, with_doubled: bool = False) -> Case:
    """Return a case of shares_by_speed: (samples, speeds) of each call; times of doubled shares or speeds, too."""
    found: list[Call] = []
    for num_samples, speeds in calls:
        found.append(("shares_by_speed", (num_samples, list(speeds))))
        shares = by_speed(num_samples, speeds)
        found.append(("slowest_seconds", (shares, list(speeds))))
        if with_doubled:
            found.append(("slowest_seconds", ([2 * share for share in shares], list(speeds))))
            found.append(("slowest_seconds", (shares, [2 * speed for speed in speeds])))
    return calls_case(name, found)


def _floored(num_samples: int, speeds: Sequence[int]) -> list[int]:
    return [num_samples * speed // sum(speeds) for speed in speeds]


def _rounded(num_samples: int, speeds: Sequence[int]) -> list[int]:
    return [round(num_samples * speed / sum(speeds)) for speed in speeds]


def _rest_to(last: bool) -> Callable[[int, Sequence[int]], list[int]]:
    def wrong(num_samples: int, speeds: Sequence[int]) -> list[int]:
        shares = _floored(num_samples, speeds)
        shares[-1 if last else 0] += num_samples - sum(shares)
        return shares

    return wrong


def _rest_in_order(num_samples: int, speeds: Sequence[int]) -> list[int]:
    shares = _floored(num_samples, speeds)
    for device in range(num_samples - sum(shares)):
        shares[device] += 1
    return shares


def _rest_to_the_largest_remainder(num_samples: int, speeds: Sequence[int]) -> list[int]:
    shares = _floored(num_samples, speeds)
    remainders = [num_samples * speed % sum(speeds) for speed in speeds]
    shares[remainders.index(max(remainders))] += num_samples - sum(shares)
    return shares


def _smallest_first(num_samples: int, speeds: Sequence[int]) -> list[int]:
    shares = _floored(num_samples, speeds)
    order = sorted(range(len(speeds)), key=lambda device: num_samples * speeds[device] % sum(speeds))
    for device in order[: num_samples - sum(shares)]:
        shares[device] += 1
    return shares


def _rounded_up(num_samples: int, speeds: Sequence[int]) -> list[int]:
    return [-(-num_samples * speed // sum(speeds)) for speed in speeds]


def _one_at_least(num_samples: int, speeds: Sequence[int]) -> list[int]:
    """Return the shares where each device has a sample first, and the rest goes to the largest remainders."""
    shares = [max(1, share) for share in _floored(num_samples, speeds)]
    order = sorted(range(len(speeds)), key=lambda device: -(num_samples * speeds[device] % sum(speeds)))
    for device in order[: max(0, num_samples - sum(shares))]:
        shares[device] += 1
    return shares


def _as_times(num_samples: int, speeds: Sequence[int]) -> list[int]:
    """Return the shares of devices that need so many seconds a sample."""
    product = math.prod(speeds)
    return by_speed(num_samples, [product // speed for speed in speeds])


def _of_largest_share(shares: Sequence[int], speeds: Sequence[int]) -> float:
    device = shares.index(max(shares))
    return shares[device] / speeds[device]


def _of_least_speed(shares: Sequence[int], speeds: Sequence[int]) -> float:
    device = speeds.index(min(speeds))
    return shares[device] / speeds[device]


def _rest_to_fastest(num_samples: int, speeds: Sequence[int]) -> list[int]:
    shares = _floored(num_samples, speeds)
    order = sorted(range(len(speeds)), key=lambda device: -speeds[device])
    for device in order[: num_samples - sum(shares)]:
        shares[device] += 1
    return shares


def _equal(num_samples: int, speeds: Sequence[int]) -> list[int]:
    return [num_samples // len(speeds) + (n < num_samples % len(speeds)) for n in range(len(speeds))]


def _as_fractions(exact: Callable[[int, int, int], float]) -> Callable[[int, Sequence[int]], list[int]]:
    """Return the rule with remainders that are fractions, each rounded as floats are."""

    def wrong(num_samples: int, speeds: Sequence[int]) -> list[int]:
        wanted = [exact(num_samples, speed, sum(speeds)) for speed in speeds]
        shares = [int(each) for each in wanted]
        order = sorted(range(len(speeds)), key=lambda device: shares[device] - wanted[device])
        for device in order[: num_samples - sum(shares)]:
            shares[device] += 1
        return shares

    return wrong


_FRACTIONS = (
    _as_fractions(lambda num_samples, speed, total: num_samples * speed / total),
    _as_fractions(lambda num_samples, speed, total: num_samples * (speed / total)),
    _as_fractions(lambda num_samples, speed, total: num_samples / total * speed),
)


def _largest_by_slowest(shares: Sequence[int], speeds: Sequence[int]) -> float:
    return max(shares) / min(speeds)


def _places_cut_off(num_samples: int, speeds: Sequence[int]) -> list[int]:
    """Return the shares between places that are rounded down, where one share ends and the next begins."""
    places = [num_samples * sum(speeds[:device]) // sum(speeds) for device in range(len(speeds) + 1)]
    return [end - begin for begin, end in itertools.pairwise(places)]


def _to_who_is_done_first(num_samples: int, speeds: Sequence[int]) -> list[int]:
    shares = [0] * len(speeds)
    for _ in range(num_samples):
        shares[min(range(len(speeds)), key=lambda device: (shares[device] + 1) / speeds[device])] += 1
    return shares


def _webster(num_samples: int, speeds: Sequence[int]) -> list[int]:
    shares = [0] * len(speeds)
    for _ in range(num_samples):
        shares[max(range(len(speeds)), key=lambda device: speeds[device] / (2 * shares[device] + 1))] += 1
    return shares


def _last_gets_what_is_left(num_samples: int, speeds: Sequence[int]) -> list[int]:
    shares = _rounded(num_samples, speeds)[:-1]
    return [*shares, num_samples - sum(shares)]


def _share_of_what_is_left(num_samples: int, speeds: Sequence[int]) -> list[int]:
    shares: list[int] = []
    for place, speed in enumerate(speeds):
        shares.append(round((num_samples - sum(shares)) * speed / sum(speeds[place:])))
    return shares


def _whole_rounds(num_samples: int, speeds: Sequence[int]) -> list[int]:
    shares = [num_samples // sum(speeds) * speed for speed in speeds]
    for place in range(num_samples - sum(shares)):
        shares[place % len(speeds)] += 1
    return shares


def _last_of_equals(num_samples: int, speeds: Sequence[int]) -> list[int]:
    return by_speed(num_samples, speeds[::-1])[::-1]


EXERCISE = formulas(
    id="shares_by_speed",
    functions=("shares_by_speed", "slowest_seconds"),
    driver=drive,
    counted=COUNTED,
    visible=(
        speeds_case(
            "11 samples, speeds 3, 1 and 1; 50 that divide; four devices",
            [(11, [3, 1, 1]), (50, [100, 200, 200]), (13, [1, 3, 2, 3])],
            with_doubled=True,
        ),
        speeds_case("the rest goes to the largest remainders", [
            (10, [1, 4, 2]), (23, [5, 2, 8, 4]), (7, [10, 3, 9]), (14, [11, 6, 2]),
        ]),
        speeds_case("equal speeds; fewer samples than devices", [(8, [2, 2, 2]), (2, [1, 1, 1, 1]), (0, [3, 1])]),
        speeds_case(
            "other speeds, equal remainders", [(10, [1, 1, 4]), (6, [2, 2, 5]), (4, [1, 4, 1]), (23, [5, 2, 8, 4])]
        ),
    ),
    hints=(
        "Write down the exact shares of 10 samples for speeds 1, 4 and 2, with their fractions. Round down: how many "
        "are left over?",
        "divmod(num_samples * speed, sum(speeds)) is the whole part and the remainder, without rounding errors. Sort "
        "the devices by remainder, largest first (sorted keeps equal ones in order), and give one each to the first.",
        "order = sorted(range(len(speeds)), key=lambda device: -remainders[device]); for device in "
        "order[:num_samples - sum(shares)]: shares[device] += 1. And max(share / speed ...) for the time.",
    ),
    mistakes=(
        Mistake("speeds ignored",
                "The shares are equal. A device of twice the speed should get twice as many samples.",
                {_SHARES: _equal}),
        Mistake("rest forgotten", "The shares do not add up: all were rounded down, and nobody got the remainder.",
                {_SHARES: _floored}),
        Mistake("each rounded by itself",
                "The shares do not always add up: each was rounded separately. Round down, then hand out the rest.",
                {_SHARES: (_rounded, _rounded_up)}),
        Mistake("divided before it is multiplied",
                "num_samples // sum(speeds) throws away what does not divide before a speed has been multiplied with "
                "it. Multiply first: num_samples * speed // sum(speeds).", {_SHARES: _whole_rounds}),
        Mistake("places rounded",
                "You round down the places where shares begin and end, so a sample goes to whoever stands where the "
                "fractions add up to a whole one. Round down each device's own share, and give what is left over to "
                "the largest remainders.", {_SHARES: _places_cut_off}),
        Mistake("each sample to who is done first",
                "You hand out each sample to the device that would be done with it first. That makes the step short, "
                "and is another rule: largest remainder rounds each share down, and then hands out what is left over.",
                {_SHARES: _to_who_is_done_first}),
        Mistake("the rest to one device",
                "What is left over all went to one device. It goes to the largest remainders, one each.",
                {_SHARES: (_rest_to(True), _rest_to(False), _rest_to_the_largest_remainder)}),
        Mistake("the smallest remainders first",
                "What is left over went to the smallest remainders. It goes to the largest: they lack most of a whole "
                "sample that is due.", {_SHARES: _smallest_first}),
        Mistake("speeds taken for times",
                "A speed is samples per second, not seconds for a sample: a faster device gets more samples, and needs "
                "share / speed seconds for them.",
                {_SHARES: _as_times,
                 _SECONDS: lambda shares, speeds: max(map(math.prod, zip(shares, speeds, strict=True)))}),
        Mistake("one sample at least",
                "Each device got a sample before the rule was applied. By largest remainder a slow device may get "
                "none, and the shares add up to num_samples.", {_SHARES: _one_at_least}),
        Mistake("the rest in order",
                "What is left over went to the first devices. It goes to those with the largest remainders.",
                {_SHARES: _rest_in_order}),
        Mistake("the rest to the fastest",
                "What is left over went to the fastest devices. It goes to those with the largest remainders.",
                {_SHARES: _rest_to_fastest}),
        Mistake("remainders as fractions",
                "Remainders that are equal differ in their last digit when they are computed with /. Compare them as "
                "whole numbers: num_samples * speed % sum(speeds).", {_SHARES: _FRACTIONS}),
        Mistake("Webster's rule",
                "You hand out each sample to the device with the largest speed / (2 * share + 1), or divide all speeds "
                "by a number of your choice and round. That is Webster's rule. Largest remainder rounds each share "
                "down, and then hands out what is left over.", {_SHARES: _webster}),
        Mistake("the last gets what is left",
                "You round share by share, and what is left over or lacking is the last device's. Round all shares "
                "down first, and give what is left over to the largest remainders.",
                {_SHARES: (_last_gets_what_is_left, _share_of_what_is_left)}),
        Mistake("the last of equals first",
                "Among equal remainders, the first device goes first. Sort by the negative remainder instead of "
                "reversing.", {_SHARES: _last_of_equals}),
        Mistake("the largest share by the least speed",
                "The largest share need not be the slowest device's: divide each share by its own speed, then take "
                "the largest.", {_SECONDS: _largest_by_slowest}),
        Mistake("one device's time taken for the last",
                "Whoever has most samples, or is slowest for each, need not be done last, and neither need the last in "
                "the list: compute share / speed for every device, and take the largest.",
                {_SECONDS: (_of_largest_share, _of_least_speed, lambda shares, speeds: shares[-1] / speeds[-1])}),
        Mistake("the mean time", "slowest_seconds is the time of the last device, not the mean, the sum or the least.",
                {_SECONDS: (lambda shares, speeds: sum(shares) / sum(speeds),
                            lambda shares, speeds: sum(_each_seconds(shares, speeds)),
                            lambda shares, speeds: min(_each_seconds(shares, speeds)))}),
    ),
)  # fmt: skip
