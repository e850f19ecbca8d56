"""Random programs of torch.distributed calls: the same on every rank, drawn from a number.

Values are small whole numbers, so that sums and products are exact in every order and dtype.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.bfloat16, torch.uint8)
OPS = (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT)
BIT_OPS = (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR)


class Program:
    """One rank's half of a random program."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.values = random.Random(f"{seed} {dist.get_rank()}")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.seen: list[Any] = []
        self.groups: list[tuple[Any, list[int]]] = [(None, list(range(self.size)))]

    def tensor(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        count = 1
        for size in shape:
            count *= size
        data = [self.values.randint(0, 3) for _ in range(count)]
        return torch.tensor(data, dtype=torch.int64).to(dtype).reshape(shape)

    def group(self) -> tuple[Any, list[int]]:
        """Return a group this rank is in or not, and its ranks."""
        if self.draw.random() < 0.3:
            ranks = sorted(self.draw.sample(range(self.size), self.draw.randint(1, self.size)))
            self.groups.append((dist.new_group(ranks), ranks))
        return self.draw.choice(self.groups)

    def shape(self) -> tuple[int, ...]:
        return self.draw.choice([(1,), (7,), (2, 3), (64,), (3, 1, 2)])

    def run(self, steps: int) -> list[Any]:
        for _ in range(steps):
            self.draw.choice(STEPS)(self)
        return self.seen


def _wait(program: Program, work: Any) -> None:
    if work is not None:
        work.wait()


def all_reduce(program: Program) -> None:
    group, ranks = program.group()
    dtype, shape = program.draw.choice(DTYPES), program.shape()
    ops = OPS if dtype.is_floating_point else OPS + BIT_OPS
    op, is_async = program.draw.choice(ops), program.draw.random() < 0.5
    if program.rank in ranks:
        value = program.tensor(*shape, dtype=dtype)
        _wait(program, dist.all_reduce(value, op=op, group=group, async_op=is_async))
        program.seen.append(value)


def several_at_once(program: Program) -> None:
    count, shape = program.draw.randint(2, 4), program.shape()
    values = [program.tensor(*shape, dtype=torch.float32) for _ in range(count)]
    works = [dist.all_reduce(value, async_op=True) for value in values]
    order = list(range(count))
    program.draw.shuffle(order)
    for place in order:
        works[place].wait()
    program.seen += values


def broadcast(program: Program) -> None:
    group, ranks = program.group()
    dtype, shape, root = program.draw.choice(DTYPES), program.shape(), program.draw.choice(ranks)
    if program.rank in ranks:
        value = program.tensor(*shape, dtype=dtype)
        dist.broadcast(value, src=root, group=group)
        program.seen.append(value)


def reduce(program: Program) -> None:
    group, ranks = program.group()
    dtype, shape, root = program.draw.choice(DTYPES), program.shape(), program.draw.choice(ranks)
    op = program.draw.choice(OPS)
    if program.rank in ranks:
        value = program.tensor(*shape, dtype=dtype)
        dist.reduce(value, dst=root, op=op, group=group)
        if program.rank == root:  # elsewhere the value is not defined
            program.seen.append(value)


def all_gather(program: Program) -> None:
    group, ranks = program.group()
    dtype, shape = program.draw.choice(DTYPES), program.shape()
    if program.rank in ranks:
        outputs = [torch.zeros(shape, dtype=dtype) for _ in ranks]
        dist.all_gather(outputs, program.tensor(*shape, dtype=dtype), group=group)
        program.seen += outputs


def all_gather_into_tensor(program: Program) -> None:
    group, ranks = program.group()
    dtype, rows = program.draw.choice(DTYPES), program.draw.randint(1, 4)
    is_async = program.draw.random() < 0.5
    if program.rank in ranks:
        output = torch.zeros(rows * len(ranks), 3, dtype=dtype)
        value = program.tensor(rows, 3, dtype=dtype)
        _wait(program, dist.all_gather_into_tensor(output, value, group=group, async_op=is_async))
        program.seen.append(output)


def reduce_scatter(program: Program) -> None:
    group, ranks = program.group()
    shape, op = program.shape(), program.draw.choice(OPS)
    if program.rank in ranks:
        output = torch.zeros(shape)
        dist.reduce_scatter(output, [program.tensor(*shape, dtype=torch.float32) for _ in ranks], op=op, group=group)
        program.seen.append(output)


def reduce_scatter_tensor(program: Program) -> None:
    group, ranks = program.group()
    rows, op = program.draw.randint(1, 4), program.draw.choice(OPS)
    if program.rank in ranks:
        output = torch.zeros(rows, 3)
        value = program.tensor(rows * len(ranks), 3, dtype=torch.float32)
        dist.reduce_scatter_tensor(output, value, op=op, group=group)
        program.seen.append(output)


def gather(program: Program) -> None:
    group, ranks = program.group()
    shape, root = program.shape(), program.draw.choice(ranks)
    if program.rank in ranks:
        outputs = [torch.zeros(shape) for _ in ranks] if program.rank == root else None
        dist.gather(program.tensor(*shape, dtype=torch.float32), outputs, dst=root, group=group)
        program.seen += outputs or []


def scatter(program: Program) -> None:
    group, ranks = program.group()
    shape, root = program.shape(), program.draw.choice(ranks)
    if program.rank in ranks:
        output = torch.zeros(shape)
        given = [program.tensor(*shape, dtype=torch.float32) for _ in ranks] if program.rank == root else None
        dist.scatter(output, given, src=root, group=group)
        program.seen.append(output)


def all_to_all_single(program: Program) -> None:
    sizes = [[program.draw.randint(0, 3) for _ in range(program.size)] for _ in range(program.size)]
    mine, others = sizes[program.rank], [row[program.rank] for row in sizes]
    output = torch.zeros(sum(others), 2)
    dist.all_to_all_single(output, program.tensor(sum(mine), 2, dtype=torch.float32), others, mine)
    program.seen.append(output)


def all_to_all(program: Program) -> None:
    shape = program.shape()  # gloo takes lists of equal sizes only
    outputs = [torch.zeros(shape) for _ in range(program.size)]
    dist.all_to_all(outputs, [program.tensor(*shape, dtype=torch.float32) for _ in range(program.size)])
    program.seen += outputs


def permutation(program: Program) -> None:
    """Every rank sends to one rank and receives from one, batched, twice with different tags."""
    size = program.size
    order = list(range(size))
    program.draw.shuffle(order)
    to = {order[place]: order[(place + 1) % size] for place in range(size)}
    source = next(src for src, dst in to.items() if dst == program.rank)
    shape, tags = program.shape(), [1, 2]
    sent = [program.tensor(*shape, dtype=torch.float32) for _ in tags]
    received = [torch.zeros(shape) for _ in tags]
    ops = [dist.P2POp(dist.isend, value, to[program.rank], tag=tag) for value, tag in zip(sent, tags, strict=True)]
    back = list(zip(received, tags, strict=True))
    program.draw.shuffle(back)
    ops += [dist.P2POp(dist.irecv, value, source, tag=tag) for value, tag in back]
    if size > 1:
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    program.seen += received if size > 1 else []


def chain(program: Program) -> None:
    """A value passes from rank to rank with blocking calls."""
    value = program.tensor(5, dtype=torch.float64)
    if program.rank:
        before = torch.zeros(5, dtype=torch.float64)
        program.seen.append(dist.recv(before, src=program.rank - 1))
        value += before
    if program.rank + 1 < program.size:
        dist.send(value, dst=program.rank + 1)
    program.seen.append(value)


def from_any_rank(program: Program) -> None:
    """One rank takes a message of every other, whoever comes first; what came is sorted before it is compared.

    The tag is new each time: else a fast rank's next message could be taken for this one's.
    """
    tag = 100 + program.draw.randrange(1_000_000)
    root = program.draw.randrange(program.size)
    if program.rank == root:
        came = []
        for _ in range(program.size - 1):
            value = torch.zeros(2)
            came.append((dist.recv(value, tag=tag), value.tolist()))
        program.seen.append(sorted(came))
    else:
        dist.send(torch.tensor([float(program.rank), 1.0]), dst=root, tag=tag)


def objects(program: Program) -> None:
    root = program.draw.randrange(program.size)
    mine = {"rank": program.rank, "values": program.tensor(3, dtype=torch.int64)}
    every: list[Any] = [None] * program.size
    dist.all_gather_object(every, mine)
    shared = [mine if program.rank == root else None]
    dist.broadcast_object_list(shared, src=root)
    out: list[Any] = [None]
    dist.scatter_object_list(out, list(range(program.size)) if program.rank == root else None, src=root)
    gathered: list[Any] | None = [None] * program.size if program.rank == root else None
    dist.gather_object(program.rank * 2, gathered, dst=root)
    program.seen += [every, shared, out, gathered]


def functional_collectives(program: Program) -> None:
    group = dist.group.WORLD
    value = program.tensor(program.size * 2, 2, dtype=torch.float32)
    program.seen.append(functional.all_reduce(value, "sum", group) + 0)
    program.seen.append(functional.all_gather_tensor(value, 0, group) + 0)
    program.seen.append(functional.reduce_scatter_tensor(value, "sum", 0, group) + 0)


def barrier(program: Program) -> None:
    dist.barrier()


STEPS: tuple[Callable[[Program], None], ...] = (
    all_reduce, several_at_once, broadcast, reduce, all_gather, all_gather_into_tensor, reduce_scatter,
    reduce_scatter_tensor, gather, scatter, all_to_all_single, all_to_all, permutation, chain, from_any_rank, objects,
    functional_collectives, barrier,
)  # fmt: skip


def run_programs(seeds: list[int], steps: int) -> list[list[Any]]:
    """Return what this rank saw in each program."""
    return [Program(seed).run(steps) for seed in seeds]


def run_each_step(seed: int) -> list[tuple[str, list[Any]]]:
    """Return what this rank saw of each kind of step."""
    seen = []
    for step in STEPS:
        program = Program(seed)
        step(program)
        seen.append((step.__name__, program.seen))
    return seen
