"""Timelines on disk: a numpy archive without pickled objects, or JSON; reading either runs no code.

A recording that a lesson brings is JSON: text, which can be read, searched and compared.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.errors import ConfigError
from labkit.timeline.columns import COLUMNS
from labkit.timeline.span import Lane, Problem

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline

FORMAT = "labkit timeline 2"
_BEFORE = "labkit timeline 1"


def save(timeline: Timeline, path: str | Path) -> None:
    """Write columns as ``spans/NAME``, tables as ``tables/TABLE/COLUMN``, the rest as JSON in ``about``.

    The file gets exactly this name; nothing is appended to it. One that ends in ``.json`` is all JSON.
    """
    about = {
        "format": FORMAT,
        "num_ranks": timeline.num_ranks,
        "tables": sorted(timeline.tables),
        "problems": [[each.kind, each.rank, each.text, each.row] for each in timeline.problems],
    }
    arrays: dict[str, Any] = {f"spans/{key}": getattr(timeline, key) for key in COLUMNS}
    for name, table in timeline.tables.items():
        arrays |= {f"tables/{name}/{column}": values for column, values in table.items()}
    if Path(path).suffix == ".json":
        columns = {name: {"type": values.dtype.str, "values": values.tolist()} for name, values in arrays.items()}
        Path(path).write_text(json.dumps(about | {"columns": columns}) + "\n", encoding="utf-8")
        return
    arrays["about"] = np.array(json.dumps(about))
    with Path(path).open("wb") as file:
        np.savez_compressed(file, **arrays)


def load(make: type[Timeline], path: str | Path) -> Timeline:
    """Return the timeline in this file, made by its class.

    Raises:
        ConfigError: If the file is not a timeline.
        OSError: If it cannot be read.
    """
    name = Path(path).name
    try:
        about, arrays = _read_json(Path(path)) if Path(path).suffix == ".json" else _read_archive(Path(path))
        if about.get("format") not in (FORMAT, _BEFORE):
            raise ConfigError(
                f"{name} has the format {about.get('format')!r}, and this labkit reads {FORMAT!r}; save the timeline "
                "again with this version."
            )
        columns = {key: arrays[f"spans/{key}"] for key in COLUMNS}
        if about["format"] == _BEFORE:  # named regions lay in the lanes of work
            columns["lane"] = np.where(columns["kind"] == "span", int(Lane.REGION), columns["lane"])
        tables: dict[str, dict[str, Any]] = {table: {} for table in about["tables"]}
        for key in arrays:
            if key.startswith("tables/"):
                _, table, column = key.split("/", 2)
                tables[table][column] = arrays[key]
        problems = tuple(Problem(*each) for each in about["problems"])
    except (KeyError, ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{name} is not a timeline that labkit wrote ({error}).") from error
    return make(**columns, tables=tables, problems=problems, num_ranks=about["num_ranks"])


def _read_archive(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a numpy archive says about the timeline, and its arrays."""
    with np.load(path, allow_pickle=False) as archive:
        about = dict(json.loads(str(archive["about"])))
        return about, {key: archive[key] for key in archive.files if key != "about"}


def _read_json(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a JSON file says about the timeline, and its arrays."""
    about = json.loads(path.read_text(encoding="utf-8"))
    arrays = {}
    for name, column in about["columns"].items():
        kind = np.dtype(column["type"])
        if kind.hasobject:
            raise ValueError(f"{name} holds objects")
        arrays[name] = np.array(column["values"], dtype=kind)
    return about, arrays
