"""What a rank's memory holds: every storage its operators made or used, from then until nobody refers to it.

A storage counts once however many tensors view it, with the bytes asked for: an allocator's rounding and fragments, the
driver and NCCL's own buffers are not in it. All tensors of a rank count, also those a program would keep on the host.
A meta tensor counts what it would hold.
"""

from __future__ import annotations

import sys
import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import torch

from labkit.simulator.caching_allocator import Block, CachingAllocator
from labkit.simulator.clock import RankClock
from labkit.simulator.garbage import Garbage
from labkit.simulator.memory_blocks import GIVEN, Detail, StorageBlock, dtype_of, held_alike, room
from labkit.simulator.memory_error import Asked, OutOfVirtualMemory, out_of_memory
from labkit.simulator.operators import USES, Operator
from labkit.simulator.record import Sources
from labkit.simulator.storages import storages_of, tensors_in
from labkit.timeline.memory import CATEGORIES
from labkit.torch_port.backward import backward_number, before_backward_returns
from labkit.torch_port.tensors import own_buffers, own_parameters

OTHER, ACTIVATIONS, COMMUNICATION, GRADIENTS, OPTIMIZER, BUFFERS, PARAMETERS = range(len(CATEGORIES))
_NO_BACKWARD = -1
_LARGE_SHARE = 1_000  # of the capacity: a tensor that large is listed with its line when memory is full
_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter


class RankMemory:
    """The ledger of one rank.

    Attributes:
        rank: Whose it is.
        capacity: Bytes its device holds.
        total: Bytes held now.
        peak: Most bytes held so far.
        recent_peak: Most bytes held since the program last asked to begin anew.
        peak_ns: When that was first.
        peak_operator: What made the tensor that led there.
        events: Number of a storage that came, or its bitwise complement when it went; in the order of what happened.
        times: When, ns.
        sizes: Bytes of each storage, by its number.
        categories: The category of each, as it is known by now.
        backward: The backward pass that the last operator belonged to, -1 for none.
        clock: That of the thread that ran it.
        allocator: What finds room for tensors, None where any room will do.
    """

    def __init__(
        self, rank: int, clock: RankClock, capacity: int, device: str, sources: Sources, garbage: Garbage,
        holds: Callable[[Any], bool] | None = None, allocator: CachingAllocator | None = None,
    ):  # fmt: skip
        """Begin with nothing.

        Args:
            rank: Whose it is.
            clock: The rank's time.
            capacity: Bytes its device holds.
            device: What the device is called.
            sources: Finds the learner's lines.
            garbage: Counts the tensors of all ranks.
            holds: Returns whether a storage is on the device; None where all are.
            allocator: Where its device has streams: what finds room for tensors.
        """
        self._holds, self.allocator = holds, allocator
        self.rank, self.capacity = rank, capacity
        self.total = self.peak = self.recent_peak = self.peak_ns = 0
        self.peak_operator = ""
        self.events, self.times, self.sizes = array("q"), array("q"), array("q")
        self.categories = bytearray()
        self.clock, self._device, self._sources, self._garbage = clock, device, sources, garbage
        self._blocks: dict[int, StorageBlock] = {}
        self._filled: set[int] = set()
        self._details: dict[int, Detail] = {}
        self._modules: dict[int, weakref.ref[torch.nn.Module]] = {}
        self.backward = _NO_BACKWARD
        self._since = 0
        self._large = max(capacity // _LARGE_SHARE, 1)
        self._last_ns = 0
        self._open = False
        self._on_death = self._died

    # ---- what the simulator tells

    def begin(self) -> None:
        """Start counting; modules made so far are in."""
        self._open = True
        self._look_at_modules()

    def close(self) -> None:
        """Stop counting: the rank's function has ended.

        What it still held when time last passed counts to the end: how soon its last variables die is no fact about it.
        """
        self._enter_backward(_NO_BACKWARD)
        self._look_at_modules()
        self._open = False
        self._blocks.clear()
        end_ns = max(self.clock.now_ns, self._last_ns)
        while self.events and self.events[-1] < 0 and self.times[-1] == end_ns:
            self.times.pop()
            self.total += self.sizes[~self.events.pop()]

    def viewed(self, args: Any, clock: RankClock, number: int) -> None:
        """Note that a tensor was viewed; nothing new if it is no parameter, in the same thread and backward pass."""
        self.clock = clock
        if number != self.backward:
            self._enter_backward(number)
        if args and type(args[0]) is _Parameter:
            self._mark(args[0], PARAMETERS)

    def operator(self, known: Operator, args: Any, kwargs: Any, out: Any, clock: RankClock, number: int) -> None:
        """Note what an operator used and made.

        Args:
            known: The operator, which does more than to view.
            args: Its arguments.
            kwargs: Its keyword arguments.
            out: What it returned.
            clock: That of the thread that ran it.
            number: The backward pass of that thread, -1 for none.

        Raises:
            OutOfVirtualMemory: If that is more than the device holds; what does not fit is not counted.
        """
        self.clock = clock
        if number != self.backward:
            self._enter_backward(number)
        blocks, categories = self._blocks, self.categories
        for arg in args:
            kind = type(arg)
            if kind is _Tensor:  # what _use does, without the call
                try:
                    block = blocks.get(id(arg.untyped_storage()))
                except NotImplementedError:
                    continue
                if block is None:
                    self._made(arg, known, GIVEN)
                elif categories[block.index] == COMMUNICATION and arg.requires_grad:
                    categories[block.index] = ACTIVATIONS
            elif kind is list or kind is tuple:
                for one in arg:
                    if isinstance(one, _Tensor):
                        self._use(one, known)
            elif isinstance(arg, _Tensor):
                self._use(arg, known)
        if kwargs:
            for tensor in tensors_in(kwargs.values()):
                self._use(tensor, known)
                self._check_size(tensor, known)
        if known.on_memory == USES:
            if args and known.resizes:
                self._check_size(args[0], known)
            return
        recomputed = number != _NO_BACKWARD and torch.is_grad_enabled()
        category = ACTIVATIONS if recomputed else OTHER
        if isinstance(out, _Tensor):
            self._made(out, known, category)
        else:
            for tensor in tensors_in(out):
                self._made(tensor, known, category)
        garbage = self._garbage
        garbage.until -= 1
        if garbage.until <= 0:
            garbage.collect()

    def communicated(self, tensors: Sequence[torch.Tensor], *, collective: bool) -> None:
        """Note tensors given to a communication call."""
        if not self._open:
            return
        number = backward_number()
        if number != self.backward:
            self._enter_backward(number)
        for tensor in tensors:
            for storage in storages_of(tensor):
                block = self._blocks.get(id(storage))
                if block is None:
                    continue
                category = self.categories[block.index]
                if collective:
                    is_buffer = category in (OTHER, ACTIVATIONS) and block.index in self._filled
                else:
                    is_buffer = category == OTHER
                if is_buffer:
                    self.categories[block.index] = COMMUNICATION

    def module(self, module: torch.nn.Module) -> None:
        """Remember a module for its parameters, their gradients and its buffers."""
        self._modules[id(module)] = weakref.ref(module)

    def mark_parameter(self, tensor: torch.Tensor) -> None:
        """Note a parameter and its gradient."""
        self._mark(tensor, PARAMETERS)
        if tensor.grad is not None:
            self._mark(tensor.grad, GRADIENTS)

    def mark_buffer(self, tensor: torch.Tensor) -> None:
        """Note a buffer of a module."""
        self._mark(tensor, BUFFERS)

    def mark_optimizer_state(self, value: Any) -> None:
        """Note the tensors in an optimizer's state."""
        for tensor in tensors_in([value]):
            self._mark(tensor, OPTIMIZER)

    def resizes(self, storage: Any, num_bytes: int) -> None:
        """Note that a storage is about to have another size; raises if that is too much."""
        block = self._blocks.get(id(storage))
        if not self._open or (block is None and (not num_bytes or not self._counts(storage))):
            return
        category = OTHER if block is None else self.categories[block.index]
        before = 0 if block is None else self.sizes[block.index]
        if before == num_bytes:
            return
        place = None
        if self.allocator is not None and num_bytes:
            place = room(self.allocator, num_bytes)
        if (place is None and self.allocator is not None and num_bytes) or (
            self.allocator is None and self.total - before + num_bytes > self.capacity
        ):
            raise self._full((num_bytes,), "uint8", "resize_", num_bytes)
        if block is not None:
            self._died(block)
        self._add(storage, num_bytes, category, "resize_", None, place)

    # ---- storages come, change and go

    def _counts(self, storage: Any) -> bool:
        return self._holds is None or self._holds(storage)

    def _use(self, tensor: torch.Tensor, known: Operator) -> None:
        try:
            block = self._blocks.get(id(tensor.untyped_storage()))
        except NotImplementedError:  # sparse: its parts are not known before they are used alone
            return
        if block is None:
            self._made(tensor, known, GIVEN)
            if type(tensor) is _Parameter:
                self._mark(tensor, PARAMETERS)
            return
        index = block.index
        category = self.categories[index]
        if category == COMMUNICATION:
            if tensor.requires_grad:
                self.categories[index] = ACTIVATIONS
        elif category != PARAMETERS and type(tensor) is _Parameter:
            self.categories[index] = PARAMETERS

    def _made(self, tensor: torch.Tensor, known: Operator, category: int) -> None:
        try:
            storages: Sequence[Any] = (tensor.untyped_storage(),)
        except NotImplementedError:
            storages = storages_of(tensor)
        for storage in storages:
            if id(storage) in self._blocks or (self._holds is not None and not self._holds(storage)):
                continue
            num_bytes = storage.nbytes()
            if not num_bytes:
                continue
            fits, place = self._fits(num_bytes)
            if not fits:
                self._garbage.collect_all()
                fits, place = self._fits(num_bytes)
                if not fits:
                    raise self._full(tuple(tensor.shape), dtype_of(tensor), known.name, num_bytes)
            index = self._add(storage, num_bytes, category, known.name, tensor, place)
            if known.fills and category == OTHER:
                self._filled.add(index)

    def _fits(self, num_bytes: int) -> tuple[bool, Block | None]:
        """Return whether there is room, and where, if an allocator says so."""
        if self.allocator is None:
            return self.total + num_bytes <= self.capacity, None
        place = room(self.allocator, num_bytes)
        return place is not None, place

    def used_by(self, tensor: torch.Tensor, stream: Any) -> None:
        """Note that another stream uses a tensor: its room is kept until that has done with it."""
        for storage in storages_of(tensor):
            block = self._blocks.get(id(storage))
            place = None if block is None else block.place
            if place is not None and stream is not place.pool[0] and stream not in place.uses:
                place.uses.append(stream)

    def _add(
        self, storage: Any, num_bytes: int, category: int, name: str, tensor: torch.Tensor | None,
        place: Block | None = None,
    ) -> int:  # fmt: skip
        block = StorageBlock(storage, self._on_death)
        if place is None and self.allocator is not None and num_bytes:
            place = room(self.allocator, num_bytes)  # it is there already, so it fits
        block.place = place
        block.index, block.key = index, key = len(self.sizes), id(storage)
        self._blocks[key] = block
        self.sizes.append(num_bytes)
        self.categories.append(category)
        if num_bytes:
            now_ns = self.clock.now_ns
            if now_ns < self._last_ns:  # threads of one rank may stand at different times
                now_ns = self._last_ns
            self._last_ns = now_ns
            self.events.append(index)
            self.times.append(now_ns)
            self.total += num_bytes
            if self.total > self.recent_peak:
                self.recent_peak = self.total
            if self.total > self.peak:
                self.peak, self.peak_ns, self.peak_operator = self.total, now_ns, name
            if num_bytes >= self._large:
                shape, dtype = ((num_bytes,), "uint8") if tensor is None else (tuple(tensor.shape), dtype_of(tensor))
                source, _ = self._sources.find(sys._getframe(2))
                self._details[index] = (shape, dtype, name, source)
        return index

    def _died(self, block: StorageBlock) -> None:
        """Note that nobody refers to a storage any more, or that it gets another size; called as one dies."""
        self._blocks.pop(block.key, None)
        index = block.index
        size = self.sizes[index]
        if size and self._open:
            now_ns = self.clock.now_ns
            if now_ns < self._last_ns:
                now_ns = self._last_ns
            self._last_ns = now_ns
            self.events.append(~index)
            self.times.append(now_ns)
            self.total -= size
            if block.place is not None and self.allocator is not None:
                self.allocator.give_back(block.place)
            if size >= self._large:
                self._details.pop(index, None)

    def _check_size(self, tensor: torch.Tensor, known: Operator) -> None:
        """Note that an operator gave a tensor's storage another size, as out= and resize_ do."""
        for storage in storages_of(tensor):
            block = self._blocks.get(id(storage))
            if block is None:
                self._made(tensor, known, OTHER)
            elif self.sizes[block.index] != storage.nbytes():
                self.resizes(storage, storage.nbytes())

    # ---- what they are for

    def _mark(self, tensor: torch.Tensor, category: int) -> None:
        for storage in storages_of(tensor):
            block = self._blocks.get(id(storage))
            if block is None:
                if self._open and storage.nbytes() and self._counts(storage):
                    self._add(storage, storage.nbytes(), category, "", tensor)
            elif (before := self.categories[block.index]) < category or before == GIVEN:
                self.categories[block.index] = category

    def _enter_backward(self, number: int) -> None:
        """Another backward pass runs from now on, or none."""
        before, self.backward = self.backward, number
        if before != _NO_BACKWARD:
            self._look_at_modules()
        # What came since the last change stands at the end.
        becomes = ACTIVATIONS if before == _NO_BACKWARD else GRADIENTS
        for block in reversed(self._blocks.values()):
            if block.index < self._since:
                break
            if self.categories[block.index] == OTHER:
                self.categories[block.index] = becomes
        self._since = len(self.sizes)
        if number != _NO_BACKWARD:
            # Gradients may be gone with their model before another operator runs.
            before_backward_returns(self._look_at_modules)

    def _look_at_modules(self) -> None:
        for key, reference in list(self._modules.items()):
            module = reference()
            if module is None:
                del self._modules[key]
                continue
            for parameter in own_parameters(module).values():
                if parameter is not None:
                    self.mark_parameter(parameter)
            for buffer in own_buffers(module).values():
                if buffer is not None:
                    self._mark(buffer, BUFFERS)

    # ---- when it is full

    def _full(self, shape: tuple[int, ...], dtype: str, operator: str, num_bytes: int) -> OutOfVirtualMemory:
        number = backward_number()
        self._enter_backward(number)
        self._look_at_modules()
        held = held_alike(self._blocks.values(), self.sizes, self.categories, self._details)
        source, _ = self._sources.find(sys._getframe(2))
        asked = Asked(num_bytes, shape, dtype, operator, source)
        total = self.total if self.allocator is None else self.allocator.reserved.now
        return out_of_memory(self.rank, self._device, self.capacity, total, asked, held, total - self.total)
