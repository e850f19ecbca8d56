"""What stages of a pipeline send one another, and how: in batches, or one by one, by a host that polls."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from labkit.planned_steps.programs import Program
from labkit.planner.layout import Layout
from labkit.planner.model import Model

_SHAPE = 8
_FIRST, _SECOND = 7, 6
"""Numbers of a polling program's two messages before a tensor: dimensions, type and so on; shape and strides."""


def neighbours(model: Model, layout: Layout, mesh: DeviceMesh, program: Program) -> Neighbours:
    """Return how a rank's stage talks with those beside it in a program."""
    if program.polls_s:
        return PollingNeighbours(model, layout, mesh, program.polls_s)
    return Neighbours(model, layout, mesh, shapes_first=program.shapes_first)


class Neighbours:
    """Sends activations to the next stage and gradients to the one before, with their shapes if hosts ask for them."""

    def __init__(self, model: Model, layout: Layout, mesh: DeviceMesh, *, shapes_first: bool) -> None:
        self.shapes_first = shapes_first
        self.group, self.stage = mesh.get_group("pipeline"), mesh.get_local_rank("pipeline")
        self.before = self.stage - 1 if self.stage else None
        self.after = self.stage + 1 if self.stage < layout.pipeline - 1 else None
        parts = layout.stages(model)
        before, after = parts[self.stage - 1] if self.stage else None, parts[self.stage]
        activation = (model.sequence // layout.tensor, layout.microbatch, model.hidden), torch.bfloat16
        loss = (), torch.float32
        self.of_input: Any = loss if before is not None and before.last else activation
        self.of_output: Any = loss if after.last else activation

    def exchange(
        self, *, forward: Tensor | None = None, backward: Tensor | None = None,
        want_input: bool = False, want_gradient: bool = False,
    ) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
        """Send what is given, in one batch with what is wanted; return input and gradient."""
        self.calls: list[dist.P2POp] = []
        self.shapes: list[Tensor] = []
        if forward is not None and self.after is not None:
            self._send(forward.detach(), self.after)
        if backward is not None and self.before is not None:
            self._send(backward, self.before)
        given = self._receive(self.of_input, self.before) if want_input and self.before is not None else None
        gradient = self._receive(self.of_output, self.after) if want_gradient and self.after is not None else None
        if self.calls:
            for work in dist.batch_isend_irecv(self.calls):
                work.wait()
        for shape in self.shapes:
            shape.tolist()
        return given, gradient

    def _send(self, what: Tensor, peer: int) -> None:
        if self.shapes_first:
            shape = torch.tensor([what.dim(), *what.shape, *[0] * (_SHAPE - what.dim() - 1)], device="cuda")
            self.calls.append(dist.P2POp(dist.isend, shape, group=self.group, group_peer=peer))
        self.calls.append(dist.P2POp(dist.isend, what, group=self.group, group_peer=peer))

    def _receive(self, of: Any, peer: int) -> Tensor:
        if self.shapes_first:
            self.shapes.append(torch.empty(_SHAPE, dtype=torch.long, device="cuda"))
            self.calls.append(dist.P2POp(dist.irecv, self.shapes[-1], group=self.group, group_peer=peer))
        found = torch.empty(of[0], device="cuda", dtype=of[1])
        self.calls.append(dist.P2POp(dist.irecv, found, group=self.group, group_peer=peer))
        return found


class PollingNeighbours(Neighbours):
    """Sends and receives one message after the other, and sleeps between looks at whether a shape has passed.

    An activation goes or comes first, then a gradient comes or goes, then the activation's mask of tokens.
    """

    def __init__(self, model: Model, layout: Layout, mesh: DeviceMesh, polls_s: float) -> None:
        super().__init__(model, layout, mesh, shapes_first=False)
        self.polls_s = polls_s
        self.mask = torch.ones(layout.microbatch, model.sequence, dtype=torch.bool, device="cuda")

    def exchange(
        self, *, forward: Tensor | None = None, backward: Tensor | None = None,
        want_input: bool = False, want_gradient: bool = False,
    ) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
        """Send what is given and receive what is wanted, each when the one before is on its way."""
        if forward is not None and self.after is not None:
            self._sends(forward.detach(), self.after)
        given = self._receives(self.of_input, self.before) if want_input and self.before is not None else None
        if backward is not None and self.before is not None:
            self._sends(backward, self.before)
        gradient = self._receives(self.of_output, self.after) if want_gradient and self.after is not None else None
        if forward is not None and self.after is not None:
            self._sends(self.mask, self.after)
        if given is not None and self.before is not None:
            self._receives((self.mask.shape, torch.bool), self.before)
        return given, gradient

    def _sends(self, what: Tensor, peer: int) -> None:
        for count in (_FIRST, _SECOND):
            self._polls(dist.isend(torch.tensor([0] * count, device="cuda"), group=self.group, group_dst=peer))
        sent: Any = dist.isend(what, group=self.group, group_dst=peer)
        sent.wait()

    def _receives(self, of: Any, peer: int) -> Tensor:
        for count in (_FIRST, _SECOND):
            numbers = torch.empty(count, dtype=torch.long, device="cuda")
            self._polls(dist.irecv(numbers, group=self.group, group_src=peer))
            numbers.tolist()
        found = torch.empty(of[0], device="cuda", dtype=of[1])
        received: Any = dist.irecv(found, group=self.group, group_src=peer)
        received.wait()
        return found

    def _polls(self, work: Any) -> None:
        while not work.is_completed():
            time.sleep(self.polls_s)
