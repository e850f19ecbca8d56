"""How mistakes in a wrapper show: in the gradients that came, in the values after construction, on the wire."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from labkit.checks.case import Case, Failure, Got
from labkit.checks.declared import Mistake, Seen, either
from labkit.checks.tensor_values import at, close, elements_apart
from labkit.checks.wire import Wire
from labkit.exercises.averaging.gradient_marks import is_multiple, marks_of_gradients, times
from labkit.exercises.averaging.replay import models_of
from labkit.exercises.averaging.stretches import in_another_order, of_backward, partition, stretches, trained
from labkit.exercises.averaging.training import steps_of, truth, waits_in_backward
from labkit.plans.buckets import broken_rules

FROZEN = ("fixed.weight", "fixed.bias")
BUFFERS = ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
SPARE = ("spare.weight", "spare.bias")


def gradient_marks(case: Case, got: Got, step: int = 0) -> dict[str, set[str]]:
    """Return for each parameter that has a gradient what it is on the ranks (see values.marks_of_gradients)."""
    found: dict[str, set[str]] = {}
    for of_rank in marks_of_gradients(case, got, truth(case), step):
        for name, mark in of_rank.items():
            if name not in FROZEN:
                found.setdefault(name, set()).add(mark)
    return found


def wrong_names(case: Case, got: Got, step: int = 0) -> set[str]:
    """Return the parameters whose gradient is wrong on some rank after a step."""
    return {name for name, marks in gradient_marks(case, got, step).items() if marks != {"mean"}}


def all_are(*wanted: str) -> Seen:
    """Return a test: every trained parameter's gradient bears one of these marks ("own", "x 3") on every rank."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        used = {n: m for n, m in gradient_marks(case, got).items() if n not in SPARE}
        allowed = {mark.replace("N", str(case.world_size)) if mark.startswith("x") else mark for mark in wanted}
        return bool(used) and all(marks <= allowed for marks in used.values())

    return seen


def factor(of: Callable[[int], float]) -> Seen:
    """Return a test: every trained parameter's gradient is of(N) times the mean."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        wanted = times(of(case.world_size))
        used = {n: m for n, m in gradient_marks(case, got).items() if n not in SPARE}
        return bool(used) and all(marks == {wanted} for marks in used.values())

    return seen


def _some_are_sums(case: Case, got: Got) -> bool:
    """Return whether each trained parameter's gradient is the mean or N times it, and both occur."""
    used = [names for name, names in gradient_marks(case, got).items() if name not in SPARE]
    return {mark for names in used for mark in names} == {"mean", times(case.world_size)}


def constant_divisor(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the gradients are the sum divided by a small whole number other than N and 1."""
    return any(
        factor(lambda n, divisor=divisor: n / divisor)(case, got, wire)  # type: ignore[misc]
        for divisor in (2, 3, 4, 8)
        if divisor != case.world_size and case.world_size**2 != divisor
    )


def biases_left_out(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether exactly the parameters with fewer than two dimensions, or exactly those called bias, are wrong."""
    wrong = wrong_names(case, got) - set(SPARE)
    model = models_of(case)[0]
    used = {n: p for n, p in model.named_parameters() if p.requires_grad and n not in (*SPARE, *FROZEN)}
    called = {name for name in used if name.endswith("bias")}
    flat = {name for name, p in used.items() if p.dim() < 2}
    return wrong in (called, flat)


def tied_wrong(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether only the shared weight is wrong, all of it."""
    model = models_of(case)[0]
    shared = model.remix.weight is model.mix.weight
    return shared and wrong_names(case, got) == {"mix.weight"} and not partly_right(case, got, wire)


def begun_wrong(case: Case, got: Got) -> set[str]:
    """Return the names that are wrong on some rank after construction."""
    if not isinstance(got, tuple):
        return set()
    found: set[str] = set()
    for values, wanted in zip(got, truth(case).expected, strict=True):
        came, right = values.get("begun"), wanted["begun"]
        if isinstance(came, dict) and isinstance(right, dict):
            found |= {name for name in right if not close(came.get(name), right[name])}
    return found


def pieces(case: Case, wire: Wire, step: int = 0) -> list[tuple[str, int]]:
    """Return part and bytes of rank 0's all_reduces in the last backward pass of a step, or nothing."""
    parts = stretches(case, wire, 0)
    if parts is None:
        return []
    run = len(steps_of(case)[step]["x"]) - 1
    return [(part, call.bytes) for part, call in of_backward(parts, step, run) if call.kind == "all_reduce"]


def no_overlap(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether every all_reduce began after backward, or in the stretch of its last layer."""
    found = pieces(case, wire)
    return isinstance(got, tuple) and bool(found) and all(part == "finish" for part, _ in found)


def in_registration_order(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the pieces are buckets cut from the first parameter to the last."""
    sizes, sent = [size for _, size in trained(models_of(case)[0])], [size for _, size in pieces(case, wire)]
    return len(sent) > 1 and partition(sizes, sent) is None and partition(sizes[::-1], sent) is not None


def another_order(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the pieces are buckets of the plan, sent in another order than the plan's."""
    sizes, sent = [size for _, size in trained(models_of(case)[0])], [size for _, size in pieces(case, wire)]
    return isinstance(got, tuple) and partition(sizes, sent) is None and in_another_order(sizes, sent)


def beside_the_cap(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the pieces are buckets from the last parameter on, cut at another cap than the one given."""
    sizes, sent = [size for _, size in trained(models_of(case)[0])], [size for _, size in pieces(case, wire)]
    plan, cap = partition(sizes, sent), case.inputs[0].get("cap")
    if not isinstance(cap, float) or plan is None:
        return False
    return any(rule.kind in ("over_cap", "still_fits") for rule in broken_rules(plan, sizes, round(cap * 2**20)))


def one_for_each(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether each parameter was reduced by itself."""
    sizes = [size for _, size in trained(models_of(case)[0])]
    return sorted(size for _, size in pieces(case, wire)) == sorted(sizes) and len(sizes) > 1


def each_twice(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether each parameter was reduced by itself while backward ran, and twice."""
    sizes = [size for _, size in trained(models_of(case)[0])]
    started = sorted(size for part, size in pieces(case, wire) if part != "finish")
    return isinstance(got, tuple) and started == sorted(2 * sizes)


def parameters_came(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether all gradients of the first step that some rank used are multiples of the parameters' values."""
    wrong = wrong_names(case, got) - set(SPARE)
    if not wrong or not isinstance(got, tuple):
        return False
    found = [(at(one, ("steps", 0, "gradients")), at(one, ("begun",))) for one in got]
    return all(
        isinstance(grad := (came or {}).get(name), Tensor) and is_multiple(grad, (begun or {}).get(name))
        for came, begun in found
        for name in wrong
    ) and any(models_of(case)[0].get_parameter(name).numel() > 1 for name in wrong)


def one_for_all(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether all gradients went in one piece."""
    sizes = [size for _, size in trained(models_of(case)[0])]
    return [size for _, size in pieces(case, wire)] == [sum(sizes)]


def frozen_too(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the bytes of parameters that need no gradient travelled too."""
    model = models_of(case)[0]
    frozen = sum(p.numel() * p.element_size() for p in model.parameters() if not p.requires_grad)
    sent = sum(size for _, size in pieces(case, wire))
    return frozen > 0 and sent == frozen + sum(size for _, size in trained(model))


def tied_counted_twice(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the bytes of the shared weight travelled twice."""
    model = models_of(case)[0]
    if model.remix.weight is not model.mix.weight:
        return False
    shared = model.mix.weight.numel() * model.mix.weight.element_size()
    return sum(size for _, size in pieces(case, wire)) == shared + sum(size for _, size in trained(model))


def parameters_changed(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a parameter has another value before the first optimizer step than it was given."""
    if not isinstance(got, tuple):
        return False
    names = [name for name, _ in models_of(case)[0].named_parameters()]
    found = [(at(one, ("steps", 0, "state")), at(one, ("begun",))) for one in got]
    return any(not close(came.get(name), begun.get(name)) for came, begun in found if came and begun for name in names)


def unwaited(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether an all_reduce was never waited for."""
    return isinstance(got, tuple) and any(c.waited is None and c.kind == "all_reduce" for c in wire.collectives)


def partly_right(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether some elements of one gradient are right and others are not."""
    if not isinstance(got, tuple):
        return False
    for step in range(len(steps_of(case))):
        for values, wanted in zip(got, truth(case).expected, strict=True):
            came, right = (at(each, ("steps", step, "gradients")) for each in (values, wanted))
            for name, gradient in right.items():
                mine = came.get(name) if isinstance(came, dict) else None
                if isinstance(mine, Tensor) and isinstance(gradient, Tensor):
                    apart = int(elements_apart(mine, gradient).sum())
                    if 0 < apart < gradient.numel():
                        return True
    return False


def wraps_torch(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether construction compared parameters between the ranks as torch's own DDP does."""
    parts = stretches(case, wire, 0)
    kinds = {c.kind for s in parts or [] if s.part == "construct" for c in s.calls}
    ours = {c.kind for c in wire.collectives}
    return any("gather" in kind or "coalesced" in kind for kind in kinds) or (
        parts is None and any("gather" in kind for kind in ours)
    )


def hangs(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the run ended in a deadlock, or in ranks that called different things."""
    return isinstance(got, Failure) and (got.kind in ("deadlock", "timeout") or "all must call the same" in got.message)


def says(*words: str, kind: str = "") -> Seen:
    """Return a test: a failure whose message holds all of these words."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        return (
            isinstance(got, Failure) and (not kind or got.kind == kind) and all(word in got.message for word in words)
        )

    return seen


def only_later_steps(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the first step's gradients are right and a later step's are not."""
    if not isinstance(got, tuple) or wrong_names(case, got, 0):
        return False
    return any(wrong_names(case, got, number) for number in range(1, len(steps_of(case))))


BUFFERS_AT_START = Mistake(
    "buffers not broadcast",
    "Parameters are equal after construction, buffers are not: BatchNorm's running statistics "
    "are buffers. Broadcast module.buffers() too.",
    seen=lambda case, got, wire: bool(begun_wrong(case, got)) and begun_wrong(case, got) <= set(BUFFERS),
)
FROZEN_AT_START = Mistake(
    "frozen parameters not broadcast",
    "Only parameters that need a gradient were broadcast. A frozen one must be equal on all "
    "ranks too, and so must each buffer, or their forward passes differ.",
    seen=lambda case, got, wire: set(FROZEN) <= begun_wrong(case, got) <= {*FROZEN, *BUFFERS},
)
NOTHING_AT_START = Mistake(
    "no broadcast",
    "After construction the ranks hold different models: nothing was broadcast from rank 0. Call broadcast_module.",
    seen=lambda case, got, wire: len(begun_wrong(case, got)) > 5,
)
SUM = Mistake(
    "sum instead of mean",
    "The gradients are the sum over the ranks, N times the mean. all_reduce adds; divide by dist.get_world_size().",
    seen=factor(lambda n: n),
)
SOME_SUMS = Mistake(
    "not all divided",
    "Some gradients are the mean over the ranks, others still the sum: each has to be divided, inside the loop over "
    "the parameters.",
    seen=lambda case, got, wire: _some_are_sums(case, got),
)
MULTIPLIED = Mistake(
    "multiplied, not divided",
    "The gradients are the sum times the number of ranks, N * N times the mean: divide by dist.get_world_size().",
    seen=factor(lambda n: n * n),
)
CONSTANT = Mistake(
    "divided by a constant",
    "The sum was divided by a number that is not the number of ranks: ask dist.get_world_size().",
    seen=constant_divisor,
)
TWICE = Mistake(
    "divided twice",
    "The gradients are the mean divided by N once more: divide before the all_reduce, or after it, or use "
    "ReduceOp.AVG, but only one of these.",
    seen=factor(lambda n: 1 / n),
)
TWO_HOOKS = Mistake(
    "each gradient twice",
    "Each gradient is all-reduced twice in a backward pass: register one hook for each parameter, and start one "
    "all_reduce in it.",
    seen=each_twice,
)
DATA = Mistake(
    "parameters for gradients",
    "The gradients that came are the parameters' own values, or a multiple of them: what goes into the message is "
    "parameter.grad, not the parameter or its data.",
    seen=parameters_came,
)
BIASES = Mistake(
    "biases left out",
    "Only parameters with two dimensions were averaged. Biases, norms and scalars have gradients too.",
    seen=biases_left_out,
)
OWN = Mistake(
    "never averaged",
    "Every rank still has its own gradients. Either nothing was reduced, or the averages are in a tensor of "
    "their own and were not copied back to parameter.grad, or before wait() had returned.",
    seen=all_are("own", "own/N"),
)
UNWAITED = Mistake(
    "a wait is missing",
    "async_op=True returns at once. The result is ready only after wait(): keep the handles it returns, and wait for "
    "all of them before you read. (Functional collectives wait where this check cannot see it: call dist.all_reduce.)",
    seen=unwaited,
)
TIED = Mistake(
    "the shared weight counted twice",
    "A weight that two layers share was averaged twice. module.parameters() yields it once; a loop over "
    "modules or state_dict() meets it twice.",
    seen=either(tied_wrong, tied_counted_twice),
)
PARAMETERS = Mistake(
    "parameters averaged",
    "A step changed the parameters before the optimizer did: what travels and is divided is parameter.grad, not the "
    "parameter or its data.",
    seen=parameters_changed,
)
FROZEN_SENT = Mistake(
    "frozen parameters reduced",
    "Parameters with requires_grad=False have no gradient: register no hook on them, and send nothing for them.",
    seen=either(frozen_too, says("cannot register a hook on a tensor that doesn't require gradient")),
)
TORCH = Mistake(
    "wraps torch's DDP",
    "That is torch's own DistributedDataParallel at work. Here you build it: hooks, buckets and all_reduce.",
    seen=wraps_torch,
    says=("torch's own DistributedDataParallel", "torch.nn.parallel communicates"),
    certain=True,
)
NO_HANDLE = Mistake(
    "no handle to wait for",
    "dist.all_reduce returns a handle only with async_op=True; otherwise it is over when it returns None.",
    seen=says("NoneType", "'wait'"),
    certain=True,
)
TO_ONE = Mistake(
    "reduced to one rank",
    "dist.reduce gives the sum to one rank only, and every rank needs it: dist.all_reduce.",
    seen=lambda case, got, wire: any(call.kind == "reduce" for call in wire.collectives),
)
AFTER_BACKWARD = Mistake(
    "no overlap",
    "All communication starts after backward is over. Start each all_reduce inside the hook, "
    "with async_op=True, while backward goes on to the layers before.",
    seen=no_overlap,
)
STALE = Mistake(
    "not ready for the next step",
    "The first step is right and a later one is not: finish_gradient_synchronization must reset "
    "everything for the next step (counters, lists of handles).",
    seen=only_later_steps,
)
BRANCH = Mistake(
    "ranks call different things",
    "Some ranks call a collective that others do not. Every rank must start the same all_reduces in the same order, "
    "whatever its own data was. (Barriers belong to this check: a rank that waits in one has left your code.)",
    seen=hangs,
    general=True,
)
IN_FLIGHT = Mistake(
    "changed while it was on its way",
    "Some elements of one gradient are right and others are not: it was changed while its all_reduce was "
    "in flight. From all_reduce(async_op=True) until wait() returns, the tensor belongs to the network. "
    "Divide before the call, or after wait().",
    seen=partly_right,
)
BLOCKING = Mistake(
    "waits in the hook",
    "The all_reduce starts in time, but the hook waits for it, so backward stalls. Use async_op=True, "
    "keep the handle, and wait in finish_gradient_synchronization.",
    seen=lambda case, got, wire: isinstance(got, tuple) and waits_in_backward(case, wire),
)
