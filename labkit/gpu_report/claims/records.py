"""Claims about the record: when a call or a region begins and ends on a GPU, and what recording must not change."""

from __future__ import annotations

import time
from functools import partial
from statistics import median

import torch
import torch.distributed as dist

from labkit.errors import RankFailed
from labkit.gpu_report.claims.claim import DoesNotHold, Place, claim, equal, finish, hold
from labkit.gpu_report.stopwatch import Stopwatch
from labkit.launch import recording
from labkit.launch.rank import device, span
from labkit.timeline import Timeline
from labkit.timeline.metrics import hidden_communication_share
from labkit.torch_port.cuda_kernels import keep_busy
from labkit.worlds import run

_MANY_CYCLES = 200_000_000  # a tenth of a second on a current GPU


def timeline_of(done: object) -> Timeline:
    """Return a run's timeline, which local ranks always have."""
    timeline = getattr(done, "timeline", None)
    if timeline is None:
        raise DoesNotHold("the run has no timeline")
    return timeline  # type: ignore[no-any-return]


def several_calls() -> None:
    """Call all_reduce twenty times."""
    tensor = torch.ones(1000, device=device())
    for _ in range(20):
        dist.all_reduce(tensor)
    finish()


@claim(1, "NCCL's communicator is made before the record begins", cuda_only=True)
def the_first_call_on_record_does_not_hold_the_communicators_creation(place: Place) -> None:
    """NCCL makes a communicator when it is first used, which takes a hundred times as long as a call."""
    calls = timeline_of(run(several_calls, on=place.ranks(1))).spans(kind="all_reduce")
    lasted = (calls.end_ns - calls.start_ns).tolist()
    equal(len(lasted), 20)
    hold(lasted[0] < 10 * median(lasted) + 2_000_000, f"the first took {lasted[0]} ns, most take {median(lasted)} ns")


@claim(1, "a call's time on record is the device's", cuda_only=True)
def an_nccl_call_lasts_from_when_its_stream_reached_it_until_it_was_done_on_the_device(place: Place) -> None:
    """The host launches calls while the kernel before them still runs; on the device they come after it."""

    def behind_a_long_kernel() -> float:
        value = torch.ones(1 << 20, device=device())
        dist.all_reduce(value)
        torch.cuda.synchronize()
        watch = Stopwatch()
        keep_busy(_MANY_CYCLES)
        watch.stop()
        dist.all_reduce(value)
        work = dist.all_reduce(value, async_op=True)
        assert work is not None
        work.wait()
        torch.cuda.synchronize()
        return watch.seconds

    done = run(behind_a_long_kernel, on=place.ranks(1))
    timeline, busy_ns = timeline_of(done), done.results[0] * 1e9
    launched, blocking, asynchronous = timeline.spans(kind="all_reduce").rows()
    later_ns = blocking.start_ns - launched.end_ns
    hold(later_ns >= 0.8 * busy_ns, f"the kernel ran {busy_ns:.0f} ns, the call after it began {later_ns} ns later")
    hold(asynchronous.end_ns >= asynchronous.start_ns >= launched.end_ns, "the asynchronous call is out of order")
    equal(timeline.tables["open"]["span"].tolist(), [])


@claim(1, "a region lasts as long as its kernels", cuda_only=True)
def a_span_lasts_as_long_as_the_kernel_inside_it(place: Place) -> None:
    """Within a tenth of what CUDA's events say."""

    def sleeping() -> float:
        with span("kernel"):
            watch = Stopwatch()
            keep_busy(_MANY_CYCLES)
            watch.stop()
        torch.cuda.synchronize()
        return watch.seconds

    done = run(sleeping, on=place.ranks(1))
    (kernel,) = [each for each in timeline_of(done).rows() if each.name == "kernel"]
    lasted_ms, took_ms = (kernel.end_ns - kernel.start_ns) / 1e6, 1e3 * done.results[0]
    hold(abs(lasted_ms - took_ms) <= 0.1 * took_ms, f"the kernel took {took_ms:.2f} ms, its region {lasted_ms:.2f} ms")


@claim(1, "a run that fails keeps its calls")
def ten_calls_and_an_exception_leave_ten_spans(place: Place) -> None:
    """None of them open: the record of a run that failed is whole."""

    def failing() -> None:
        tensor = torch.ones(1000, device=device())
        for _ in range(10):
            dist.all_reduce(tensor)
        finish()
        raise ZeroDivisionError("after ten")

    try:
        run(failing, on=place.ranks(1))
    except RankFailed as error:
        hold("after ten" in str(error), f"the error says: {error}")
        calls = error.timeline.spans(kind="all_reduce")
        still_open = set(range(10)) & set(calls.tables["open"]["span"].tolist())
        equal((len(calls), still_open), (10, set()))
    else:
        raise DoesNotHold("the rank's exception did not arrive")


@claim(1, "recording keeps memory alive while it is in flight")
def recording_gives_no_temporarys_memory_away_while_it_is_in_flight(place: Place) -> None:
    """A tensor that nobody else holds is summed while others are made in whatever memory is free."""

    def temporaries() -> float:
        sums = torch.zeros((), device=device(), dtype=torch.float64)
        for step in range(num_steps):
            work = dist.all_reduce(torch.full((1 << 20,), float(step), device=device()), async_op=True)
            noise = torch.full((1 << 20,), -1.0, device=device())  # takes the same memory if it is free
            mine = torch.full((1 << 20,), float(step), device=device())
            other = dist.all_reduce(mine, async_op=True)
            assert work is not None
            assert other is not None
            work.wait()
            other.wait()
            sums += mine[-1].double() + noise[0].double()
        return sums.item()

    num_steps = 500 if place.device == "cuda" else 20
    equal(run(temporaries, on=place.ranks(1)).results[0], float(sum(step - 1 for step in range(num_steps))))


@claim(2, "no message arrives before it was sent, within the record's error")
def no_message_arrives_before_it_was_sent_beyond_the_error_exported(place: Place) -> None:
    """Fifty messages round a ring of two."""
    messages_in_order(place, pause_s=0.0)


def messages_in_order(place: Place, pause_s: float) -> None:
    """Raise where a message arrives before it was sent by more than the record's error.

    Args:
        place: Where.
        pause_s: How long ranks rest halfway, while clocks drift apart.
    """

    def ring() -> None:
        mine, other = torch.ones(1 << 20, device=device()), torch.empty(1 << 20, device=device())
        rank, size = dist.get_rank(), dist.get_world_size()
        for number in range(50):
            if number == 25:
                time.sleep(pause_s)
            send = dist.P2POp(dist.isend, mine, (rank + 1) % size)
            receive = dist.P2POp(dist.irecv, other, (rank - 1) % size)
            for work in dist.batch_isend_irecv([send, receive]):
                work.wait()
        finish()

    timeline = timeline_of(run(ring, on=place.ranks(2), timeout=120 + 2 * pause_s))
    error_ns = int(timeline.tables["clock"]["err_ns"].sum())
    hold(error_ns > 0 or place.device == "cpu", "the record claims to have no error")
    sends, receives = (timeline.spans(kind=kind) for kind in ("isend", "irecv"))
    arrived = dict(zip(receives.flow.tolist(), receives.end_ns.tolist(), strict=True))
    equal((len(sends), len(arrived)), (100, 100))
    early_ns = [
        sent_ns - arrived[flow] for flow, sent_ns in zip(sends.flow.tolist(), sends.start_ns.tolist(), strict=True)
    ]
    hold(max(early_ns) <= error_ns, f"a message came {max(early_ns)} ns before it was sent; the error is {error_ns} ns")


@claim(
    2,
    "the hidden share of communication is Kineto's within 10 %, of an overlapped step and a serial one",
    cuda_only=True,
)
def the_hidden_share_is_that_of_kineto_within_a_tenth(place: Place) -> None:
    """Of a DistributedDataParallel that overlaps, and of one that sums its gradients after the backward pass."""
    for overlapped in (True, False):
        done = run(partial(_profiled_step, overlapped), on=place.ranks(2))
        timeline, kinetos = timeline_of(done), done.results[0]
        (step,) = [each for each in timeline.rows() if each.name == "step" and each.rank == 0]
        part = timeline.select((timeline.start_ns >= step.start_ns) & (timeline.end_ns <= step.end_ns))
        ours = hidden_communication_share(part, 0)
        hold(abs(ours - kinetos) <= 0.1, f"overlapped={overlapped}: Kineto says {kinetos:.2f}, the timeline {ours:.2f}")
        hold(overlapped or kinetos < 0.1, f"nothing overlaps, and Kineto says {kinetos:.2f}")


def _profiled_step(overlapped: bool) -> float:
    """Return the share of communication that is hidden in a step, by torch's profiler."""

    def one_step(model: torch.nn.Module, batch: torch.Tensor) -> None:
        torch.autograd.backward(model(batch).sum())
        if not overlapped:
            for each in model.parameters():
                assert each.grad is not None
                dist.all_reduce(each.grad)

    model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(12))).to(device())
    ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device().index], bucket_cap_mb=64)
    trained = ddp if overlapped else model
    batch = torch.randn(2048, 4096, device=device())
    one_step(trained, batch)  # buckets are built anew after it
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiled:
        with span("step"):
            one_step(trained, batch)
        torch.cuda.synchronize()
    on_gpu = torch.autograd.DeviceType.CUDA  # type: ignore[attr-defined]
    kernels = [each for each in profiled.events() or () if each.device_type == on_gpu]
    return hidden_of_kernels(
        [(each.time_range.start, each.time_range.end) for each in kernels if "nccl" in each.name],
        [(each.time_range.start, each.time_range.end) for each in kernels if "nccl" not in each.name],
    )


def hidden_of_kernels(communication: list[tuple[float, float]], computation: list[tuple[float, float]]) -> float:
    """Return the share of communication's time in which something is computed; intervals of one kind do not overlap."""
    both = sum(
        max(0.0, min(end, until) - max(begin, since)) for begin, end in communication for since, until in computation
    )
    return both / sum(end - begin for begin, end in communication)


@claim(2, "recorded and unrecorded training give the same bits")
def a_recorded_training_gives_the_bits_of_an_unrecorded_one(place: Place) -> None:
    """Twenty steps of DistributedDataParallel."""

    def trained() -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8))).to(device())
        devices = [device().index] if device().type == "cuda" else None
        ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=devices, bucket_cap_mb=1)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
        for step in range(20):
            torch.manual_seed(100 * step + dist.get_rank())
            torch.autograd.backward(ddp(torch.randn(32, 256, device=device())).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        return [float(each.detach().double().sum()) for each in model.parameters()]

    def unrecorded() -> list[float]:
        with recording.unrecorded():
            return trained()

    recorded = run(trained, on=place.ranks(2)).results
    equal(recorded, run(unrecorded, on=place.ranks(2)).results)
    equal(recorded[0], recorded[1])
