"""What every run promises when nothing goes wrong, and what it refuses."""

from __future__ import annotations

import functools
import os
import random
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import ConfigError, RankFailed
from labkit.launch.output import ECHOED_BYTES, KEPT_HEAD_BYTES, KEPT_TAIL_BYTES
from tests.linux import forks


def test_every_run_has_fresh_processes_that_import_nothing_heavy() -> None:
    def work() -> tuple[int, set[str]]:
        before = set(sys.modules)
        dist.all_reduce(torch.ones(1))
        return os.getpid(), {name for name in set(sys.modules) - before if name.startswith(("torch", "numpy"))}

    first, second = (labkit.run(work, on=labkit.local(2)).results for _ in range(2))
    assert len({pid for pid, _ in first + second}) == 4
    assert all(not imported for _, imported in first + second)


@pytest.mark.in_turn
def test_sixteen_ranks_run_on_two_cores() -> None:
    def work() -> float:
        tensor = torch.ones(1000)
        dist.all_reduce(tensor)
        return tensor[0].item()

    run = labkit.run(work, on=labkit.local(16))
    assert run.results == [16.0] * 16
    assert run.timeline is not None and run.timeline.num_ranks == 16


@pytest.mark.in_turn
def test_ranks_are_seeded_apart_and_the_seed_can_be_chosen() -> None:
    def draw() -> tuple[float, float, float]:
        return torch.rand(1).item(), float(np.random.rand()), random.random()

    def drawn(seed: int) -> list[tuple[float, float, float]]:
        return labkit.run(draw, on=labkit.local(2), seed=seed).results

    torch.manual_seed(8)
    assert drawn(7) == drawn(7)
    assert drawn(7)[1] == drawn(8)[0], "rank r draws from seed + r"
    assert drawn(7)[1][0] == torch.rand(1).item()
    assert len({value for rank in drawn(7) for value in rank}) == 6


@pytest.mark.in_turn
def test_the_default_group_is_there_before_and_gone_after_unless_left_to_the_function() -> None:
    def with_group() -> tuple[int, int, str]:
        return dist.get_rank(), dist.get_world_size(), dist.get_backend()

    def on_its_own() -> tuple[bool, int]:
        before = dist.is_initialized()
        dist.init_process_group("gloo")
        size = dist.get_world_size()
        dist.destroy_process_group()
        return before, size

    assert labkit.run(with_group, on=labkit.local(2)).results == [(0, 2, "gloo"), (1, 2, "gloo")]
    assert labkit.run(on_its_own, on=labkit.local(2), init=False).results == [(False, 2), (False, 2)]
    assert labkit.run(dist.destroy_process_group, on=labkit.local(2)).results == [None, None]


def test_ranks_see_torchruns_variables_their_device_and_the_notebooks_surroundings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LEARNERS_OWN", "42")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setenv("RANK", "99")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "beside_the_notebook.py").write_text("VALUE = 5\n")

    def work() -> dict[str, object]:
        import beside_the_notebook

        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LEARNERS_OWN")
        return {
            **{name: os.environ[name] for name in names},
            "device": labkit.device(),
            "cwd": str(Path.cwd()),
            "value": beside_the_notebook.VALUE,
            "threads": torch.get_num_threads(),
        }

    results = labkit.run(work, on=labkit.local(2, device="cpu", threads_per_rank=3)).results
    for rank, seen in enumerate(results):
        assert (seen["RANK"], seen["LOCAL_RANK"]) == (str(rank), str(rank))
        assert (seen["WORLD_SIZE"], seen["LOCAL_WORLD_SIZE"], seen["LEARNERS_OWN"]) == ("2", "2", "42")
        assert seen["device"] == torch.device("cpu")
        assert (seen["cwd"], seen["value"], seen["threads"]) == (str(tmp_path), 5, 3)


def test_tensors_travel_by_value_with_type_shape_and_gradient_flag() -> None:
    def work(tensor: torch.Tensor, strided: torch.Tensor) -> list[torch.Tensor]:
        tensor += 1
        return [tensor, strided, torch.ones(2, 3, dtype=torch.bfloat16), torch.ones(2, requires_grad=True) * 2]

    tensor, strided = torch.zeros(3), torch.arange(6.0).reshape(2, 3).T
    same, back, halves, grown = labkit.run(work, tensor, strided, on=labkit.local(1)).results[0]
    assert tensor.tolist() == [0, 0, 0], "the learner's own tensor is untouched"
    assert same.tolist() == [1, 1, 1]
    assert back.equal(strided) and back.stride() == strided.stride()
    assert halves.dtype == torch.bfloat16 and grown.tolist() == [2, 2] and grown.requires_grad


@pytest.mark.in_turn
def test_a_large_result_and_a_large_argument_arrive() -> None:
    tensor = torch.arange(2_000_000)
    assert labkit.run(lambda t: t * 2, tensor, on=labkit.local(1)).results[0].equal(tensor * 2)


def test_named_regions_reach_the_timeline_and_do_nothing_outside_a_run() -> None:
    def work() -> None:
        with labkit.span("forward"):
            torch.ones(10).sum()

    work()
    run = labkit.run(work, on=labkit.local(2))
    assert run.timeline is not None
    assert [span.name for span in run.timeline.rows() if span.name == "forward"] == ["forward", "forward"]


def test_a_run_says_ranks_world_and_time_in_one_line_without_addresses() -> None:
    text = repr(labkit.run(lambda: object(), on=labkit.local(1)))
    assert text.startswith("Run(1 rank on gloo/cpu, ") and "0x" not in text and "\n" not in text


def test_a_rank_that_prints_a_hundred_megabytes_neither_hangs_nor_floods(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        if dist.get_rank() == 1:
            print("the first line")
            line = "x" * 999 + "\n"
            for _ in range(100):
                sys.stdout.write(line * 1000)
            print("the last line")
        dist.barrier()
        return dist.get_rank()

    run = labkit.run(work, on=labkit.local(2))
    assert run.results == [0, 1]
    shown = capsys.readouterr().out
    assert len(shown) < ECHOED_BYTES + 10_000
    assert shown.startswith("[rank 1] the first line\n")
    assert "[rank 1] ... prints more than 65.5 KB; the rest is not shown" in shown
    assert "MB not shown; it ended with:" in shown and shown.endswith("[rank 1] the last line\n")
    kept = run.output[1]
    assert len(kept) < KEPT_HEAD_BYTES + KEPT_TAIL_BYTES + 100
    assert kept.startswith("the first line\n") and kept.endswith("the last line\n")
    assert "MB cut here" in kept
    assert run.output[0] == ""


def test_output_of_native_code_and_of_child_processes_is_the_ranks_too(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        os.system("echo from a child")
        sys.stderr.write("to stderr\n")
        print("no end of line", end="")

    run = labkit.run(work, on=labkit.local(1))
    assert run.output == ["from a child\nto stderr\nno end of line"]
    assert capsys.readouterr().out == "[rank 0] from a child\n[rank 0] to stderr\n[rank 0] no end of line\n"


def test_without_echo_nothing_is_shown_and_all_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    run = labkit.run(lambda: print("quiet"), on=labkit.local(2), echo=False)
    assert run.output == ["quiet\n", "quiet\n"]
    assert capsys.readouterr().out == ""


@pytest.mark.in_turn
def test_descriptors_are_given_back() -> None:
    labkit.run(lambda: None, on=labkit.local(2))

    def open_ends() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_ends()
    for _ in range(3):
        labkit.run(lambda: None, on=labkit.local(2))
    with pytest.raises(RankFailed):
        labkit.run(lambda: 1 / 0, on=labkit.local(2))
    assert open_ends() <= before


@pytest.mark.parametrize("world_size", [0, -1, 1.5, "2", True, 513])
def test_a_world_of_an_impossible_size_is_refused(world_size: object) -> None:
    with pytest.raises(ConfigError, match=r"rank"):
        labkit.local(world_size)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"device": "tpu"}, "'tpu' is not known; use one of 'auto', 'cpu', 'cuda'"),
        ({"start_method": "fork"}, "'fork' is not known; use one of 'auto', 'zygote', 'spawn'"),
        ({"threads_per_rank": 0}, "leaves no thread to compute"),
    ],
)
def test_a_world_with_an_unknown_word_is_refused(keywords: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        labkit.local(2, **keywords)  # type: ignore[arg-type]


def test_what_is_not_a_function_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"got 3; pass the function itself, without \(\)"):
        labkit.run(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"on=4 is not a world; write on=labkit.local\(4\)"):
        labkit.run(print, on=4)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"timeout=0 is not a time"):
        labkit.run(print, timeout=0)


def test_what_cannot_travel_is_named() -> None:
    with pytest.raises(ConfigError, match=r"but argument 2 of 2 \(lock\): cannot pickle"):
        labkit.run(lambda a, b: None, 1, threading.Lock())
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"but the function '<lambda>' \(function\): cannot pickle"):
        labkit.run(lambda: lock)
    with pytest.raises(RankFailed, match=r"result cannot be sent back to the notebook: item 1 \(lock\): cannot pickle"):
        labkit.run(lambda: (1, threading.Lock()), on=labkit.local(2))


def test_keyword_arguments_travel_in_a_partial() -> None:
    assert labkit.run(functools.partial(int, base=2), "101", on=labkit.local(1)).results == [5]


def test_a_taken_port_cannot_be_in_the_way() -> None:
    """The notebook keeps the port it was given for as long as the run lasts, so nobody can take it between."""

    def work() -> bool:
        with socket.socket() as rival:
            try:
                rival.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))
            except OSError:
                return True
        return False

    assert labkit.run(work, on=labkit.local(1)).results == [True]


@forks
def test_a_full_temporary_folder_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Job and logs are anonymous memory: a run needs no file."""
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    run = labkit.run(dist.get_rank, on=labkit.local(2))
    assert run.results == [0, 1] and run.timeline is not None
