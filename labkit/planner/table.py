"""Predict every row of a table of runs, whose columns are those of nanotron's published runs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from labkit.errors import ConfigError
from labkit.planner.layout import Layout
from labkit.planner.model import MODELS, Model
from labkit.planner.plan import Job, Plan, planned
from labkit.planner.step import Machines
from labkit.words import join, plainly

PREDICTED = ("predicted_tokens_per_s", "predicted_memory_gb", "fits")
_NEEDED = ("microbatch", "grad_acc", "dp", "pp", "tp", "zero")
_SIZES = ("layers", "hidden", "heads", "intermediate", "vocabulary", "sequence")
_MAX_ROWS = 1_000_000


def predict_table(path: Path, out: Path, machines: Machines) -> int:
    """Write a table's rows with three more columns, and return how many there are.

    Args:
        path: A CSV file with microbatch, grad_acc, dp, pp, tp, zero, and either model (a name of the catalogue; 1B, 3B,
            8B and 80B are nanotron's) or the columns layers, hidden, heads, intermediate, vocabulary, sequence.
            kv_heads and recompute ("none" or "full") may be there.
        out: Where the table goes, with ``predicted_tokens_per_s``, ``predicted_memory_gb`` (1e9 bytes) and ``fits``.
        machines: What the runs ran on.

    Raises:
        ConfigError: If the file cannot be read, lacks a column, or a row describes no run; it names the line.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            columns = list(reader.fieldnames or [])
            lacking = [name for name in _NEEDED if name not in columns]
            if "model" not in columns:
                lacking += [name for name in _SIZES if name not in columns]
            if lacking:
                raise ConfigError(f"{path} lacks the columns {join(lacking)}; its first line names {join(columns)}.")
            rows = []
            for number, row in enumerate(reader, start=2):
                if number > _MAX_ROWS:
                    raise ConfigError(f"{path} has more than {_MAX_ROWS} lines; split it.")
                plan = _row(f"{path}, line {number}", row, machines)
                rows.append({**{name: row.get(name) or "" for name in columns}, **_predicted(plan)})
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} cannot be read as a table: {plainly(error)}.") from None
    text = _as_csv([*(name for name in columns if name not in PREDICTED), *PREDICTED], rows)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"The predicted table {out} could not be written: {plainly(error)}.") from None
    return len(rows)


def row_plan(row: Mapping[str, str], machines: Machines) -> Plan:
    """Return the plan that one row of a table describes.

    Raises:
        ConfigError: If it describes none.
    """
    model = _model(row)
    counts = {name: _integer(row, name) for name in _NEEDED}
    layout = Layout(
        counts["dp"], counts["pp"], counts["tp"], counts["microbatch"], counts["grad_acc"], counts["zero"],
        (row.get("recompute") or "none").strip(),
    )  # fmt: skip
    size = min(machines.node_size, layout.world_size)
    job = Job(model, layout.world_size, layout.batch, replace(machines, node_size=size))
    return planned(job, layout)


def _row(where: str, row: Mapping[str, str], machines: Machines) -> Plan:
    try:
        return row_plan(row, machines)
    except ConfigError as error:
        raise ConfigError(f"{where} describes no run: {error}") from None


def _predicted(plan: Plan) -> dict[str, str]:
    return {
        "predicted_tokens_per_s": f"{plan.tokens_per_second:.0f}",
        "predicted_memory_gb": f"{plan.memory.total / 1e9:.2f}",
        "fits": str(plan.fits),
    }


def _model(row: Mapping[str, str]) -> Model:
    name = (row.get("model") or "").strip()
    for known in (name.lower(), f"nanotron-{name.lower()}"):
        if known in MODELS:
            model = MODELS[known]
            sequence = (row.get("sequence") or "").strip()
            return replace(model, sequence=_integer(row, "sequence")) if sequence else model
    if not all((row.get(size) or "").strip() for size in _SIZES):
        raise ConfigError(f"no model is called {name!r}; use one of {join(MODELS)}, or the columns {join(_SIZES)}")
    layers, hidden, heads, intermediate, vocabulary, sequence_length = (_integer(row, size) for size in _SIZES)
    kv_heads = _integer(row, "kv_heads") if (row.get("kv_heads") or "").strip() else heads
    return Model(name or "model", layers, hidden, heads, kv_heads, intermediate, vocabulary, sequence_length)


def _integer(row: Mapping[str, str], name: str) -> int:
    text = (row.get(name) or "").strip()
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value != value or value in (float("inf"), float("-inf")) or value != int(value) or value < 0:
        raise ConfigError(f"{name} is {text!r}, not a whole number")
    return int(value)


def _as_csv(columns: Iterable[str], rows: Iterable[Mapping[str, str]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
