"""`labkit grade`: a class, graded; imports no torch and runs no line of a submission."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from labkit.errors import ConfigError, EnvironmentProblem
from labkit.grading.class_report import ClassReport, class_csv, write_class
from labkit.grading.course import Course, find_course
from labkit.grading.environments import trusted_environment
from labkit.grading.frames import Channel
from labkit.grading.limits import Limits
from labkit.grading.report import write_whole
from labkit.grading.results import GradedSubmission, find_result
from labkit.grading.sandbox import KINDS, require
from labkit.grading.student import submission_hash, unreadable, write_reports
from labkit.grading.submission import Submission, find_submissions

NO_SANDBOX = (
    "There is no sandbox: a submission's code runs with your rights. Grade only what you trust, "
    "or grade in a throw-away container."
)
_TRIES = 2
_CLOSING_SECONDS = 10.0


def grade(
    paths: Iterable[str | Path],
    lesson: str,
    out: str | Path,
    jobs: int | None = None,
    seed: int = 0,
    course: str | Path | None = None,
    progress: bool = True,
    again: bool = False,
    sandbox: str = "bubblewrap",
    points_only: bool = False,
    limits: Limits | None = None,
) -> ClassReport:
    """Return what a class earned, with each student's reports and ``gradebook.csv`` written to `out`.

    A student whose result is there, for the same file, lesson and seed, is not graded again.

    Args:
        paths: Notebooks, or folders of notebooks and of folders that hold one.
        lesson: The lesson's number or name, "02".
        out: Folder for the reports.
        jobs: Submissions graded at a time; by default one for every two cores.
        seed: What hidden inputs are drawn from, together with each submission's answers.
        course: The folder that holds ``notebooks/`` and ``solutions/``.
        progress: Show a bar on stderr, where that is a terminal.
        again: Grade everybody, whatever results are there.
        sandbox: "bubblewrap" confines what submissions run; "none" does not, for input you trust.
        points_only: Do not execute the notebooks, which is most of the time; points do not rest on that.
        limits: What a submission may use.

    Raises:
        ConfigError: If something named is not there or not possible.
        EnvironmentProblem: If reports cannot be written, there can be no sandbox, or grading itself failed.
    """
    started = time.monotonic()
    if sandbox not in KINDS:
        raise ConfigError(f"sandbox {sandbox!r} is not there; use {' or '.join(KINDS)}")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"{jobs} jobs cannot grade anything; use 1 or more")
    found = find_course(lesson, course)
    if sandbox != "none":
        require()
    submissions, notes = find_submissions([Path(path) for path in paths], found.manifest.lesson)
    out = Path(out).resolve()
    fingerprint = found.fingerprint(seed)
    kept = {} if again else _kept(submissions, out, fingerprint)
    todo = [submission for submission in submissions if submission.name not in kept]
    write_whole(out / "gradebook.csv", class_csv(kept.values(), found.manifest))
    console = Console(stderr=True)
    if sandbox == "none":
        console.print(f"[yellow]{NO_SANDBOX}[/yellow]", soft_wrap=True)
    for note in notes:
        console.print(note, markup=False, soft_wrap=True)
    if kept:
        console.print(f"{len(kept)} of {len(submissions)} are graded already; --again grades them again.")
    num_workers = min(len(todo), jobs or max(1, (os.cpu_count() or 2) // 2))
    with tempfile.TemporaryDirectory(prefix="lk-class-") as shared:
        alone = Path(shared) / "alone"
        alone.touch()
        setting = _Setting(found, out, seed, limits or Limits(), alone, points_only, sandbox)
        with _bar(console, progress) as bar:
            _Class(setting, todo, num_workers, len(kept), bar).run()
    entries = [kept.get(each.name) or find_result(out / each.name / "result.json") for each in submissions]
    missing = [each.name for each, entry in zip(submissions, entries, strict=True) if entry is None]
    if missing:
        raise EnvironmentProblem(f"no result was written for {', '.join(missing)}; run the same command again")
    graded = tuple(entry for entry in entries if entry is not None)
    write_class(out, graded, submissions, found)
    paths = {each.name: each.path for each in submissions}
    report = ClassReport(graded, tuple(notes), time.monotonic() - started, out, paths)
    _conclude(console, report)
    return report


def _kept(submissions: Sequence[Submission], out: Path, fingerprint: str) -> dict[str, GradedSubmission]:
    """Return the results of an earlier run that still hold."""
    kept = {}
    for submission in submissions:
        entry = find_result(out / submission.name / "result.json", graded_now=False)
        if entry is None or entry.course_sha256 != fingerprint:
            continue
        if entry.submission_sha256 == submission_hash(submission.path):
            kept[submission.name] = entry
    return kept


def _conclude(console: Console, report: ClassReport) -> None:
    unread = sum(bool(entry.problem) for entry in report)
    words = f"{len(report)} submission{'s' if len(report) != 1 else ''} graded in {report.seconds:.1f} s"
    if unread:
        words += f", {unread} of them could not be read or finished"
    console.print(f"{words}: {report.out}", markup=False, soft_wrap=True, highlight=False)


def _bar(console: Console, wanted: bool) -> AbstractContextManager[Progress | None]:
    if not wanted or not console.is_terminal:
        return nullcontext()
    columns = (TextColumn("grading"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    left = (TextColumn("left"), TimeRemainingColumn())
    return Progress(*columns, *left, TextColumn("{task.fields[now]}", markup=False), console=console)


# ---- handing out submissions


@dataclass(frozen=True)
class _Setting:
    """What all workers are told."""

    course: Course
    out: Path
    seed: int
    limits: Limits
    alone: Path
    points_only: bool
    sandbox: str

    def opening(self) -> dict[str, Any]:
        course = self.course
        return {
            "course": {
                "root": str(course.root),
                "lesson": course.lesson,
                "notebook": str(course.notebook.resolve()),
                "hidden": str(course.hidden.resolve()),
                "checks": str(course.checks.resolve()) if course.checks else None,
            },
            "out": str(self.out),
            "seed": self.seed,
            "limits": asdict(self.limits),
            "alone": str(self.alone),
            "points_only": self.points_only,
            "sandbox": self.sandbox,
        }


@dataclass(eq=False)
class _Worker:
    """One worker process and what it is doing."""

    process: subprocess.Popen[bytes]
    channel: Channel
    submission: Submission | None = None
    since: float = 0.0
    stage: str = ""


@dataclass(eq=False)
class _Class:
    """Hands out submissions to workers; replaces a worker that was ended."""

    setting: _Setting
    todo: list[Submission]
    num_workers: int
    num_kept: int
    bar: Progress | None
    tries: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        """Return when every submission has its reports.

        Raises:
            EnvironmentProblem: If grading itself failed.
        """
        total = len(self.todo)
        self._task = (
            self.bar.add_task("", total=total + self.num_kept, completed=self.num_kept, now="") if self.bar else None
        )
        self._waiting = list(reversed(self.todo))
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self._done = 0
        try:
            for _ in range(self.num_workers):
                self._hand_out(self._start())
            while self._done < total:
                for key, _ in self._selector.select(0.5):
                    self._listen(key.data)
                self._watch_time()
                self._show()
        finally:
            for worker in list(self._workers):
                self._end(worker)
            self._selector.close()

    def _start(self) -> _Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "labkit.grading.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=trusted_environment(),
                start_new_session=True,
            )
        worker = _Worker(process, Channel(ours, max_header=1 << 20, max_payload=0))
        worker.channel.send(self.setting.opening())
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        self._workers.append(worker)
        return worker

    def _hand_out(self, worker: _Worker) -> None:
        if not self._waiting:
            worker.submission = None
            return
        submission = self._waiting.pop()
        worker.submission, worker.since, worker.stage = submission, time.monotonic(), "starting"
        worker.channel.send(
            {"name": submission.name, "path": str(submission.path.resolve()), "problem": submission.problem}
        )

    def _listen(self, worker: _Worker) -> None:
        for frame in worker.channel.receive():
            if frame.header["op"] == "stage":
                worker.stage = str(frame.header["stage"])
            elif frame.header["op"] == "graded":
                self._done += 1
                self._hand_out(worker)
            elif frame.header["op"] == "crashed":
                self._crashed(worker, str(frame.header["error"]), str(frame.header["traceback"]))
            else:
                raise EnvironmentProblem(f"while grading {frame.header['name']}: {frame.header['error']}")
        if worker.channel.closed:
            self._lost(worker, "was ended")

    def _lost(self, worker: _Worker, why: str) -> None:
        """Grade what a lost worker had in hand once more; the second time say so in its report."""
        submission = worker.submission
        self._end(worker)
        if submission is not None:
            count = self.tries[submission.name] = self.tries.get(submission.name, 0) + 1
            if count < _TRIES:
                self._waiting.append(submission)
            else:
                self._report_problem(
                    submission,
                    f"The process that graded this {why} {count} times while your code ran, so nothing could be "
                    "scored. Does a cell end or kill processes, or use up the memory?",
                )
        if self._waiting:
            self._hand_out(self._start())

    def _crashed(self, worker: _Worker, error: str, trace: str) -> None:
        """Tell of a fault in the grader itself: this submission has no score yet, the others are graded."""
        submission = worker.submission
        assert submission is not None
        print(f"grading {submission.name} failed, by a fault of the grader:\n{trace}", file=sys.stderr)
        problem = (
            f"The grader itself failed on this submission ({error}). This is not your fault; it must be graded again."
        )
        self._report_problem(submission, problem)
        self._hand_out(worker)

    def _report_problem(self, submission: Submission, problem: str) -> None:
        course = self.setting.course
        digest = submission_hash(submission.path)
        write_reports(unreadable(submission.name, problem, course, digest, ""), course, self.setting.out)
        self._done += 1

    def _watch_time(self) -> None:
        limits = self.setting.limits
        most = limits.notebook_seconds + limits.probe_seconds + 4 * limits.retry_seconds + 120
        for worker in list(self._workers):
            if worker.submission is not None and time.monotonic() - worker.since > most:
                self._lost(worker, "took too long")

    def _end(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._selector.unregister(worker.channel)
        worker.channel.close()
        if worker.submission is not None:
            worker.process.send_signal(signal.SIGTERM)
        try:
            worker.process.wait(_CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()

    def _show(self) -> None:
        if self.bar is not None and self._task is not None:
            busy = [f"{each.submission.name}: {each.stage}" for each in self._workers if each.submission is not None]
            self.bar.update(self._task, completed=self.num_kept + self._done, now="  ".join(busy[:2]))
