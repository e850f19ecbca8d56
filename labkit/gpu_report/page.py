"""The report as a page: one HTML file, which opens without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

from labkit.checks.predictions import how_far
from labkit.units import format_bytes

_ALL_LAUNCH = 0.85  # of a step: its last kernels run when the launch is over
_TEMPLATE = Path(__file__).with_name("page.html.jinja")


def page(data: dict[str, Any]) -> str:
    """Return the page of a report that was cleaned of private names."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"size": lambda value: "" if value is None else format_bytes(int(value)), "figure": _figure}
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(report=data, title=title(data), told=summary(data)) + "\n"


def _figure(value: float | None) -> str:
    """Return a number in three figures."""
    if value is None:
        return "–"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def title(data: dict[str, Any]) -> str:
    """Return whose report it is: the GPUs."""
    gpus = data["host"]["gpus"]
    return f"{len(gpus)} × {gpus[0]['model']}" if gpus else "a CPU, in rehearsal"


def waits_for_host(row: dict[str, Any]) -> bool:
    """Return whether a GPU's step took as long as its launch: then it is the host that the step measures."""
    return "cuda" in row["backend"] and row.get("launched_ms", 0.0) >= _ALL_LAUNCH * row["measured_ms"]


def summary(data: dict[str, Any]) -> list[str]:
    """Return the report in short: a sentence for each part that was run."""
    lines = []
    if tests := data["tests"]:
        held = sum(each["held"] for each in tests)
        lines.append(f"{held} of {len(tests)} claims hold.")
    if lessons := data["lessons"]:
        whole = sum(each["outcome"] == "ran through" for each in lessons)
        lines.append(f"{whole} of {len(lessons)} lessons ran through.")
    for clock in data["timelines"]:
        lines.append(f"Times on the record are off by at most {clock['clock_error_ns'] / 1e3:.3g} µs.")
    for row in data["gpt"]:
        if waits_for_host(row):
            launched = f"{row['launched_ms']:.3g} ms"
            lines.append(f"In {row['dtype']} the GPU waits for its host, which takes {launched} to launch a step.")
        elif row["forecast_ms"]:
            off = how_far(row["forecast_ms"], row["measured_ms"])
            lines.append(f"The forecast of a GPT's step in {row['dtype']} is {off}.")
    lines += [f"{part} failed: {words.splitlines()[0]}" for part, words in data["failed"].items()]
    return lines
