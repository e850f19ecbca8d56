"""What the recorded ranks of these tests do; each program is called as program(rank, num_ranks, ...)."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from labkit.launch import recording


def _start() -> None:
    dist.init_process_group("gloo")


def every_collective(rank: int, num_ranks: int) -> list[str]:
    """Call each function of torch.distributed once, blocking; return the order."""
    _start()
    one, pieces = torch.ones(8), [torch.ones(8) for _ in range(num_ranks)]
    whole = torch.ones(8 * num_ranks)
    dist.all_reduce(one)
    dist.broadcast(one, 0)
    dist.reduce(one, 0)
    dist.all_gather(pieces, one)
    dist.all_gather_into_tensor(whole, one)
    dist.reduce_scatter(one, pieces)
    dist.reduce_scatter_tensor(one, whole)
    dist.gather(one, pieces if rank == 0 else None, 0)
    dist.scatter(one, pieces if rank == 0 else None, 0)
    dist.all_to_all(pieces, [piece.clone() for piece in pieces])
    dist.all_to_all_single(whole, whole.clone())
    dist.barrier()
    dist.monitored_barrier()
    dist.destroy_process_group()
    return [
        *("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter"),
        *("reduce_scatter_tensor", "gather", "scatter", "all_to_all", "all_to_all_single", "barrier"),
        "monitored_barrier",
    ]


def messages_in_a_subgroup(rank: int, num_ranks: int) -> None:
    """Ranks 1 and 2 of three exchange messages of a group in which they are 0 and 1."""
    _start()
    group = dist.new_group([1, 2])
    if rank == 1:
        dist.send(torch.ones(10), 2, group=group)
        dist.isend(torch.ones(20), 2, group=group, tag=7).wait()
        dist.send(torch.ones(30), 2, group=group)
    if rank == 2:
        later = dist.irecv(torch.ones(20), 1, group=group, tag=7)
        dist.recv(torch.ones(10), 1, group=group)
        later.wait()
        assert dist.recv(torch.ones(30), group=group) == 1
    dist.barrier()  # rank 0 has nothing to do here: had it gone, the others might still be connecting to it
    dist.destroy_process_group()


def batched_ring(rank: int, num_ranks: int) -> None:
    """Pass one tensor round a ring in a batch."""
    _start()
    got = torch.zeros(25)
    operations = [
        dist.P2POp(dist.isend, torch.full((25,), float(rank)), (rank + 1) % num_ranks),
        dist.P2POp(dist.irecv, got, (rank - 1) % num_ranks),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert got[0] == (rank - 1) % num_ranks
    dist.destroy_process_group()


def overlapped(rank: int, num_ranks: int, folder: Path) -> int:
    """Post an all_reduce, compute until it is on record as complete and some more, wait; return when that was seen."""
    _start()
    work = dist.all_reduce(torch.ones(1000), async_op=True)
    assert work is not None
    with recording.span("matmul"):
        while recording.read_log(folder / f"{rank}.log").pending:
            torch.ones(50, 50) @ torch.ones(50, 50)
        seen_ns = time.monotonic_ns()
        torch.ones(200, 200) @ torch.ones(200, 200)
    work.wait()
    dist.destroy_process_group()
    return seen_ns


def late_rank(rank: int, num_ranks: int, folder: Path) -> int:
    """Rank 1 calls all_reduce only when rank 0's record says that it is in it; return when this rank called."""
    _start()
    if rank == 1:
        while not any(wait.operation == "all_reduce" for wait in recording.read_log(folder / "0.log").waits):
            time.sleep(0.001)
    called_ns = time.monotonic_ns()
    dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()
    return called_ns


def buffer_reused(rank: int, num_ranks: int) -> None:
    """Write into an isend's buffer before waiting, once; do it right, once."""
    _start()
    value = torch.ones(4)
    if rank == 0:
        wrong = dist.isend(value, 1)
        value += 1
        wrong.wait()
        right = dist.isend(value, 1)
        right.wait()
        value += 1
    else:
        dist.recv(value, 0)
        dist.recv(value, 0)
    dist.destroy_process_group()


def chunks_of_one_storage(rank: int, num_ranks: int, numel: int, dirty: bool) -> None:
    """Send one half of a tensor and, before waiting, write into the other half; into the sent one too if dirty."""
    _start()
    whole = torch.ones(2 * numel)
    sent, other = whole.chunk(2)
    works = [dist.isend(sent, 1 - rank), dist.irecv(torch.empty(numel), 1 - rank)]
    other += 1
    if dirty:
        sent += 1
    for work in works:
        assert work is not None
        work.wait()
    dist.destroy_process_group()


def never_waited(rank: int, num_ranks: int) -> None:
    """Rank 0 forgets to wait for its isend, and posts one more than rank 1 receives."""
    _start()
    if rank == 0:
        posted = [dist.isend(torch.ones(4), 1), dist.isend(torch.ones(2), 1)]
        assert None not in posted
    else:
        dist.recv(torch.ones(4), 0)
    dist.barrier()


def disagreeing(rank: int, num_ranks: int) -> None:
    """Both ranks name another dtype, of a size, than the other; in a second group they reduce with other operations."""
    _start()
    dist.broadcast(torch.ones(2, dtype=torch.float32 if rank == 0 else torch.int32), 0)
    dist.all_reduce(torch.ones(1), dist.ReduceOp.SUM if rank == 0 else dist.ReduceOp.MAX, group=dist.new_group([0, 1]))
    if rank == 0:
        dist.send(torch.ones(2, dtype=torch.float64), 1)
    else:
        dist.recv(torch.ones(2, dtype=torch.int64), 0)
    dist.destroy_process_group()


def blocked_and_killed(rank: int, num_ranks: int, folder: Any) -> None:
    """Rank 0 waits for a message that never comes; rank 1 is killed inside a collective that nobody joins."""
    _start()
    if rank == 0:
        dist.recv(torch.ones(250), 1, tag=3)
    threading.Thread(target=_kill_when, args=(folder / "kill",), daemon=True).start()
    dist.all_reduce(torch.ones(500))


def _kill_when(signal_file: Any) -> None:
    while not signal_file.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def many_calls(rank: int, num_ranks: int, num_calls: int) -> float:
    """Make more calls than the log holds; return the sum they make."""
    _start()
    value = torch.zeros(1)
    for _ in range(num_calls):
        value += 1
        dist.all_reduce(value)
    dist.destroy_process_group()
    return float(value)


def spans_from_threads(rank: int, num_ranks: int, num_threads: int, num_spans: int) -> None:
    """Write spans from several threads at once, each with a name of its own."""

    def work(number: int) -> None:
        for repeat in range(num_spans):
            with recording.span(f"thread {number}", f"kind {repeat % 3}"):
                pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def spans_in_a_fork(rank: int, num_ranks: int) -> None:
    """Fork, as a DataLoader does, and record in the child, which must leave no trace."""
    with recording.span("parent"):
        child = os.fork()
        if child == 0:
            with recording.span("child"):
                pass
            os._exit(0)
        os.waitpid(child, 0)


def named_regions(rank: int, num_ranks: int) -> None:
    """One region of each kind, one of them ended by an exception."""
    with recording.span("read data", "host"), recording.span("my all_reduce", "communication"):
        pass
    with recording.span("step 3", "backward"):
        pass
    try:
        with recording.span("breaks"):
            raise KeyError("wanted")
    except KeyError:
        pass


def _train(model: torch.nn.Module, rank: int) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for step in range(2):
        torch.manual_seed(10 * rank + step)
        loss = model(torch.randn(4, 6)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def everything_torch_does(rank: int, num_ranks: int) -> dict[str, Any]:
    """Use every part of torch.distributed that stands on groups; return values that must not depend on recording."""
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    found: dict[str, Any] = {}
    _start()
    world = dist.group.WORLD
    assert world is not None
    found["world"] = (world.name(), world.group_name, world.rank(), world.size(), str(world._device_types))
    found["backend"] = (dist.get_backend(), world._get_backend(torch.device("cpu")).name(), str(world.bound_device_id))
    found["kinds"] = (isinstance(world, dist.ProcessGroup), type(world) is c10d.ProcessGroup)
    found["options"] = str(world._get_backend(torch.device("cpu")).options._timeout)
    found["object"] = [None] * num_ranks
    dist.all_gather_object(found["object"], {"rank": rank})
    shared = [{"from": rank}]
    dist.broadcast_object_list(shared, 1)
    found["shared"] = shared
    evens = dist.new_group([0, 1], group_desc="pair")
    found["group"] = (evens.group_desc, dist.get_process_group_ranks(evens), evens.get_group_store().num_keys() >= 0)
    torch.manual_seed(0)
    found["ddp"] = _train(DistributedDataParallel(torch.nn.Linear(6, 3)), rank)
    mesh = init_device_mesh("cpu", (num_ranks,), mesh_dim_names=("shard",))
    found["mesh"] = (mesh.size(), dist.get_process_group_ranks(mesh.get_group("shard")))
    torch.manual_seed(0)
    sharded = torch.nn.Linear(6, 3)
    fully_shard(sharded, mesh=mesh)
    found["fully_shard"] = _train(sharded, rank)
    summed = functional.all_reduce(torch.full((3,), float(rank)), "sum", world)
    found["functional"] = (summed + 0).tolist()
    hooked = DistributedDataParallel(torch.nn.Linear(6, 3))
    hooked.register_comm_hook(None, _average_in_python)
    found["hook"] = _train(hooked, rank) != []
    found["sequence"] = world._get_sequence_number_for_group() > 0
    for refused in (lambda: dist.split_group(split_ranks=[[0, 1]]), lambda: dist.all_reduce("no tensor")):
        try:
            refused()
        except Exception as error:
            found.setdefault("refused", []).append(type(error).__name__)
    work = dist.all_reduce(torch.ones(2), async_op=True)
    assert work is not None
    work.wait()
    found["work"] = (work.is_completed(), work.is_success(), isinstance(work, dist.Work), work.get_future().done())
    dist.destroy_process_group(evens)
    dist.destroy_process_group()
    found["initialized"] = dist.is_initialized()
    return found


def _average_in_python(state, bucket):  # DDP reads annotations as classes, so there are none
    value = bucket.buffer().div_(dist.get_world_size())
    work = dist.all_reduce(value, async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: future.value()[0])


def foreign_backend(rank: int, num_ranks: int) -> bool:
    """Use a backend written in Python as a ProcessGroup, the way simulators and graders do."""

    class Silent(dist.ProcessGroup):
        def getBackendName(self) -> str:
            return "silent"

    dist.Backend.register_backend("silent", lambda store, rank, size, timeout: Silent(rank, size), devices=["cpu"])
    dist.init_process_group("silent", store=dist.HashStore(), rank=rank, world_size=num_ranks)
    group = dist.group.WORLD
    found = isinstance(group, Silent) and isinstance(group, c10d.ProcessGroup)
    dist.destroy_process_group()
    return found
