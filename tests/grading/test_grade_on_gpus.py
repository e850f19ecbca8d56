"""`labkit grade --device cuda`: who is refused and why, what a sandbox shows of a GPU, whose turn it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from grading.conftest import SANDBOX
from grading.small_lesson import RIGHT, write_course, write_submission
from labkit.cli import app
from labkit.commands import teaching
from labkit.errors import ConfigError, EnvironmentProblem
from labkit.grading import grade as grading
from labkit.grading.course import Course
from labkit.grading.grade import grade
from labkit.grading.hidden_cases.probe import NoGpuError
from labkit.grading.preloaded.template import Template
from labkit.grading.sandbox import bubblewrap, gpus
from labkit.grading.sandbox.bubblewrap import Sandbox
from labkit.grading.student import WAITING, Grader
from labkit.launch import gpu_turns
from labkit.launch.gpus import Gpu, Gpus

needs_sandbox = pytest.mark.skipif(bool(bubblewrap.problem()), reason=f"no sandbox here: {bubblewrap.problem()}")
FIRST, SECOND = "GPU-11111111-aaaa", "GPU-22222222-bbbb"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make files that stand for two GPUs and their driver's words, and a probe that found what is named."""
    dev, driver = tmp_path / "dev", tmp_path / "gpus"
    dev.mkdir()
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia0", "nvidia1"):
        (dev / name).touch()
    for minor, uuid in ((1, FIRST), (0, SECOND)):  # not in the order of their files
        about = driver / f"0000:0{minor}:00.0" / "information"
        about.parent.mkdir(parents=True)
        about.write_text(f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n", encoding="utf-8")
    monkeypatch.setattr(gpus, "DEV", dev)
    monkeypatch.setattr(gpus, "DRIVER", driver)

    def found(*names: str, **more: Any) -> None:
        usable = tuple(Gpu(name, "NVIDIA H100", 1) for name in names)
        monkeypatch.setattr(gpus, "probe", lambda *_: Gpus(usable, **{"counted": len(names), **more}))

    return found


@needs_sandbox
def test_a_sandbox_is_shown_the_files_of_one_gpu_and_not_of_the_next(host: Any, tmp_path: Path) -> None:
    dev = tmp_path / "dev"
    assert gpus.device_files(FIRST) == (dev / "nvidiactl", dev / "nvidia-uvm", dev / "nvidia1")
    command = Sandbox(tmp_path, devices=gpus.device_files(FIRST)).command(["true"], {}, 9)
    shown = [command[at + 1] for at, word in enumerate(command) if word == "--dev-bind"]
    assert [path for path in shown if "nvidia" in path] == [str(path) for path in gpus.device_files(FIRST)]
    assert gpus.device_files("GPU-of-which-the-driver-says-nothing")[2:] == (dev / "nvidia0", dev / "nvidia1")
    assert gpus.device_files("") == ()


@needs_sandbox
def test_a_device_file_that_is_named_is_there_in_the_sandbox_and_no_other(tmp_path: Path) -> None:
    def seen(*devices: Path) -> list[str]:
        with open(os.devnull, "wb") as null:
            command = Sandbox(tmp_path, devices=devices).command(["ls", "/dev"], {"PATH": "/usr/bin"}, null.fileno())
            return subprocess.run(command, pass_fds=[null.fileno()], capture_output=True, text=True).stdout.split()

    assert "tty" not in seen()
    assert set(seen(Path("/dev/tty"))) - set(seen()) == {"tty"}


def test_without_a_gpu_grading_on_one_is_refused_with_what_was_found(host: Any) -> None:
    host()
    with pytest.raises(EnvironmentProblem, match="--device cuda needs a GPU here, but torch sees none"):
        gpus.gpus_for_grading("bubblewrap")
    host(counted=2, problem="the driver is too old")
    with pytest.raises(EnvironmentProblem, match="but 2 counted, none usable: the driver is too old"):
        gpus.gpus_for_grading("none")
    host("MIG-3")
    with pytest.raises(EnvironmentProblem, match="only parts of one"):
        gpus.gpus_for_grading("none")


def test_a_gpu_that_no_sandbox_reaches_is_refused_and_one_that_it_reaches_is_used(
    host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(FIRST, SECOND)
    assert gpus.gpus_for_grading("none") == (FIRST, SECOND)
    monkeypatch.setattr(gpus, "problem_inside", lambda gpu: "no permission" if gpu == FIRST else "")
    assert gpus.gpus_for_grading("bubblewrap") == (SECOND,)
    monkeypatch.undo()
    for name in ("DEV", "DRIVER"):
        monkeypatch.setattr(gpus, name, tmp_path / "nowhere")
    host(FIRST)
    with pytest.raises(EnvironmentProblem, match=r"a sandbox cannot use it \(there are no device files .*/nvidia\*\)"):
        gpus.gpus_for_grading("bubblewrap")


@pytest.mark.long  # torch is loaded in a sandbox, and before that outside of it
@needs_sandbox
def test_trying_a_gpu_inside_comes_back_with_torchs_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "device_files", lambda gpu: (Path("/dev/tty"),))
    assert gpus.problem_inside(FIRST) == "torch sees no GPU in there"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(EnvironmentProblem, match="torch sees none"):
        gpus.gpus_for_grading("bubblewrap")


def test_another_device_and_another_machines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="device 'tpu' is not known; use cpu or cuda"):
        grade([tmp_path], "02", tmp_path, device="tpu")
    with pytest.raises(ConfigError, match="--device cuda grades on this machine's GPUs"):
        grade([tmp_path], "02", tmp_path, device="cuda", dask="tcp://nowhere:1")


def test_the_command_takes_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(teaching, "load", lambda *_: lambda *paths, **options: asked.append(options) or [])
    command = ["grade", str(tmp_path), "--lesson", "02", "--out", str(tmp_path), "--device", "cuda"]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert asked[-1]["device"] == "cuda"


@pytest.mark.in_turn
def test_a_result_of_the_cpu_is_not_kept_for_one_of_a_gpu(course: Course) -> None:
    assert course.fingerprint(b"key") != course.fingerprint(b"key", on_gpu=True)


@pytest.mark.skipif(sys.platform != "linux", reason="turns are taken by abstract sockets, which Linux alone has")
def test_a_submission_holds_its_gpu_and_the_next_one_waits_in_a_stage_that_costs_it_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_turns, "_PREFIX", prefix := f"labkit-gpu-{os.getpid()}")  # a line of our own
    made: list[str] = []

    def template_for(gpu: str) -> Any:
        made.append(gpu)
        return SimpleNamespace(gpu=gpu, close=lambda: None)

    def grader() -> Any:
        return SimpleNamespace(
            setting=SimpleNamespace(gpus=[FIRST]),
            _apart=0.0,
            _template=template_for(SECOND),
            _new_template=template_for,
        )

    stages: list[str] = []

    def waits(stage: str) -> None:
        stages.append(stage)
        first.__exit__(None, None, None)  # it is done as soon as the second one waits

    first = Grader._gpu(grader(), made.append)
    first.__enter__()
    assert made == [SECOND, "on a GPU", FIRST]
    second = Grader._gpu(later := grader(), lambda stage: waits(stage) if stage == WAITING and not stages else None)
    with second:
        assert stages == [WAITING] and later._apart > 0
        assert f"@{prefix}/taken/{FIRST}\n" in Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")


def test_a_rank_that_cannot_use_its_gpu_says_nothing_of_the_answer(
    probe: Any, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has got as far as a rank: the words are torch's own."""
    monkeypatch.setattr(template, "gpu", FIRST)
    with pytest.raises(NoGpuError, match=r"rank 0 can use no GPU: .*(NVIDIA|CUDA|GPU)"):
        probe("double")


@pytest.mark.long  # workers load torch
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, and this shows what happens without")
def test_a_submission_whose_gpu_fails_must_be_graded_again_and_its_notebook_ran(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grading, "gpus_for_grading", lambda sandbox: (FIRST,))
    write_submission(tmp_path / "in" / "ada.ipynb", RIGHT)
    for _ in range(2):
        (ada,) = grade([tmp_path / "in"], "90", tmp_path / "out", course=course.root, device="cuda", sandbox=SANDBOX)
        assert ada.graded_now and ada.score == 0
        assert re.fullmatch(r"The grader itself failed .*can use no GPU.* it must be graded again\.", ada.problem)
    assert "grading ada failed because of a fault in the grader" in capfd.readouterr().err


@pytest.mark.gpu1
@needs_sandbox
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs one CUDA GPU, torch sees none")
def test_right_answers_pass_on_a_gpu_and_their_ranks_find_it(tmp_path: Path) -> None:
    found = write_course(tmp_path / "course")
    on_gpu = "\n    assert x.is_cuda, x.device\n"
    answers = {**RIGHT, "double": RIGHT["double"].replace("\n", on_gpu, 1)}
    write_submission(tmp_path / "in" / "ada.ipynb", answers)
    (ada,) = grade([tmp_path / "in"], "90", tmp_path / "out", course=found, device="cuda", progress=False)
    assert ada.score == ada.max_score
