"""Crash tests: each planted bug is found at the moment it bites, and the reference survives every moment."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from typer.testing import CliRunner

import labkit
from labkit import cli
from labkit.crashes import CrashReport
from labkit.errors import ConfigError
from labkit.failures import PowerCut

PROGRAMS = Path(__file__).parent / "programs"
PLANTED = {
    "rename_without_fsync": ("cannot_start", "file", "EOFError"),
    "state_of_rank_0": ("wrong", "step", "parameters, optimizer state"),
    "sampler_from_0": ("wrong", "step", "parameters, optimizer state"),
    "optimizer_forgotten": ("wrong", "step", "parameters, optimizer state"),
    "rate_not_restored": ("wrong", "step", "parameters, optimizer state, learning rate and settings"),
    "barrier_of_those_who_load": ("stuck", "file", "Watchdog caught"),
    "deletes_the_last_good_one": ("cannot_start", "file", "EOFError"),
    "crashes_for_ever": ("cannot_start", "file", "FileExistsError"),
    "own_notion_of_latest": ("cannot_start", "file", "Rank 1 called barrier"),
}
"""Program -> the verdict, at which kind of moment, and words of why."""
ALWAYS = {"rate_not_restored"}


def _crash(name: str, *kinds: str) -> CrashReport:
    script = labkit.script(PROGRAMS / f"{name}.py")
    return labkit.crash_points(script, on=labkit.virtual(2, cuda=False), kinds=kinds or ("step", "call", "file"))


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.long) for name in PLANTED]
)
def test_a_planted_bug_is_found_and_named(name: str) -> None:
    verdict, kind, words = PLANTED[name]
    report = _crash(name, kind)
    found = [point for point in report.failing if point.verdict == verdict]
    assert found and words in found[0].why, report
    assert report.shortest is not None and report.shortest.verdict in (verdict, "lost_work")
    assert (verdict == "wrong") == any(point.verdict == "wrong" for point in report.failing)


@pytest.mark.long
@pytest.mark.parametrize("how", ["in_place", "renamed", "synced", "dcp", "accelerate"])
def test_the_page_says_which_ways_to_save_a_gpt_survive(how: str) -> None:
    script = labkit.script(PROGRAMS / "gpt_saves.py", how)
    if how == "accelerate":
        pytest.importorskip("accelerate")
        script = labkit.script(PROGRAMS / "accelerate_saves.py")
    report = labkit.crash_points(script, on=labkit.virtual(2, cuda=False), kinds=("file",), limit=24)
    counts = report.counts()
    row = f"| {report.num_found} | {counts['survived']} | {counts['lost_work']} | {counts['cannot_start']} |"
    assert row in (PROGRAMS.parents[2] / "docs" / "failures.md").read_text(encoding="utf-8")
    assert not counts["wrong"] and not counts["stuck"]


@pytest.mark.long
def test_the_page_says_how_lightning_resumes() -> None:
    pytest.importorskip("pytorch_lightning")
    script = labkit.script(PROGRAMS / "lightning_saves.py", "epochs")
    report = labkit.crash_points(script, on=labkit.virtual(2, cuda=False), kinds=("file",), limit=24)
    counts = report.counts()
    said = (
        f"of 24 of its {report.num_found} moments, {counts['survived']} survived, {counts['lost_work']} lost a save "
        f"and {counts['wrong']} came to another end"
    )
    page = (PROGRAMS.parents[2] / "docs" / "failures.md").read_text(encoding="utf-8")
    assert said in " ".join(page.split()) and not counts["stuck"] and not counts["cannot_start"]


@pytest.mark.long
def test_the_reference_survives_every_moment() -> None:
    report = _crash("trainer")
    assert not report.failing and len(report.points) == report.num_found > 90
    assert max(point.lost_steps or 0 for point in report.points) == 2  # what is between two checkpoints


def steps(saves: bool) -> float:
    """Train for three steps, from what was saved where there is something."""
    torch.manual_seed(0)
    value = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([value], lr=0.5)
    saved = Path("saved.pt")
    begin = 0
    if saves and saved.exists():
        begin, found = torch.load(saved)
        value.data.copy_(found)
    for step in range(begin, 3):
        value.grad = value.detach() + step
        optimizer.step()
        if saves:
            torch.save((step + 1, value.detach()), saved)
    return float(value.detach().sum())


@pytest.mark.in_turn
def test_a_function_that_starts_over_survives_and_one_that_writes_in_place_cannot_start() -> None:
    alone = labkit.virtual(1)
    over = labkit.crash_points(steps, False, on=alone)
    assert [point.lost_steps for point in over.points] == [0, 1, 2] and not over.failing
    assert over.counts() == {"survived": 3, "lost_work": 0, "wrong": 0, "stuck": 0, "cannot_start": 0}
    report = labkit.crash_points(steps, True, on=alone, power_cuts=False, kinds=("file",))
    assert report.shortest is not None and report.shortest.at == "write saved.pt"
    assert report.shortest.verdict == "cannot_start" and "EOFError" in report.shortest.why


def waits_for_the_other() -> None:
    """Take a step; after a restart rank 0 waits for a word that rank 1 never says."""
    begun = Path("begun").exists()
    dist.barrier()
    if dist.get_rank() == 0:
        Path("begun").touch()
        if begun:
            dist.recv(torch.zeros(1), 1)
    dist.barrier()
    value = torch.nn.Parameter(torch.ones(2))
    value.grad = torch.ones(2)
    torch.optim.SGD([value], lr=0.5).step()


@pytest.mark.in_turn
def test_ranks_that_wait_for_each_other_after_a_restart_are_stuck() -> None:
    report = labkit.crash_points(waits_for_the_other, kinds=("step",))
    assert report.counts() == {"survived": 0, "lost_work": 0, "wrong": 0, "stuck": 1, "cannot_start": 0}
    assert "Watchdog caught" in report.points[0].why


def test_what_cannot_be_compared_is_refused() -> None:
    def nothing() -> None:
        pass

    def drawn() -> bytes:
        return os.urandom(4)

    alone = labkit.virtual(1)
    with pytest.raises(ConfigError, match="has no end to compare"):
        labkit.crash_points(nothing, on=alone)
    with pytest.raises(ConfigError, match=r"Two runs without a crash .* \(rank 0: returned value\)"):
        labkit.crash_points(drawn, on=alone)
    with pytest.raises(ConfigError, match="cannot be crashed: crash_points needs"):
        labkit.crash_points(nothing, on=labkit.virtual(1, restarts=1))
    with pytest.raises(ConfigError, match="are no moments of a program"):
        labkit.crash_points(nothing, on=alone, kinds=("steps",))


@pytest.mark.in_turn
def test_the_command_writes_each_verdict_and_ends_with_1_where_one_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROGRAMS)
    out = tmp_path / "crashes.json"
    arguments = [
        "crash-test",
        "rate_not_restored.py",
        "--on",
        "virtual:2",
        "--no-cuda",
        "--limit",
        "8",
        "--json",
        str(out),
    ]
    ended = CliRunner().invoke(cli.app, arguments)
    assert ended.exit_code == 1, ended.output
    report = json.loads(out.read_text())
    assert report["num_tried"] == 8 < report["num_found"] and report["wrong"] >= 1
    verdicts = {point["verdict"] for point in report["points"]}
    assert verdicts == {"survived", "wrong"} and "wrong" in ended.output


@pytest.mark.in_turn
def test_launch_kills_and_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = str(PROGRAMS / "trainer.py")
    arguments = ["launch", script, "--on", "virtual:2", "--no-cuda", "--kill", "1@step:4", "--restarts", "1"]
    ended = CliRunner().invoke(cli.app, arguments)
    assert ended.exit_code == 0, ended.output
    assert "attempt 1           killed by SIGKILL as step 4 begins" in ended.output
    assert "attempt 2           came to its end" in ended.output and (tmp_path / "step-4").is_dir()
    for kill, words in (("3@step:1", "names rank 3"), ("1@steps:4", "cannot be read")):
        refused = CliRunner().invoke(cli.app, ["launch", script, "--on", "virtual:2", "--kill", kill])
        assert refused.exit_code == 2 and words in refused.output


def saves_each_step(sync: str, *, in_background: bool = False) -> float:
    """Train for four steps, each saved: "folder" so that no power cut loses it, "file" under a name that one may."""

    def save(step: int, trained: torch.Tensor) -> None:
        with Path("new").open("wb") as file:
            torch.save((step, trained), file)
            file.flush()
            os.fsync(file.fileno())
        Path("new").replace("saved.pt")
        if sync == "folder":
            folder = os.open(".", os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)

    value, begin = torch.nn.Parameter(torch.ones(2)), 0
    optimizer = torch.optim.SGD([value], lr=0.5)
    if Path("saved.pt").exists():
        begin, found = torch.load("saved.pt")
        value.data.copy_(found)
    saving = threading.Thread()
    for step in range(begin, 4):
        value.grad = value.detach() + step
        optimizer.step()
        if in_background:
            if saving.ident:
                saving.join()
            saving = threading.Thread(target=save, args=(step + 1, value.detach().clone()))
            saving.start()
        else:
            save(step + 1, value.detach())
    if saving.ident:
        saving.join()
    return float(value.detach().sum())


@pytest.mark.in_turn
def test_a_save_that_a_power_cut_takes_back_is_lost_work() -> None:
    report = labkit.crash_points(saves_each_step, "file", on=labkit.virtual(1), kinds=("file",), limit=24)
    assert report.failing and report.only_lost_work and len(report.points) == 24
    shortest = report.shortest
    assert shortest is not None and shortest.lost_steps == 2
    assert shortest.why == "the run had gone on from a save after step 1, and the restart found none"
    assert "lost_work, 2 steps done again  power cut (nothing left)" in str(shortest)
    assert Counter(getattr(point.failure, "keeps", "kill") for point in report.points) == dict.fromkeys(
        ("kill", "nothing", "names", "torn"), 6
    ), "each way to crash is tried as often"
    assert all(isinstance(point.failure, PowerCut) for point in report.failing)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a killed thread closes no file
def test_no_work_is_lost_by_a_save_that_is_synced_or_still_going_on_in_the_background() -> None:
    alone = labkit.virtual(1)
    assert not labkit.crash_points(saves_each_step, "folder", on=alone).failing
    report = labkit.crash_points(lambda: saves_each_step("folder", in_background=True), on=alone)
    assert not report.failing and len(report.points) > 40, report
