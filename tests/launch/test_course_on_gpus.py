"""The course on GPUs: cells, checks, collectives. Never seen to pass: no GPU was at hand (``make test-gpu``)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
import torch.distributed as dist
from gpu_marks import NUM_GPUS, marked, one_gpu, two_gpus
from nbclient import NotebookClient

import labkit
from labkit.checks.rooms import exercises
from labkit.timeline.metrics import hidden_communication_share
from tests.checks.lesson_cells import NUMBERS, SOLUTIONS, lesson, namespace

ON_RANKS = [
    pytest.param(number, each.id, id=each.id)
    for number in NUMBERS
    for each in exercises(lesson(number).slug).values()
    if each.distributed
]


def total() -> float:
    tensor = torch.full((1000,), dist.get_rank() + 1.0, device=labkit.device())
    dist.all_reduce(tensor)
    return float(tensor[0])


@marked(one_gpu)
@pytest.mark.parametrize("start_method", ["zygote", "spawn"])
def test_ranks_come_to_their_gpu_however_they_are_started(start_method: Any) -> None:
    assert torch.ones(1, device="cuda").item() == 1  # this process has touched CUDA: a fork of it could not
    assert labkit.run(total, on=labkit.local(1, device="cuda", start_method=start_method)).results == [1.0]


def _all_gather(tensor: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return torch.stack(parts)


def _all_gather_into_tensor(tensor: torch.Tensor) -> torch.Tensor:
    whole = tensor.new_empty(dist.get_world_size() * len(tensor))
    dist.all_gather_into_tensor(whole, tensor)
    return whole


def _reduce_scatter(tensor: torch.Tensor) -> torch.Tensor:
    part = tensor.new_empty(len(tensor) // dist.get_world_size())
    dist.reduce_scatter_tensor(part, tensor)
    return part


def _reduce_scatter_of_a_list(tensor: torch.Tensor) -> torch.Tensor:
    parts = list(tensor.chunk(dist.get_world_size()))
    mine = torch.empty_like(parts[0])
    dist.reduce_scatter(mine, parts)
    return mine


def _all_to_all(tensor: torch.Tensor) -> torch.Tensor:
    got = torch.empty_like(tensor)
    dist.all_to_all_single(got, tensor)
    return got


def _in_place(collective: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    def call(tensor: torch.Tensor) -> torch.Tensor:
        collective(tensor)
        return tensor

    return call


COLLECTIVES = {
    "all_reduce": _in_place(lambda tensor: dist.all_reduce(tensor)),
    "broadcast": _in_place(lambda tensor: dist.broadcast(tensor, 0)),
    "reduce": _in_place(lambda tensor: dist.reduce(tensor, 0)),
    "all_gather": _all_gather,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "reduce_scatter_tensor": _reduce_scatter,
    "reduce_scatter": _reduce_scatter_of_a_list,
    "all_to_all_single": _all_to_all,
    "barrier": _in_place(lambda tensor: dist.barrier()),
}


@marked(one_gpu)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_of_the_lessons_takes_cuda_tensors_of_ranks_that_share_a_gpu(name: str) -> None:
    size = NUM_GPUS + 1

    def calling(device: str) -> list[float]:
        tensor = torch.arange(float(4 * size), device=device or labkit.device()) + 100 * dist.get_rank()
        found = COLLECTIVES[name](tensor)
        return found.flatten().tolist() if name != "reduce" or dist.get_rank() == 0 else []

    shared = labkit.run(calling, "", on=labkit.local(size))
    assert shared.backend == "gloo/cuda"
    assert shared.results == labkit.run(calling, "cpu", on=labkit.local(size, device="cpu")).results


LONG_KERNEL = """
import labkit, torch

def busy():
    torch.cuda._sleep(1 << 40)
    print("the kernel runs", flush=True)
    torch.cuda.synchronize()

labkit.run(busy, on=labkit.local(1, device="cuda"))
"""


@marked(one_gpu)
def test_a_run_is_interrupted_during_a_kernel_and_gives_the_gpu_back(tmp_path: Path) -> None:
    script = tmp_path / "busy.py"
    script.write_text(LONG_KERNEL, encoding="utf-8")
    running = subprocess.Popen(
        [sys.executable, "-u", str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    while "the kernel runs" not in (line := running.stdout.readline()):
        assert line, "the run ended before its kernel began"
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    assert labkit.run(total, on=labkit.local(1, device="cuda")).results == [1.0]


@marked(one_gpu)
@pytest.mark.parametrize("number", NUMBERS)
def test_every_cell_of_a_solution_runs(number: str, tmp_path: Path) -> None:
    (path,) = SOLUTIONS.glob(f"{number}_*.ipynb")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()


@marked(two_gpus)
@pytest.mark.parametrize(("number", "exercise_id"), ON_RANKS)
def test_a_lessons_answer_passes_its_check_on_gpus_or_is_left_out_in_words(number: str, exercise_id: str) -> None:
    names = namespace(number=number)
    functions = [names[name] for name in exercises(lesson(number).slug)[exercise_id].functions]
    result = labkit.check(exercise_id, *functions, device="cuda")
    assert result.passed or "GPU" in repr(result), repr(result)


@marked(two_gpus)
def test_messages_in_batches_stay_in_their_groups() -> None:
    def exchanging() -> list[float]:
        rank, got = dist.get_rank(), []
        pair = dist.new_group([0, 1])
        for group in (None, pair):
            mine = torch.full((1 << 16,), float(rank + 1), device=labkit.device())
            other = torch.empty_like(mine)
            ops = [dist.P2POp(dist.isend, mine, 1 - rank, group), dist.P2POp(dist.irecv, other, 1 - rank, group)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            got.append(float(other[-1]))
        return got

    assert labkit.run(exchanging, on=labkit.local(2, device="cuda")).results == [[2.0, 2.0], [1.0, 1.0]]


def _one_forward_one_backward(device: str) -> float:
    """Train one layer a stage in the order of 1F1B and return the sum of this stage's gradients."""
    place = torch.device(device) if device else labkit.device()
    stage, layers, batches = dist.get_rank(), _two_layers(), _four_batches().to(place)
    layer = layers[stage].to(place)

    def exchange(given: list[torch.Tensor], num_wanted: int) -> list[torch.Tensor]:
        wanted = [torch.empty_like(batches[0]) for _ in range(num_wanted)]
        ops = [dist.P2POp(dist.isend, each, 1 - stage) for each in given]
        ops += [dist.P2POp(dist.irecv, each, 1 - stage) for each in wanted]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return wanted

    if stage == 0:
        outputs = [layer(batches[0])]
        exchange([outputs[0].detach()], 0)
        for number in range(len(batches)):
            outputs += [layer(batches[number + 1])] if number + 1 < len(batches) else []
            (gradient,) = exchange([each.detach() for each in outputs[number + 1 :]], 1)
            outputs[number].backward(gradient)
    else:
        (inputs,) = exchange([], 1)
        for number in range(len(batches)):
            inputs.requires_grad_()
            layer(inputs).square().sum().backward()
            assert inputs.grad is not None
            more = exchange([inputs.grad], int(number + 1 < len(batches)))
            inputs = more[0] if more else inputs
    assert layer.weight.grad is not None
    return float(layer.weight.grad.double().sum())


def _two_layers() -> list[torch.nn.Linear]:
    torch.manual_seed(0)
    return [torch.nn.Linear(16, 16) for _ in range(2)]


def _four_batches() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(4, 8, 16)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=two_gpus)])
def test_1f1b_brings_the_gradients_of_one_process(device: str) -> None:
    layers = _two_layers()
    torch.nn.Sequential(*layers)(_four_batches()).square().sum().backward()
    expected = [float(layer.weight.grad.double().sum()) for layer in layers if layer.weight.grad is not None]
    on = labkit.local(2, device="cuda" if device == "cuda" else "cpu")
    found = labkit.run(_one_forward_one_backward, "" if device == "cuda" else "cpu", on=on)
    assert found.results == pytest.approx(expected, rel=1e-3)


@marked(two_gpus)
def test_an_exported_script_runs_on_two_gpus_under_torchrun(tmp_path: Path) -> None:
    export = [sys.executable, "-c", "from labkit.cli import main; main()", "export"]
    (notebook,) = SOLUTIONS.glob("02_*.ipynb")
    subprocess.run([*export, notebook, "--out", tmp_path / "ring.py"], check=True, timeout=300)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", str(tmp_path / "ring.py")]
    said = subprocess.run(torchrun, check=True, timeout=300, cwd=tmp_path, capture_output=True, text=True).stdout
    assert said.count("'max_difference': 0.0") == 2, said


@marked(two_gpus)
@pytest.mark.parametrize("overlapped", [True, False], ids=["overlapped", "serial"])
def test_the_hidden_share_is_that_of_kineto_within_a_tenth(overlapped: bool) -> None:
    def one_step(model: torch.nn.Module, batch: torch.Tensor) -> None:
        model(batch).sum().backward()
        if not overlapped:
            for each in model.parameters():
                assert each.grad is not None
                dist.all_reduce(each.grad)

    def training() -> float:
        model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(12))).to(labkit.device())
        ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[labkit.device().index], bucket_cap_mb=64)
        trained = ddp if overlapped else model
        batch = torch.randn(2048, 4096, device=labkit.device())
        one_step(trained, batch)  # buckets are built anew after it
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiled:
            with labkit.span("step"):
                one_step(trained, batch)
            torch.cuda.synchronize()
        kernels = [each for each in profiled.events() if each.device_type == torch.autograd.DeviceType.CUDA]
        return _hidden(
            [(each.time_range.start, each.time_range.end) for each in kernels if "nccl" in each.name],
            [(each.time_range.start, each.time_range.end) for each in kernels if "nccl" not in each.name],
        )

    run = labkit.run(training, on=labkit.local(2, device="cuda"))
    assert run.timeline is not None
    (step,) = [each for each in run.timeline.rows() if each.name == "step" and each.rank == 0]
    part = run.timeline.select((run.timeline.start_ns >= step.start_ns) & (run.timeline.end_ns <= step.end_ns))
    assert hidden_communication_share(part, 0) == pytest.approx(run.results[0], abs=0.1)
    assert overlapped or run.results[0] < 0.1


def _hidden(communication: list[tuple[float, float]], computation: list[tuple[float, float]]) -> float:
    """Return the share of communication's time in which something is computed; intervals of one kind do not overlap."""
    both = sum(
        max(0.0, min(end, until) - max(begin, since)) for begin, end in communication for since, until in computation
    )
    return both / sum(end - begin for begin, end in communication)


def test_the_share_that_a_profile_shows_is_computed_as_the_text_says() -> None:
    assert _hidden([(0.0, 4.0), (6.0, 8.0)], [(1.0, 3.0), (5.0, 7.0)]) == 0.5


ALL_GPUS = """
import sys, time, labkit

def resting():
    time.sleep(3)
    return time.time()

labkit.run(resting, on=labkit.local(int(sys.argv[1]), device="cuda"))
print("done", flush=True)
"""


@marked(two_gpus)
def test_two_people_who_want_all_gpus_take_turns_and_the_second_is_told(tmp_path: Path) -> None:
    script = tmp_path / "all.py"
    script.write_text(ALL_GPUS, encoding="utf-8")
    begin = time.monotonic()
    both = [
        subprocess.Popen([sys.executable, "-u", str(script), str(NUM_GPUS)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [each.communicate(timeout=120)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0]
    assert time.monotonic() - begin >= 6
    assert sum("GPU" in text for text in said) == 1, said
