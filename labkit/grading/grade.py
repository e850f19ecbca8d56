"""`labkit grade`: a class, graded; imports no torch and runs no line of a submission."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import Progress

from labkit.errors import ConfigError, EnvironmentProblem
from labkit.grading.book.whose import called_in, whose_in
from labkit.grading.class_key import class_key, key_file
from labkit.grading.course import find_course
from labkit.grading.from_packs import read_packs
from labkit.grading.limits import Limits
from labkit.grading.own_folders import remove_left_behind
from labkit.grading.plain_text import shown
from labkit.grading.reports.class_report import ClassReport, class_csv, write_class
from labkit.grading.reports.results import GradedSubmission, find_result
from labkit.grading.reports.student_report import write_whole
from labkit.grading.sandbox.bubblewrap import KINDS, require
from labkit.grading.sandbox.cgroup import remove_groups_left_behind
from labkit.grading.sandbox.gpus import gpus_for_grading
from labkit.grading.setting import Setting
from labkit.grading.submission import Submission, find_submissions, submission_hash
from labkit.grading.turns import folder_of_this_machine
from labkit.grading.variants import Keys, keys_file, keys_for
from labkit.grading.workers.local_class import LocalClass
from labkit.grading.workers.worker_process import WorkerProcess
from labkit.links import refuse_links
from labkit.progress import bar

NO_SANDBOX = (
    "There is no sandbox: a submission's code runs with your rights. Grade only what you trust, "
    "or grade in a throw-away container."
)

_MOST_NAMED = 5
DEVICES = ("cpu", "cuda")


def grade(
    paths: Iterable[str | Path],
    lesson: str,
    out: str | Path,
    jobs: int | None = None,
    key: str | Path | None = None,
    course: str | Path | None = None,
    progress: bool = True,
    again: bool = False,
    sandbox: str = "bubblewrap",
    points_only: bool = False,
    second_run: bool = True,
    limits: Limits | None = None,
    spare: WorkerProcess | None = None,
    dask: str | None = None,
    packs: Sequence[str | Path] = (),
    device: str = "cpu",
) -> ClassReport:
    """Return what a class earned, with each student's reports and ``gradebook.csv`` written to `out`.

    A student whose result is there, for the same file, lesson and key, is not graded again. Where students have runs of
    their own, answers are judged by the keys of the student whose file it is, by the gradebook's roster.

    Args:
        paths: Notebooks, or folders of notebooks and of folders that hold one.
        lesson: The lesson's number or name, "02".
        out: Folder for the reports.
        jobs: Submissions graded at a time; by default one for every two cores.
        key: The file of the class key, from which and from each submission's answers hidden inputs are drawn; it is
            made where it is not there. None is where `labkit.grading.class_key.key_file` says.
        course: The folder that holds ``notebooks/`` and ``solutions/``.
        progress: Show a bar on stderr, where that is a terminal.
        again: Grade everybody, whatever results are there.
        sandbox: "bubblewrap" confines what submissions run; "none" does not, for input you trust.
        points_only: Do not execute the notebooks, which is most of the time; points do not rest on that.
        second_run: Run what fails beside something it needs once more, with reference answers for that. It needs the
            course's executed solution; without, nothing is run twice.
        limits: What a submission may use.
        spare: A worker that was started before; it is ended.
        dask: The address of a Dask cluster's scheduler that grades in place of this machine.
        packs: Packs of answers that were handed out; cells as they filled them earn what they say.
        device: "cpu", or "cuda": hidden cases run on this machine's GPUs, a submission at a time on each, and all ranks
            of a case share one. Notebooks are executed on the CPU all the same.

    Raises:
        ConfigError: If something named is not there or not possible.
        EnvironmentProblem: If reports cannot be written, there can be no sandbox, or grading itself failed.
    """
    started = time.monotonic()
    named = [Path(path) for path in paths]
    _refuse_what_cannot_be(sandbox, jobs, device, dask)
    with _ended_at_last(spare or (WorkerProcess() if dask is None else None)) as spare:
        found = find_course(lesson, course, named)
        given = read_packs([Path(path) for path in packs], found.name)
        secret = class_key(key := Path(key) if key is not None else key_file(os.environ))
        if sandbox != "none" and dask is None:
            require()
        gpus = gpus_for_grading(sandbox) if device == "cuda" else ()
        submissions, notes = find_submissions(named, found.manifest.lesson)
        refuse_links(Path(out), "the folder for reports")
        out = _apart_from_submissions(Path(out).resolve(), submissions)
        drawn = _drawn(key, [each.name for each in submissions])
        console = Console(stderr=True)
        with _workplace() as alone, _bar(console, progress) as bar:
            limits = limits or (Limits().on_gpu() if gpus else Limits())
            setting = Setting(found, out, secret, limits, alone, points_only, sandbox, second_run, given, gpus, drawn)
            kept = {} if again else _kept(submissions, setting)
            write_whole(out / "gradebook.csv", class_csv(kept.values(), found.manifest))
            notes = _told(console, setting, notes, len(kept), len(submissions))
            todo = [submission for submission in submissions if submission.name not in kept]
            if dask is None:
                num_workers = min(len(todo), jobs or len(gpus) or max(1, (os.cpu_count() or 2) // 2))
                LocalClass(setting, todo, num_workers, len(kept), bar, spare).run()
            elif todo:
                _dask_class(setting, todo, len(kept), bar, dask)
    handed_in = {each.name: each.path for each in submissions}
    people = called_in(_book(), handed_in)
    graded = _written(submissions, kept, setting, people)
    seconds = time.monotonic() - started
    return _concluded(console, ClassReport(graded, tuple(notes), seconds, setting.out, handed_in, people))


def _refuse_what_cannot_be(sandbox: str, jobs: int | None, device: str, dask: str | None) -> None:
    if sandbox not in KINDS:
        raise ConfigError(f"sandbox {sandbox!r} is not known; use {' or '.join(KINDS)}")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs} leaves nobody to grade; use 1 or more")
    if device not in DEVICES:
        raise ConfigError(f"device {device!r} is not known; use {' or '.join(DEVICES)}")
    if device == "cuda" and dask is not None:
        raise ConfigError("--device cuda grades on this machine's GPUs; workers of a Dask cluster grade on their CPUs")
    if jobs is not None and dask is not None:
        raise ConfigError(
            f"--jobs {jobs} is for this machine; on a Dask cluster as many are graded at a time as its workers have "
            "threads"
        )


def _apart_from_submissions(out: Path, submissions: Sequence[Submission]) -> Path:
    """Return the folder if no student could have put a report there: what is there is believed, not graded again.

    Raises:
        ConfigError: If something was handed in there.
    """
    if among := next((each.path for each in submissions if out in (each.path, *each.path.parents)), None):
        raise ConfigError(
            f"reports would be written to {out}, where {shown(among)} was handed in, and a student could have put a "
            "report there; name a folder with --out that holds no submissions"
        )
    return out


def _drawn(key: Path, names: Sequence[str]) -> dict[str, Keys]:
    """Return the keys of each submission where students have runs of their own, else nothing."""
    if not (kept := keys_file(key)).is_file():
        return {}
    return keys_for(kept, whose_in(_book(), names), names)


def _book() -> str:
    return os.environ.get("LABKIT_GRADEBOOK", "sqlite:///gradebook.db")


@contextmanager
def _workplace() -> Iterator[Path]:
    """A file to lock, beside the turns that all graders of this machine share.

    What killed graders and workers left behind is removed before and after.
    """
    remove_left_behind()
    remove_groups_left_behind()
    (alone := folder_of_this_machine() / "alone").touch()
    yield alone
    remove_left_behind()
    remove_groups_left_behind()


@contextmanager
def _ended_at_last(spare: WorkerProcess | None) -> Iterator[WorkerProcess | None]:
    """A worker that loads torch while we look at what there is to do; ended also where there was nothing."""
    try:
        yield spare
    finally:
        if spare is not None:
            spare.end(at_once=True)


def _dask_class(setting: Setting, todo: list[Submission], num_kept: int, bar: Progress | None, address: str) -> None:
    from labkit.grading.workers.dask_class import DaskClass  # Dask takes a second to load, and need not be installed

    DaskClass(setting, todo, num_kept, bar, address).run()


def _told(console: Console, setting: Setting, notes: list[str], num_kept: int, count: int) -> list[str]:
    """Say what to know of a class before it is graded, and return what belongs into its report."""
    if setting.sandbox == "none":
        console.print(f"[yellow]{NO_SANDBOX}[/yellow]", soft_wrap=True)
    if nobodys := [name for name, keys in setting.drawn.items() if "" in keys]:
        notes = [*notes, f"not in the roster, so finds with runs of one's own are not judged: {', '.join(nobodys)}"]
    for note in notes:
        console.print(note, markup=False, soft_wrap=True)
    if num_kept:
        console.print(f"{num_kept} of {count} are graded already; --again grades them again.")
    return notes


def _written(
    submissions: Sequence[Submission],
    kept: Mapping[str, GradedSubmission],
    setting: Setting,
    people: Mapping[str, str],
) -> tuple[GradedSubmission, ...]:
    """Write the class's pages, and return everybody's result; raises EnvironmentProblem where one is missing."""
    entries = [kept.get(each.name) or find_result(setting.out / each.name / "result.json") for each in submissions]
    if missing := [each.name for each, entry in zip(submissions, entries, strict=True) if entry is None]:
        raise EnvironmentProblem(f"no result was written for {', '.join(missing)}; run the same command again")
    graded = tuple(entry for entry in entries if entry is not None)
    write_class(setting.out, graded, submissions, setting.course, [pack.answers for pack in setting.packs], people)
    return graded


def _kept(submissions: Sequence[Submission], setting: Setting) -> dict[str, GradedSubmission]:
    """Return the results of an earlier run that still hold."""
    kept, fingerprint = {}, setting.fingerprint()
    for submission in submissions:
        entry = find_result(setting.out / submission.name / "result.json", graded_now=False)
        if entry is None or entry.course_sha256 != fingerprint:
            continue
        if entry.submission_sha256 == submission_hash(submission.path):
            kept[submission.name] = entry
    return kept


def _concluded(console: Console, report: ClassReport) -> ClassReport:
    """Return the report, whose sum has been told."""
    unread = sum(bool(entry.problem) for entry in report)
    now, count = sum(entry.graded_now for entry in report), len(report)
    share = "" if now == count else f"{now} of "
    words = f"{share}{count} submission{'s' if count != 1 else ''} graded in {_minutes(report.seconds)}"
    if unread:
        words += f", {unread} of them could not be read or finished"
    lines = [f"{words}; results in {_from_here(report.out)}/"]
    scored = [entry for entry in report if not entry.problem]
    if count > 1 and scored:
        middle, full = median(entry.score for entry in scored), scored[0].max_score
        page = _from_here(report.out / "class.html")
        lines.append(f"  median {middle:g} of {full:g} points; the class on one page: {page}")
    if count > 1:
        lines.append(f"  {_first_to_read(report)}")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True, highlight=False)
    return report


def _first_to_read(report: ClassReport) -> str:
    """Return whose submissions need a look, and why; of a class in which none does, who has fewest points."""

    def called(entry: GradedSubmission) -> str:
        return shown(report.people.get(entry.name, entry.name))

    def works(entry: GradedSubmission) -> bool:
        return any(each.points or each.state in ("passed", "to_read", "read") for each in entry.exercises)

    lost = [entry for entry in report if entry.problem or not works(entry)]
    if not lost:
        least = min(report, key=lambda entry: entry.score)
        page = _from_here(report.out / least.name / "feedback.html")
        return f"fewest points: {called(least)}, {least.score:g} of {least.max_score:g}; the page: {page}"
    told = [f"{called(entry)} ({'not graded' if entry.problem else 'nothing works yet'})" for entry in lost]
    more = f" and {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
    return f"{len(told)} {'needs' if len(told) == 1 else 'need'} a look: {', '.join(told[:_MOST_NAMED])}{more}"


def _minutes(seconds: float) -> str:
    """Return "8.2 s", or "5 min 51 s"."""
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60} s"


def _from_here(path: Path) -> Path:
    """Return a path as it is written from the working directory, where it lies below that."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _bar(console: Console, wanted: bool) -> AbstractContextManager[Progress | None]:
    if not wanted or not console.is_terminal:
        return nullcontext()
    return bar(console, "grading")
