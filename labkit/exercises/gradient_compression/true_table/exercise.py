"""The true table, and two formulas that say why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from labkit.checks.case import Case, Value, Values
from labkit.checks.formulas import NOTHING, Counted, as_if, right, values_of
from labkit.checks.judged import Mistake, judged
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.findings import Finding, judging, mistakes, raising
from labkit.exercises.gradient_compression.true_table.driver import drive
from labkit.words import number

Measured = tuple[str, str, float]
Promise = tuple[str, float, float]


def _gain(load: float, compute: float) -> float:
    return 1 - max(load, compute) / (load + compute)


def _speedup(share: float, factor: float) -> float:
    seconds_before, seconds_after = 1.0, (1 - share) + share / factor
    return seconds_before / seconds_after


COUNTED: Counted = {"prefetch_gain": _gain, "mixed_speedup": _speedup}


def claims_case(
    name: str, steps: Sequence[tuple[float, float]], products: Sequence[tuple[float, float]],
    rows: Sequence[Measured], promised: Sequence[Promise],
) -> Case:  # fmt: skip
    """Return a case: arguments of both formulas, and one table of rows and promises."""
    calls: list[Value] = [{"function": "prefetch_gain", "args": list(each)} for each in steps]
    calls += [{"function": "mixed_speedup", "args": list(each)} for each in products]
    table: Value = {"rows": [list(row) for row in rows], "promised": [list(each) for each in promised]}
    return Case(name, 1, ({"calls": calls, "tables": [table]},))


def _table(about: dict[str, Any], inside: Callable[[float, float, float], str]) -> dict[str, dict[str, list[str]]]:
    """Return the table in which `inside(value, low, high)` says the verdict."""
    return {
        claim: {
            verdict: [
                where for other, where, value in about["rows"] if other == claim and inside(value, low, high) == verdict
            ]
            for verdict in ("holds", "less", "more")
        }
        for claim, low, high in about["promised"]
    }


def _verdict(value: float, low: float, high: float) -> str:
    return "less" if value < low else "holds" if value <= high else "more"


def _open_ends(value: float, low: float, high: float) -> str:
    return "holds" if low < value < high else "less" if value <= low else "more"


def _other_way_round(value: float, low: float, high: float) -> str:
    return {"less": "more", "more": "less", "holds": "holds"}[_verdict(value, low, high)]


def expected(case: Case) -> list[Values]:
    """Return every value and table (the oracle)."""
    calls = cast(list[dict[str, Any]], case.inputs[0]["calls"])
    tables = [_table(about, _verdict) for about in cast(list[dict[str, Any]], case.inputs[0]["tables"])]
    return [{"values": [COUNTED[each["function"]](*each["args"]) for each in calls], "tables": cast(Value, tables)}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Finding | None:
    """Return the first thing that is wrong: the formulas, then the table."""
    for function, args, value in values_of(case, got):
        wanted = COUNTED[function](*args)
        if not right(wanted, value):
            came = number(value) if isinstance(value, int | float) else f"{value!r:.60}"
            return Finding("a formula", f"{function}({', '.join(map(number, args))}) gave {came}, expected "
            f"{number(wanted)}.", number(wanted), came)  # fmt: skip
    for about, mine in zip(
        cast(list[dict[str, Any]], case.inputs[0]["tables"]), cast(list[Value], got[0]["tables"]), strict=True
    ):
        wanted = _table(about, _verdict)
        if mine == wanted:
            continue
        name = "a wrong table"
        if not isinstance(mine, dict):
            name = "no table"
        elif mine == _table(about, _open_ends):
            name = "the ends do not belong"
        elif mine == _table(about, _other_way_round):
            name = "less and more the wrong way round"
        elif "a Row" in str(mine):
            name = "rows instead of places"
        elif _shared(mine, len(wanted)):
            name = "one list for all"
        elif {c: {v: sorted(p) for v, p in each.items()} for c, each in wanted.items()} == _in_order(mine):
            name = "another order"
        elif set(mine) < set(wanted):
            name = "claims without rows are left out"
        elif any(isinstance(each, dict) and set(each) != {"holds", "less", "more"} for each in mine.values()):
            name = "empty lists are left out"
        return Finding(name, "true_table gave another table.", f"{wanted}", f"{mine}")
    return None


def _shared(table: dict[str, Value], claims: int) -> bool:
    """Return whether all claims, or all verdicts of every claim, have the same places."""
    lists = [{f"{places}" for places in each.values()} for each in table.values() if isinstance(each, dict)]
    if len(table) != claims or len(lists) != claims:
        return False
    return all(len(each) == 1 for each in lists) or (claims > 1 and len({f"{each}" for each in table.values()}) == 1)


def _in_order(table: dict[str, Value]) -> object:
    return {
        claim: {verdict: sorted(map(str, places)) for verdict, places in each.items() if isinstance(places, list)}
        for claim, each in table.items()
        if isinstance(each, dict)
    }


def _mistake(name: str, hint: str, function: str, wrong: Callable[..., float]) -> Mistake:
    return Mistake(name, hint, as_if(COUNTED, function, wrong))


EXERCISE = judged(
    id="true_table",
    functions=("prefetch_gain", "mixed_speedup", "true_table"),
    given=("Row",),
    driver=drive,
    oracle=expected,
    judge=judging(find),
    visible=(
        claims_case(
            "one claim, three places",
            [(1.0, 3.0), (5.0, 1.0)],
            [(0.5, 2.0), (1.0, 8.0)],
            [("faster", "large", 2.5), ("faster", "small", 0.6), ("faster", "wide", 14.0)],
            [("faster", 2.0, 3.0)],
        ),
        claims_case(
            "ends of a range, a claim without rows",
            [(2.0, 2.0)],
            [(0.0, 10.0)],
            [("saves", "there", 0.5), ("gains", "there", 0.2), ("saves", "here", 0.3), ("saves", "nowhere", 0.7)],
            [("saves", 0.3, 0.5), ("gains", 0.25, 0.5), ("untried", 0.0, 1.0)],
        ),
    ),
    distributed=False,
    hints=(
        "How long does a step of load and compute take one after the other, and how long side by side? What part "
        "of a step "
        "becomes f times as fast?",
        "prefetch_gain: the shorter over the sum. mixed_speedup: 1 over (1 - p + p / f). The table: first three "
        "empty lists "
        "for each promised claim, then each row into one of them.",
        "table = {claim: {'holds': [], 'less': [], 'more': []} for claim in promised}; a row is less below the "
        "range, more "
        "above it, else it holds.",
    ),
    mistakes=(
        NOTHING,
        raising(
            "claims without rows are left out", "Begin with every promised claim, also those without a row.", "KeyError"
        ),
        _mistake(
            "the share of loading",
            "prefetch_gain is the share of loading; where loading is longer than "
            "computing, it "
            "is computing that is saved.",
            "prefetch_gain",
            lambda load, c: load / (load + c),
        ),
        _mistake(
            "gain over compute",
            "prefetch_gain divides by computing alone; it is a share of the whole step.",
            "prefetch_gain",
            lambda load, c: min(load, c) / c,
        ),
        _mistake(
            "times as fast, not the share",
            "prefetch_gain gives how many times as fast; asked is the share of time that is saved.",
            "prefetch_gain",
            lambda load, c: (load + c) / max(load, c),
        ),
        _mistake(
            "the shorter over the longer",
            "prefetch_gain divides by the longer of the two; a step takes both, one after the other.",
            "prefetch_gain",
            lambda load, c: min(load, c) / max(load, c),
        ),
        _mistake(
            "products become slower",
            "mixed_speedup multiplies the time of the products by f; f times as fast is an f-th of the time.",
            "mixed_speedup",
            lambda p, f: 1 / (1 - p + p * f),
        ),
        _mistake(
            "what is not a product is forgotten",
            "mixed_speedup leaves out the part that does not become faster.",
            "mixed_speedup",
            lambda p, f: f / p if p else 1.0,
        ),
        _mistake(
            "speed-ups are averaged",
            "mixed_speedup takes the mean of 1 and f, weighted. Times add up, speeds do not.",
            "mixed_speedup",
            lambda p, f: 1 - p + p * f,
        ),
        _mistake(
            "the time, not the speed",
            "mixed_speedup gives what is left of the time; the speed-up is one over that.",
            "mixed_speedup",
            lambda p, f: 1 - p + p / f,
        ),
        *mistakes(
            find,
            the_ends_do_not_belong="A value at the end of the range is inside it: low <= value <= high.",
            less_and_more_the_wrong_way_round="less is where the value is below the promised range.",
            claims_without_rows_are_left_out="Begin with every promised claim, also those without a row.",
            empty_lists_are_left_out="Every claim has three lists, holds, less and more, also when they are empty.",
            rows_instead_of_places="The lists hold places, row.where, not the rows.",
            one_list_for_all="All lists are one and the same list: dict.fromkeys(names, []) puts one list under every "
            "name. Make each anew: {name: [] for name in names}.",
            another_order="Places stand in the order of the rows.",
            no_table="true_table returns a dict: claim -> verdict -> list of places.",
        ),
    ),
)
