"""The true table, and two formulas that say why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from labkit.checks.as_if import as_if
from labkit.checks.blame import by_signs
from labkit.checks.case import Case, Value, Values
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.formulas import right
from labkit.checks.structure import NOTHING, Each
from labkit.checks.values import listed, records, text
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.true_table.driver import drive
from labkit.words import number as in_words

Measured = tuple[str, str, float]
Promise = tuple[str, float, float]
_VERDICTS = ("holds", "less", "more")


def _gain(load: float, compute: float) -> float:
    return 1 - max(load, compute) / (load + compute)


def _speedup(share: float, factor: float) -> float:
    seconds_before, seconds_after = 1.0, (1 - share) + share / factor
    return seconds_before / seconds_after


_FORMULAS: dict[str, Callable[[float, float], float]] = {"prefetch_gain": _gain, "mixed_speedup": _speedup}

_WRONG_FORMULAS: dict[str, dict[str, Callable[[float, float], float]]] = {
    "prefetch_gain": {
        "the share of loading": lambda load, compute: load / (load + compute),
        "gain over compute": lambda load, compute: min(load, compute) / compute,
        "times as fast, not the share": lambda load, compute: (load + compute) / max(load, compute),
        "the shorter over the longer": lambda load, compute: min(load, compute) / max(load, compute),
    },
    "mixed_speedup": {
        "products become slower": lambda share, factor: 1 / (1 - share + share * factor),
        "what is not a product is forgotten": lambda share, factor: factor / share if share else 1.0,
        "speed-ups are averaged": lambda share, factor: 1 - share + share * factor,
        "the time, not the speed": lambda share, factor: 1 - share + share / factor,
    },
}


def claims_case(
    name: str, steps: Sequence[tuple[float, float]], products: Sequence[tuple[float, float]],
    rows: Sequence[Measured], promised: Sequence[Promise],
) -> Case:  # fmt: skip
    """Return a case: arguments of both formulas, and one table of rows and promises."""
    calls: list[Value] = [{"function": "prefetch_gain", "args": list(each)} for each in steps]
    calls += [{"function": "mixed_speedup", "args": list(each)} for each in products]
    table: Value = {"rows": [list(row) for row in rows], "promised": [list(each) for each in promised]}
    return Case(name, 1, ({"calls": calls, "tables": [table]},))


def _table(about: Values, inside: Callable[[float, float, float], str]) -> dict[str, Value]:
    """Return the table in which `inside(value, low, high)` says the verdict."""
    return {
        claim: {
            verdict: [
                where
                for other, where, value in listed(about, "rows")
                if other == claim and inside(value, low, high) == verdict
            ]
            for verdict in _VERDICTS
        }
        for claim, low, high in listed(about, "promised")
    }


def _verdict(value: float, low: float, high: float) -> str:
    return "less" if value < low else "holds" if value <= high else "more"


def _open_ends(value: float, low: float, high: float) -> str:
    return "holds" if low < value < high else "less" if value <= low else "more"


def _other_way_round(value: float, low: float, high: float) -> str:
    return {"less": "more", "more": "less", "holds": "holds"}[_verdict(value, low, high)]


def expected(case: Case) -> list[Values]:
    """Return every value and table (the oracle)."""
    calls, tables = records(case.inputs[0], "calls"), records(case.inputs[0], "tables")
    values = [_FORMULAS[text(each, "function")](*listed(each, "args")) for each in calls]
    return [{"values": [*values], "tables": [_table(about, _verdict) for about in tables]}]


def structure(case: Case) -> list[Any]:
    """Return what results look like: numbers, and a list of places for each claim and verdict."""
    claims = [[claim for claim, *_ in listed(about, "promised")] for about in records(case.inputs[0], "tables")]
    places = {verdict: Each(str) for verdict in _VERDICTS}
    tables = [dict.fromkeys(each, places) for each in claims]
    return [{"values": [float] * len(listed(case.inputs[0], "calls")), "tables": tables}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: the formulas, then the table."""
    yield from _wrong_formula(case, listed(got[0], "values"))
    for about, mine in zip(records(case.inputs[0], "tables"), listed(got[0], "tables"), strict=True):
        wanted = _table(about, _verdict)
        if mine != wanted:
            yield Finding(_named(about, wanted, mine), "true_table gave another table.", f"{wanted}", f"{mine}")


def _wrong_formula(case: Case, values: list[Value]) -> Iterator[Finding]:
    calls = [(text(each, "function"), listed(each, "args")) for each in records(case.inputs[0], "calls")]
    for (function, args), value in zip(calls, values, strict=True):
        wanted = _FORMULAS[function](*args)
        if not right(wanted, value):
            of_function = [(args, value) for (name, args), value in zip(calls, values, strict=True) if name == function]
            called = f"{function}({', '.join(map(in_words, args))})"
            came = in_words(value) if isinstance(value, int | float) else f"{value!r:.60}"
            message = f"{called} gave {came}, expected {in_words(wanted)}."
            yield Finding(_formula(function, of_function), message, in_words(wanted), came)


def _formula(function: str, calls: Sequence[tuple[list[float], Any]]) -> str:
    """Return the mistake by which a function would give what came in all calls."""
    ways = [
        (name, lambda wrong=wrong: [wrong(*args) for args, _ in calls])
        for name, wrong in _WRONG_FORMULAS[function].items()
    ]
    return as_if([value for _, value in calls], ways, lambda came, wrong: right(wrong, came)) or "a wrong formula"


def _named(about: Values, wanted: dict[str, Value], mine: Value) -> str:
    if not isinstance(mine, dict):
        return "no table"
    if mine == _table(about, _open_ends):
        return "the ends do not belong"
    if mine == _table(about, _other_way_round):
        return "less and more the wrong way round"
    if "a Row" in str(mine):
        return "rows instead of places"
    if _shared(mine, len(wanted)):
        return "one list for all"
    if _in_order(wanted) == _in_order(mine):
        return "another order"
    if set(mine) < set(wanted):
        return "claims without rows are left out"
    if any(isinstance(each, dict) and set(each) != set(_VERDICTS) for each in mine.values()):
        return "empty lists are left out"
    return "a wrong table"


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


MISTAKES = {
    NOTHING: "A function returned None: print shows a value, return hands it back.",
    "claims without rows are left out": "Begin with every promised claim, also those without a row.",
    "the share of loading": "prefetch_gain is the share of loading; where loading is longer than computing, it is "
    "computing that is saved.",
    "gain over compute": "prefetch_gain divides by computing alone; it is a share of the whole step.",
    "times as fast, not the share": "prefetch_gain gives how many times as fast; asked is the share of time that is "
    "saved.",
    "the shorter over the longer": "prefetch_gain divides by the longer of the two; a step takes both, one after the "
    "other.",
    "products become slower": "mixed_speedup multiplies the time of the products by f; f times as fast is an f-th of "
    "the time.",
    "what is not a product is forgotten": "mixed_speedup leaves out the part that does not become faster.",
    "speed-ups are averaged": "mixed_speedup takes the mean of 1 and f, weighted. Times add up, speeds do not.",
    "the time, not the speed": "mixed_speedup gives what is left of the time; the speed-up is one over that.",
    "the ends do not belong": "A value at the end of the range is inside it: low <= value <= high.",
    "less and more the wrong way round": "less is where the value is below the promised range.",
    "empty lists are left out": "Every claim has three lists, holds, less and more, also when they are empty.",
    "rows instead of places": "The lists hold places, row.where, not the rows.",
    "one list for all": "All lists are one and the same list: dict.fromkeys(names, []) puts one list under every "
    "name. Make each anew: {name: [] for name in names}.",
    "another order": "Places stand in the order of the rows.",
    "no table": "true_table returns a dict: claim -> verdict -> list of places.",
}

SIGNS = {
    "claims without rows are left out": ("KeyError",),
}

EXERCISE = Exercise(
    id="true_table",
    functions=("prefetch_gain", "mixed_speedup", "true_table"),
    given=("Row",),
    driver=drive,
    oracle=expected,
    find=find,
    blame=by_signs(SIGNS),
    mistakes=MISTAKES,
    certain=frozenset(SIGNS),
    structure=structure,
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
)
