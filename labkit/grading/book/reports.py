"""What a grading run said of an attempt, as the gradebook keeps it: findings, code, and the page as it was."""

from __future__ import annotations

import json
import zlib
from datetime import datetime
from pathlib import Path
from typing import Any

from labkit.grading.book.tables import Report
from labkit.grading.reports.results import GradedSubmission


def report_of(folder: Path, submission: GradedSubmission, now: datetime) -> Report | None:
    """Return what a run left of a submission, to be kept; None where it left nothing that can be read.

    Args:
        folder: What was --out of labkit grade.
        submission: What its result.json says.
        now: When it is recorded.
    """
    own = folder / submission.name
    try:
        page = (own / "feedback.html").read_bytes()
        findings = json.loads((own / "details.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    packed = zlib.compress(json.dumps(findings, sort_keys=True).encode())
    return Report(file_name=submission.name, findings=packed, page=zlib.compress(page), recorded_at=now)


def findings_of(report: Report) -> dict[str, Any]:
    """Return what was said: "problem", and "exercises" with points, words, code, cases and pictures."""
    found: dict[str, Any] = json.loads(zlib.decompress(report.findings))
    return found


def page_of(report: Report) -> bytes:
    """Return the page as the grading run wrote it."""
    return zlib.decompress(report.page)
