"""The watch over one run: what ranks do is told to it, and becomes what rules look at."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch

from labkit.auditing.bits import digest, kept, nonzero, rows, same_bits, tensors_of, unseen
from labkit.auditing.gradient_numbers import LOOKED_AT, NORMS, address_of, number_of, of_gradients, squares
from labkit.auditing.meeting import Shot, met
from labkit.auditing.rank_watch import Enough, RankWatch, adding, hook_on, length_of, line
from labkit.auditing.seen import Backward, Batch, Call, Clip, Epoch, Input, Mask, Number, Read, Seen, SquareSum
from labkit.simulator.messages import Posted
from labkit.simulator.operators import Operator
from labkit.simulator.record import Row
from labkit.simulator.rounds import Group, Part
from labkit.simulator.state import VirtualRank, current_rank
from labkit.torch_port.backward import in_backward
from labkit.torch_port.loss_roots import loss_root
from labkit.torch_port.operators import READS_ONE


class Watch:
    """Sees a run: the simulator's observer, and what torch's hooks tell (labkit.auditing.hooks)."""

    def __init__(self, world_size: int, steps: int | None = None) -> None:
        """Begin to watch.

        Args:
            world_size: Number of ranks.
            steps: After how many training steps each rank ends; None for when it ends by itself.
        """
        self.seen = Seen(world_size)
        self.stopped: set[int] = set()
        self._ranks = [RankWatch(rank) for rank in range(world_size)]
        self._limit = steps
        self._shots: dict[tuple[int, int], dict[int, Shot]] = {}
        self._groups: dict[tuple[int, ...], None] = {}

    def here(self) -> RankWatch | None:
        """Return what is known of the rank whose thread calls, None outside one."""
        rank = current_rank()
        return None if rank is None else self._ranks[rank.rank]

    # ---- what the simulator tells

    def operator(self, rank: VirtualRank, known: Operator, args: Any, kwargs: Any, out: Any) -> None:
        """Look whether an operator touches what is in flight."""
        mine = self._ranks[rank.rank]
        if mine.flights.any and not known.views and known.func.namespace == "aten":
            problem = mine.flights.touched(known, args, kwargs, lambda: line(sys._getframe(2)))
            if problem is not None:
                self.seen.problems.append((rank.rank, mine.step, *problem))
        mine.num_operators += not known.views
        if known.draws and mine.step and known.func.namespace == "aten" and (kwargs or {}).get("generator") is None:
            mine.drew_in_steps |= any(
                one.dim() for one in tensors_of(out)
            )  # what a loader's epoch begins with has none
        if known.reads and mine.step and rank.process.device is not None and not rank.process.stepping:
            self._read(mine, known, args, rank)
        if known.name in LOOKED_AT and mine.backwards and not rank.process.stepping:
            self._number(mine, known, args, out)
        if type(out) is torch.Tensor and not out.dim() and out.is_floating_point() and not in_backward():
            mine.scalars[address_of(out)] = line(sys._getframe(1))

    def collective(self, rank: VirtualRank, group: Group, part: Part, op: str) -> None:
        """Note a collective."""
        mine, tensors = self._ranks[rank.rank], part.inputs or part.outputs
        self._groups[tuple(sorted(group.ranks))] = None
        first = tensors[0] if tensors else None
        call = Call(
            mine.rank, mine.step, tuple(group.ranks), part.row.kind, op,
            "" if first is None else str(first.dtype).removeprefix("torch."), sum(one.numel() for one in tensors),
            part.row.bytes, line(sys._getframe(2)), part.row.blocking, self._holding(mine, tensors), mine.depth > 0,
            in_backward(), not mine.backwards,
            torch.is_grad_enabled() and any(one.requires_grad for one in part.inputs), mine.num_calls,
            len(mine.backwards), mine.num_operators, part.row,
        )  # fmt: skip
        mine.num_calls += 1
        self.seen.calls.append(call)
        if op == "SUM" and call.numel == 1 and mine.backwards and not call.in_backward and first is not None:
            self._square_sum(mine, call, first)
        if not part.row.blocking:
            mine.flights.add(part, call.source)

    def completed(self, rank: VirtualRank, part: Part) -> None:
        """Let go of the buffers of a collective."""
        mine = self._ranks[rank.rank]
        mine.flights.remove(part)
        if not part.row.blocking:
            self.seen.done[id(part.row)] = mine.num_operators

    def touched(self, rank: VirtualRank, kind: str, row: Row, source: str) -> None:
        """Note a message's buffer that was touched too early."""
        kind = "used_before_wait" if kind == "read_before_wait" else kind
        self.seen.problems.append((rank.rank, self._ranks[rank.rank].step, kind, row.kind, row.source, source))

    def message(self, rank: VirtualRank, posted: Posted) -> None:
        """Note who sends to whom."""
        if posted.sends:
            self.seen.messages.add((rank.rank, posted.peer))

    def _read(self, mine: RankWatch, known: Operator, args: Any, rank: VirtualRank) -> None:
        """Note a value that the program waits for its device to learn."""
        accelerator = rank.process.accelerator
        if known.name == READS_ONE and accelerator is not None and accelerator.is_on(args[0]):
            self.seen.reads.append(Read(mine.rank, mine.step, in_backward(), line(sys._getframe(2))))

    def _number(self, mine: RankWatch, known: Operator, args: Any, out: Any) -> None:
        with unseen():
            gradients = [one.grad for one in mine.hooked.values() if one.grad is not None]
            value = number_of(known.name, args, out) if of_gradients(args, gradients) else None
        if value is not None:
            kind, order = "norm" if known.name in NORMS else "factor", len(self.seen.numbers)
            source = line(sys._getframe(2))
            self.seen.numbers.append(Number(kind, mine.rank, mine.step, value, order, mine.num_calls, source))

    def _square_sum(self, mine: RankWatch, call: Call, first: torch.Tensor) -> None:
        named = {id(one): name for name, one in mine.names.parameters().items()}
        with unseen():
            value = kept(first)
            if value is None or not value.is_floating_point():
                return
            of_each = squares((named.get(key, f"parameter {key}"), one) for key, one in mine.hooked.items())
        self.seen.squares.append(SquareSum(mine.rank, mine.step, call.ranks, float(value), of_each, call.source))

    def _holding(self, mine: RankWatch, tensors: Sequence[torch.Tensor]) -> str:
        """Return what parameter or gradient a collective is given, "" where it is none."""
        given = {one.untyped_storage().data_ptr() for one in tensors if one.layout is torch.strided and not one.is_meta}
        if not given or not mine.hooked:
            return ""
        for parameter in mine.hooked.values():
            with unseen():
                if address_of(parameter) in given:
                    return "parameter"
                if parameter.grad is not None and address_of(parameter.grad) in given:
                    return "gradient"
        return ""

    # ---- what torch's hooks tell

    def made(self, thing: Any, frame: FrameType) -> None:
        """Note the line that made an optimizer, a loader or a sampler."""
        mine = self.here()
        if mine is not None:
            mine.made[id(thing)] = line(frame)
            mine.kept_alive.append(thing)

    def unwraps(self, frame: FrameType) -> None:
        """Note a program that asks a wrapper for the module inside."""
        mine, rank = self.here(), current_rank()
        if mine is None or rank is None:
            return
        if rank.simulation.sources.find(frame)[0].startswith(f"{frame.f_code.co_filename}:"):
            mine.unwrapped = line(frame)

    def added(self, parameters: Sequence[torch.Tensor]) -> None:
        """Note parameters that an optimizer was given: what comes to their gradients is added up from now on."""
        mine = self.here()
        if mine is None:
            return
        for one in parameters:
            if id(one) not in mine.hooked and one.requires_grad and one.is_leaf:
                mine.hooked[id(one)] = one  # kept, so that its id stays its own
                with unseen():
                    hook_on(one, adding(mine, one))

    def backward(self, tensors: Any, given: Any, frame: FrameType) -> None:
        """Note a backward pass that begins."""
        mine = self.here()
        if mine is None:
            return
        losses = [one for one in tensors_of(tensors) if one.requires_grad]
        alone = given is None or (isinstance(given, list | tuple) and all(one is None for one in given))
        root = loss_root(losses[0]) if alone and len(losses) == 1 else None
        with unseen():
            made = mine.scalars.get(address_of(losses[0]), "") if losses else ""
        mine.backwards.append(Backward(line(frame), made, root, not alone))
        mine.scalars.clear()

    def forward_begins(self, module: torch.nn.Module, args: Any) -> None:
        """Note a module's forward; at the outermost, what it is called with."""
        mine = self.here()
        if mine is None:
            return
        if not mine.depth and not in_backward() and torch.is_grad_enabled() and module.training:
            self._enough(mine)
            tensors = tensors_of(args)
            if tensors:
                with unseen():
                    every = b"".join(digest(one) for one in tensors)
                numel = sum(one.numel() for one in tensors)
                self.seen.inputs.append(
                    Input(
                        mine.rank,
                        mine.step,
                        every,
                        numel,
                        mine.unwrapped or line(sys._getframe(1)),
                        mine.names.is_wrapped(module),
                    )
                )
        if getattr(module, "require_backward_grad_sync", None) is not None and torch.is_grad_enabled():
            mine.unsynced = "" if module.require_backward_grad_sync else line(sys._getframe(1))
        mine.depth += 1
        mine.called.add(id(module))

    def forward_ends(self) -> None:
        """Note that a module's forward came to its end."""
        mine = self.here()
        if mine is not None and mine.depth:
            mine.depth -= 1

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Keep what a rank brings to a step of an optimizer."""
        mine = self.here()
        if mine is None:
            return
        self._enough(mine)
        place = mine.optimizers.setdefault(id(optimizer), len(mine.optimizers))
        mine.kept_alive.append(optimizer)
        named = {id(one): name for name, one in mine.names.parameters().items()}
        shot = self._shot(mine, line(sys._getframe(1)))
        shot.called, shot.norms = mine.names.parameters_of(mine.called), mine.names.of_norms()
        shot.unsynced = mine.unsynced
        shot.optimizer_made = mine.made.get(id(optimizer), "")
        with unseen():
            number = 0
            for group in optimizer.param_groups:
                for one in group["params"]:
                    name = named.get(id(one), f"parameter {number} of the optimizer")
                    shot.held.append(name)
                    shot.made[name] = mine.names.made.get(id(one), shot.optimizer_made)
                    if id(one) not in named:
                        shot.unknown.append(name)
                        if (values := kept(one)) is not None:
                            shot.parameters[name] = values
                    number += 1
                    if not one.requires_grad:
                        shot.frozen[name] = id(one) in mine.hooked
                    own = mine.own.pop(id(one), None)
                    before, after = mine.clipped.pop(id(one), (None, None))
                    copy = None if one.grad is None else kept(one.grad)
                    if one.grad is None:
                        shot.without.append(name)
                    elif own is not None and copy is not None:
                        last = before is not None and after is not None and same_bits(copy, after)
                        shot.gradients[name] = before if last and before is not None else copy
                        shot.own[name] = own if last or after is None else after
                        shot.passes[name] = mine.passes.get(id(one), 1)
        for group in optimizer.param_groups:
            self.added(group["params"])
        self._bring(mine, place, mine.steps_of[place], shot)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Count a step."""
        mine = self.here()
        if mine is None:
            return
        place = mine.optimizers[id(optimizer)]
        mine.steps_of[place] += 1
        mine.step = max(mine.steps_of.values())
        mine.backwards = []
        self.seen.num_steps[mine.rank] = mine.step

    def ended(self) -> None:
        """Keep what a rank's parameters are in the end."""
        mine = self.here()
        if mine is not None and mine.step:
            self._bring(mine, -1, 0, self._shot(mine, ""))

    def clips(self, parameters: Any) -> None:
        """Keep gradients before they are clipped."""
        mine = self.here()
        if mine is None:
            return
        with unseen():
            for one in [parameters] if isinstance(parameters, torch.Tensor) else parameters:
                if one.grad is not None and (copy := kept(one.grad)) is not None:
                    mine.clipped[id(one)] = copy, None

    def clipped(self, parameters: Any, norm: torch.Tensor, most: float, frame: FrameType) -> None:
        """Note the norm that a rank clipped by, and the gradients after it."""
        mine = self.here()
        if mine is None:
            return
        with unseen():
            for one in [parameters] if isinstance(parameters, torch.Tensor) else parameters:
                if id(one) in mine.clipped and one.grad is not None:
                    mine.clipped[id(one)] = mine.clipped[id(one)][0], kept(one.grad)
            local = kept(norm)
            if local is not None:
                sharded = hasattr(norm, "placements")
                self.seen.clips.append(Clip(mine.rank, mine.step, float(local), float(most), sharded, line(frame)))

    def dropped(self, given: torch.Tensor, out: torch.Tensor, frame: FrameType) -> None:
        """Note a dropout."""
        mine = self.here()
        if mine is None or given.is_meta or hasattr(given, "placements") or in_backward():
            return
        with unseen():
            mask = Mask(
                mine.rank, mine.step, mine.num_masks, digest(given), digest(out), nonzero(given), nonzero(out),
                out.numel(), line(frame),
            )  # fmt: skip
        mine.num_masks += 1
        self.seen.masks.append(mask)

    def scaled(self, scale: float) -> None:
        """Note what a gradient scaler multiplies losses with."""
        mine = self.here()
        if mine is not None:
            mine.scale = scale

    def loads(self, loader: Any, fetcher: Any, frame: FrameType) -> None:
        """Note a loader that begins an epoch."""
        mine = self.here()
        if mine is None:
            return
        mine.kept_alive += [loader, fetcher]
        place = mine.loaders.setdefault(id(loader), len(mine.loaders))
        number = mine.epochs[place]
        mine.epochs[place] += 1
        mine.iterating[id(fetcher)] = (place, number)
        sampler, samples = getattr(loader, "sampler", None), length_of(getattr(loader, "dataset", None))
        spreads = hasattr(sampler, "num_replicas") and hasattr(sampler, "seed") and length_of(sampler) <= 1_000_000
        self.seen.epochs.append(
            Epoch(
                mine.rank,
                mine.step,
                place,
                number,
                type(sampler).__name__,
                getattr(sampler, "epoch", None),
                bool(getattr(sampler, "shuffle", type(sampler).__name__ == "RandomSampler")),
                getattr(sampler, "seed", None) if spreads else None,
                getattr(sampler, "num_replicas", None),
                getattr(sampler, "rank", None),
                samples,
                length_of(sampler),
                () if not spreads or sampler is None else tuple(sampler),
                line(frame),
                mine.made.get(id(loader), ""),
                mine.made.get(id(sampler), ""),
            )
        )

    def fetched(self, fetcher: Any, indices: Any, batch: Any, frame: FrameType) -> None:
        """Note samples that a loader hands out."""
        mine = self.here()
        if mine is None or not isinstance(indices, list | tuple):
            return
        place, number = mine.iterating.get(id(fetcher), (-1, 0))
        with unseen():
            found = rows(batch, len(indices))
        self.seen.batches.append(Batch(mine.rank, mine.step, place, number, tuple(indices), found, line(frame)))

    # ---- steps

    def _enough(self, mine: RankWatch) -> None:
        if self._limit is not None and mine.step >= self._limit:
            self.stopped.add(mine.rank)
            raise Enough

    def _shot(self, mine: RankWatch, source: str) -> Shot:
        shot = Shot(source, mine.step, tuple(mine.backwards), mine.scale)
        with unseen():
            for name, one in mine.names.parameters().items():
                copy = kept(one)
                if copy is not None:
                    shot.parameters[name] = copy
                    if any(not place.is_replicate() for place in getattr(one, "placements", ())):
                        shot.sharded.add(name)
        return shot

    def _bring(self, mine: RankWatch, place: int, number: int, shot: Shot) -> None:
        shots = self._shots.setdefault((place, number), {})
        shots[mine.rank] = shot
        if len(shots) == self.seen.world_size:
            self._meet(place, number)

    def _meet(self, place: int, number: int) -> None:
        step = met(place, number, self._shots.pop((place, number)), tuple(self._groups))
        (self.seen.ends if place == -1 else self.seen.steps).append(step)

    def conclude(self) -> Seen:
        """Return all that was seen, steps included that not all ranks took."""
        for place, number in sorted(self._shots):
            self._meet(place, number)
        return self.seen
