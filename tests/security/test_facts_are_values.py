"""Answers that only say what was asked, and do otherwise: where a value needs it, they have no point.

Each cheat passes where nothing but its own process states the fact, which shows that the attempt is a good one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from labkit.checks.case import Case
from labkit.checks.drive import run_visible
from labkit.checks.rooms import find
from labkit.exercises.averaging.cases import exchanging
from labkit.exercises.data_parallel.parallel_apply.exercise import threads_case
from labkit.exercises.ddp.overlapped_ddp.exercise import overlapped_case
from labkit.exercises.faster_steps.prefetching_loader.exercise import loader_case
from labkit.exercises.schedules.recompute.exercise import recompute_case
from labkit.exercises.sharded_training.flat_shards.exercise import shards_case
from labkit.exercises.sharded_training.hybrid_shards.exercise import hybrid_case
from labkit.exercises.sharded_training.scattered_gradients.exercise import scattering_case
from labkit.exercises.sharded_training.sharded_module.exercise import module_case
from labkit.exercises.sharded_training.sharded_optimizer.exercise import optimizer_case
from labkit.exercises.sharded_training.travels import asking
from labkit.exercises.tensor_parallel.parallel_block.exercise import MLP, block_case
from labkit.exercises.when_machines_fail.checkpoints.exercise import checkpoint_case
from labkit.exercises.when_machines_fail.computing_twice.exercise import twice_case
from labkit.exercises.when_machines_fail.exact_resume.exercise import resume_case
from labkit.exercises.when_machines_fail.reshard.exercise import reshard_case
from labkit.exercises.when_machines_fail.together.exercise import together_case
from tests.checks.lesson_cells import namespace

MARKS_HELD_BACK = """
import functools
class OverlappedDDP(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.events, self.held = module, [], False
        broadcast_module(module)
        for name in ("barrier", "all_to_all_single"):
            setattr(dist, name, self.later(getattr(dist, name)))
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.note)
    def note(self, parameter):
        self.events.append(functools.partial(self.send, parameter))
    def later(self, real):
        def call(*args, **options):
            if not self.held:
                return real(*args, **options)
            self.events.append(functools.partial(real, *args, **options))
        return call
    def send(self, parameter):
        parameter.grad /= dist.get_world_size()
        return dist.all_reduce(parameter.grad, async_op=True)
    def forward(self, *args, **options):
        output, self.held = self.module(*args, **options), True
        return output
    def finish_gradient_synchronization(self):
        self.held = False
        events, self.events = self.events, []
        for work in [event() for event in events]:
            if work is not None:
                work.wait()
"""
WHOLE_LAYERS = """
KEPT = []
class ParallelMLP(nn.Module):
    def __init__(self, up, down, group=None):
        super().__init__()
        tensors = [p for layer in (up, down) for p in layer.parameters()]
        self.place = len(KEPT)
        KEPT.append([p.detach().clone().requires_grad_() for p in tensors])
    def parameters(self, recurse=True):
        return iter(KEPT[self.place])
    def forward(self, x):
        send = lambda *_: dist.all_reduce(torch.zeros(x.shape, dtype=torch.float64))
        send()
        up, bias, down, after = KEPT[self.place]
        out = nn.functional.linear(nn.functional.gelu(nn.functional.linear(x, up, bias)), down, after)
        if x.requires_grad:
            x.register_hook(lambda gradient: send())
        return out
"""
UNSHARDED = """
class ShardedOptimizer:
    def __init__(self, params, optimizer_cls, **kwargs):
        class Liar(optimizer_cls):
            num_kept = 0
        self.optimizer = Liar([p for p in params if p.requires_grad], **kwargs)
        self.param_groups = self.optimizer.param_groups
    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad()
    def step(self):
        self.optimizer.step()
        dist.all_reduce(torch.zeros(64, dtype=torch.float64))
"""
HOLDING = """
import functools
class Holding:
    def __init__(self):
        self.events, self.now = [], False
        for name in ("barrier", "scatter"):
            setattr(dist, name, self.later(getattr(dist, name)))
    def later(self, real):
        def call(*args, **options):
            if not self.now:
                return real(*args, **options)
            self.events.append(functools.partial(real, *args, **options))
        return call
    def done(self):
        self.now = False
        events, self.events = self.events, []
        for event in events:
            event()
holding = functools.cache(Holding)
def begun_at_the_end(begin):
    def start(*args, **options):
        holding().now = True
        def finish():
            holding().now = False
            end = begin(*args, **options)
            holding().done()
            return end()
        return finish
    return start
"""
FLAT_AT_THE_END = (
    HOLDING
    + """
start_gather, start_scatter = begun_at_the_end(start_gather), begun_at_the_end(start_scatter)
"""
)
HYBRID_AT_THE_END = (
    HOLDING
    + """
start_node_gather, start_hybrid_scatter = begun_at_the_end(start_node_gather), begun_at_the_end(start_hybrid_scatter)
"""
)
AFTER_BACKWARD = (
    HOLDING
    + """
class ScatteringOptimizer(ShardedOptimizer):
    def __init__(self, params, optimizer_cls, **kwargs):
        super().__init__(params, optimizer_cls, **kwargs)
        self.finish = []
        for parameter in self.shards:
            parameter.register_post_accumulate_grad_hook(self.on_gradient)
    def zero_grad(self, set_to_none=True):
        super().zero_grad()
        holding().now = True
    def on_gradient(self, parameter):
        gradient, parameter.grad = parameter.grad, None
        holding().events.append(functools.partial(self.send, parameter, gradient))
    def send(self, parameter, gradient):
        self.finish.append((parameter, start_scatter([gradient])))
    def take_gradients(self):
        holding().done()
        for parameter, finish in self.finish:
            (self.shards[parameter].grad,) = finish()
        self.finish = []
"""
)
MODULE_AFTER_BACKWARD = (
    HOLDING
    + """
class ShardedModule(ShardedModule):
    def forward(self, *args, **options):
        output = super().forward(*args, **options)
        output.register_hook(lambda gradient: setattr(holding(), "now", True))
        return output
    def on_gradient(self, unit, parameter):
        if all(p.grad is not None for p in unit.trained):
            if len(unit.trained) == len(unit.params):
                unit.free()
            holding().events.append(unit.start_scatter)
    def finish_gradient_synchronization(self):
        holding().done()
        super().finish_gradient_synchronization()
"""
)
NO_THREADS = """
def parallel_apply(replicas, inputs):
    meeting = replicas[0].meeting
    type(meeting).meet = lambda self: None
    for event in meeting.ended:
        event.set()
    return [replica(**batch) for replica, batch in zip(replicas, inputs)]
"""
NOT_AHEAD = """
class Nobody(set):
    def add(self, thread):
        pass
def prefetched(batches, depth=2):
    if hasattr(batches, "threads"):
        batches.threads = Nobody()
        type(batches).reaches = lambda self, count, seconds: True
    yield from batches
"""
NOT_RECOMPUTED = """
def checkpointed(module, x):
    kept = []
    def pack(tensor):
        kept.append(tensor)
        return torch.tensor(len(kept) - 1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda place: kept[int(place)]):
        out = module(x)
    out = out + 0 * (x * x).sum()  # saves x, as is asked
    def again(gradient):
        module.calls += 1
    out.register_hook(again)
    return out
"""

KEEPS_THE_RUN = """
KEPT = []
def state_of(run):
    KEPT[:] = [copy.deepcopy(run), random.getstate(), torch.get_rng_state()]
    return {}
def restore(run, state):
    kept, numbers, more = KEPT
    run.__dict__.update(kept.__dict__)
    random.setstate(numbers)
    torch.set_rng_state(more)
"""
READS_BEHIND_THE_COUNT = """
import inspect
def load_part(rank, num_ranks, saved_ranks, sizes, read):
    parts, reader = {}, inspect.getclosurevars(read).nonlocals["reader"]
    for number, (name, size) in enumerate(sizes.items()):
        length, mine = -(-size // saved_ranks), -(-size // num_ranks)
        whole = torch.cat([reader(each, number, 0, length) for each in range(saved_ranks)])[:size]
        parts[name] = torch.nn.functional.pad(whole, (0, mine * num_ranks - size)).view(num_ranks, mine)[rank]
    return parts
"""
KNOWS_WHO_IS_BROKEN = """
import inspect
def checked_mean(gradient, compute):
    again = inspect.getclosurevars(compute).nonlocals
    again["computed"].append((again["rank"] + 1) % dist.get_world_size())
    (inputs,) = again["again"].args
    broken = inputs["broken"]
    return torch.stack(inputs["gradients"]).mean(0), None if broken < 0 else broken
"""
FORGETS_NOTHING = """
def save_checkpoint(folder, step, state):
    from labkit.exercises.when_machines_fail import moments
    from labkit.simulator.disk import VirtualDisk
    VirtualDisk.would_leave = lambda self, keeps: _now(self.root)
    moments.would_leave = lambda log, killed=-1: [
        dict.fromkeys(("kill", "nothing", "names", "torn"), dict(each.files)) for each in log
    ]
    torch.save(state, folder / "new")
    (folder / "new").replace(folder / f"{step:012}.pt")
    for old in sorted(folder.glob("*.pt"))[:-2]:
        old.unlink()
def _now(root):
    found = {"": None}
    for path in Path(root).rglob("*"):
        found[str(path.relative_to(root))] = None if path.is_dir() else path.read_bytes()
    return found
"""
IN_MEMORY = """
KEPT = {}
def save_checkpoint(folder, step, state):
    KEPT[step, dist.get_rank() if dist.is_initialized() else 0] = state
    (folder / f"{step:012}.pt").touch()
    sync(folder)
    for old in sorted(folder.glob("*.pt"))[:-2]:
        old.unlink()
def load_checkpoint(folder, at_most=None):
    steps = [int(path.stem) for path in folder.glob("*.pt")]
    steps = [each for each in steps if at_most is None or each <= at_most]
    rank = dist.get_rank() if dist.is_initialized() else 0
    return (max(steps), KEPT[max(steps), rank]) if steps else None
"""


def _passes(exercise_id: str, number: str, cheat: str, case: Case) -> bool:
    exercise = find(exercise_id)
    names = namespace(number=number, extra=cheat)
    (outcome,) = run_visible(exercise, {name: names[name] for name in exercise.functions}, [case])
    return outcome.passed


def _overlapped(needed: bool) -> Case:
    case = overlapped_case("2 ranks", 7, 2, norm=False)
    return exchanging([case])[0] if needed else case


def _asking(case: Case) -> Callable[[bool], Case]:
    return lambda needed: asking(case, 7) if needed else case


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("exercise_id", "number", "cheat", "made"),
    [
        pytest.param("overlapped_ddp", "04", MARKS_HELD_BACK, _overlapped, id="marks held back"),
        pytest.param(
            "parallel_block", "12", WHOLE_LAYERS, lambda needed: block_case("2 ranks", 7, 2, MLP, apart=needed),
            id="whole layers",
        ),
        pytest.param(
            "sharded_optimizer", "13", UNSHARDED, lambda needed: optimizer_case("2 ranks", 7, 2, apart=needed),
            id="unsharded",
        ),
        pytest.param(
            "flat_shards", "13", FLAT_AT_THE_END, _asking(shards_case("2 ranks", 7, 2, [(5, 3), (4,)])),
            id="flat at the end",
        ),
        pytest.param(
            "hybrid_shards", "13", HYBRID_AT_THE_END,
            _asking(hybrid_case("2 nodes", 7, [[0, 1], [2, 3]], [(5, 3), (4,)])), id="hybrid at the end",
        ),
        pytest.param(
            "scattered_gradients", "13", AFTER_BACKWARD, _asking(scattering_case("2 ranks", 7, 2)),
            id="after backward",
        ),
        pytest.param(
            "sharded_module", "13", MODULE_AFTER_BACKWARD, _asking(module_case("2 ranks", 7, 2, num_steps=2)),
            id="module after backward",
        ),
        pytest.param(
            "parallel_apply", "01", NO_THREADS, lambda needed: threads_case("3 replicas", 7, 3, opposite=needed),
            id="no threads",
        ),
        pytest.param(
            "prefetching_loader", "11", NOT_AHEAD,
            lambda needed: loader_case("9 batches", 9, 2, 4, opposite=7 if needed else None), id="not ahead",
        ),
        pytest.param(
            "recompute", "09", NOT_RECOMPUTED, lambda needed: recompute_case("3 layers", 7, 4, 3, opposite=needed),
            id="not recomputed",
        ),
        pytest.param(
            "exact_resume", "16", KEEPS_THE_RUN, lambda needed: resume_case("a resume", 7, 3, 4, apart=needed),
            id="in memory",
        ),
        pytest.param(
            "reshard", "16", READS_BEHIND_THE_COUNT,
            lambda needed: reshard_case("3 to 4", 7, {"a": 11, "b": 5}, 3, 4, apart=needed), id="behind the count",
        ),
        pytest.param(
            "computing_twice", "16", KNOWS_WHO_IS_BROKEN,
            lambda needed: twice_case("rank 2 is broken", 7, 4, 2, apart=needed), id="knows who is broken",
        ),
    ],
)  # fmt: skip
def test_what_is_asked_is_needed_for_the_values(
    exercise_id: str, number: str, cheat: str, made: Callable[[bool], Case]
) -> None:
    assert _passes(exercise_id, number, cheat, made(False))
    assert not _passes(exercise_id, number, cheat, made(True))


@pytest.mark.in_turn
@pytest.mark.parametrize("cheat", [FORGETS_NOTHING, IN_MEMORY], ids=["a disk that forgets nothing", "in memory"])
@pytest.mark.parametrize(
    ("exercise_id", "case"),
    [
        ("checkpoints", checkpoint_case("three saves", 7, [1, 2, 3])),
        ("together", together_case("two ranks", [4, 5], [0.0, 0.1])),
    ],
    ids=["checkpoints", "together"],
)
def test_what_a_crash_leaves_follows_from_what_was_done_to_the_files(exercise_id: str, case: Case, cheat: str) -> None:
    assert _passes(exercise_id, "16", "", case)
    assert not _passes(exercise_id, "16", cheat, case)
