"""gpu_report(): everything that a host with GPUs can tell in the time it has, as one JSON file and one page."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, Literal

import torch

from labkit import __version__
from labkit.errors import ConfigError, EnvironmentProblem
from labkit.gpu_report import measures
from labkit.gpu_report.claims import CLAIMS, Place
from labkit.gpu_report.lessons import lessons
from labkit.gpu_report.page import page
from labkit.gpu_report.private import cleaned
from labkit.gpu_report.published import published
from labkit.hardware import DEVICES, Device
from labkit.launch.gpus import Gpus, gpus
from labkit.words import plainly

FORMAT = 1
PARTS = ("timelines", "all-reduce", "gpt", "tests", "lessons")
"""In the order in which they are run: what takes seconds and says most comes first. The probe always comes before."""
_WORTH_BEGINNING_S = 5.0


class _Report:
    """The report while it grows; both files are written again whenever something was found."""

    def __init__(self, out: Path, minutes: float, data: dict[str, Any], say: Callable[[str], object]) -> None:
        self.files = out.with_suffix(".json"), out.with_suffix(".html")
        self.data, self.say = data, say
        self.until_s = time.monotonic() + 60 * minutes

    def write(self) -> None:
        clean = cleaned(self.data)
        self.files[0].write_text(json.dumps(clean, indent=1) + "\n", encoding="utf-8")
        self.files[1].write_text(page(clean), encoding="utf-8")

    def add(self, part: str, found: dict[str, Any], words: str) -> None:
        self.data[part].append(found)
        self.write()
        self.say(words)

    def leave_out(self, part: str, what: str, why: str) -> None:
        self.data["left_out"].append({"part": part, "what": what, "why": why})

    @property
    def has_time(self) -> bool:
        return time.monotonic() + _WORTH_BEGINNING_S < self.until_s


def gpu_report(
    out: Path,
    *,
    minutes: float = 15.0,
    only: Sequence[str] = (),
    rehearse: bool = False,
    say: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Return the report as plain data, after writing it to out.json and out.html.

    Args:
        out: Where it goes, without an ending.
        minutes: When to begin nothing new; what there was no time for is named.
        only: Parts, in the order in which they are run; all where none is named.
        rehearse: Run it on the CPU, so that one sees what it does; its figures say nothing of any GPU.
        say: Told of each step.

    Raises:
        ConfigError: If a part is not known or the folder is not there.
        EnvironmentProblem: If no GPU works.
    """
    parts = _parts(only)
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.absolute().parent}; make it, or name another file.")
    here = Gpus() if rehearse else gpus()
    if not here.usable and not rehearse:
        found = f"{here.counted} counted, none usable: {here.problem}" if here.counted else "torch sees none"
        raise EnvironmentProblem(
            f"a GPU report needs a GPU that works ({found}); `labkit doctor` says what this machine has, and "
            "--rehearse runs the same on the CPU to show what a report looks like."
        )
    place = Place("cpu" if rehearse else "cuda", 2 if rehearse else len(here.usable))
    gpu = DEVICES["epyc7763"] if rehearse else published(here.usable[0].model)
    data: dict[str, Any] = {
        "labkit_gpu_report": FORMAT, "labkit": __version__, "date": date.today().isoformat(), "rehearsal": rehearse,
        "minutes": minutes, "host": _host(here), "forecast_of": gpu.name if gpu else None,
        "forecast_source": gpu.source if gpu else "", "seconds": {}, "left_out": [], "failed": {},
        **{part: [] for part in PARTS},
    }  # fmt: skip
    report = _Report(out, minutes, data, say)
    say(f"{_gpus_in_words(here) if here.usable else 'a rehearsal on the CPU'}: {', '.join(parts)}; {minutes:g} minutes")
    report.write()
    for part in PARTS:
        if part not in parts:
            report.leave_out(part, "all of it", "it was not asked for")
    for part in parts:
        _run_part(report, part, place, gpu, here)
    report.write()
    return dict(cleaned(data))


def _parts(only: Sequence[str]) -> tuple[str, ...]:
    unknown = [part for part in only if part not in (*PARTS, "probe")]
    if unknown:
        raise ConfigError(f"there is no part {unknown[0]!r}; --only takes some of {', '.join(PARTS)}.")
    return tuple(part for part in only if part != "probe") if only else PARTS


def _gpus_in_words(here: Gpus) -> str:
    return f"{len(here.usable)} x {here.usable[0].model}, NCCL {here.nccl or 'missing'}"


def _host(here: Gpus) -> dict[str, Any]:
    """Return what kind of machine this is; nothing by which it could be found."""
    return {
        "system": platform.system(), "machine": platform.machine(), "python": platform.python_version(),
        "torch": torch.__version__, "cuda": torch.version.cuda or "", "nccl": here.nccl,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "gpus": [{"model": gpu.model, "memory_bytes": gpu.memory_bytes} for gpu in here.usable],
        "gpus_counted": here.counted, "problem": here.problem,
    }  # fmt: skip


def _memory_bytes() -> int | None:
    try:
        import psutil

        return int(psutil.virtual_memory().total)
    except (ImportError, OSError):
        return None  # where it cannot be read, the rest works


def _run_part(report: _Report, part: str, place: Place, gpu: Device | None, here: Gpus) -> None:
    if not report.has_time:
        report.leave_out(part, "all of it", "there was no time left")
        return
    begin_s = time.monotonic()
    with _failures_told(report, part):
        if part == "timelines":
            found = measures.timelines(place)
            report.add(part, found, f"timelines: clocks are off by {found['clock_error_ns']} ns at most")
        elif part == "all-reduce":
            for row in measures.all_reduce(place, gpu):
                report.add(part, row, f"all_reduce on {row['backend']}, {row['bytes']} B: {_beside(row, 'us', 'µs')}")
        elif part == "gpt":
            memory = here.usable[0].memory_bytes if here.usable else 0
            for row in measures.training_steps(place, gpu, memory):
                report.add(part, row, f"a GPT's step in {row['dtype']}: {_beside(row, 'ms', 'ms')}")
        elif part == "tests":
            _tests(report, place)
        else:
            lessons(report.until_s, lambda row: report.add(part, row, f"lesson {row['lesson']}: {row['outcome']}"))
    report.data["seconds"][part] = round(time.monotonic() - begin_s, 1)
    report.write()


def _beside(row: dict[str, Any], unit: Literal["us", "ms"], shown: str) -> str:
    forecast = row[f"forecast_{unit}"]
    return f"{row[f'measured_{unit}']:.4g} {shown}" + (f", forecast {forecast:.4g}" if forecast is not None else "")


@contextmanager
def _failures_told(report: _Report, part: str) -> Iterator[None]:
    """Let one part's failure be a line of the report: the other parts still say what they can."""
    try:
        yield
    except Exception as error:
        report.data["failed"][part] = f"{type(error).__name__}: {plainly(error)}"
        report.say(f"{part}: failed: {plainly(error).splitlines()[0]}")


def _tests(report: _Report, place: Place) -> None:
    for each in sorted(CLAIMS.values(), key=lambda claim: claim.num_gpus):
        why = each.problem(place) or ("" if report.has_time else "there was no time left")
        if why:
            report.leave_out("tests", each.words, why)
            continue
        begin_s, problem = time.monotonic(), ""
        try:
            each.check(place)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        took_s = round(time.monotonic() - begin_s, 1)
        row = {"claim": each.words, "num_gpus": each.num_gpus, "held": not problem, "words": problem, "seconds": took_s}
        report.add("tests", row, f"{'held' if not problem else 'DOES NOT HOLD'}  {each.words} ({took_s} s)")
