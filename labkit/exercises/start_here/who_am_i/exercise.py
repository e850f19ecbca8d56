"""Who a process is: what a launcher writes into its environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from labkit.checks.case import Case, Value
from labkit.checks.exercise import Exercise
from labkit.exercises.start_here.answers import (
    NOTHING,
    NOTHING_HINT,
    Look,
    as_if,
    find_of,
    listed,
    nothing,
    oracle_of,
)
from labkit.exercises.start_here.who_am_i.driver import drive

Environment = dict[str, str]


def environment(rank: int, world_size: int, per_node: int) -> Environment:
    """Return what torchrun gives a process: rank in the world, place on its machine, both numbers of ranks."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(rank % per_node),
        "LOCAL_WORLD_SIZE": str(min(per_node, world_size)),
        "MASTER_ADDR": "node0",
        "MASTER_PORT": "29500",
    }


def without(name: str, given: Environment) -> Environment:
    """Return an environment that lacks a name, as a launcher leaves it that forgets it."""
    return {key: value for key, value in given.items() if key != name}


def environments_case(name: str, environments: Sequence[Environment]) -> Case:
    """Return a case of who_am_i."""
    return Case(name, 1, ({"environments": cast(list[Value], list(environments))},))


def _given(case: Case) -> list[Environment]:
    return cast(list[Environment], case.inputs[0]["environments"])


def _read(given: Environment) -> Value:
    if "RANK" not in given or "WORLD_SIZE" not in given:
        return {"raised": "KeyError"}
    return [int(given["RANK"]), int(given["WORLD_SIZE"])]


def expected(case: Case) -> list[Value]:
    """Return the pairs, and KeyError where something is missing."""
    return [_read(given) for given in _given(case)]


def _call(case: Case, place: int) -> str:
    given = _given(case)[place]
    shown = ", ".join(f"{name}={given[name]}" for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK") if name in given)
    missing = [name for name in ("RANK", "WORLD_SIZE") if name not in given]
    return f"who_am_i with {shown}{''.join(f' and no {name}' for name in missing)}"


def _raised_where_all_was_there(case: Case, came: Sequence[Value], right: Sequence[Value]) -> bool:
    pairs = zip(came, right, strict=True)
    return any(isinstance(wanted, list) and mine == {"raised": "KeyError"} for mine, wanted in pairs)


def _same_for_all(case: Case, came: Sequence[Value], right: Sequence[Value]) -> bool:
    """Return whether the answer does not depend on the environment that was handed in."""
    return (
        all(each == came[0] for each in came)
        and isinstance(came[0], list | dict)
        and came[0] not in right
        and any(isinstance(each, list) for each in right)
    )


def _texts(case: Case, came: Sequence[Value], right: Sequence[Value]) -> bool:
    return any(isinstance(answer, list) and any(isinstance(each, str) for each in answer) for answer in came)


def _went_on(case: Case, came: Sequence[Value], right: Sequence[Value]) -> bool:
    pairs = zip(came, right, strict=True)
    return any(isinstance(wanted, dict) and isinstance(mine, list) for mine, wanted in pairs)


def _raised_another(case: Case, came: Sequence[Value], right: Sequence[Value]) -> bool:
    return any(isinstance(mine, dict) and mine != wanted for mine, wanted in zip(came, right, strict=True))


def _numbers(case: Case, place: int) -> dict[str, Value]:
    return {name: int(value) for name, value in _given(case)[place].items() if value.isdigit()}


def _pair(*names: str) -> Look:
    """Return whether the wrong pairs are those of these names."""
    return as_if(lambda case, place: listed([_numbers(case, place).get(name) for name in names]))


_LOCAL, _TEXTS, _DEFAULT = "local rank for rank", "texts, not numbers", "a default hides it"
_SWAPPED, _MACHINE = "the pair the other way round", "only the ranks of one machine"
_ERROR, _ELSEWHERE, _ANOTHER = "an error where nothing is missing", "not from the argument", "another error"
_LOOKS: Mapping[str, Look] = {
    NOTHING: nothing,
    _LOCAL: _pair("LOCAL_RANK", "WORLD_SIZE"),
    _TEXTS: _texts,
    _DEFAULT: _went_on,
    _SWAPPED: _pair("WORLD_SIZE", "RANK"),
    _MACHINE: _pair("RANK", "LOCAL_WORLD_SIZE"),
    _ERROR: _raised_where_all_was_there,
    _ELSEWHERE: _same_for_all,
    _ANOTHER: _raised_another,
}
MISTAKES = {
    NOTHING: NOTHING_HINT,
    _LOCAL: "LOCAL_RANK counts on one machine: the second machine has a 0 too. RANK is the number in the whole world.",
    _TEXTS: 'Environment variables are text: "1" is not 1. Convert them with int().',
    _DEFAULT: (
        "You use a default where a name is missing: then every process believes it is the same rank, and nobody "
        'notices. Let it fail: environ["RANK"] raises KeyError.'
    ),
    _SWAPPED: "The pair is (rank, world_size), in this order.",
    _MACHINE: "LOCAL_WORLD_SIZE counts the ranks of one machine; the world is all of them: WORLD_SIZE.",
    _ERROR: "An error was raised although RANK and WORLD_SIZE are both there: look both up in environ and make numbers "
    "of them.",
    _ELSEWHERE: (
        "The answer does not depend on the argument. Read the dictionary environ that the function is given; "
        "os.environ is this notebook's own, and no process group has begun here."
    ),
    _ANOTHER: 'A missing name should raise KeyError, as environ["RANK"] does by itself.',
}

EXERCISE = Exercise(
    id="who_am_i",
    functions=("who_am_i",),
    driver=drive,
    oracle=oracle_of(expected),
    find=find_of(expected, _call, _LOOKS),
    visible=(
        environments_case("one machine with 4 ranks", [environment(rank, 4, 4) for rank in range(4)]),
        environments_case("two machines with 4 ranks each", [environment(rank, 8, 4) for rank in (0, 3, 4, 7)]),
        environments_case(
            "a launcher that forgot something",
            [without("RANK", environment(2, 4, 4)), without("WORLD_SIZE", environment(1, 4, 4))],
        ),
    ),
    distributed=False,
    hints=(
        "Print the environment of a rank. Which name counts over all machines, and which on one of them?",
        "environ maps names to texts: take RANK and WORLD_SIZE, make numbers of them. A missing name must be an error, "
        "never a default.",
        'return int(environ["RANK"]), int(environ["WORLD_SIZE"])',
    ),
    mistakes=MISTAKES,
)
