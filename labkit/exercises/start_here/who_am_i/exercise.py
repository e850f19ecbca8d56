"""Who a process is: what a launcher writes into its environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from labkit.checks.case import Case, Got, Value
from labkit.checks.declared import Mistake, Way
from labkit.checks.wire import Wire
from labkit.exercises.start_here.answers import NOTHING, answers, values_of
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


def _pairs(case: Case, got: Got) -> list[tuple[Value, Value]]:
    """Return what came and what was wanted, call by call."""
    return list(zip(values_of(got), expected(case), strict=False))


def _raised_where_all_was_there(case: Case, got: Got, wire: Wire) -> bool:
    return any(isinstance(wanted, list) and mine == {"raised": "KeyError"} for mine, wanted in _pairs(case, got))


def _same_for_all(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the answer does not depend on the environment that was handed in."""
    mine, right = values_of(got), expected(case)
    return (
        bool(mine)
        and all(each == mine[0] for each in mine)
        and isinstance(mine[0], list | dict)
        and mine[0] not in right
        and any(isinstance(each, list) for each in right)
    )


def _texts(case: Case, got: Got, wire: Wire) -> bool:
    return any(isinstance(answer, list) and any(isinstance(each, str) for each in answer) for answer in values_of(got))


def _floats(case: Case, got: Got, wire: Wire) -> bool:
    return any(isinstance(each, float) for answer in values_of(got) if isinstance(answer, list) for each in answer)


def _went_on(case: Case, got: Got, wire: Wire) -> bool:
    return any(isinstance(wanted, dict) and isinstance(mine, list) for mine, wanted in _pairs(case, got))


def _none_where_missing(case: Case, got: Got, wire: Wire) -> bool:
    nothing = [wanted for mine, wanted in _pairs(case, got) if mine is None]
    return bool(nothing) and all(isinstance(wanted, dict) for wanted in nothing)


def _raised_another(case: Case, got: Got, wire: Wire) -> bool:
    return any(isinstance(mine, dict) and mine != wanted for mine, wanted in _pairs(case, got))


def _pair(*names: str) -> Way:
    """Return what comes of reading these names."""

    def way(case: Case, place: int) -> list[Value]:
        numbers = {name: int(value) for name, value in _given(case)[place].items() if value.isdigit()}
        return [numbers.get(name) for name in names]

    return way


EXERCISE = answers(
    id="who_am_i",
    functions=("who_am_i",),
    driver=drive,
    expected=expected,
    call=_call,
    visible=(
        environments_case("one machine with 4 ranks", [environment(rank, 4, 4) for rank in range(4)]),
        environments_case("two machines with 4 ranks each", [environment(rank, 8, 4) for rank in (0, 3, 4, 7)]),
        environments_case(
            "a launcher that forgot something",
            [without("RANK", environment(2, 4, 4)), without("WORLD_SIZE", environment(1, 4, 4))],
        ),
    ),
    hints=(
        "Print the environment of a rank. Which name counts over all machines, and which on one of them?",
        "environ maps names to texts: take RANK and WORLD_SIZE, make numbers of them. A missing name must be an error, "
        "never a default.",
        'return int(environ["RANK"]), int(environ["WORLD_SIZE"])',
    ),
    mistakes=(
        Mistake("None where a name is missing",
                'You return None where a name is missing; the contract asks for a KeyError there. environ["RANK"] '
                "raises it by itself.", seen=_none_where_missing),
        NOTHING,
        Mistake("local rank for rank",
                "LOCAL_RANK counts on one machine: the second machine has a 0 too. RANK is the number in the whole "
                "world.", {"answers": _pair("LOCAL_RANK", "WORLD_SIZE")}),
        Mistake("local rank for the world size",
                "The second number is the local rank. The world size is how many ranks there are on all machines: "
                "WORLD_SIZE.", {"answers": _pair("RANK", "LOCAL_RANK")}),
        Mistake("numbers with a fraction", "Ranks are counted: int(...) makes whole numbers, float(...) does not.",
                seen=_floats),
        Mistake("texts, not numbers", 'Environment variables are text: "1" is not 1. Convert them with int().',
                seen=_texts),
        Mistake("a default hides it",
                "You use a default where a name is missing: then every process believes it is the same rank, and "
                'nobody notices. Let it fail: environ["RANK"] raises KeyError.', seen=_went_on),
        Mistake("the pair the other way round", "The pair is (rank, world_size), in this order.",
                {"answers": _pair("WORLD_SIZE", "RANK")}),
        Mistake("only the ranks of one machine",
                "LOCAL_WORLD_SIZE counts the ranks of one machine; the world is all of them: WORLD_SIZE.",
                {"answers": _pair("RANK", "LOCAL_WORLD_SIZE")}),
        Mistake("an error where nothing is missing",
                "An error was raised although RANK and WORLD_SIZE are both there: look both up in environ and make "
                "numbers of them.", seen=_raised_where_all_was_there),
        Mistake("not from the argument",
                "The answer does not depend on the argument. Read the dictionary environ that the function is given; "
                "os.environ is this notebook's own, and no process group has begun here.", seen=_same_for_all),
        Mistake("another error", 'A missing name should raise KeyError, as environ["RANK"] does by itself.',
                seen=_raised_another),
    ),
)  # fmt: skip
