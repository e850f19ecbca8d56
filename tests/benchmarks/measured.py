"""docs/measured.md: what `make bench` measured last, topic by topic."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "measured.md"
_HEAD = """\
# What was measured

`make bench ARGS="--publish TOPIC"` writes a section here and names the machine it ran on. A figure without a unit is
a ratio of two sides measured in the same sitting, so it means something on other machines, too; a figure with a unit
holds for that machine. The bar is the limit that we set ourselves. *Quick* means fewer repeats: a look, not a figure
to quote.
"""


def publish(topic: str, record: dict[str, Any], page: Path = PAGE) -> None:
    """Put a topic's section into the page, in place of what was measured of it before."""
    before = page.read_text(encoding="utf-8") if page.is_file() else _HEAD
    sections = {each.partition("\n")[0]: each for each in re.split(r"(?m)^## ", before)[1:]}
    sections[topic] = _section(topic, record)
    text = "\n".join([_HEAD, *(f"## {sections[name].rstrip()}\n" for name in sorted(sections))])
    page.write_text(text, encoding="utf-8")


def _section(topic: str, record: dict[str, Any]) -> str:
    machine = record["machine"]
    quick = ", quick" if record["quick"] else ""
    lines = [topic, ""]
    versions = f"{machine['cores']} cores, Python {machine['python']}, torch {machine['torch']}"
    lines.append(f"{versions}, load {machine['load_before']:.1f} when it began{quick}.")
    lines += ["", "| what | measured | bar | outcome |", "|---|---:|---:|---|"]
    for bar in record["bars"]:
        measured = "not measured" if bar["ratio"] is None else f"{bar['ratio']:.4g}"
        limit = f"{'at least' if bar['at_least'] else 'at most'} {bar['limit']:g}"
        verdict = {True: "met", False: "**missed**", None: ""}[bar["met"]]
        lines.append(f"| {bar['says'].replace('|', '/')} | {measured} | {limit} | {verdict} |")
    for title, (head, *rows) in record.get("tables", {}).items():
        lines += ["", f"{title}:", "", *(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))]
    return "\n".join(lines) + "\n"
