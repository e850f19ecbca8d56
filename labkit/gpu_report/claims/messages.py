"""Claims about messages and collectives of two GPUs: groups, schedules, and hangs that are explained."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from labkit.errors import RunTimeout
from labkit.gpu_report.claims.claim import DoesNotHold, Place, claim, equal, finish, hold
from labkit.launch import recording
from labkit.launch.rank import device
from labkit.worlds import run


@claim(2, "batches of messages stay in their groups")
def messages_in_batches_stay_in_their_groups(place: Place) -> None:
    """The same two ranks in the world's group and in one of their own."""

    def exchanging() -> list[float]:
        rank, got = dist.get_rank(), []
        pair = dist.new_group([0, 1])
        for group in (None, pair):
            mine = torch.full((1 << 16,), float(rank + 1), device=device())
            other = torch.empty_like(mine)
            ops = [dist.P2POp(dist.isend, mine, 1 - rank, group), dist.P2POp(dist.irecv, other, 1 - rank, group)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            got.append(float(other[-1]))
        return got

    equal(run(exchanging, on=place.ranks(2)).results, [[2.0, 2.0], [1.0, 1.0]])


@claim(2, "1F1B gives the gradients of one process")
def one_forward_one_backward_brings_the_gradients_of_one_process(place: Place) -> None:
    """A layer a stage, four microbatches, in the order of 1F1B."""
    layers = _two_layers()
    torch.autograd.backward(torch.nn.Sequential(*layers)(_four_batches()).square().sum())
    expected = [float(layer.weight.grad.double().sum()) for layer in layers if layer.weight.grad is not None]
    for found, wanted in zip(run(_one_f_one_b, on=place.ranks(2)).results, expected, strict=True):
        hold(abs(found - wanted) <= 1e-3 * abs(wanted), f"a stage's gradients sum up to {found}, not to {wanted}")


def _one_f_one_b() -> float:
    """Train one layer a stage and return the sum of this stage's gradients."""
    stage, layers, batches = dist.get_rank(), _two_layers(), _four_batches().to(device())
    layer = layers[stage].to(device())

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
            torch.autograd.backward(layer(inputs).square().sum())
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


@claim(2, "isend and recv one by one hang, as the check on the CPU says", cuda_only=True)
def a_ring_posted_one_by_one_hangs_on_nccl(place: Place) -> None:
    """As the check on the CPU says, where gloo forgives it."""

    def ring() -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        mine = torch.ones(1 << 22, device=device())
        got = torch.empty_like(mine)
        for _ in range(2):
            send = dist.isend(mine, (rank + 1) % size)
            dist.recv(got, (rank - 1) % size)
            assert send is not None
            send.wait()
        torch.cuda.synchronize()

    try:
        run(ring, on=place.ranks(2), timeout=30)
    except RunTimeout:
        return
    raise DoesNotHold("it ran through")


def _hang(place: Place, program: object, seconds: float) -> RunTimeout:
    """Return the report of a program that hangs."""
    begin = time.monotonic()
    try:
        run(program, on=place.ranks(2), timeout=seconds)  # type: ignore[arg-type]
    except RunTimeout as error:
        took = time.monotonic() - begin
        hold(took < seconds + 25, f"the report came after {took:.0f} s")
        return error
    raise DoesNotHold("the program hangs, and no report came")


@claim(2, "a missing collective is named, with its line")
def a_missing_collective_is_named_with_its_line(place: Place) -> None:
    """Rank 1 never comes to the second all_reduce."""

    def one_leaves() -> None:
        tensor = torch.ones(1000, device=device())
        dist.all_reduce(tensor)
        if dist.get_rank() == 0:
            dist.all_reduce(tensor)  # rank 1 never comes
            tensor[0].item()
        else:
            while True:
                time.sleep(0.1)

    said = str(_hang(place, one_leaves, 5))
    hold("rank 0 waits in all_reduce #" in said and "which rank 1 has not reached" in said, f"the report says: {said}")
    hold("one_leaves" in said, f"no line is named: {said}")


@claim(2, "mismatched collectives are named", cuda_only=True)
def mismatched_collectives_are_named(place: Place) -> None:
    """One rank calls all_reduce, the other broadcast."""

    def mismatched() -> None:
        tensor = torch.ones(1000, device=device())
        if dist.get_rank() == 0:
            dist.all_reduce(tensor)
        else:
            dist.broadcast(tensor, 1)
            dist.broadcast(tensor, 0)
        tensor[0].item()

    said = str(_hang(place, mismatched, 60))
    hold(all(word in said for word in ("Deadlock", "all_reduce", "broadcast")), f"the report says: {said}")


@claim(2, "torch's flight recorder explains a hang that our record was not there for", cuda_only=True)
def nccls_own_record_explains_a_hang_that_ours_was_not_there_for(place: Place) -> None:
    """As NCCL's first call is, which makes the communicator before anything is recorded."""

    def work() -> None:
        with recording.unrecorded():
            if dist.get_rank() == 0:
                dist.all_reduce(torch.ones(4, device=device()))
                finish()
            time.sleep(60)

    said = _hang(place, work, 10).reports[0]
    for words in ("which rank 1 has not reached", "flight recorder", "messages.py"):
        hold(words in said, f"rank 0's report does not say {words!r}: {said}")
