"""Predict every row of a table of runs, whose columns are those of nanotron's published runs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from labkit.errors import ConfigError
from labkit.planner.costs import costs_of
from labkit.planner.layout import Layout
from labkit.planner.model import MODELS, Model, named
from labkit.planner.plan import Job, Plan, planned
from labkit.planner.step import Machines
from labkit.words import join, plainly

PREDICTED = ("predicted_tokens_per_s", "predicted_memory_gb", "fits", "problem")
_NEEDED = ("microbatch", "grad_acc", "dp", "pp", "tp", "zero")
_SIZES = ("layers", "hidden", "heads", "intermediate", "vocabulary", "sequence")
_MAX_ROWS = 1_000_000
_EXPERTS = ("ep", "expert_parallel")
"""Names of a column that may be 1."""
_CONTEXT = ("cp", "context_parallel")
"""Names of the column with the ranks of a sequence."""
_CHUNKS = ("chunks", "interleaving", "virtual_pipeline", "vpp")
"""Names of the column with a stage's pieces."""
_PARAMETERS = re.compile(r"([0-9]+(?:\.[0-9]+)?)b\b")
_PRECISIONS = ("", "bf16", "bfloat16", "amp_bf16", "fp16", "float16")


@dataclass(frozen=True)
class Predicted:
    """How many rows a table has, and why some of them were not predicted: (line, problem)."""

    num_rows: int
    left_out: tuple[tuple[int, str], ...]


def predict_table(path: Path, out: Path, machines: Machines, program: str = "") -> Predicted:
    """Write a table's rows with four more columns, and return how many there are.

    Args:
        path: A CSV file with microbatch, grad_acc, dp, pp, tp, zero, and either model (a name of the catalogue; 1B, 3B,
            8B and 80B are nanotron's) or the columns layers, hidden, heads, intermediate, vocabulary, sequence.
            kv_heads, gated, recompute ("none" or "full"), chunks (of an interleaved pipeline), cp (ranks of a
            sequence), ep, precision, compile and program may be there. Capitals do not matter.
        out: Where the table goes, with ``predicted_tokens_per_s``, ``predicted_memory_gb`` (1e9 bytes), ``fits`` and
            ``problem``: why a row cannot run, or why it was not predicted.
        machines: What the runs ran on.
        program: What trained, "" for nanotron's models by nanotron and others by Megatron-LM.

    Raises:
        ConfigError: If the file cannot be read, lacks a column, has no rows or none that can be predicted.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            named = next(reader, [])
            columns = [name.strip() for name in named]
            known = [name.lower() for name in columns]
            lacking = [name for name in _NEEDED if name not in known]
            if "model" not in known:
                lacking += [name for name in _SIZES if name not in known]
            if lacking:
                there = f"its first line names {join(columns)}" if any(columns) else "it is empty"
                raise ConfigError(f"{path} lacks the columns {join(lacking)}; {there}.")
            rows: list[dict[str, str]] = []
            left_out: list[tuple[int, str]] = []
            for values in reader:
                if not any(value.strip() for value in values):
                    continue
                if len(rows) == _MAX_ROWS:
                    raise ConfigError(f"{path} has more than {_MAX_ROWS} rows; split it.")
                found = _row(dict(zip(known, values, strict=False)), machines, program)
                if not found[PREDICTED[0]]:
                    left_out.append((reader.line_num, found["problem"]))
                rows.append({**dict(zip(columns, values, strict=False)), **found})
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} cannot be read as a table: {plainly(error)}.") from None
    if not rows:
        raise ConfigError(f"{path} has a first line and no rows.")
    if len(left_out) == len(rows):
        line, problem = left_out[0]
        raise ConfigError(f"No row of {path} can be predicted. Line {line}: {problem}.")
    text = _as_csv([*(name for name in columns if name not in PREDICTED), *PREDICTED], rows)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"The predicted table {out} could not be written: {plainly(error)}.") from None
    return Predicted(len(rows), tuple(left_out))


def row_plan(row: Mapping[str, str], machines: Machines, program: str = "") -> Plan:
    """Return the plan that one row of a table describes, for a program where the row names none.

    Raises:
        ConfigError: If it describes none, or one of a kind that is not planned for.
    """
    said = {name: (value or "").strip() for name, value in row.items() if name is not None}
    for name in _EXPERTS:
        if said.get(name) and _integer(said, name) > 1:
            raise ConfigError(f"{name} is {said[name]}; expert parallelism is not planned for")
    precision = said.get("precision", said.get("dtype", "")).lower()
    if precision not in _PRECISIONS:
        raise ConfigError(f"precision is {precision!r}; only products of 16 bits are planned for")
    if said.get("compile", "").lower() in ("true", "yes", "1"):
        raise ConfigError("a compiled program is not planned for; the costs are those of an eager one")
    model = _model(said)
    costs = costs_of(model.name, said.get("program") or program)
    chunks, context = (
        next((_integer(said, name) for name in names if said.get(name)), 1) for names in (_CHUNKS, _CONTEXT)
    )
    counts = {name: _integer(said, name) for name in _NEEDED}
    layout = Layout(
        counts["dp"], counts["pp"], counts["tp"], counts["microbatch"], counts["grad_acc"], counts["zero"],
        said.get("recompute", "").lower() or "none", chunks, costs.even_stages, context,
    )  # fmt: skip
    # Ranks that do not fill whole nodes lie on as large ones as divide them.
    size = max(each for each in range(1, machines.node_size + 1) if layout.world_size % each == 0)
    job = Job(model, layout.world_size, layout.batch, replace(machines, node_size=size), costs)
    return planned(job, layout)


def _row(row: Mapping[str, str], machines: Machines, program: str) -> dict[str, str]:
    try:
        return _predicted(row_plan(row, machines, program))
    except ConfigError as error:
        return {**dict.fromkeys(PREDICTED, ""), "problem": str(error).rstrip(".")}


def _predicted(plan: Plan) -> dict[str, str]:
    return {
        "predicted_tokens_per_s": f"{plan.tokens_per_second:.0f}",
        "predicted_memory_gb": f"{plan.memory.total / 1e9:.2f}",
        "fits": str(plan.fits),
        "problem": plan.problem,
    }


def _model(row: Mapping[str, str]) -> Model:
    name = row.get("model", "")
    for known in (name, f"nanotron-{name}"):
        if model := named(known):
            return replace(model, sequence=_integer(row, "sequence")) if row.get("sequence") else model
    if not all(row.get(size) for size in _SIZES):
        raise ConfigError(f"no model is called {name!r}; use one of {join(MODELS)}, or the columns {join(_SIZES)}")
    layers, hidden, heads, intermediate, vocabulary, sequence_length = (_integer(row, size) for size in _SIZES)
    kv_heads = _integer(row, "kv_heads") if row.get("kv_heads") else heads
    model = Model(name or "model", layers, hidden, heads, kv_heads, intermediate, vocabulary, sequence_length)
    if row.get("gated"):
        return replace(model, gated=row["gated"].lower() not in ("false", "no", "0"))
    return _with_as_many_parameters(model)


def _with_as_many_parameters(model: Model) -> Model:
    """Return the model with a gate or without, whichever has nearly the parameters that its name says, as "175B"."""
    said = _PARAMETERS.search(model.name.lower())
    plain = replace(model, gated=False)
    if said is None:
        return model
    off, plainly_off = (abs(each.parameters / 1e9 / float(said[1]) - 1) for each in (model, plain))
    return plain if plainly_off < min(off, 0.1) else model


def _integer(row: Mapping[str, str], name: str) -> int:
    text = row.get(name, "")
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
