"""What a rank runs of true_table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions


@dataclass(frozen=True)
class RowStandIn:
    """Stand-in for the lesson's Row."""

    claim: str
    where: str
    value: float


def drive(functions: Functions, inputs: Values) -> Values:
    """Call the formulas, and true_table with each list of rows (true_table).

    Inputs: calls (function and args); tables: dicts with rows (claim, where, value) and promised (claim, low, high).
    """
    values: list[Value] = [
        functions[call["function"]](*call["args"]) for call in cast(list[dict[str, Any]], inputs["calls"])
    ]
    make = functions.get("Row", RowStandIn)
    tables: list[Value] = []
    for about in cast(list[dict[str, Any]], inputs["tables"]):
        rows = [make(*row) for row in about["rows"]]
        tables.append(
            _plain(functions["true_table"](rows, {name: (low, high) for name, low, high in about["promised"]}))
        )
    return {"values": values, "tables": tables}


def _plain(value: Any) -> Value:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else f"a {type(value).__name__}"
