"""Lesson 16 keeps its contract; its figures are those of the published counts and of the replay."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import labkit
from labkit.failures import Policy, interruptions, published, replay_policy, rows, young_interval_s
from labkit.failures.recovery import JOBS, Recovery, lost
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract

SOURCE = Path(__file__).parents[2] / "solutions" / "16_when_machines_fail.py"
KEYS = Path(__file__).parents[2] / "labkit" / "exercises" / "when_machines_fail"


class TestContract(LessonContract):
    number = "16"
    least_guesses = 2
    topics: ClassVar = {
        "stuck": r"labkit\.lend\(",
        "the question": r"419\s+unplanned interruptions",
        "synced": r"what was \*\*synced\*\*",
        "the folder": r"`os\.fsync` of the \*\*folder\*\*",
        "bit for bit": r"\*\*bit for bit\*\*",
        "asynchronous": r"\*\*asynchronous\*\*",
        "the same step": r"load the \*same\* step",
        "crash points": r"labkit\.crash_points",
        "a recorded run": r'labkit\.recorded\("lost_time"\)',
        "young": r"young's interval \(1974\)",
        "torchrun": r"torchrun --max-restarts 1",
        "the next lesson": r"the next question",
        "sources": r"### sources",
    }


def test_what_the_lesson_says_of_llama_3_is_counted() -> None:
    llama = published("llama3_54_days")
    assert (llama.interruptions, llama.num_gpus, llama.days) == (419, 16_384, 54)
    assert 3.0 < llama.mean_s / 3600 < 3.2 and 5.5 < llama.mean_gpu_s / 365.25 / 86_400 < 6
    silent = next(row for row in rows("llama3_54_days") if row["component"] == "Silent Data Corruption")
    assert silent["interruptions"] == "6"


@pytest.mark.in_turn
def test_the_best_interval_is_about_19_minutes_and_its_curve_is_flat() -> None:
    mean_s = published("llama3_54_days").mean_s
    assert round(young_interval_s(60.0, mean_s) / 60) == 19

    def goodput(minutes: float) -> float:
        policy = Policy(10.0, round(6 * minutes), 60.0, detect_s=60.0, restart_s=300.0, reload_s=60.0)
        return sum(replay_policy(policy, interruptions(mean_s, seed), days=54).goodput for seed in range(12)) / 12

    shares = {minutes: goodput(minutes) for minutes in (5, 15, 20, 25, 90)}
    assert max(shares, key=lambda minutes: shares[minutes]) in (15, 20, 25)
    assert max(shares[minutes] for minutes in (15, 20, 25)) - min(shares[minutes] for minutes in (15, 20, 25)) < 0.01
    assert round(100 * (1 - shares[20])) == 13 and round(100 * (60 + 300 + 60) / mean_s) == 4
    assert shares[20] - shares[5] > 0.05 and shares[20] - shares[90] > 0.05


def test_with_copies_every_minute_saves_to_the_storage_belong_68_minutes_apart() -> None:
    mean_s = published("llama3_54_days").mean_s
    key = json.loads((KEYS / "storage_interval" / "key.json").read_text(encoding="utf-8"))
    assert round(young_interval_s(60.0, mean_s / 0.08) / 60) == key["answers"][""] == 68

    def goodput(minutes: int) -> float:
        policy = Policy(
            10.0, 6 * minutes, 60.0, detect_s=60.0, restart_s=300.0, reload_s=60.0, copy_every=6, copy_s=1.0,
            copy_reload_s=15.0, copies_lost=0.08,
        )  # fmt: skip
        return sum(replay_policy(policy, interruptions(mean_s, seed), days=54).goodput for seed in range(12)) / 12

    assert goodput(68) > max(goodput(19), goodput(240))


def test_young_and_daly_lose_less_than_the_naive_plan_and_more_than_copies() -> None:
    job = next(job for name, job in JOBS.items() if name.startswith("FT-HSDP"))
    naive, young = Recovery(360, spares=20), Recovery(10, background=True, when_short="shrink")
    copies = Recovery(40, background=True, copy_every=7, when_short="shrink")
    assert lost(job, copies) < lost(job, young) - 5 < lost(job, naive) - 50
    llama = next(job for name, job in JOBS.items() if name.startswith("Llama 3"))
    assert lost(llama, Recovery(33, background=True, when_short="shrink")) < 10  # what Meta reports


@pytest.mark.in_turn
def test_the_recorded_run_is_what_the_virtual_cluster_does() -> None:
    room = SOURCE.parent / "hidden" / "when_machines_fail" / "lost_time"
    made = runpy.run_path(str(room / "record.py"))
    record: Callable[..., labkit.Timeline] = made["record"]
    for folder, case in ((KEYS / "lost_time", made["OF_OURS"]), (room, made["OF_CLASS"])):
        timeline = labkit.Timeline.load(folder / "recording.json")
        assert list(timeline.rows()) == list(record(case).rows())
        key = json.loads((folder / "key.json").read_text(encoding="utf-8"))["answers"]
        rank, step, part = case
        assert (key["rank"], key["again"]) == (rank, step - 1 - made["SAVE_EVERY"])
        assert key["doing"] == {"loads": "loading a batch", "computes": "computing"}[part]
        waits = [span for span in timeline.rows() if span.end_ns - span.start_ns > 100e9]
        assert {span.rank for span in waits} == set(range(4)) - {rank}
        assert all((span.end_ns - span.start_ns) / 60e9 == pytest.approx(key["minutes"]) for span in waits)
        whole_s = made["STEPS"] * (made["LOAD_S"] + made["COMPUTE_S"]) + 2 * made["SAVE_S"]
        assert timeline.makespan_ns / 60e9 - whole_s / 60 == pytest.approx(40, abs=0.6)


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return namespace(number="16")


@pytest.mark.in_turn
def test_a_training_from_the_answers_survives_crashes(answers: dict[str, Any]) -> None:
    report = labkit.crash_points(answers["train"], on=labkit.virtual(2, cuda=False), kinds=("file",), limit=4)
    assert len(report.points) == 4 and not report.failing, report


@pytest.mark.long
def test_a_training_from_the_answers_survives_every_crash(answers: dict[str, Any]) -> None:
    report = labkit.crash_points(answers["train"], on=labkit.virtual(2, cuda=False), limit=1000)
    assert len(report.points) == report.num_found > 100 and not report.failing, report
