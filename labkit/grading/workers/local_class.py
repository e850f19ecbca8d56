"""A class on this machine: workers beside each other, each with one submission in hand.

What could tell each other something worth points is not alive at the same time. A notebook's kernel can call the
checks' oracles, and ranks of hidden cases know inputs: workers run some notebooks, and when these have ended, their
cases. Ranks of a second run hold answers: they come last, one after another.
"""

from __future__ import annotations

import selectors
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from labkit.errors import EnvironmentProblem
from labkit.grading.setting import Setting, fault_words, lost_words
from labkit.grading.student import WAITING, unreadable, write_reports
from labkit.grading.submission import Submission, submission_hash
from labkit.grading.workers.processors import processors, share
from labkit.grading.workers.worker_process import WorkerProcess

if TYPE_CHECKING:
    from rich.progress import Progress

_BATCH = 8
"""How many notebooks a worker runs before their cases, where there are several workers: few wait for the slowest."""
TRIES = 2
"""How often a submission is tried whose worker ends."""


@dataclass(eq=False)
class Busy:
    """One worker, what it is doing, the submissions whose cases it has still to try, and which of the workers it is."""

    worker: WorkerProcess
    submission: Submission | None = None
    since: float = 0.0
    stage: str = ""
    stage_since: float = 0.0
    op: str = ""
    begun: list[Submission] = field(default_factory=list)
    place: int = 0

    def enter(self, stage: str) -> None:
        """Note what it does now; a wait for others is not of its own time."""
        now = time.monotonic()
        if self.stage == WAITING:
            self.since += now - self.stage_since
        self.stage, self.stage_since = stage, now

    def is_over(self, most_seconds: float) -> bool:
        """Return whether its own time is used up."""
        return self.submission is not None and self.stage != WAITING and time.monotonic() - self.since > most_seconds


@dataclass(eq=False)
class LocalClass:
    """Hands out submissions to workers; replaces a worker that was ended.

    Attributes:
        setting: What workers are told.
        todo: What is to be graded.
        num_workers: Submissions at a time.
        num_kept: Graded before, for the bar.
        bar: Where progress is shown.
        spare: A worker that was started before it was known what there is to do.
    """

    setting: Setting
    todo: list[Submission]
    num_workers: int
    num_kept: int
    bar: Progress | None
    spare: WorkerProcess | None = None
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
        self._workers: list[Busy] = []
        self._unfinished: list[tuple[Busy, Submission]] = []
        self._to_begin = 0
        self._done = 0
        try:
            for _ in range(self.num_workers):
                self._start()
            while self._done < total:
                self._hand_out()
                for key, _ in self._selector.select(0.5):
                    self._listen(key.data)
                self._watch_time()
                self._show()
        finally:
            for busy in self._workers:  # all at once, for each takes a moment
                busy.worker.stop(at_once=busy.submission is not None)
            for busy in list(self._workers):
                self._end(busy)
            self._selector.close()

    def _start(self) -> Busy:
        worker, self.spare = self.spare or WorkerProcess(), None
        place = min(set(range(self.num_workers)) - {each.place for each in self._workers})
        worker.open({**self.setting.opening(), "processors": share(place, self.num_workers, processors())})
        busy = Busy(worker, place=place)
        self._selector.register(worker.channel, selectors.EVENT_READ, busy)
        self._workers.append(busy)
        return busy

    def _hand_out(self) -> None:
        """Give everybody who has nothing in hand what may run beside the rest."""
        idle = [each for each in self._workers if each.submission is None]
        running = {each.op for each in self._workers if each.submission is not None}
        if not running and not any(each.begun for each in self._workers):
            self._to_begin = 1 if self.num_workers == 1 else _BATCH * self.num_workers
        if running <= {"begin"} and self._to_begin and self._waiting:
            while idle and self._to_begin and self._waiting:
                self._begin(idle.pop())
        elif running <= {"go on"} and any(each.begun for each in self._workers):
            self._to_begin = 0
            for busy in idle:
                if busy.begun:
                    submission = busy.begun.pop(0)
                    self._send(busy, submission, {"op": "go on", "name": submission.name})
        elif not running and self._unfinished:
            busy, submission = self._unfinished.pop(0)
            self._send(busy, submission, {"op": "finish", "name": submission.name})

    def _begin(self, busy: Busy) -> None:
        submission, self._to_begin = self._waiting.pop(), self._to_begin - 1
        path = submission.path.parent.resolve() / submission.path.name  # were it a link by now, it is not followed
        about = {"name": submission.name, "path": str(path), "problem": submission.problem}
        self._send(busy, submission, {"op": "begin", **about})

    def _send(self, busy: Busy, submission: Submission, asked: dict[str, str]) -> None:
        busy.submission, busy.op, busy.since, busy.stage = submission, asked["op"], time.monotonic(), "starting"
        busy.worker.channel.send(asked)

    def _listen(self, busy: Busy) -> None:
        for frame in busy.worker.channel.receive():
            said = str(frame.header["op"])
            if said == "stage":
                busy.enter(str(frame.header["stage"]))
            elif said in ("begun", "unfinished", "graded"):
                assert busy.submission is not None
                if said == "begun":
                    busy.begun.append(busy.submission)
                elif said == "unfinished":
                    self._unfinished.append((busy, busy.submission))
                self._done += said == "graded"
                busy.submission = None
            elif said == "crashed":
                self._crashed(busy, str(frame.header["error"]), str(frame.header["traceback"]))
            else:
                raise EnvironmentProblem(f"while grading {frame.header['name']}: {frame.header['error']}")
        if busy.worker.channel.closed:
            self._lost(busy, "was ended")

    def _lost(self, busy: Busy, why: str) -> None:
        """Grade what a lost worker had in hand once more; the second time say so in its report.

        What it had not finished is graded anew.
        """
        submission = busy.submission
        self._end(busy)
        self._waiting += [*busy.begun, *(each for worker, each in self._unfinished if worker is busy)]
        self._unfinished = [each for each in self._unfinished if each[0] is not busy]
        if submission is not None:
            count = self.tries[submission.name] = self.tries.get(submission.name, 0) + 1
            if count < TRIES:
                self._waiting.append(submission)
            else:
                self._report_problem(submission, lost_words(why, count))
        if self._waiting:
            self._start()

    def _crashed(self, busy: Busy, error: str, trace: str) -> None:
        """Tell of a fault in the grader itself: this submission has no score yet, the others are graded."""
        submission = busy.submission
        assert submission is not None
        print(f"grading {submission.name} failed because of a fault in the grader:\n{trace}", file=sys.stderr)
        self._report_problem(submission, fault_words(error))
        busy.submission = None

    def _report_problem(self, submission: Submission, problem: str) -> None:
        course = self.setting.course
        digest = submission_hash(submission.path)
        write_reports(unreadable(submission.name, problem, course, digest, ""), course, self.setting.out)
        self._done += 1

    def _watch_time(self) -> None:
        for busy in list(self._workers):
            if busy.is_over(self.setting.most_seconds):
                self._lost(busy, "took too long")

    def _end(self, busy: Busy) -> None:
        self._workers.remove(busy)
        self._selector.unregister(busy.worker.channel)
        busy.worker.end(at_once=busy.submission is not None)

    def _show(self) -> None:
        if self.bar is not None and self._task is not None:
            doing = [f"{each.submission.name}: {each.stage}" for each in self._workers if each.submission is not None]
            self.bar.update(self._task, completed=self.num_kept + self._done, now="  ".join(doing[:2]))
