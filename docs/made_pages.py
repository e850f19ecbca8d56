"""The pages made from the repository itself: lessons, reference, hardware, errors; conf.py calls write()."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import first_page
import gpu_pages
import lesson_pages

import labkit
from labkit.hardware import DEVICES, LINKS
from labkit.simulator.cuda_functions import refused

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "labkit"


def write(folder: Path) -> None:
    """Write every made page below the folder; a page whose content is unchanged keeps its file."""
    pages = {"reference.md": _reference(), "hardware.md": _hardware(), "errors.md": _errors()}
    pages |= {"what_runs.md": _what_runs(), "gpu_reports.md": gpu_pages.overview(gpu_pages.reports())}
    pages |= lesson_pages.pages() | first_page.pages()
    for name, text in pages.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in folder.rglob("*.*"):
        if str(path.relative_to(folder)) not in pages:
            path.unlink()


def _reference() -> str:
    """Return the reference of the names a notebook needs, in the order of their modules."""
    lines = ["# Reference", "", "The names a notebook uses. `import labkit` starts nothing and loads no torch.", ""]
    for name in labkit.__all__:
        value = getattr(labkit, name)
        directive = "autoclass" if isinstance(value, type) else "autofunction"
        lines += ["```{eval-rst}", f".. {directive}:: labkit.{name}"]
        lines += ["   :members:", "   :member-order: bysource"] if isinstance(value, type) else []
        lines += ["```", ""]
    return "\n".join(lines)


def _hardware() -> str:
    """Return the catalogue that the virtual cluster counts with, each figure with its source."""
    lines = [
        "# Hardware",
        "",
        "What `labkit.virtual(n, gpu=..., link=..., nic=...)` counts with.",
        "",
        "## Devices",
        "",
    ]
    head = (
        "name",
        "memory",
        "memory rate",
        "dense peaks (TFLOP/s)",
        "reached, computing",
        "reached, copying",
        "launch",
    )
    lines += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    sources = []
    for device in DEVICES.values():
        peaks = ", ".join(f"{dtype} {peak / 1e12:.4g}" for dtype, peak in device.peak_flops.items())
        lines.append(
            f"| `{device.name}` | {device.memory_bytes / 1e9:.4g} GB "
            f"| {device.memory_bytes_per_second / 1e12:.4g} TB/s | {peaks} "
            f"| {device.compute_share:.0%} | {device.memory_share:.0%} | {device.launch_ns / 1e3:g} µs |"
        )
        sources.append(
            f"* `{device.name}`: {device.source}. Reached: {device.share_source}. Launch: {device.launch_source}."
            + (f" Products in scripts: {device.products.source}." if device.products else "")
            + (f" Attention in scripts: {device.attention_source}." if device.attention_share else "")
        )
    lines += ["", "Where the figures are from:", "", *sources]
    lines += ["", "## Links", "", "One direction, one port.", ""]
    lines += ["| name | rate | payload | latency |", "|---" * 4 + "|"]
    sources = []
    for link in LINKS.values():
        lines.append(
            f"| `{link.name}` | {link.bytes_per_second / 1e9:.4g} GB/s | {link.share:.0%} "
            f"| {link.latency_ns / 1e3:g} µs |"
        )
        sources.append(f"* `{link.name}`: {link.source}. Payload: {link.share_source}. Latency: {link.latency_source}.")
    lines += ["", "Where the figures are from:", "", *sources]
    return "\n".join(lines) + "\n"


def _what_runs() -> str:
    """Return what was tried on the virtual cluster, each row with the test that holds it, and what is refused by name.

    Raises:
        ValueError: If a row of docs/what_runs.toml is not complete, or names a test that is not there.
    """
    rows = tomllib.loads((ROOT / "docs" / "what_runs.toml").read_text(encoding="utf-8"))["row"]
    problems = what_runs_problems(rows)
    if problems:
        raise ValueError("docs/what_runs.toml does not fit the tests:\n" + "\n".join(problems))
    lines = ["# What runs on the virtual cluster", "", "A test checks each row.", ""]
    lines += ["| program | outcome | why | test |", "|---|---|---|---|"]
    for row in rows:
        told = OUTCOMES[row["outcome"]]
        lines.append(f"| {_in_table(row['what'])} | {told} | {row.get('why', '')} | `{row['test']}` |")
    lines += ["", "## Refused by name", "", "With `cuda=True`, calling one of these raises an error that names it:", ""]
    lines += [", ".join(f"`torch.cuda.{name}`" for name in refused()) + "."]
    return "\n".join(lines) + "\n"


OUTCOMES = {"right": "works", "told": "works, and the run says what is left out", "refused": "raises an error"}


def what_runs_problems(rows: list[dict[str, str]]) -> list[str]:
    """Return in words what is wrong with rows of docs/what_runs.toml."""
    problems = []
    for row in rows:
        file, _, test = row["test"].partition("::")
        path = ROOT / "tests" / file
        if not path.is_file() or f"def {test}(" not in path.read_text(encoding="utf-8"):
            problems.append(f"{row['what']}: there is no test {row['test']}")
        if row["outcome"] not in OUTCOMES:
            problems.append(f"{row['what']}: the outcome {row['outcome']} is none of {', '.join(OUTCOMES)}")
        elif (row["outcome"] == "right") == bool(row.get("why")):
            problems.append(f"{row['what']}: what is right needs no reason, and everything else one")
    return problems


def _errors() -> str:
    """Return every message an error of labkit can carry, read from the code, with why it is raised and what to do.

    Raises:
        ValueError: If a message has no entry in docs/error_catalogue.toml, or two, or an entry has no message.
    """
    lines = [
        "# Errors",
        "",
        "Every message labkit raises, why, and what to do. `{…}` stands for what is filled in. Search this page for"
        " a few words of the message. The kinds of errors are in `labkit.errors`.",
        "",
        "```text",
        *(ast.get_docstring(ast.parse((PACKAGE / "errors.py").read_text())) or "").partition("::\n\n")[2].splitlines(),
        "```",
        "",
    ]
    entries = tomllib.loads((ROOT / "docs" / "error_catalogue.toml").read_text(encoding="utf-8"))["entry"]
    explained, problems = catalogue(entries, messages())
    if problems:
        raise ValueError("docs/error_catalogue.toml does not fit the code:\n" + "\n".join(problems))
    for entry, found in zip(entries, explained, strict=True):
        lines += [f"## {entry['title']}", "", f"**Why.** {entry['why']}", "", f"**What to do.** {entry['do']}", ""]
        lines += ["| error | message |", "|---|---|"]
        rows = [
            (kind, "its text says what happened" if message.endswith(f": {kind}") else _in_table(message))
            for kind, message in found
        ]
        lines += [f"| {kind} | {message} |" for kind, message in dict.fromkeys(rows)] + [""]
    return "\n".join(lines)


def messages() -> list[tuple[str, str]]:
    """Return kind and text of every error that labkit's code makes; "FILE: KIND" where all of it is computed."""
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        if not _RAISES.search(code):  # most files raise none, and parsing them all takes seconds
            continue
        for kind, text in _raised(ast.parse(code)):
            found.add((kind, text if text.strip("{…} ") else f"{path.stem}: {kind}"))
    return sorted(found)


def catalogue(
    entries: list[dict[str, Any]], found: list[tuple[str, str]]
) -> tuple[list[list[tuple[str, str]]], list[str]]:
    """Return the messages of each entry, and in words where entries and messages do not fit each other."""
    explained: list[list[tuple[str, str]]] = [[] for _ in entries]
    problems = []
    for kind, text in found:
        at = [number for number, entry in enumerate(entries) if any(words in text for words in entry["says"])]
        if len(at) == 1:
            explained[at[0]].append((kind, text))
        else:
            where = ", ".join(entries[number]["title"] for number in at)
            problems.append(f"two entries ({where}) explain: {text}" if at else f"no entry explains: {text}")
    every = [text for _, text in found]
    problems += [
        f"no message says: {words}"
        for entry in entries
        for words in entry["says"]
        if not any(words in text for text in every)
    ]
    return explained, problems


KINDS = (
    *("ConfigError", "NoSuchRank", "LessonError", "EnvironmentProblem", "RankFailed", "HostLost", "RunTimeout"),
    *("OutOfVirtualMemory", "WireFormatError"),
)
_RAISES = re.compile(rf"\b(?:{'|'.join(KINDS)})\s*\(")


def _raised(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS:
            yield node.func.id, _text(node.args[0]) if node.args else ""


def _text(node: ast.expr) -> str:
    """Return a message as a reader knows it: what is computed stands as {…}."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value) for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name | ast.Attribute):
        return "{" + ast.unparse(node.value).rpartition(".")[2].strip("_") + "}"
    return "{…}"


def _in_table(text: str) -> str:
    for mark, plain in (("\\", "\\\\"), ("|", "\\|"), ("\n", " "), ("*", "\\*"), ("_", "\\_"), ("<", "&lt;")):
        text = text.replace(mark, plain)
    return text.replace("`", "\\`") if text.count("`") % 2 else text
