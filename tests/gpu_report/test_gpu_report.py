"""`labkit gpu-report`: its words where no GPU works, its files, its time, and what a rehearsal on the CPU finds."""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.errors import ConfigError, EnvironmentProblem
from labkit.gpu_report import lessons as lessons_module
from labkit.gpu_report import measures, report
from labkit.gpu_report.claims import Claim, Place, hold
from labkit.gpu_report.page import page
from labkit.gpu_report.published import published
from labkit.gpu_report.report import gpu_report
from labkit.hardware import DEVICES
from labkit.launch.gpus import Gpu, Gpus

H100 = Gpus((Gpu("GPU-5c7e1a2b-0000", "NVIDIA H100 80GB HBM3", 85_017_493_504),), 1, "2.28.9")


def names_here() -> list[str]:
    return [name for name in (socket.gethostname(), getpass.getuser(), str(Path.home()), str(Path.cwd())) if name]


def assert_private(text: str) -> None:
    """Raise where a report's file names this machine, its user, a folder, or sets a variable of its environment."""
    data = json.loads(text)
    told = json.dumps({key: value for key, value in data.items() if key != "forecast_source"})
    for name in names_here():
        assert name not in told.split() and f"/{name}" not in told, name
    for key, value in os.environ.items():
        if len(value) > 11:
            assert value not in told, key


def hopeless(place: Place) -> None:
    hold(False, "expected 1, got 2 at /data/ada/x.py")


@pytest.fixture
def on_an_h100(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose probe finds one H100; nothing runs on it but what a test puts there."""
    monkeypatch.setattr(report, "gpus", lambda: H100)
    claims = {
        "fine": Claim("this holds", lambda place: None, 1, False),
        "hopeless": Claim("this does not", hopeless, 1, False),
        "two": Claim("this takes two", lambda place: None, 2, False),
    }
    monkeypatch.setattr(report, "CLAIMS", claims)


def test_without_a_gpu_it_says_what_was_found_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "gpus", Gpus)
    with pytest.raises(EnvironmentProblem, match=r"needs a GPU that works \(torch sees none\).*--rehearse"):
        gpu_report(tmp_path / "r")
    monkeypatch.setattr(report, "gpus", lambda: Gpus((), 2, "", "the driver is too old"))
    with pytest.raises(EnvironmentProblem, match=r"2 counted, none usable: the driver is too old"):
        gpu_report(tmp_path / "r")
    assert not list(tmp_path.iterdir())


def test_an_unknown_part_and_a_missing_folder_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no part 'speed'; --only takes some of timelines, all-reduce, gpt"):
        gpu_report(tmp_path / "r", only=["speed"], rehearse=True)
    with pytest.raises(ConfigError, match="there is no folder"):
        gpu_report(tmp_path / "none" / "r", rehearse=True)


@pytest.mark.usefixtures("on_an_h100")
def test_claims_that_hold_that_do_not_and_that_need_more_are_told_apart(tmp_path: Path) -> None:
    said: list[str] = []
    data = gpu_report(tmp_path / "r", only=["probe", "tests"], say=said.append)
    assert [(each["claim"], each["held"]) for each in data["tests"]] == [("this holds", True), ("this does not", False)]
    assert data["tests"][1]["words"] == "DoesNotHold: expected 1, got 2 at .../x.py"
    assert {"part": "tests", "what": "this takes two", "why": "it needs 2 GPUs"} in data["left_out"]
    assert data["host"]["gpus"] == [{"model": "NVIDIA H100 80GB HBM3", "memory_bytes": 85_017_493_504}]
    assert data["forecast_of"] == "h100" and "5c7e" not in json.dumps(data)
    assert json.loads((tmp_path / "r.json").read_text()) == data
    shown = (tmp_path / "r.html").read_text()
    assert "1 of 2 claims hold." in shown and "expected 1, got 2" in shown and "it needs 2 GPUs" in shown
    assert said[0] == "1 x NVIDIA H100 80GB HBM3, NCCL 2.28.9: tests; 15 minutes"


@pytest.mark.usefixtures("on_an_h100")
def test_what_there_was_no_time_for_is_named_and_nothing_of_it_begun(tmp_path: Path) -> None:
    data = gpu_report(tmp_path / "r", minutes=0, say=lambda _: None)
    assert {(each["part"], each["why"]) for each in data["left_out"]} == {
        (part, "there was no time left") for part in report.PARTS
    }
    assert not data["tests"] and not data["lessons"]


@pytest.mark.usefixtures("on_an_h100")
def test_a_part_that_fails_costs_the_others_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(place: Place) -> Any:
        raise RuntimeError("NCCL error: unhandled system error\nat /data/ada/nccl.cc")

    monkeypatch.setattr(measures, "timelines", broken)
    data = gpu_report(tmp_path / "r", only=["timelines", "tests"], say=lambda _: None)
    assert data["failed"]["timelines"].startswith("RuntimeError: NCCL error: unhandled system error")
    assert len(data["tests"]) == 2
    assert "timelines failed: RuntimeError" in (tmp_path / "r.html").read_text()


@pytest.mark.usefixtures("on_an_h100")
def test_both_files_are_there_after_every_finding(tmp_path: Path) -> None:
    """So that a host which is taken away in the middle has told what it found until then."""
    counts: list[int] = []

    def say(line: str) -> None:
        if "holds" in line or "HOLD" in line or "held" in line:
            counts.append(
                len(json.loads((tmp_path / "r.json").read_text())["tests"]) if (tmp_path / "r.json").exists() else -1
            )

    gpu_report(tmp_path / "r", only=["tests"], say=say)
    assert counts == [1, 2]


@pytest.mark.in_turn
@pytest.mark.parametrize("parts", ["timelines,all-reduce", pytest.param("gpt", marks=pytest.mark.long)])
def test_a_rehearsal_measures_and_forecasts_and_names_nobody(tmp_path: Path, parts: str) -> None:
    out = tmp_path / "r"
    command = ["gpu-report", "--rehearse", "--only", parts, "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    text = out.with_suffix(".json").read_text()
    assert_private(text)
    data = json.loads(text)
    assert not data["failed"]
    assert sum(len(data[part]) for part in parts.split(",")) >= 2
    for clock in data["timelines"]:
        assert clock["calls_recorded"] == clock["calls_made"] and clock["clock_error_ns"] >= 0
    assert all(row["measured_us"] > 0 and row["forecast_us"] > 0 for row in data["all-reduce"])
    assert [row["dtype"] for row in data["gpt"]] in ([], ["float32", "bfloat16"])
    keys = ("measured_ms", "launched_ms", "forecast_ms", "forecast_bytes")
    assert all(row[key] > 0 for row in data["gpt"] for key in keys)
    assert "A rehearsal on the CPU" in out.with_suffix(".html").read_text()


LESSON = """\
# %% [markdown]
# # Small

# %%
import labkit
total = labkit.run(lambda: 1, on=labkit.local(2, device="cpu")).results

# %%
{last}
"""


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A course of lessons 00 and 01, whose last cells are given."""

    def made(first: str, second: str) -> None:
        (tmp_path / "solutions").mkdir()
        for name, last in (("00_small", first), ("01_smaller", second)):
            text = LESSON.format(last=last)
            (tmp_path / "solutions" / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.setattr(lessons_module, "brought_course", lambda: tmp_path)

    return made


@pytest.mark.in_turn
def test_lessons_say_on_which_backend_they_ran_and_where_they_failed(course: Any) -> None:
    course("total", "raise ValueError('no such card')")
    found: list[dict[str, Any]] = []
    lessons_module.lessons(time.monotonic() + 300, found.append)
    whole, failed = sorted(found, key=lambda each: each["lesson"])
    assert (whole["outcome"], whole["cells_begun"], whole["runs"]) == ("ran through", 2, {"gloo/cpu": 1})
    assert failed["outcome"] == "failed" and failed["runs"] == {"gloo/cpu": 1}
    assert "raised ValueError: no such card" in failed["words"]


def test_lessons_that_have_no_time_begin_no_kernel(course: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    course("total", "total")
    monkeypatch.setattr(lessons_module.subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    found: list[dict[str, Any]] = []
    lessons_module.lessons(time.monotonic() - 1, found.append)
    assert [each["outcome"] for each in found] == ["no time", "no time"]


@pytest.mark.parametrize(
    ("model", "device"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H200", "h200"), ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-32GB", "v100"), ("NVIDIA L4", "l4"), ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA B200", "b200"), ("NVIDIA H100 PCIe", None), ("NVIDIA A100-SXM4-40GB", None), ("NVIDIA L40", None),
        ("NVIDIA H200 NVL", None), ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("Tesla T4", "t4"), ("Tesla T40", None),
    ],
)  # fmt: skip
def test_published_figures_are_those_of_that_very_gpu(model: str, device: str | None) -> None:
    assert published(model) is (DEVICES[device] if device else None)


def test_the_page_shows_no_markup_that_a_message_holds() -> None:
    data = json.loads(json.dumps(EMPTY))
    data["tests"] = [{"claim": "c", "num_gpus": 1, "held": False, "words": "<script>alert(1)</script>", "seconds": 1}]
    assert "<script>" not in page(data)


EMPTY = {
    "labkit_gpu_report": 1, "labkit": "0", "date": "2026-01-01", "rehearsal": False, "minutes": 15, "host": {
        "system": "Linux", "machine": "x86_64", "python": "3.12", "torch": "2.11", "cuda": "13.0", "nccl": "2.28.9",
        "cores": 16, "memory_bytes": 10**11, "gpus": [{"model": "NVIDIA H100 80GB HBM3", "memory_bytes": 85 * 10**9}],
        "gpus_counted": 1, "problem": ""}, "forecast_of": "h100", "forecast_source": "", "seconds": {},
    "left_out": [], "failed": {}, "timelines": [], "all-reduce": [], "gpt": [], "tests": [], "lessons": [],
}  # fmt: skip
