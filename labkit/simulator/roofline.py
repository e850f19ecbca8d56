"""What an operator costs: the longer of its arithmetic and its memory traffic, and never less than a launch.

On a host that was measured (labkit.calibration) it costs what that operator took with this much work.

Operators are seen where PyTorch dispatches them, so forward, backward and optimizer count alike. Floating-point
operations come from torch's own table (matrix products, convolutions, attention); every other operator is taken to be
limited by memory: the bytes of all tensors it reads and writes. Views are free.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from labkit.hardware import find_link
from labkit.kernels import STATED, unpriced
from labkit.simulator import shapes
from labkit.simulator.accelerator import Accelerator
from labkit.simulator.compiled import FUSED, Fusing
from labkit.simulator.durations import Durations
from labkit.simulator.operators import (
    BY_INDEX,
    VIEW,
    Cost,
    Operator,
    Remembered,
    chooses_by_mask,
    describe,
    remember,
    signature,
    written_by,
)
from labkit.simulator.record import JOINED, Row, short
from labkit.simulator.state import VirtualRank, memory_of
from labkit.simulator.storages import tensors_in
from labkit.simulator.stream_work import settle
from labkit.simulator.streams import Copy, Kernel
from labkit.timeline.phases import BACKWARD, OPTIMIZER
from labkit.timeline.span import Lane
from labkit.torch_port.backward import backward_number
from labkit.torch_port.operators import (
    NAMES_OF_ITS_OWN,
    UNREAD,
    DispatchMode,
    dispatch_modes,
    flop_registry,
    function_modes,
    name_of,
    packet_of,
    unanswered,
    working_out_shapes,
)
from labkit.torch_port.process_tables import float32_matmul_precision

_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
_PLAIN = (_Tensor, _Parameter)
_COMPUTE = Lane.COMPUTE
default_dtype: Callable[[], Any] = torch.get_default_dtype

HOST_LINK = "pcie5"
"""What values take between the host's memory and a virtual CUDA device."""


class Roofline(DispatchMode):
    """Counts the time of one rank's operators while it is entered."""

    def __init__(self, rank: VirtualRank) -> None:
        """Count for this rank."""
        super().__init__()
        rank.roofline = self
        cluster = rank.simulation.cluster
        self._rank, self._device = rank, cluster.device
        self._cores = rank.simulation.network.cores(rank.rank)
        self._slow = cluster.slow.get(rank.rank, 1.0)
        self._thread = rank.record.number
        self._jitter, self._join = cluster.jitter, cluster.join_operators
        self._varies = self._slow != 1.0 or self._jitter != 0
        self._registry = flop_registry()
        self._operators: dict[int, Operator] = rank.simulation.operators
        self._memory = rank.record.memory
        self._observer = rank.simulation.observer
        self._what_if = rank.simulation.what_if
        self._beside = rank.process.device
        self._accelerator: Accelerator | None = rank.process.accelerator
        self._shapes = self._accelerator if self._accelerator is not None and self._accelerator.shapes else None
        self._unwraps: dict[type, bool] = {}
        self._fusing: Fusing | None = None
        self._durations = Durations(self._device, beside_host=self._beside is not None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what the operator returns, and let its time pass."""
        if types and any(self._is_wrapper(kind) for kind in types):
            return NotImplemented  # a DTensor or the like, which calls operators on what it holds
        if self._accelerator is None:
            return self._run(func, args, kwargs or {})
        with unanswered():
            if func.namespace in NAMES_OF_ITS_OWN and (given := next(tensors_in(args), None)) is not None:
                # A collective whose output C++ makes: it is where the input is.
                with self._accelerator.placing(self._accelerator.is_on(given)):
                    return self._run(func, args, kwargs or {})
            return self._run(func, args, kwargs or {})

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if dispatch_modes() and working_out_shapes() is not None:
            return func(*args, **kwargs)
        rank, backward = self._rank, backward_number()
        if backward != -1 and backward != rank.process.backward_end.seen:
            rank.process.backward_end.begins(backward)
        if rank.process.owed:
            settle(rank, tensors_in((args, kwargs)))
        if rank.in_flight:
            self._watch(func, args, kwargs)
        known = self._operators.get(id(func))
        if known is None:
            known = self._operators[id(func)] = describe(func)
        if known.draws:
            rank.simulation.draws(rank.rank)
        remembered = key = None
        if known.views:
            quick = known.quick
            if quick is None or kwargs or type(args[0]) not in _PLAIN or function_modes():
                out = known.call(*args, **kwargs)
            else:
                out = quick(*args)
        else:
            # What a call hangs on besides values.
            parts, meta = signature(args)
            if kwargs:
                named, named_meta = signature(kwargs.values())
                parts += *kwargs, *named
                meta = meta and named_meta
            parts += default_dtype(), float32_matmul_precision()
            if self._shapes is not None:
                parts += self._shapes.target, self._shapes.makes_meta
            key = tuple(parts)
            try:
                remembered = known.results.get(key)
            except TypeError:  # an argument without a hash
                key = None
            if remembered is not None:
                out = remembered.result(args)
            else:
                if self._shapes is None:
                    out = known.call(*args, **kwargs)
                else:
                    out = shapes.call(self._shapes, known, args, kwargs)
                if key is not None:
                    key, remembered = self._met(known, key, args, out, meta)
        if self._observer is not None:
            self._observer.operator(rank, known, args, kwargs, out)
        moves = False
        if self._accelerator is not None:
            on_device, moves = self._accelerator.runs(known.name, func, args, kwargs, out)
            if not on_device:
                return out  # what the host computes is not modelled
            if moves and (self._what_if is None or not self._what_if.reads(sys._getframe(1))):
                self._move(args, kwargs, out)
        memory = self._memory
        if memory is not None:
            if known.on_memory != VIEW:
                memory.operator(known, args, kwargs, out, rank.clock, backward)
            elif backward != memory.backward or memory.clock is not rank.clock or type(args[0]) is _Parameter:
                memory.viewed(args, rank.clock, backward)
        takes_time = not known.free and not moves
        if takes_time and not (self._fusing and self._fusing.takes(known, args, kwargs, out, backward)):
            cost = known.costs.get(key) if remembered is None else remembered.cost
            if cost is None:
                cost = self._cost(known, args, kwargs, out)
                if remembered is not None:
                    remembered.cost = cost
                elif key is not None:
                    known.costs[key] = cost
            charged = cost if self._what_if is None else self._otherwise(known.name, cost, (args, kwargs, out))
            if charged is not None:
                self._charge(known.name, charged, backward)
        waits = known.reads or (known.name in BY_INDEX and chooses_by_mask(args))
        if waits and (self._what_if is None or not self._what_if.reads(sys._getframe(1))):
            rank.meet(call=known.name)
        return out

    def _otherwise(self, name: str, cost: Cost, values: Any) -> Cost | None:
        """Return what an operator costs in a run in which one thing is otherwise, None for nothing."""
        assert self._what_if is not None
        share = self._what_if.share(self._rank, sys._getframe(2), name, values)
        return (cost[0] * share, *cost[1:4], math.ceil(cost[4] * share)) if share else None

    def record(self, known: Operator, cost: Cost, args: Any, out: Any) -> None:
        """Note an operator that was not dispatched: what it used and made, and its time.

        Args:
            known: The operator, one that makes tensors.
            cost: What it costs.
            args: Its arguments.
            out: What it yielded.
        """
        rank, backward = self._rank, backward_number()
        if backward != -1 and backward != rank.process.backward_end.seen:
            rank.process.backward_end.begins(backward)
        if self._memory is not None:
            self._memory.operator(known, args, None, out, rank.clock, backward)
        self._charge(known.name, cost, backward)

    def stated(self, name: str, flops: int, num_bytes: int, args: Any, out: Any) -> None:
        """Note a kernel whose work was stated, as `record` does: it was given `args` and made `out`."""
        self.record(_making(name), self._cost_of(name, flops, num_bytes, args), args, out)

    def fusing(self) -> Fusing | None:
        """Return what joins operators of what is compiled; None where the device is one with the program."""
        if self._fusing is None and self._beside is not None:
            self._fusing = Fusing(self._charge_fused, self._registry)
            self._beside.ending.append(self._fusing.end)
        return self._fusing

    def _charge_fused(self, num_bytes: int, backward: int) -> None:
        self._charge(FUSED, self._cost_of(FUSED, None, num_bytes, None), backward)

    def _met(self, known: Operator, key: Any, args: Any, out: Any, meta: bool) -> tuple[Any, Remembered | None]:
        """Return what the cost of a call hangs on that is not remembered: now it may be."""
        if meta and known.remembers:
            remember(known, key, args, out)
            remembered = known.results.get(key)
            if remembered is not None:
                return key, remembered
            return key, None
        # What an operator yields may hang on values, as with nonzero().
        if type(out) is _Tensor and not out.is_meta:
            return (key, out.shape, out.dtype), None
        return (key, *signature([out])[0]), None

    def _is_wrapper(self, kind: type) -> bool:
        found = self._unwraps.get(kind)
        if found is None:
            found = self._unwraps[kind] = hasattr(kind, "__tensor_flatten__")
        return found

    def slow_down(self, factor: float) -> None:
        """Let everything that is computed from now on take so many times longer."""
        self._slow *= factor
        self._varies = True

    def _cost(self, known: Operator, args: Any, kwargs: Any, out: Any) -> Cost:
        counted, num_bytes = work_of(known.func, args, kwargs, out, self._registry)
        if known.foreign:
            full_name = f"{known.func.namespace}::{known.name}"
            stated = STATED.get(full_name)
            if stated is not None:
                counted, num_bytes = stated.work(args, kwargs, num_bytes)
            elif counted is None:
                self._rank.simulation.notes.setdefault(unpriced(full_name), self._rank.rank)
        done = self._durations.done(known.func, known.name, counted, args, kwargs)
        return self._cost_of(known.name, counted, num_bytes, out, done=done)

    def _cost_of(self, name: str, counted: int | None, num_bytes: int, like: Any, *, done: float | None = None) -> Cost:
        ideal_ns = counted / self._durations.peak(like) * 1e9 if counted else 0.0
        duration = self._durations.nanoseconds(name, counted if done is None else done, num_bytes, like)
        return duration, num_bytes, counted, ideal_ns, math.ceil(duration)

    def _charge(self, name: str, cost: Cost, backward: int) -> None:
        rank, (duration, num_bytes, flops, ideal_ns, duration_ns) = self._rank, cost
        clock, process, record = rank.clock, rank.process, rank.record
        if flops:
            record.work.add(flops, ideal_ns)
        if self._varies:
            duration *= self._slow
            if self._jitter:
                duration *= 1.0 + self._jitter * rank.jitter.random()
            duration_ns = math.ceil(duration)
        now_ns = clock.now_ns
        if self._cores is not None:
            # Who stands earlier in time takes a core first.
            rank.turn()
            start_ns, _ = self._cores.run(now_ns, duration_ns)
            rank.spend(start_ns - now_ns)
            now_ns = start_ns
        phase = BACKWARD if backward != -1 else OPTIMIZER if process.stepping else ""
        if self._beside is not None:
            rank.spend(self._device.launch_ns)
            row = Row(_COMPUTE, -1, -1, JOINED if self._join else name, "operator", num_bytes)
            row.phase = phase
            fills = duration > self._device.kernel_ns
            kernel = Kernel(clock.now_ns, duration_ns, row, record, fills=fills)
            self._beside.give(rank.queue(), kernel)
            return
        rows = record.rows
        last = rows[-1] if self._join and rows else None
        if (
            last is not None and last.end_ns == now_ns and last.name == JOINED
            and last.phase == phase and last.thread == self._thread
        ):  # fmt: skip
            last.end_ns += duration_ns
            last.bytes += num_bytes
        else:
            name = JOINED if self._join else name
            row = Row(_COMPUTE, now_ns, now_ns + duration_ns, name, "operator", num_bytes)
            row.phase = phase
            record.add(row)
        if process.threaded:
            rank.spend(duration_ns)
        else:
            clock.now_ns += duration_ns

    def _move(self, args: Any, kwargs: Any, out: Any) -> None:
        """Let the time pass that values take between the host's memory and the device's.

        On a device with streams the copy is done in the order of the current one, by an engine that only copies. The
        host waits for it unless it is non_blocking and the host's memory is pinned; what a copy to the host makes is.
        """
        rank, link, device = self._rank, find_link(HOST_LINK), self._beside
        num_bytes = bytes_of(out)
        duration_ns = link.latency_ns + math.ceil(num_bytes / (link.bytes_per_second * link.share) * 1e9)
        row = Row(Lane.HOST, rank.now_ns, -1, "copy between host and device", "copy", num_bytes)
        if device is None:
            row.end_ns = rank.now_ns + duration_ns
            rank.record.add(row)
            rank.spend(duration_ns)
            return
        assert self._accelerator is not None
        comes, waits = self._accelerator.copies(args, kwargs, out)
        rank.spend(self._device.launch_ns)
        row.start_ns = rank.now_ns
        rank.record.add(row)
        device.give(rank.queue(), Copy(rank.now_ns, duration_ns, row, "in" if comes else "out"))
        if waits:
            rank.meet(call="copy")

    def _watch(self, func: Any, args: Any, kwargs: Any) -> None:
        """Note an operator that writes a buffer being sent, or touches one being received."""
        rank = self._rank
        if func.is_view or name_of(func) in UNREAD:
            return
        written = list(written_by(func, args, kwargs))
        for tensor in tensors_in((args, kwargs)):
            extent = memory_of(tensor)
            if extent is None:
                continue
            storage, start, end = extent
            for flight in rank.in_flight.get(storage, ()):
                if flight.problem_noted or end <= flight.start or flight.end <= start:
                    continue
                writes = any(tensor is one for one in written)
                if not flight.receiving and not writes:
                    continue
                flight.problem_noted = True
                source, _ = rank.simulation.sources.find(sys._getframe(1))
                line = short(source) or "a line that is not known"
                verb = "wrote into" if writes else "read"
                text = f"Rank {rank.rank} {verb} the buffer of its {flight.call()} at {line}, before wait() returned."
                kind = "changed_in_flight" if writes and flight.sending else "read_before_wait"
                rank.problem(kind, text, flight.row)
                if self._observer is not None:
                    self._observer.touched(rank, kind, flight.row, source)


@cache
def _making(name: str) -> Operator:
    """Return an operator of this name that makes tensors, as others do that are described."""
    return replace(describe(torch.ops.aten.cat.default), name=name)


def work_of(func: Any, args: Any, kwargs: Any, out: Any, registry: dict[Any, Any]) -> tuple[int | None, int]:
    """Return the floating-point operations of an operator's call, None where torch does not count them, and its bytes.

    Args:
        func: The operator.
        args: Its arguments.
        kwargs: Its keyword arguments.
        out: What it returned.
        registry: torch's table of what it counts.
    """
    num_bytes = bytes_of(args) + bytes_of(out)
    if kwargs:
        num_bytes += bytes_of(kwargs.values())
    if out is None:  # a list of tensors changed in place is written, too
        num_bytes += bytes_of(args[:1])
    counted = registry.get(packet_of(func))
    return (None if counted is None else int(counted(*args, **kwargs, out_val=out))), num_bytes


def bytes_of(value: Any) -> int:
    """Return the bytes of the tensors in a value: what whoever reads or writes them all moves."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, int | float):
        return 0
    total = 0
    if isinstance(value, Iterable):
        for item in value:
            if isinstance(item, torch.Tensor):
                total += item.numel() * item.element_size()
            elif isinstance(item, tuple | list):
                total += bytes_of(item)
    return total
