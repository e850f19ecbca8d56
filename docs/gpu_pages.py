"""The page of GPU reports that came in, and what labkit claims of GPUs; made from docs/gpu_reports/*.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labkit.gpu_report.claims import CLAIMS
from labkit.gpu_report.page import page, title

FOLDER = Path(__file__).parent / "gpu_reports"
_INTRO = """\
# GPU reports

Have you a machine with NVIDIA GPUs? One command tries labkit on them, in a quarter of an hour:

```sh
labkit gpu-report
```

It writes `gpu-report.json` and `gpu-report.html`: which of the claims below hold, how far the virtual cluster's
forecasts are from what your GPUs measure, and how far lessons 00 to 04 ran. Neither file names your machine, you or
your folders. Send the JSON file as an issue or a pull request; it then stands here. With little time, `--minutes 3`
begins nothing after three minutes, and the report names what was left out; `--rehearse` shows what a report looks like.
"""


def reports(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Return every report that came in, by its file's name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def write(folder: Path) -> None:
    """Write each report's own page."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in reports().items():
        (folder / f"{name}.html").write_text(page(data), encoding="utf-8")


def overview(came: Mapping[str, dict[str, Any]]) -> str:
    """Return the page of all reports."""
    return "\n".join([_INTRO, *_table(came), "", *_claims(came), ""])


def _table(came: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    yield "## Reports that came in\n"
    if not came:
        yield "None has come in yet."
        return
    yield "| GPUs | labkit, torch, NCCL | date | claims | lessons | GPT step, measured and forecast |"
    yield "|---|---|---|---|---|---|"
    for name, data in came.items():
        host = data["host"]
        versions = f"{data['labkit']}, {host['torch']}, {host['nccl']}"
        held = f"{sum(each['held'] for each in data['tests'])} of {len(data['tests'])}"
        whole = f"{sum(each['outcome'] == 'ran through' for each in data['lessons'])} of {len(data['lessons'])}"
        steps = "; ".join(map(_step, data["gpt"]))
        link = f'<a href="gpu/{name}.html">{title(data)}</a>'
        yield f"| {link} | {versions} | {data['date']} | {held} | {whole} | {steps} |"


def _step(row: Mapping[str, Any]) -> str:
    forecast = f"{row['forecast_ms']:.3g} ms" if row["forecast_ms"] else "no forecast"
    return f"{row['dtype']}: {row['measured_ms']:.3g} ms, {forecast}"


def _claims(came: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    yield "## What labkit claims on GPUs\n"
    yield "In how many of these reports each claim was tried, and in how many it held.\n"
    yield "| claim | GPUs | tried | held |"
    yield "|---|---|---|---|"
    found = [each for data in came.values() for each in data["tests"]]
    for claim in sorted(CLAIMS.values(), key=lambda each: each.num_gpus):
        tried = [each["held"] for each in found if each["claim"] == claim.words]
        yield f"| {claim.words} | {claim.num_gpus} | {len(tried)} | {sum(tried)} |"
