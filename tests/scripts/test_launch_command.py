"""labkit launch: a script from the terminal, and what it came to."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labkit import Timeline, cli
from labkit.timeline.training import training

PROGRAM = Path(__file__).parent / "programs" / "ranks_own_words.py"


def _launch(*arguments: object) -> tuple[int, str]:
    ended = CliRunner().invoke(cli.app, ["launch", str(PROGRAM), *map(str, arguments)])
    return ended.exit_code, ended.output


@pytest.mark.in_turn
def test_a_virtual_run_is_summed_up_and_written(tmp_path: Path) -> None:
    out = tmp_path / "run.npz"
    code, shown = _launch("--on", "virtual:4", "--gpu", "h100", "--link", "nvlink4", "--out", out, "--", "--steps", 4)
    assert code == 0, shown
    for each in ("[rank 3] {", "4 x h100, nvlink4", "step time ", "exposed comm.", "peak memory", "model FLOP util."):
        assert each in shown
    found = training(Timeline.load(out))
    assert found.num_steps == 4 and found.step_ns and found.exposed_ns and found.utilisation
    assert found.exposed_ns < found.step_ns and found.utilisation < 1


def test_a_local_run_says_what_it_knows() -> None:
    code, shown = _launch("--on", "local:2", "--", "--steps", 3)
    assert code == 0 and "median of 3 steps" in shown and "peak memory" not in shown


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--on", "moon:4"), "--on moon:4 is not a world; use virtual:N or local:N"),
        (("--on", "virtual:many"), "--on virtual:many is not a world"),
        (("--on", "local:2", "--gpu", "h100"), "--gpu describes virtual hardware, and local:2 runs on this host"),
        (("--on", "virtual:2", "--gpu", "h1000"), "h1000"),
        (("--on", "virtual:2", "--gpu", "h1000", "--launch-us", "8"), "h1000"),
        (("--on", "virtual:2", "--launch-us", "-1"), "--launch-us -1 is not a time; give 0 to 1,000,000"),
        (("--on", "local:2", "--launch-us", "8"), "--launch-us describes virtual hardware, and local:2 runs"),
        (("--on", "virtual:2", "--out", "run.txt"), "must end in one of .npz, .html, .json"),
        (("--on", "virtual:2", "--out", "nowhere/run.npz"), "there is no folder"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(arguments: tuple[str, ...], words: str) -> None:
    code, shown = _launch(*arguments)
    assert code == 2 and words in shown


@pytest.mark.parametrize(("arguments", "micros"), [((), 400), (("--launch-us", 8), 800)])
def test_the_time_to_issue_an_operator_can_be_given(tmp_path: Path, arguments: tuple[object, ...], micros: int) -> None:
    script = tmp_path / "issues.py"
    script.write_text(
        "import time, torch\nx = torch.ones(4, device='cuda')\nbegin = time.perf_counter()\n"
        "for _ in range(100):\n    x.add_(1)\nprint(f'issued in {1e6 * (time.perf_counter() - begin):.0f} us')\n"
    )
    ended = CliRunner().invoke(cli.app, ["launch", str(script), "--on", "virtual:1", *map(str, arguments)])
    assert ended.exit_code == 0 and f"issued in {micros} us" in ended.output, ended.output


def test_the_run_of_a_script_that_failed_is_written_too(tmp_path: Path) -> None:
    script, out = tmp_path / "fails.py", tmp_path / "run.npz"
    script.write_text("import torch\ntorch.ones(4) + 1\nraise ValueError('on purpose')\n")
    ended = CliRunner().invoke(cli.app, ["launch", str(script), "--on", "virtual:2", "--no-cuda", "--out", str(out)])
    assert ended.exit_code == 2 and "on purpose" in ended.output and len(Timeline.load(out))


@pytest.mark.in_turn
def test_a_run_that_is_interrupted_ends_and_says_so(tmp_path: Path) -> None:
    script = tmp_path / "goes_on.py"
    script.write_text(  # once: a second one would come when the run is over
        "import _thread, os, time\nif os.environ['RANK'] == '0':\n    _thread.interrupt_main()\n"
        "while True:\n    time.sleep(1)\n"
    )
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored
    try:
        ended = CliRunner().invoke(cli.app, ["launch", str(script), "--on", "virtual:2", "--no-cuda"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert (ended.exit_code, ended.output) == (130, "labkit: interrupted\n")
