"""A virtual rank's groups do what the backend does that the program named, or say that they do not."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision

import labkit
from labkit.errors import RankFailed, RunTimeout

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


def _on_devices(fn: Callable[..., Any], *args: object, backend: str | None = "nccl", size: int = 2) -> list[Any]:
    def program() -> Any:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group(backend)
        return fn(*args)

    return labkit.run(program, on=labkit.virtual(size, cuda=True), init=False, echo=False).results


def _calls(device: str) -> dict[str, Callable[[], Any]]:
    rank, peer = dist.get_rank(), 1 - dist.get_rank()
    one, two = (lambda: torch.ones(2, device=device)), (lambda: torch.ones(4, device=device))
    both = lambda: [one(), one()]  # noqa: E731
    from torch.distributed import _functional_collectives as functional

    return {
        "all_reduce": lambda: dist.all_reduce(one()),
        "all_reduce, later": lambda: dist.all_reduce(one(), async_op=True).wait(),
        "broadcast": lambda: dist.broadcast(one(), 0),
        "reduce": lambda: dist.reduce(one(), 0),
        "all_gather": lambda: dist.all_gather(both(), one()),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(two(), one()),
        "gather": lambda: dist.gather(one(), both() if rank == 0 else None),
        "scatter": lambda: dist.scatter(one(), both() if rank == 0 else None),
        "reduce_scatter": lambda: dist.reduce_scatter(one(), both()),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(one(), two()),
        "all_to_all": lambda: dist.all_to_all(both(), both()),
        "all_to_all_single": lambda: dist.all_to_all_single(two(), two()),
        "isend": lambda: dist.isend(one(), peer),
        "irecv": lambda: dist.irecv(one(), peer),
        "batch": lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, one(), peer)]),
        "functional": lambda: functional.all_reduce(one(), "sum", dist.group.WORLD).sum(),
        "functional, coalesced": lambda: functional.all_reduce_coalesced([one()], "sum", dist.group.WORLD),
    }


def _outcomes(device: str, names: list[str] | None = None) -> dict[str, str]:
    """Return what comes of each call: both ranks make it, and go on after an error."""
    found = {}
    for name, call in _calls(device).items():
        if names is None or name in names:
            try:
                call()
            except (RuntimeError, TypeError, ValueError) as error:
                found[name] = f"{type(error).__name__}: {error}"
            else:
                found[name] = "done"
    return found


def test_every_call_of_a_host_tensor_over_nccl_is_refused_as_on_gpus() -> None:
    first, second = _on_devices(_outcomes, "cpu")
    passed = {name for name, said in (*first.items(), *second.items()) if "device type cpu" not in said}
    assert not passed


def test_every_call_of_a_device_tensor_over_nccl_passes() -> None:
    messages = ("isend", "irecv", "batch")

    def collectives() -> dict[str, str]:
        return _outcomes("cuda", [name for name in _calls("cuda") if name not in messages])

    for found in _on_devices(collectives):
        assert set(found.values()) == {"done"}


@pytest.mark.in_turn
def test_over_both_backends_host_and_device_have_one_each_and_a_message_stays_on_its_own() -> None:
    def mixed() -> list[float]:
        found = []
        for device in ("cpu", "cuda"):
            value = torch.ones(1).to(labkit.device() if device == "cuda" else device)
            dist.all_reduce(value)
            found.append(float(value))
        return found

    def from_device_to_host() -> None:
        if dist.get_rank() == 0:
            dist.send(torch.ones(1, device="cuda"), 1)
        else:
            dist.recv(torch.ones(1), 0)

    def host_and_device() -> None:
        dist.all_reduce(torch.ones(1, device="cpu" if dist.get_rank() else "cuda"))

    both = "cpu:gloo,cuda:nccl"
    assert _on_devices(mixed, backend=both) == [[2.0, 2.0]] * 2
    with pytest.raises(RunTimeout, match="Deadlock"):
        _on_devices(from_device_to_host, backend=both)
    with pytest.raises(RankFailed, match=r"over gloo.*over nccl|over nccl.*over gloo"):
        _on_devices(host_and_device, backend=both)
    # labkit.run's own group is made as on a host with a GPU for each rank.
    assert labkit.run(mixed, on=labkit.virtual(2, cuda=True), echo=False).results == [[2.0, 2.0]] * 2


def test_gloo_takes_messages_of_the_host_alone_and_collectives_of_both() -> None:
    found = _on_devices(_outcomes, "cuda", ["all_reduce", "isend", "irecv"], backend="gloo")[0]
    assert found["all_reduce"] == "done"
    assert "of the host only" in found["isend"] and "of the host only" in found["irecv"]


def test_what_nccl_does_not_have_is_refused_over_nccl() -> None:
    def tried() -> dict[str, str]:
        device, whole = torch.ones(2, device="cuda"), torch.ones(2, device="cuda", dtype=torch.int32)
        calls: dict[str, Callable[[], Any]] = {
            "BAND": lambda: dist.all_reduce(whole, dist.ReduceOp.BAND),
            "int16": lambda: dist.all_reduce(whole.to(torch.int16)),
            "AVG": lambda: dist.all_reduce(torch.ones(1, dtype=torch.bool, device="cuda"), dist.ReduceOp.AVG),
            "any source": lambda: dist.recv(device),
            "monitored": dist.monitored_barrier,
        }
        found = {}
        for name, call in calls.items():
            with pytest.raises((RuntimeError, TypeError, ValueError)) as refused:
                call()
            found[name] = str(refused.value)
        dist.barrier()
        return found

    found = _on_devices(tried)[0]
    assert "Cannot use ReduceOp.BAND with NCCL" in found["BAND"] and "not supported for NCCL" in found["int16"]
    assert "Boolean" in found["AVG"] and "recvAnysource" in found["any source"]
    assert "only implemented for GLOO" in found["monitored"]


def test_nccl_pairs_messages_in_order_whatever_their_tags_and_gives_one_handle_for_a_batch() -> None:
    def program() -> tuple[float, int]:
        rank, peer = dist.get_rank(), 1 - dist.get_rank()
        got = torch.zeros(1, device="cuda")
        if rank == 0:
            dist.send(torch.full((1,), 3.0, device="cuda"), 1, tag=7)
        else:
            dist.recv(got, 0, tag=8)
        sends, receives = torch.full((1,), float(rank), device="cuda"), torch.zeros(1, device="cuda")
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sends, peer), dist.P2POp(dist.irecv, receives, peer)])
        for work in works:
            work.wait()
        return float(got + receives), len(works)

    assert _on_devices(program) == [(1.0, 1), (3.0, 1)]


def test_objects_go_over_nccl_by_the_device_and_need_one_that_is_set() -> None:
    def gathered() -> list[Any]:
        found: list[Any] = [None, None]
        dist.all_gather_object(found, {"rank": dist.get_rank()})
        return found

    def without_device() -> None:
        dist.init_process_group("nccl")
        gathered()

    assert _on_devices(gathered) == [[{"rank": 0}, {"rank": 1}]] * 2
    with pytest.raises(RankFailed, match="belongs to another rank"):
        labkit.run(without_device, on=labkit.virtual(2, cuda=True), init=False, echo=False)


def test_neither_backend_reduces_or_gathers_whole_numbers_of_16_bits() -> None:
    def program() -> None:
        dist.all_reduce(torch.ones(1, dtype=torch.int16))

    with pytest.raises(
        RankFailed, match="Invalid scalar type: all_reduce got int16, which neither gloo nor NCCL takes"
    ):
        labkit.run(program, on=labkit.virtual(2), echo=False)


def test_a_group_is_called_what_the_program_named_and_so_are_those_made_of_it() -> None:
    def names() -> list[str]:
        subgroup, other = dist.new_group([0, 1]), dist.new_group([0, 1], backend="gloo")
        return [str(dist.get_backend(group)) for group in (None, subgroup, other)]

    assert _on_devices(names) == [["nccl", "nccl", "gloo"]] * 2


# ---- groups made in another order, or of other ranks


def _pairs() -> None:
    dist.new_group([0, 3] if dist.get_rank() in (0, 3) else [1, 2])


def _order() -> None:
    for ranks in ([0, 1], [1, 2]) if dist.get_rank() % 2 else ([1, 2], [0, 1]):
        dist.new_group(ranks)


def _subgroups() -> None:
    dist.new_subgroups(2 if dist.get_rank() else 4)


def _enumerated() -> None:
    lists = [[0, 1], [2, 3]]
    dist.new_subgroups_by_enumeration(lists if dist.get_rank() else lists[::-1])


def _mesh() -> None:
    init_device_mesh("cpu", (2, 2) if dist.get_rank() else (4, 1), mesh_dim_names=("dp", "tp"))


def _backends() -> None:
    dist.new_group([0, 1], backend="gloo" if dist.get_rank() else "nccl")


@pytest.mark.in_turn
@pytest.mark.parametrize("program", [_pairs, _order, _subgroups, _enumerated, _mesh, _backends])
def test_groups_that_ranks_make_otherwise_are_refused_with_both_lines(program: Callable[[], None]) -> None:
    with pytest.raises(RankFailed) as failed:
        labkit.run(program, on=labkit.virtual(4), echo=False)
    headline = str(failed.value).split("\n")[0]
    assert headline.count("test_backends_by_name.py, line") == 2 and headline.count("new_group(") == 2


def test_default_groups_over_other_backends_are_refused() -> None:
    def program() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dist.init_process_group(["nccl", "gloo"][int(os.environ["RANK"])])

    with pytest.raises(RankFailed, match=r"init_process_group.'gloo'.*init_process_group.'nccl'"):
        labkit.run(program, on=labkit.virtual(2), init=False, echo=False)


def test_groups_that_only_members_make_may_be_made_in_any_order_and_again_after_all_are_gone() -> None:
    def program() -> list[float]:
        rank, found = dist.get_rank(), []
        for lists in (([0, 1],), ([0, 1], [2])):
            groups = {tuple(ranks): dist.new_group(ranks, use_local_synchronization=True) for ranks in lists}
            for ranks, group in groups.items():
                value = torch.ones(1) * rank
                if rank in ranks:
                    dist.all_reduce(value, group=group)
                found.append(float(value))
        return found[-2:]

    def twice() -> float:
        for ranks in ([0, 1], [1, 2]):
            dist.init_process_group("gloo")
            group = dist.new_group(ranks)
            value = torch.ones(1)
            if dist.get_rank() in ranks:
                dist.all_reduce(value, group=group)
            dist.destroy_process_group()
        return float(value)

    assert labkit.run(program, on=labkit.virtual(3), echo=False).results[1:] == [[1.0, 1.0], [2.0, 2.0]]
    assert labkit.run(twice, on=labkit.virtual(3), init=False, echo=False).results == [1.0, 2.0, 2.0]


def test_a_group_of_nccl_is_split_where_a_device_is_bound_and_everybody_splits_alike() -> None:
    def program(lists: list[list[list[int]]], bound: bool) -> float:
        rank = int(os.environ["RANK"])
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device if bound else None)
        dist.new_group([0, 1])  # torch names groups of members by how many groups a rank is in
        group = dist.split_group(split_ranks=lists[rank])
        value = torch.ones(1, device=device) * rank
        dist.all_reduce(value, group=group)
        return float(value)

    world = labkit.virtual(4, cuda=True)
    pairs, other = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
    assert labkit.run(program, [pairs] * 4, True, on=world, init=False, echo=False).results == [1.0, 1.0, 5.0, 5.0]
    with pytest.raises(RankFailed, match=r"split_group.*where rank"):
        labkit.run(program, [pairs, pairs, other, pairs], True, on=world, init=False, echo=False)
    with pytest.raises(RankFailed, match="No device associated"):
        labkit.run(program, [pairs] * 4, False, on=world, init=False, echo=False)


# ---- DDP's mixed precision


@pytest.mark.in_turn
@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}])
def test_gradients_of_ddp_in_mixed_precision_are_the_mean_from_the_first_step_on(options: dict[str, Any]) -> None:
    def program() -> list[Any]:
        rank = dist.get_rank()
        torch.cuda.set_device(rank)
        model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Conv2d(1, 1, 1)).cuda()
        model[1].to(memory_format=torch.channels_last)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(1.0)
        precision = _MixedPrecision(param_dtype=torch.bfloat16)
        wrapped = DistributedDataParallel(model, device_ids=[rank], mixed_precision=precision, **options)
        found = []
        for step in range(3):
            wrapped.zero_grad()
            given = torch.tensor([[1.0, 2.0 * rank + step]], device="cuda").view(1, 1, 1, 2)
            wrapped(given).float().sum().backward()
            found.append([parameter.grad.flatten().tolist() for parameter in model.parameters()])
        return found

    run = labkit.run(program, on=labkit.virtual(2, cuda=True), echo=False)
    for found in run.results:
        for step, (weight, scale, bias) in enumerate(found):
            mean = 1.0 + step  # of the two ranks' second inputs
            assert weight == [1.0, mean, 1.0, mean] and scale == [2 * (1.0 + mean)] and bias == [2.0]
    assert any("reduces memory that no gradient was copied into" in one.text for one in run.timeline.problems)
