"""`labkit grade` inside GitHub Actions: a summary of the job, and annotations at the cells that do not work yet.

Source: GitHub, "Workflow commands for GitHub Actions": at most ten annotations of a kind are shown for a step, and a
summary may have 1 MiB.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

from labkit.grading.grade import grade
from labkit.grading.plain_text import plain_text
from labkit.grading.reports.class_report import ClassReport
from labkit.grading.reports.page import WORDS
from labkit.grading.reports.results import GradedExercise, GradedSubmission

_MOST_ANNOTATIONS = 10
_MOST_BYTES = 900_000
_MOST_SHOWN = 20
_MARKS = {"passed": "✅", "failed": "❌", "not_done": "⬜", "not_graded": "➖", "to_read": "✏️"}


def grade_in_actions(paths: list[Path], **options: Any) -> ClassReport:
    """Return what :func:`labkit.grading.grade.grade` returns, told to GitHub as well.

    While it runs, nothing that is printed can be taken for a command of the workflow: names of files are a student's.
    """
    with _without_commands():
        report = grade(paths, **options)
    for line in failure_commands(report, Path(os.environ.get("GITHUB_WORKSPACE", "."))):
        print(line, flush=True)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with open(summary, "a", encoding="utf-8") as file:
            file.write(job_summary(report))
    return report


@contextmanager
def _without_commands() -> Iterator[None]:
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", flush=True)
    try:
        yield
    finally:
        sys.stderr.flush()
        print(f"::{token}::", flush=True)


def failure_commands(report: ClassReport, workspace: Path) -> list[str]:
    """Return a workflow command for each exercise that fails, at its cell in the notebook's file.

    Args:
        report: What grading brought.
        workspace: The folder that paths are told relative to.
    """
    found = []
    for result in report:
        path = report.paths.get(result.name)
        lines = _cell_lines(path) if path is not None else {}
        if result.problem:
            found.append(_command("error", path, workspace, 1, f"{result.name}: not graded", result.problem))
        for each in result.exercises:
            if each.state == "failed":
                found.append(_command("error", path, workspace, lines.get(each.id, 1), each.name, each.said))
    if len(found) > _MOST_ANNOTATIONS:
        more = len(found) - _MOST_ANNOTATIONS + 1
        words = f"{more} more exercises fail; the job's summary and feedback.html have them all."
        found[_MOST_ANNOTATIONS - 1 :] = [f"::error title=And more::{_data(words)}"]
    return found


def _cell_lines(path: Path) -> dict[str, int]:
    """Return at which line of a notebook's file the cell of each exercise is."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return {}
    found: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        key, _, value = line.strip().rstrip(",").partition(": ")
        if key == '"id"' and value.startswith('"exercise-'):
            found[value.strip('"').removeprefix("exercise-").replace("-", "_")] = number
    return found


def _command(kind: str, path: Path | None, workspace: Path, line: int, title: str, message: str) -> str:
    where = ""
    if path is not None:
        full, root = path.resolve(), workspace.resolve()
        name = full.relative_to(root).as_posix() if full.is_relative_to(root) else full.name
        where = f"file={_property(name)},line={line},"
    return f"::{kind} {where}title={_property(plain_text(title, 200))}::{_data(plain_text(message, 2000))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def job_summary(report: ClassReport) -> str:
    """Return the summary in GitHub's Markdown: of one submission each exercise, of several a line each."""
    entries = list(report)
    body = _of_one(entries[0]) if len(entries) == 1 else _of_several(entries)
    data = body.encode("utf-8")
    if len(data) <= _MOST_BYTES:
        return body
    return data[:_MOST_BYTES].decode("utf-8", "ignore") + "\n\n(cut: the whole is in the reports)\n"


def _of_one(result: GradedSubmission) -> str:
    lines = [f"## {_cell(result.lesson)}: {result.score:g} of {result.max_score:g} points", ""]
    if result.problem:
        return "\n".join([*lines, _cell(result.problem), ""])
    lines += ["| | exercise | points |", "|---|---|---|"]
    for each in result.exercises:
        most = f" of {each.max_points:g}" if each.max_points else " (bonus)"
        mark = f"{_MARKS.get(each.state, '')} {WORDS.get(each.state, '')}"
        lines.append(f"| {mark} | {_cell(each.name)} | {each.points:g}{most} |")
    failed = [each for each in result.exercises if each.state == "failed"]
    return "\n".join([*lines, "", *(_details(each) for each in failed[:_MOST_SHOWN]), ""])


def _details(each: GradedExercise) -> str:
    said = escape(plain_text(each.said, 4000)).replace("\n", "&#10;")  # behind a blank line Markdown would begin again
    return f"<details><summary>{_cell(each.name)}</summary>\n<pre>{said}</pre>\n</details>\n"


def _of_several(entries: list[GradedSubmission]) -> str:
    lines = [f"## {_cell(entries[0].lesson)}: {len(entries)} submissions", ""]
    lines += ["| submission | points | |", "|---|---|---|"]
    for result in entries:
        works = sum(each.state == "passed" for each in result.exercises)
        told = _cell(result.problem) if result.problem else f"{works} of {len(result.exercises)} exercises work"
        lines.append(f"| {_cell(result.name)} | {result.score:g} of {result.max_score:g} | {told} |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    """Return text that stays text in a table of Markdown."""
    plain = escape(plain_text(text, 500), quote=False).replace("\n", " ")
    return "".join(f"&#{ord(letter)};" if letter in "|`*_[]#~!@\\" else letter for letter in plain)
