"""When each student handed in, as an instructor's table says it."""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path

from labkit.errors import ConfigError


def read_times(path: Path) -> dict[str, datetime]:
    """Return when each student handed in, from a CSV with the columns Student and Handed in (ISO 8601 with a zone).

    Raises:
        ConfigError: If a column is missing or a time has no zone.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        missing = {"Student", "Handed in"} - set(rows.fieldnames or ())
        if missing:
            raise ConfigError(f"{path} has no column {' and no column '.join(sorted(missing))} in its first line")
        times = {}
        for number, row in enumerate(rows, start=2):
            try:
                moment = datetime.fromisoformat(row["Handed in"].strip())
            except ValueError:
                moment = None
            if moment is None or moment.tzinfo is None:
                raise ConfigError(
                    f"{path}, line {number}: {row['Handed in']!r} is not a time with its zone, "
                    "such as 2026-12-01T18:00+01:00"
                )
            times[row["Student"]] = moment
    return times
