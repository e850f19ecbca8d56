"""calibrate(): measure this host, so that the virtual cluster predicts what runs on it.

Measured in real ranks, all of them at once, for they share memory and caches: what each operator takes by how much work
it does, in layers of several sizes, forwards and backwards; what Python and autograd cost around an operator; how long
a message takes between two ranks, how many bytes all ranks together move, and what a collective takes beyond that (gloo
runs it on threads of its own, which wait for a core). Operators are measured, never models, so that predicting a
model's step is a prediction. It is that of a step's mean on the host as it was, with what else ran on it
(labkit.calibration.points.disturbance). Ranks that are disturbed at different times also wait for each other, which is
not predicted.

What may be compared with it: runs with ``labkit.local(n, device="cpu", threads_per_rank=1)``, for one thread a rank is
what was measured. With no more ranks than cores, computing and waiting in turns, the comparison is fair. With more
ranks than cores, operators queue for cores here while Linux shares cores out in slices, which comes to the same only
over many operators. Where gloo's threads move bytes while ranks compute (DDP's overlap), they take cores away from the
ranks; the model shares them, not their caches. Times below a millisecond are the scheduler's rather than the model's.

On GPUs (never run) operators and messages are timed with CUDA events, which bracket what the device
does; what Python costs around an operator is how long issuing one takes. One GPU is measured alone, and what would
connect it with others is taken from the catalogue.
"""

from __future__ import annotations

import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from statistics import mean, median
from types import MappingProxyType
from typing import Any, Literal

import torch
import torch.distributed as dist

from labkit.calibration.collectives import beyond_messages_ns
from labkit.calibration.layers import layers
from labkit.calibration.points import Call, disturbance, lower_quartile, points
from labkit.errors import ConfigError, EnvironmentProblem
from labkit.hardware import DEVICES, Device, Hardware, Link, find_link
from labkit.launch.gpus import gpus
from labkit.launch.rank import device
from labkit.simulator.operators import is_free
from labkit.simulator.roofline import work_of
from labkit.torch_port.operators import DispatchMode, flop_registry, name_of
from labkit.worlds import local, run

MESSAGES = (8, 2**16, 2**20, 2**21, 2**22, 2**23)
REDUCED = (2**16, 2**20, 2**22)
_COLD_BYTES = {"cpu": 32 * 2**20, "cuda": 256 * 2**20}
"""More than the caches that a core, or a GPU, has to itself; 256 MB is what triton.testing.do_bench clears."""
_SOURCE = "measured on this host by labkit calibrate"
_REPEATS = 5
_UNSEEN = "pcie4"
_ASSUMED = "from the catalogue: with one GPU no message could be measured"


@dataclass
class RankMeasure:
    """What one rank measured.

    Attributes:
        operators: Operator -> its calls.
        around_s: Seconds of Python and autograd around an operator, undisturbed.
        messages: Bytes -> seconds from a send to its receipt, for a pair of ranks, on average.
        crowd: Bytes -> seconds in which every rank sends and receives as much, on average.
        post_s: Seconds until isend and irecv return, the mean of the two, on average.
        num_ranks: Ranks that sent.
        reduced: Bytes -> seconds of an all_reduce of all these ranks, on average.
    """

    operators: dict[str, list[Call]] = field(default_factory=dict)
    around_s: float = 0.0
    messages: dict[int, float] = field(default_factory=dict)
    crowd: dict[int, float] = field(default_factory=dict)
    post_s: float = 0.0
    num_ranks: int = 0
    reduced: dict[int, float] = field(default_factory=dict)


class Stopwatch(DispatchMode):
    """Times every operator while it is entered."""

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self.calls: dict[str, list[Call]] = defaultdict(list)
        self._registry = flop_registry()
        self._pending: list[tuple[str, float, float, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what the operator returns, and note how long it took."""
        kwargs = kwargs or {}
        if is_free(func):
            return func(*args, **kwargs)
        on_gpu = any(isinstance(one, torch.Tensor) and one.is_cuda for one in args)
        begin, end = (_event() for _ in range(2)) if on_gpu else (None, None)
        if begin is not None:
            begin.record()
        begin_s = time.perf_counter()
        out = func(*args, **kwargs)
        seconds = time.perf_counter() - begin_s
        flops, num_bytes = work_of(func, args, kwargs, out, self._registry)
        name = name_of(func)
        if begin is None or end is None:
            self.calls[name].append((flops or 0, num_bytes, seconds))
        else:
            end.record()
            self._pending.append((name, flops or 0, num_bytes, begin, end))
        return out

    def settle(self) -> None:
        """Read the clocks of the GPU, once it is done."""
        if self._pending:
            torch.cuda.synchronize()
        for name, flops, num_bytes, begin, end in self._pending:
            self.calls[name].append((flops, num_bytes, begin.elapsed_time(end) / 1e3))
        self._pending.clear()


def _event() -> Any:
    make: Any = torch.cuda.Event
    return make(enable_timing=True)


@dataclass
class Measures:
    """What a host's ranks measured; several can be added up, so that a host that is not always as fast is met halfway.

    Attributes:
        cores: Cores that ranks share, None for accelerators.
        operators: Of each rank that measured operators.
        pair: Of two ranks that sent to each other.
        crowd: Of as many ranks as cores that sent round a ring at once.
    """

    cores: int | None
    operators: list[RankMeasure] = field(default_factory=list)
    pair: list[RankMeasure] = field(default_factory=list)
    crowd: list[RankMeasure] = field(default_factory=list)

    def __add__(self, other: Measures) -> Measures:
        """Return both together."""
        return Measures(
            self.cores, self.operators + other.operators, self.pair + other.pair, self.crowd + other.crowd
        )  # fmt: skip


def calibrate(say: Callable[[str], object] = lambda _: None) -> Hardware:
    """Return this host as it was measured; takes about half a minute and wants the host to itself.

    Args:
        say: Told what is being measured.

    Raises:
        EnvironmentProblem: If the host is too small for two ranks.
    """
    return assemble(gather(say))


def gather(say: Callable[[str], object] = lambda _: None) -> Measures:
    """Return what this host's ranks measure now.

    Args:
        say: Told what is being measured.

    Raises:
        EnvironmentProblem: If the host is too small for two ranks.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    num_gpus = len(gpus().usable)
    on_gpus = num_gpus >= 1
    if cores < 2 and not on_gpus:
        raise EnvironmentProblem(
            "labkit calibrate needs 2 cores: it times messages between two ranks that run at the same time."
        )
    num_ranks = num_gpus if on_gpus else min(cores, 8)
    kind: Literal["cuda", "cpu"] = "cuda" if on_gpus else "cpu"
    one_each = local(num_ranks, device=kind, threads_per_rank=1)
    found = Measures(None if on_gpus else cores)
    say(f"operators, on {num_ranks} ranks at once")
    found.operators = run(_measure_operators, on=one_each, timeout=600, stall=None, echo=False).results
    if num_ranks == 1:
        return found
    say("messages between two ranks, then between all")
    two = local(2, device=kind, threads_per_rank=1)
    found.pair = run(_measure_messages, on=two, timeout=300, echo=False).results
    found.crowd = found.pair
    if num_ranks > 2:
        found.crowd = run(_measure_messages, on=one_each, timeout=300, echo=False).results
    return found


def assemble(measures: Measures) -> Hardware:
    """Return the hardware that follows from what ranks measured."""
    calls: dict[str, list[Call]] = defaultdict(list)
    for one in measures.operators:
        for name, found in one.operators.items():
            calls[name] += found
    longer = disturbance(calls.values())
    measured = {name: points(found, longer) for name, found in sorted(calls.items())}
    flops = max((one.flops / one.seconds for found in measured.values() for one in found), default=1e9)
    rate = max((one.bytes / one.seconds for one in measured.get("copy_", ())), default=1e9)
    around_ns = round(median(one.around_s for one in measures.operators) * longer * 1e9)
    cores = measures.cores
    device = Device(
        "this_host" if cores else "these_gpus", _memory_bytes(cores), rate, MappingProxyType({"float32": flops}),
        _UNSEEN, _SOURCE, around_ns, f"{_SOURCE}: Python and autograd around an operator", compute_share=1.0,
        memory_share=1.0,
        share_source=_SOURCE, cores=cores, measured=MappingProxyType(measured),
    )  # fmt: skip
    made_on = f"{_made_on(cores)}; calls took {longer - 1:.0%} longer than undisturbed"
    host = Hardware(device, _link(measures), made_on)
    reduced = [(one.num_ranks, size, seconds) for one in measures.crowd for size, seconds in one.reduced.items()]
    return replace(host, link=replace(host.link, collective_ns=beyond_messages_ns(host, reduced)))


def _link(measures: Measures) -> Link:
    pair, cores = measures.pair, measures.cores
    if not pair:
        return replace(find_link(_UNSEEN), latency_source=_ASSUMED, share_source=_ASSUMED)
    post_s = median(one.post_s for one in pair)
    times = {size: median(one.messages[size] for one in pair) for size in pair[0].messages}
    small, large = min(times), max(times)
    latency_s = max(times[small] - post_s, 0.0)
    rate = large / max(times[large] - times[small], 1e-9)
    # Where every rank sends and takes as much, cores are the limit: bytes of all ranks over the time bytes add.
    together = [
        size * one.num_ranks / max(seconds - one.crowd[min(one.crowd)], 1e-9)
        for one in measures.crowd
        for size, seconds in one.crowd.items()
        if size >= 2**20
    ]
    return Link(
        "gloo_loopback" if cores else "nccl_here", rate, round(latency_s * 1e9), f"{_SOURCE}: {large} bytes a message",
        f"{_SOURCE}: {small} bytes a message", 1.0, _SOURCE, post_ns=round(post_s * 1e9),
        host_bytes_per_second=median(together) if cores else None,
    )  # fmt: skip


def _memory_bytes(cores: int | None) -> int:
    if cores is None:
        return int(torch.cuda.get_device_properties(0).total_memory)
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return DEVICES["epyc7763"].memory_bytes


def _made_on(cores: int | None) -> str:
    what = f"{cores} cores" if cores else torch.cuda.get_device_name(0)
    return f"{what}, {platform.machine()}, {platform.system()}, torch {torch.__version__}, {date.today().isoformat()}"


def _measure_operators() -> RankMeasure:
    """Run each layer forwards and backwards on every rank at once.

    Caches are cold when it begins, for a model goes through all its other layers before it comes back to one; what
    backwards finds in them, forwards has left.
    """

    where, watch = device(), Stopwatch()
    other_layers = torch.zeros(_COLD_BYTES[where.type] // 4, device=where)
    for build in layers():
        step = build(where)
        step()
        for _ in range(_REPEATS):
            dist.barrier()
            other_layers.add_(1.0)
            with watch:
                step()
        watch.settle()
    return RankMeasure(dict(watch.calls), _around(where))


def _around(where: torch.device) -> float:
    """Return the seconds of Python and autograd around one operator, from a model whose operators take next to none."""
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(20))).to(where)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.ones(4, 8, device=where)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    plain, inside = [], []
    watch = Stopwatch()
    for _ in range(30):
        if where.type == "cuda":
            torch.cuda.synchronize()  # nothing is in the stream: what is timed is issuing
        begin_s = time.perf_counter()
        step()
        plain.append(time.perf_counter() - begin_s)
        watch.calls.clear()
        with watch:
            step()
        watch.settle()
        inside.append(sum(seconds for calls in watch.calls.values() for *_, seconds in calls))
    num_calls = sum(len(calls) for calls in watch.calls.values())
    # The device does its part aside; on the CPU the program does it, too.
    alone_s = lower_quartile(plain) - (0.0 if where.type == "cuda" else lower_quartile(inside))
    return max(alone_s, 0.0) / num_calls


def _measure_messages() -> RankMeasure:
    """Send to and fro between ranks 0 and 1, then round a ring of all ranks; then reduce over all of them."""

    rank, size = dist.get_rank(), dist.get_world_size()
    found = RankMeasure(num_ranks=size)
    posts: list[float] = []
    for num_bytes in MESSAGES:
        out, got = (torch.ones(max(1, num_bytes // 4), device=device()) for _ in range(2))
        repeats = max(10, min(100, 2**26 // num_bytes))

        def to_and_fro(out: torch.Tensor = out, got: torch.Tensor = got) -> None:
            if rank == 0:
                dist.send(out, 1)
                dist.recv(got, 1)
            elif rank == 1:
                dist.recv(got, 0)
                dist.send(out, 0)

        def around(out: torch.Tensor = out, got: torch.Tensor = got) -> None:
            begin_s = time.perf_counter()
            ops = [
                dist.P2POp(dist.isend, out, (rank + 1) % size),
                dist.P2POp(dist.irecv, got, (rank - 1) % size),
            ]
            works = dist.batch_isend_irecv(ops)
            posts.append((time.perf_counter() - begin_s) / 2)
            for work in works:
                work.wait()

        if size == 2:
            found.messages[num_bytes] = _timed(to_and_fro, repeats) / 2
        found.crowd[num_bytes] = _timed(around, repeats)
        found.post_s = found.post_s or mean(posts)  # of the smallest: posting a large message moves a part of it
    for num_bytes in REDUCED:
        found.reduced[num_bytes] = _timed(partial(dist.all_reduce, torch.ones(num_bytes // 4, device=device())), 50)
    return found


def _timed(call: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats + 2):
        dist.barrier()
        times.append(_device_seconds(call) if device().type == "cuda" else _host_seconds(call))
    return mean(times[2:])


def _host_seconds(call: Callable[[], object]) -> float:
    begin_s = time.perf_counter()
    call()
    return time.perf_counter() - begin_s


def _device_seconds(call: Callable[[], object]) -> float:
    """Return how long the device took from before the first kernel of the call until after its last."""
    begin, end = _event(), _event()
    begin.record()
    call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def as_text(hardware: Hardware) -> str:
    """Return what was measured as lines for people."""
    device, link = hardware.device, hardware.link
    if not device.measured:
        raise ConfigError("This hardware was not measured; labkit.calibration.calibrate() measures a host.")
    lines = [
        f"{hardware.made_on}",
        f"  matrix products      up to {max(device.peak_flops.values()) / 1e9:.1f} GFLOP/s a core",
        f"  copies               up to {device.memory_bytes_per_second / 1e9:.2f} GB/s a core, read and written",
        f"  around an operator   {device.launch_ns / 1e3:.1f} µs of Python and autograd",
        f"  a message            {link.post_ns / 1e3:.0f} µs to post, {link.latency_ns / 1e3:.0f} µs on its way, then "
        f"{link.bytes_per_second / 1e9:.2f} GB/s",
    ]
    if link.host_bytes_per_second:
        lines.append(f"  all ranks together   {link.host_bytes_per_second / 1e9:.2f} GB/s")
    if link.collective_ns:
        lines.append(f"  a collective         {link.collective_ns / 1e3:.0f} µs more than its messages")
    for name, unit in (("mm", "GFLOP/s"), ("convolution", "GFLOP/s"), ("copy_", "GB/s"), ("gelu", "GB/s")):
        found = device.measured.get(name, ())
        work = [(one.flops or one.bytes, one.seconds) for one in found[:: max(1, len(found) // 6)]]
        lines.append(f"  {name:20} {unit} by work: " + ", ".join(f"{w:.2g}: {w / s / 1e9:.3g}" for w, s in work))
    return "\n".join(lines)
