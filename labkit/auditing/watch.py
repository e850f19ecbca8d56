"""The watch over one run: what ranks do is told to it, and becomes what rules look at."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch

from labkit.auditing.bits import digest, kept, nonzero, rows, tensors_of, unseen
from labkit.auditing.collectives_seen import called
from labkit.auditing.data_seen import epoch_begins, fetched
from labkit.auditing.draws_seen import drawn, is_drawing, loaded_with
from labkit.auditing.evaluations_seen import evaluates
from labkit.auditing.facts import Backward, Clip, Input, Mask, Read
from labkit.auditing.gradient_numbers import LOOKED_AT, address_of, gradient_number, square_sum
from labkit.auditing.meeting import Snapshot, met
from labkit.auditing.messages_seen import asks, hears, posts
from labkit.auditing.modes import Divided
from labkit.auditing.probes import Probes
from labkit.auditing.rank_watch import Enough, RankWatch, fills_state, hook_on, is_own, line
from labkit.auditing.scalars_seen import cut_off, made, read, shares
from labkit.auditing.seen import Seen
from labkit.auditing.setups_seen import gathered
from labkit.auditing.snapshots import model_snapshot, step_snapshot
from labkit.auditing.what_if import Changed
from labkit.simulator.messages import Posted
from labkit.simulator.operators import Operator
from labkit.simulator.record import Row
from labkit.simulator.rounds import Group, Part
from labkit.simulator.state import VirtualRank, current_rank
from labkit.torch_port.backward import in_backward
from labkit.torch_port.loss_roots import loss_root
from labkit.torch_port.operators import READS_ONE

_MOST_ROWS = 1 << 12
_TARGETS = "nll_loss_forward"
"""The operator that is given a model's outputs and what they should be."""


class Watch:
    """Sees a run: the simulator's observer, and what torch's hooks tell (labkit.auditing.hooks)."""

    def __init__(self, world_size: int, steps: int | None = None) -> None:
        """Begin to watch.

        Args:
            world_size: Number of ranks.
            steps: After how many training steps each rank ends; None for when it ends by itself.
        """
        self.seen = Seen(world_size)
        self.probes: Probes | None = None
        self.what_if: Changed | None = None
        self.stopped: set[int] = set()
        self._ranks = [RankWatch(rank) for rank in range(world_size)]
        self._limit = steps
        self._snapshots: dict[tuple[int, int], dict[int, Snapshot]] = {}
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
        mine.exchanged.operator(rank, known, args, kwargs, mine.step, in_backward=in_backward())
        draws = known.draws and is_drawing(known, args, kwargs)
        if draws and mine.step and (kwargs or {}).get("generator") is None:
            mine.drew_in_steps |= any(
                one.dim() for one in tensors_of(out)
            )  # what a loader's epoch begins with has none
        if known.reads and mine.step and rank.process.device is not None and not rank.process.stepping:
            self._read(mine, known, args, rank)
        if known.name in LOOKED_AT and mine.backwards and not rank.process.stepping:
            gradient_number(self.seen, mine, known.name, args, out, sys._getframe(1))
        if draws and mine.depth and self.probes is not None:
            self.probes.draws = True
        if mine.shared:
            shares(mine, args, out)
        if draws:
            drawn(self.seen, mine, known.name, out, sys._getframe(1))
        if known.name == READS_ONE and not in_backward() and not rank.process.stepping:
            read(self.seen, mine, args, sys._getframe(1))
        if self.probes is not None and known.name == _TARGETS and not in_backward() and torch.is_grad_enabled():
            self.probes.add(mine, "target", "", args[1], line(sys._getframe(1)))
        if not in_backward():
            if not known.views and not rank.process.stepping:
                mine.work[line(sys._getframe(1))] += sum(one.numel() for one in tensors_of([args, out]))
            if mine.cut:
                cut_off(self.seen, mine, known.name, args, out, sys._getframe(1))
            made(mine, known.name, args, out)
        if type(out) is torch.Tensor and not out.dim() and out.is_floating_point() and not in_backward():
            mine.scalars[address_of(out)] = line(sys._getframe(1))

    def collective(self, rank: VirtualRank, group: Group, part: Part, op: str) -> None:
        """Note a collective."""
        mine, first = self._ranks[rank.rank], next(iter(part.inputs or part.outputs), None)
        self._groups[tuple(sorted(group.ranks))] = None
        call = called(self.seen, mine, group, part, op, sys._getframe(1))
        if self.what_if is not None:
            self.what_if.called(rank, call, part.inputs)
        gives = call.kind != "broadcast" or not part.outputs  # what others than the root bring is no value
        if self.probes is not None and self.probes.keeps_sent and gives and not call.in_backward:
            self.probes.add(mine, "sent", f"{call.kind} of {len(group.ranks)} ranks", part.inputs, call.source)
        if op == "SUM" and call.numel == 1 and mine.backwards and not call.in_backward and first is not None:
            square_sum(self.seen, mine, call, first)
        if call.holds == "parameter" and op == "SUM" and len(call.ranks) > 1:
            mine.passes.reduced = call.ranks, call.source
        if not part.row.blocking:
            mine.flights.add(part, call.source)

    def completed(self, rank: VirtualRank, part: Part) -> None:
        """Let go of the buffers of a collective."""
        mine = self._ranks[rank.rank]
        mine.flights.remove(part)
        if self.probes is not None and not self.probes.keeps_sent:
            with unseen():
                mine.shared |= {address_of(one) for one in part.outputs} - {0}
        if not part.row.blocking:
            self.seen.done[id(part.row)] = mine.num_operators
            self.seen.waited_at[id(part.row)] = line(sys._getframe(1))

    def touched(self, rank: VirtualRank, kind: str, row: Row, source: str) -> None:
        """Note a message's buffer that was touched too early."""
        kind = "used_before_wait" if kind == "read_before_wait" else kind
        self.seen.problems.append((rank.rank, self._ranks[rank.rank].step, kind, row.kind, row.source, source))

    def message(self, rank: VirtualRank, posted: Posted) -> None:
        """Note who sends to whom, and whether whoever sends is answered before another is listened to."""
        posts(self.seen, self._ranks[rank.rank], self.probes, posted)

    def asked(self, rank: VirtualRank, row: Row, number: int, request: list[Any]) -> None:
        """Note a remote call."""
        asks(self.seen, self._ranks[rank.rank], self.probes, row, number, request)

    def answered(self, rank: VirtualRank, row: Row, number: int, value: Any) -> None:
        """Note what a remote call brings."""
        hears(self._ranks[rank.rank], self.probes, row, number, value)

    def drew(self, rank: VirtualRank, name: str, out: Any) -> None:
        """Note what numpy and random give while a loader makes a sample."""
        loaded_with(self.seen, self._ranks[rank.rank], name, out, sys._getframe(1))

    def _read(self, mine: RankWatch, known: Operator, args: Any, rank: VirtualRank) -> None:
        """Note a value that the program waits for its device to learn."""
        accelerator = rank.process.accelerator
        if known.name == READS_ONE and accelerator is not None and accelerator.is_on(args[0]):
            self.seen.reads.append(Read(mine.rank, mine.step, in_backward(), line(sys._getframe(2))))

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
                self.seen.wide_parameters |= one.dtype in (torch.float32, torch.float64)
                with unseen():
                    hook_on(one, mine.passes.adding(one, mine.ready))

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
        if self.probes is not None and alone and len(losses) == 1 and losses[0].numel() == 1:
            self.probes.add(mine, "loss", "", losses[0], made or line(frame))
        mine.exchanged.backward()
        self.seen.modes.extend(mine.passes.backward(mine.rank, mine.step))
        mine.backwards.append(Backward(line(frame), made, root, not alone))
        if self.what_if is not None:
            self.what_if.passes[mine.rank] = len(mine.backwards)
        mine.scalars.clear()
        mine.cut.clear()
        mine.num_ready = 0

    def forward_begins(self, module: torch.nn.Module, args: Any) -> None:
        """Note a module's forward; at the outermost, what it is called with."""
        mine = self.here()
        if mine is None:
            return
        if not mine.depth and not in_backward():
            if torch.is_grad_enabled():
                mine.passes.called(module, line(sys._getframe(1)))
            if torch.is_grad_enabled() and module.training:
                self._enough(mine)
                self._input(mine, module, args, sys._getframe(1))
            elif not (module.training and torch.is_grad_enabled()):
                evaluates(self.seen, mine, module, line(sys._getframe(1)))
        if getattr(module, "require_backward_grad_sync", None) is not None and torch.is_grad_enabled():
            mine.unsynced = "" if module.require_backward_grad_sync else line(sys._getframe(1))
        if self.probes is not None and not in_backward() and torch.is_grad_enabled() and module.training:
            self.probes.module(mine, module, "input", args, sys._getframe(1))
        mine.depth += 1
        mine.called.add(id(module))

    def _input(self, mine: RankWatch, module: torch.nn.Module, args: Any, frame: FrameType) -> None:
        """Note what a model is called with."""
        tensors = tensors_of(args)
        if not tensors:
            return
        with unseen():
            every = b"".join(digest(one) for one in tensors)
            count = len(tensors[0]) if tensors[0].dim() else 0
            each = rows(tensors, count) if 0 < count <= _MOST_ROWS else ()
        if self.probes is not None:
            with unseen():
                state = torch.get_rng_state()
            self.probes.add(mine, "random", "", state, line(frame))
        numel, source = sum(one.numel() for one in tensors), mine.unwrapped or line(frame)
        self.seen.inputs.append(Input(mine.rank, mine.step, every, numel, source, mine.names.is_wrapped(module), each))
        mine.num_forwards += 1

    def forward_ends(self, module: torch.nn.Module, out: Any) -> None:
        """Note that a module's forward came to its end."""
        mine = self.here()
        if mine is not None and mine.depth:
            mine.depth -= 1
            if self.probes is not None and not in_backward() and torch.is_grad_enabled() and module.training:
                self.probes.module(mine, module, "output", out, sys._getframe(1))

    def applied(self, name: str, out: Any, frame: FrameType) -> None:
        """Keep what an autograd.Function of the program's gives, where values are kept."""
        if self.probes is not None and (mine := self.here()) is not None and is_own(frame) and not in_backward():
            self.probes.add(mine, "function", name, out, line(frame))

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Keep what a rank brings to a step of an optimizer."""
        mine = self.here()
        if mine is None or fills_state(sys._getframe(1)):
            return
        self._enough(mine)
        if self.what_if is not None and (rank := current_rank()) is not None:
            self.what_if.steps(rank)
        self.seen.means.extend(mine.passes.means(mine.rank, mine.step, mine.hooked.values()))
        if mine.passes.divided:
            self.seen.divided.append(Divided(mine.rank, mine.step, dict(mine.passes.divided), mine.backwards[0].source))
        place = mine.optimizers.setdefault(id(optimizer), len(mine.optimizers))
        mine.kept_alive.append(optimizer)
        snapshot = step_snapshot(mine, optimizer, line(sys._getframe(1)))
        for group in optimizer.param_groups:
            self.added(group["params"])
        if self.probes is not None:
            self.probes.step(mine, snapshot, optimizer)
        self._bring(mine, place, mine.steps_of[place], snapshot)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Count a step."""
        mine = self.here()
        if mine is None or fills_state(sys._getframe(1)):
            return
        place = mine.optimizers[id(optimizer)]
        mine.steps_of[place] += 1
        mine.step = max(mine.steps_of.values())
        mine.backwards = []
        mine.passes.stepped(one for group in optimizer.param_groups for one in group["params"])
        self.seen.num_steps[mine.rank] = mine.step

    def ended(self) -> None:
        """Keep what a rank's parameters are in the end."""
        mine = self.here()
        if mine is not None and mine.heard is not None:
            self.seen.any_source[mine.heard.row.source] = False
        if mine is not None and mine.step:
            self.seen.means.extend(mine.passes.means(mine.rank, mine.step, mine.hooked.values()))
            self._bring(mine, -1, 0, model_snapshot(mine, ""))

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
                scale, found = mine.scale if mine.passes.scaled else 1.0, (float(local), float(most))
                sharded = hasattr(norm, "placements")
                self.seen.clips.append(Clip(mine.rank, mine.step, *found, sharded, line(frame), scale))

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
            mine.scale, mine.passes.scaled = scale, True

    def loads(self, loader: Any, fetcher: Any, frame: FrameType) -> None:
        """Note a loader that begins an epoch."""
        if (mine := self.here()) is not None:
            epoch_begins(self.seen, mine, loader, fetcher, frame)

    def fetches(self, begins: bool) -> None:
        """Note that a loader begins or ends to make a batch."""
        if (mine := self.here()) is not None:
            mine.loading += 1 if begins else -1

    def fetched(self, fetcher: Any, indices: Any, batch: Any, frame: FrameType) -> None:
        """Note samples that a loader hands out."""
        if (mine := self.here()) is not None:
            fetched(self.seen, mine, fetcher, indices, batch, frame)

    def gathers(self, params: list[Any], modules: tuple[Any, ...], frame: FrameType) -> None:
        """Note parameters that torch will gather in one call."""
        if (mine := self.here()) is not None:
            gathered(self.seen, mine, params, modules, frame)

    # ---- steps

    def _enough(self, mine: RankWatch) -> None:
        if self._limit is not None and mine.step >= self._limit:
            self.stopped.add(mine.rank)
            raise Enough

    def _bring(self, mine: RankWatch, place: int, number: int, snapshot: Snapshot) -> None:
        snapshots = self._snapshots.setdefault((place, number), {})
        snapshots[mine.rank] = snapshot
        if len(snapshots) == self.seen.world_size:
            self._meet(place, number)

    def _meet(self, place: int, number: int) -> None:
        step = met(place, number, self._snapshots.pop((place, number)), tuple(self._groups))
        (self.seen.ends if place == -1 else self.seen.steps).append(step)

    def conclude(self) -> Seen:
        """Return all that was seen, steps included that not all ranks took."""
        for place, number in sorted(self._snapshots):
            self._meet(place, number)
        self.seen.num_calls = {one.rank: one.num_calls + one.num_messages for one in self._ranks}
        self.seen.serves = any(one.exchanged.serves for one in self._ranks)
        self.seen.mishaps = [
            mishap for one in self._ranks for mishap in (*one.exchanged.mishaps, *one.exchanged.never_found())
        ]
        self.seen.work = {one.rank: one.work for one in self._ranks}
        return self.seen
