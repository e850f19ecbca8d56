"""A gradient of which some elements are right: it was changed while its all_reduce was on its way."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from labkit.checks.case import Case, Values
from labkit.checks.exercise import Exercise, functions_for, judge
from labkit.checks.wire import Wire
from labkit.exercises.averaging.training import truth
from labkit.exercises.ddp.bucketed_ddp.exercise import EXERCISE as BUCKETED
from labkit.exercises.ddp.overlapped_ddp.exercise import EXERCISE as OVERLAPPED
from labkit.exercises.sharded_training.flat_shards.exercise import EXERCISE as FLAT
from labkit.exercises.sharded_training.hybrid_shards.exercise import EXERCISE as HYBRID
from tests.checks.brought import brought
from tests.checks.lesson_cells import namespace


@pytest.fixture
def case() -> Case:
    return OVERLAPPED.visible[0]


def _came(case: Case, change: Any) -> tuple[Values, ...]:
    got = copy.deepcopy(truth(case).expected)
    steps: Any = got[0]["steps"]
    change(steps[0]["gradients"]["mix.weight"].view(-1))
    return tuple(got)


def test_a_gradient_divided_in_flight_is_named_and_its_wrong_place_shown(case: Case) -> None:
    got = _came(case, lambda gradient: gradient[40:].div_(3))
    verdict = judge(OVERLAPPED, case, got, Wire())
    assert verdict.mistake == "changed while it was on its way"
    assert "wait()" in verdict.hint
    assert verdict.expected != verdict.got
    assert "from element 37" in verdict.got


def test_a_gradient_that_is_wrong_throughout_is_no_such_case(case: Case) -> None:
    got = _came(case, lambda gradient: gradient.add_(1))
    assert judge(OVERLAPPED, case, got, Wire()).mistake != "changed while it was on its way"


DIVIDED_BEFORE_IT_CAME = """
class OverlappedDDP(OverlappedDDP):
    def on_gradient(self, parameter):
        self.handles.append(dist.all_reduce(parameter.grad, async_op=True))

    def finish_gradient_synchronization(self):
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad /= dist.get_world_size()
        super().finish_gradient_synchronization()
"""


@pytest.mark.in_turn
def test_a_virtual_rank_sees_that_a_tensor_was_divided_before_the_result_came(case: Case) -> None:
    functions = functions_for(OVERLAPPED, namespace(extra=DIVIDED_BEFORE_IT_CAME, number="04"))
    verdict = judge(OVERLAPPED, case, *brought(OVERLAPPED, functions, case))
    assert verdict.mistake == "touched before wait() returned"
    assert "3 times what it should be" in verdict.message


SENT_FROM_A_TENSOR_S_HOOK = """
class OverlappedDDP(nn.Module):
    def __init__(self, module):
        super().__init__()
        broadcast_module(module)
        self.module, self.handles = module, []
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_hook(self.on_gradient)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        for handle in self.handles:
            handle.wait()
        self.handles.clear()

    def on_gradient(self, gradient):
        mean = gradient / dist.get_world_size()
        self.handles.append(dist.all_reduce(mean, async_op=True))
        return mean
"""


@pytest.mark.in_turn
def test_a_virtual_rank_sees_that_autograd_took_what_a_hook_returned_too_early(case: Case) -> None:
    functions = functions_for(OVERLAPPED, namespace(extra=SENT_FROM_A_TENSOR_S_HOOK, number="04"))
    verdict = judge(OVERLAPPED, case, *brought(OVERLAPPED, functions, case))
    assert verdict.mistake == "autograd read it on its way"
    assert "register_post_accumulate_grad_hook" in verdict.hint


DIVIDED_ON_ITS_WAY = """
class BucketedDDP(BucketedDDP):
    def on_gradient(self, parameter):
        sent = len(self.in_flight)
        super().on_gradient(parameter)
        for flat, _ in self.in_flight[sent:]:
            flat /= dist.get_world_size()
"""
COPIED_BEFORE_IT_CAME = """
class BucketedDDP(BucketedDDP):
    def finish_gradient_synchronization(self):
        self.in_flight = [(flat.clone(), handle) for flat, handle in self.in_flight]
        super().finish_gradient_synchronization()
"""


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("source", "mistake"),
    [(DIVIDED_ON_ITS_WAY, "divided on its way"), (COPIED_BEFORE_IT_CAME, "copied back too early")],
)
def test_a_virtual_rank_tells_what_became_of_a_bucket_on_its_way(source: str, mistake: str) -> None:
    functions = functions_for(BUCKETED, namespace(extra=source, number="04"))
    case = BUCKETED.visible[0]
    assert judge(BUCKETED, case, *brought(BUCKETED, functions, case)).mistake == mistake


@pytest.mark.in_turn
@pytest.mark.parametrize("exercise", [FLAT, HYBRID], ids=lambda exercise: str(exercise.id))
def test_a_transfer_that_nobody_waits_for_is_told_although_its_values_came_in_time(exercise: Exercise) -> None:
    """On processes without load they nearly always do."""
    first = exercise.visible[0]
    got, wire = brought(exercise, functions_for(exercise, namespace(number="13")), first)
    assert judge(exercise, first, got, wire).passed
    unwaited = [replace(call, waited=None if "gather" in call.kind else call.waited) for call in wire.collectives]
    assert judge(exercise, first, got, replace(wire, collectives=tuple(unwaited))).mistake == "never waits"
