"""The mesh: which rank stands where, and with whom it is in a group along which axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.declared import Mistake, Result, declared
from labkit.checks.draws import normal, part_of
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import ANYTHING
from labkit.checks.values import integers, listed, tensor
from labkit.checks.wire import Wire
from labkit.exercises.hybrid_parallelism.mesh_groups.driver import drive
from labkit.exercises.hybrid_parallelism.meshes import along, as_value, places, sizes_of, world_size

Asked = Sequence[Sequence[str]]


def mesh_case(name: str, seed: int, sizes: Mapping[str, int], axes: Asked, asked: Sequence[int] | None = None) -> Case:
    """Return a case of mesh_groups.

    Args:
        name: What is special about it.
        seed: Of what ranks sum.
        sizes: Of each axis, outermost first.
        axes: Groups along which are asked for.
        asked: Ranks whose places are asked for; None for all.
    """
    size = world_size(sizes)
    inputs: list[Values] = [
        {
            "sizes": as_value(sizes), "axes": [list(each) for each in axes],
            "asked": list(range(size) if asked is None else asked), "x": normal(part_of(seed, "rank", rank), 3),
        }
        for rank in range(size)
    ]  # fmt: skip
    return Case(name, size, tuple(inputs))


def expected(case: Case) -> list[Values]:
    """Return places, ranks along axes, and sums (the oracle)."""
    return [_found(case, rank, places, along) for rank in range(case.world_size)]


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: each sum is of all ranks of its group."""
    found: dict[int, Bytes] = {}
    for rank, inputs in enumerate(case.inputs):
        axes = listed(inputs, "axes")
        shared = sum(len(along(rank, sizes_of(inputs), each)) > 1 for each in axes)
        found |= {rank: both_ways([rank, -1], shared * len(tensor(inputs, "x")))[rank]} if shared else {}
    return found


def _found(case: Case, rank: int, placed: object, ranks_along: object) -> Values:
    inputs = case.inputs[rank]
    sizes, axes = sizes_of(inputs), listed(inputs, "axes")
    groups = [along(rank, sizes, each) for each in axes]
    asked = integers(inputs, "asked")
    in_each: list[Value] = [list(along(one, sizes, each)) for one in asked for each in axes]
    whole: list[Value] = [sum(tensor(case.inputs[n], "x") for n in group) for group in groups]
    return {
        "places": [dict(places(sizes)[one]) for one in asked],
        "along": in_each,
        "members": [list(group) for group in groups],
        "sums": whole,
    }


def _columns(sizes: Mapping[str, int]) -> list[dict[str, int]]:
    """Return the places of a mesh whose first axis counts fastest."""
    turned = places(dict(reversed(list(sizes.items()))))
    return [{axis: each[axis] for axis in sizes} for each in turned]


def _by_name(sizes: Mapping[str, int]) -> list[dict[str, int]]:
    """Return the places of a mesh whose axes are taken in the order of their names."""
    return [{axis: each[axis] for axis in sizes} for each in places({axis: sizes[axis] for axis in sorted(sizes)})]


def _along_columns(rank: int, sizes: Mapping[str, int], axes: Sequence[str]) -> list[int]:
    everybody = _columns(sizes)
    mine = everybody[rank]
    return [n for n, each in enumerate(everybody) if all(each[a] == mine[a] for a in sizes if a not in axes)]


def _other_axes(rank: int, sizes: Mapping[str, int], axes: Sequence[str]) -> list[int]:
    return along(rank, sizes, [axis for axis in sizes if axis not in axes])


def _neighbours(rank: int, sizes: Mapping[str, int], axes: Sequence[str]) -> list[int]:
    size = len(along(rank, sizes, axes))
    return list(range(rank // size * size, rank // size * size + size))


def _others(rank: int, sizes: Mapping[str, int], axes: Sequence[str]) -> list[int]:
    return [each for each in along(rank, sizes, axes) if each != rank]


def _elsewhere(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a rank that was asked for is in none of the lists of its own, or of few."""
    if not isinstance(got, tuple) or not isinstance(got[0].get("along"), list):
        return False
    inputs = case.inputs[0]
    asked = [one for one in integers(inputs, "asked") for _ in listed(inputs, "axes")]
    right = listed(expected(case)[0], "along")
    return any(
        one not in each and (len(each) < len(wanted) or not set(each) & set(wanted))
        for one, each, wanted in zip(asked, listed(got[0], "along"), right, strict=False)
    )


def _strides_before(rank: int, sizes: Mapping[str, int], axes: Sequence[str]) -> list[int]:
    """Return the ranks of a mesh in which one step along an axis passes the ranks of all axes before it."""
    mine, ranks, stride = places(sizes)[rank], [0], 1
    for axis, size in sizes.items():
        ranks = [each + stride * at for each in ranks for at in (range(size) if axis in axes else [mine[axis]])]
        stride *= size
    return sorted(ranks)


def _as_named(rank: int, sizes: Mapping[str, int], axes: Sequence[str]) -> list[int]:
    """Return the right ranks, with the last of the named axes counting fastest whatever the order in sizes."""
    everybody = places(sizes)
    return sorted(along(rank, sizes, axes), key=lambda each: [everybody[each][axis] for axis in axes])


def _first_axis(rank: int, sizes: Mapping[str, int], axes: Sequence[str]) -> list[int]:
    return along(rank, sizes, axes[:1])


def _joined(rank: int, sizes: Mapping[str, int], axes: Sequence[str]) -> list[int]:
    return sorted({each for axis in axes for each in along(rank, sizes, [axis])})


def _any_other(rank: int, sizes: Mapping[str, int], axes: Sequence[str]) -> list[int]:
    everybody, others = places(sizes), [axis for axis in sizes if axis not in axes]
    return [n for n, each in enumerate(everybody) if any(each[a] == everybody[rank][a] for a in others)]


def _everybody(rank: int, sizes: Mapping[str, int], axes: Sequence[str]) -> list[int]:
    return list(range(len(places(sizes))))


def _as_if(key: str, ranks_along: object, placed: object = places) -> object:
    def way(case: Case, rank: int) -> object:
        inputs = case.inputs[rank]
        sizes, axes, asked = sizes_of(inputs), listed(inputs, "axes"), integers(inputs, "asked")
        if key == "places":
            return [placed(sizes)[one] for one in asked]  # type: ignore[operator]
        if key == "along":
            return [ranks_along(one, sizes, each) for one in asked for each in axes]  # type: ignore[operator]
        return [ranks_along(rank, sizes, each) for each in axes]  # type: ignore[operator]

    return way


def _in_groups(ranks_along: object) -> dict[str, object]:
    return {key: _as_if(key, ranks_along) for key in ("along", "members")}


def _no_groups(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    for rank, came in enumerate(got):
        there = came["members"]
        for members in there if isinstance(there, list) else [there]:
            if not isinstance(members, list):
                yield Finding(_NO_GROUP, f"On rank {rank} group_along returned {members}.", "a ProcessGroup", rank=rank)


def _descending(case: Case, rank: int) -> object:
    inputs = case.inputs[rank]
    asked = itertools.product(integers(inputs, "asked"), listed(inputs, "axes"))
    return [along(one, sizes_of(inputs), each)[::-1] for one, each in asked]


def _sums_near(came: object, wanted: object) -> bool:
    pairs = zip(came, wanted, strict=True)  # type: ignore[call-overload]
    return all(bool((one - other).abs().max() < 1e-4) for one, other in pairs)


_NO_GROUP = "no group"
_TP_DP = {"data": 2, "tensor": 2}
EXERCISE = declared(
    id="mesh_groups",
    functions=("coordinates", "ranks_along", "group_along"),
    driver=drive,
    oracle=expected,
    least=least,
    structure=lambda case: [
        {"places": ANYTHING, "along": ANYTHING, "members": ANYTHING, "sums": right["sums"]} for right in expected(case)
    ],
    looks=(
        Result("places", "{ranks}: coordinates are wrong. On rank {rank} they are, rank by rank, {got}."),
        Result("along", "{ranks}: ranks_along is wrong. On rank {rank} it returned, call after call, {got}."),
        _no_groups,
        Result("members", "{ranks}: group_along returns a group of other ranks. On rank {rank} came {got}."),
        Result("sums", "{ranks}: a group of the right ranks, and a sum in it is wrong on rank {rank}: ranks that make "
               "their groups in different orders mix them up.", "only its own group", _sums_near),
    ),
    mistakes=(
        Mistake("the other axes",
                "These ranks share the place on the axes you were given. Along an axis means: that place differs, all "
                "others are equal.", _in_groups(_other_axes)),  # type: ignore[arg-type]
        Mistake("column by column",
                "Your mesh counts its first axis fastest. The last axis of sizes counts fastest: ranks 0 and 1 "
                "differ in "
                "it.", {"places": _as_if("places", None, _columns), **_in_groups(_along_columns)}),  # type: ignore[dict-item]
        Mistake("strides of the axes before",
                "One step along an axis passes all ranks of the axes *after* it: its stride is the product of their "
                "sizes, and that of the last axis is 1.", _in_groups(_strides_before)),  # type: ignore[arg-type]
        Mistake("axes in an order of their own",
                "Which axis is outermost is up to sizes: its first key is, whatever its name, and its last one counts "
                "fastest.", {"places": _as_if("places", None, _by_name)}, says=("KeyError", "'tensor'", "'pipeline'"),  # type: ignore[dict-item]
                certain=True),
        Mistake("not every other axis",
                "Ranks along an axis share the place on every other axis: one that is equal is not enough.",
                {"along": _as_if("along", _any_other)}),  # type: ignore[dict-item]
        Mistake("neighbours everywhere",
                "You took ranks next to each other. Only the last axis has neighbours in it; along any other, ranks "
                "are as far apart as all axes after it are large together.", _in_groups(_neighbours)),  # type: ignore[arg-type]
        Mistake("one axis of several",
                "ranks_along takes several axes: all of their places may differ.", _in_groups(_first_axis),  # type: ignore[arg-type]
                says=("too many values to unpack", "not enough values to unpack")),
        Mistake("lists of single axes joined",
                "You joined the ranks along each single axis. Along several axes all of their places may differ at "
                "once: keep the ranks that agree on every *other* axis.", _in_groups(_joined)),  # type: ignore[arg-type]
        Mistake("everybody", "You list all ranks of the mesh. Keep those with this rank's place on every other axis.",
                _in_groups(_everybody)),  # type: ignore[arg-type]
        Mistake("without itself", "A rank is in its own groups: leave it in the list.", _in_groups(_others),  # type: ignore[arg-type]
                seen=_elsewhere),
        Mistake("not ascending", "Ranks are listed in ascending order, whatever the order of the named axes.",
                {"along": (_descending, _as_if("along", _as_named))}),  # type: ignore[dict-item]
        Mistake(_NO_GROUP, "Return the ProcessGroup that dist.new_group(ranks) gives for this rank's own list."),
        Mistake("only its own group",
                "dist.new_group is a call for everybody: each rank makes every group along these axes, in the same "
                "order, also those it is not in. All ranks of a list return the same group, not its first "
                "rank alone: make one for each different list, not one for each rank.",
                says=(*HANGS, "new_group", "refused")),
    ),
    visible=(
        mesh_case("data 2 x tensor 2", 1401, _TP_DP, [["tensor"], ["data"]]),
        mesh_case("pipeline 3, a single data rank", 1402, {"pipeline": 3, "data": 1}, [["pipeline"], ["data"]]),
        mesh_case("8 ranks, three axes", 1403, {"pipeline": 2, "tensor": 2, "data": 2},
                  [["tensor"], ["pipeline"], ["data"], ["data", "pipeline"]]),
    ),
    hints=(
        "Number the ranks of a 2 x 3 mesh on paper, row by row. How far apart are two ranks that are neighbours in "
        "a row? "
        "In a column?",
        "coordinates: divide by the sizes from the last axis to the first; the remainder is the place. ranks_along: of "
        "all ranks, those whose coordinates agree with this rank's on every other axis. group_along: new_group for "
        "each "
        "different list, in the same order on every rank.",
        "for axis in reversed(sizes): rank, place[axis] = divmod(rank, sizes[axis]). "
        "for other in range(world_size): if ranks_along(other, sizes, *axes)[0] == other: new_group(...), kept if this "
        "rank is in it.",
    ),
)  # fmt: skip
