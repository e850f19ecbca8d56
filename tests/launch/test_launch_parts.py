"""The parts of the launcher that need no process."""

from __future__ import annotations

import contextlib
import pickle
import signal
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch
import torch.distributed as dist

from labkit.errors import ConfigError
from labkit.launch import by_value, worker
from labkit.launch.cgroup import OomCount, oom_kills
from labkit.launch.devices import place
from labkit.launch.gpus import Gpu, Gpus
from labkit.launch.job import Job
from labkit.launch.output import RankOutput
from labkit.launch.reports import RankEnd, describe_end, headline, root_cause
from labkit.launch.stacks import parse_fault
from labkit.worlds import Run, run


def working(num_gpus: int, has_nccl: bool = True) -> Gpus:
    gpus = tuple(Gpu(f"GPU-{index}", "H100", 80 * 10**9) for index in range(num_gpus))
    return Gpus(gpus, num_gpus, "2.28" if has_nccl else "")


def test_a_run_keeps_the_type_that_the_function_returns() -> None:
    hints = get_type_hints(run)
    (returned,) = get_args(hints["return"])
    assert get_args(hints["fn"])[-1] is returned and hints["return"] == Run[returned]


@pytest.mark.parametrize(
    ("world_size", "device", "num_gpus", "has_nccl", "label", "last"),
    [
        (4, "auto", 0, False, "gloo/cpu", "cpu"),
        (4, "cpu", 8, True, "gloo/cpu", "cpu"),
        (4, "auto", 8, True, "nccl/cuda", "cuda:3"),
        (8, "cuda", 8, True, "nccl/cuda", "cuda:7"),
        (4, "auto", 1, True, "gloo/cuda", "cuda:0"),
        (5, "cuda", 2, True, "gloo/cuda", "cuda:0"),
        (2, "auto", 2, False, "gloo/cuda", "cuda:1"),
    ],
)
def test_nccl_where_every_rank_has_a_gpu_gloo_elsewhere(
    world_size: int, device: str, num_gpus: int, has_nccl: bool, label: str, last: str
) -> None:
    placement = place(world_size, device, working(num_gpus, has_nccl))
    assert (placement.label, placement.devices[-1]) == (label, last)
    assert len(placement.devices) == world_size


def test_ranks_that_share_gpus_are_told_what_that_means() -> None:
    note = place(4, "auto", working(1)).note
    assert note.startswith("4 ranks share 1 GPU, and NCCL wants one for each rank: the backend is gloo.")
    assert "send and recv need CPU tensors" in note
    assert place(4, "auto", working(4)).note == place(4, "auto", working(0)).note == ""


def test_cuda_without_a_gpu_is_refused_with_numbers() -> None:
    with pytest.raises(ConfigError, match=r'device="cuda" was asked for 2 ranks, but on this host: torch sees 0 GPUs'):
        place(2, "cuda", working(0))


def test_gpus_that_are_counted_and_do_not_work_are_told_with_their_reason() -> None:
    old = Gpus((), 2, "2.28", "the driver is too old")
    placement = place(4, "auto", old)
    assert placement.label == "gloo/cpu"
    assert placement.note == "2 GPUs counted, none usable: the driver is too old. Ranks run on the CPU."
    with pytest.raises(ConfigError, match=r"2 GPUs counted, none usable \(the driver is too old\)"):
        place(2, "cuda", old)
    half = Gpus(working(1).usable, 2, "2.28", "GPU 1: out of memory")
    assert place(1, "auto", half).note == "1 of 2 GPUs cannot be used (GPU 1: out of memory)."
    assert place(2, "auto", half).note.startswith("1 of 2 GPUs cannot be used (GPU 1: out of memory). 2 ranks share")


def error(rank: int, kind: str, message: str, time: float) -> RankEnd:
    return RankEnd(rank, {"type": kind, "message": message, "traceback": "", "time": time}, None, returned=False)


def test_the_root_cause_is_the_first_own_error_then_a_silent_death_then_an_echo() -> None:
    echo = error(0, "RuntimeError", "[pair.cc:537] Read error [127.0.0.1]:1: Connection reset by peer", 1.0)
    own, later = error(1, "ValueError", "mine", 2.0), error(2, "KeyError", "later", 3.0)
    killed = RankEnd(3, None, -signal.SIGKILL, returned=False)
    fine = RankEnd(4, None, 0, returned=True)
    assert root_cause([echo, own, later, killed, fine]) is own
    assert root_cause([echo, killed, fine]) is killed
    assert root_cause([echo, fine]) is echo


def test_a_kill_for_memory_is_told_from_one_by_hand() -> None:
    end = RankEnd(2, None, -signal.SIGKILL, returned=False)
    group = "the memory control group"
    assert headline(end, 4) == "rank 2 of 4 failed first: killed by SIGKILL"
    counted = describe_end(end, "", [], OomCount(1, group), OomCount(2, group))
    assert "counts 1 out-of-memory kill since the run began: memory ran out" in counted
    assert "Memory was not the reason" in describe_end(end, "", [], OomCount(1, group), OomCount(1, group))
    assert "count of such kills cannot be read" in describe_end(end, "", [], None, None)


def test_the_out_of_memory_count_is_read_from_both_versions_of_control_groups(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (groups / "memory" / "user").mkdir(parents=True)
    (groups / "app").mkdir()
    assert oom_kills(proc, groups) is None
    (proc / "vmstat").write_text("nr_free_pages 5\noom_kill 9\n")
    assert oom_kills(proc, groups) == OomCount(9, "this host")
    (proc / "self" / "cgroup").write_text("0::/app\n")
    (groups / "app" / "memory.events").write_text("low 0\noom 4\noom_kill 3\n")
    assert oom_kills(proc, groups) == OomCount(3, "the memory control group")
    (proc / "self" / "cgroup").write_text("5:cpu,memory:/user\n")
    (groups / "memory" / "user" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")
    assert oom_kills(proc, groups) == OomCount(7, "the memory control group")


def test_a_line_without_an_end_is_cut_not_collected() -> None:
    shown: list[str] = []
    output = RankOutput(0, shown.append)
    for _ in range(100):
        output.feed(b"y" * 100_000)
    output.finish()
    assert sum(map(len, shown)) < 100_000
    assert len(output.text()) < 600_000


def test_carriage_returns_and_broken_text_are_shown_as_lines() -> None:
    shown: list[str] = []
    output = RankOutput(3, shown.append)
    output.feed(b"10%\r20%\r\nd\xffone")
    output.finish()
    assert shown == ["[rank 3] 10%", "[rank 3] 20%", "[rank 3] d\ufffdone"]


def test_the_stack_of_a_fatal_signal_is_read_outermost_first() -> None:
    text = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
        '  File "/x/lib.py", line 3 in inner\n  File "/course/cell.py", line 9 in outer\n\nExtension modules: a, b\n'
    )
    assert [(f.file, f.line, f.function) for f in parse_fault(text)] == [
        ("/course/cell.py", 9, "outer"),
        ("/x/lib.py", 3, "inner"),
    ]


def test_a_store_serves_on_the_socket_it_is_given() -> None:
    """If this fails, torch has changed: mend labkit/torch_port/stores.py."""
    import socket

    from torch._C._distributed_c10d import TCPStore

    from labkit.torch_port.stores import host_store, read_debug_level

    assert "master_listen_fd" in (TCPStore.__init__.__doc__ or ""), "TCPStore takes no listening socket any more"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        store = host_store(listener)
        other = TCPStore("127.0.0.1", listener.getsockname()[1], None, False)
        other.set("key", "value")
        assert store.get("key") == b"value", "the store does not serve on the socket it was given"
    read_debug_level()


def test_private_names_of_cloudpickle_are_what_we_need() -> None:
    """If this fails, cloudpickle has changed: mend labkit/launch/by_value.py."""
    import cloudpickle.cloudpickle as private

    for name in ("_make_function", "_make_skeleton_class", "_class_setstate", "_DYNAMIC_CLASS_TRACKER_BY_ID"):
        assert hasattr(private, name), f"cloudpickle has no {name} any more"


def test_a_module_from_an_accelerator_keeps_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tensors say that they are elsewhere: a stand-in for a GPU, which Python cannot otherwise tell."""
    module = torch.nn.Linear(3, 2)
    module.bias.requires_grad_(False)
    monkeypatch.setattr(by_value, "_is_here", lambda tensor: False)
    back = pickle.loads(by_value.dumps(module))
    assert [(type(each), each.requires_grad) for each in back.parameters()] == [
        (torch.nn.Parameter, True), (torch.nn.Parameter, False)
    ]  # fmt: skip
    assert torch.equal(back.weight, module.weight)


def test_nccl_is_given_its_device_and_connects_before_anything_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **options: seen.append(options.get("device_id")))
    monkeypatch.setattr(worker.recording, "unrecorded", lambda: contextlib.nullcontext(seen.append("unrecorded")))
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: seen.append("all_reduce"))
    monkeypatch.setattr(torch, "zeros", lambda *_, device: seen.append(str(device)))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: seen.append("synchronize"))
    job = Job(b"", {}, 4, "cpu:gloo,cuda:nccl", ("cuda:0", "cuda:1"), 1, 0, True, {}, "", (), first_rank=2)
    worker._join(job, 3)
    assert seen == [torch.device("cuda:1"), "unrecorded", "cuda:1", "all_reduce", "synchronize"]


def test_ranks_of_a_second_host_count_from_its_first() -> None:
    job = Job(b"", {}, 4, "gloo", ("cpu", "cpu"), 1, 0, True, {"A": "b"}, "", (), 2, 1, 2)
    environ = job.rank_environ(3)
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "A")
    assert [environ[name] for name in names] == ["3", "1", "1", "2", "4", "2", "b"]
