"""Wrong answers to drop_in_all_reduce, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers
from labkit.exercises.collectives.hidden_rings import COMBINE, HALVES, ring

WRONG = WrongAnswers()
wrong = WRONG.wrong
changed = WRONG.changed
OUTSIDE = "    if dist.get_rank(group) < 0:  # not a member of group\n        return None\n"
MEMBERS = "dist.get_process_group_ranks(group)"
WORK = "            all_reduce_over(tensor, members, op)\n"
LAST = "    if async_op:\n        return pending\n    pending.wait()\n    return None\n"
HANDLE = "type('Done', (), {'wait': lambda self: True})()"
_STANDS_ON = f"""

def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    if dist.get_rank(group) < 0:
        return None
    _over(tensor, {MEMBERS}, op)
    return {HANDLE} if async_op else None
"""


def one_piece(name: str, mistake: str, **lines: str) -> None:
    """Add an answer that leaves all_reduce_over alone, as it may, and does the same with some other lines."""
    source = ring(**lines).replace("def all_reduce_over", "def _over")
    wrong(f"in one piece, {name}", mistake, source + _STANDS_ON)


wrong(
    "calls dist.all_reduce",
    "calls the library",
    """
def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    return dist.all_reduce(tensor, op=op, group=group, async_op=async_op)
""",
)
changed("a clone is reduced", "not in place", (WORK, WORK.replace("tensor,", "tensor.clone(),")))
changed("op is not handed on", "op ignored", ("(tensor, members, op)", "(tensor, members)"))
changed(
    "ranks within the group for global ranks",
    "group ranks taken for global ranks",
    (MEMBERS, "list(range(dist.get_world_size(group)))"),
)
changed("all ranks of the world", "group ranks taken for global ranks", (MEMBERS, "list(range(dist.get_world_size()))"))
changed("a rank outside the group goes on", "a rank outside the group takes part", (OUTSIDE, ""))
changed(
    "a rank outside the group gets a work object",
    "a rank outside the group takes part",
    (OUTSIDE, OUTSIDE.replace("None", HANDLE)),
)
changed(
    "a handle outside the group where one is asked for",
    "a rank outside the group takes part",
    (OUTSIDE, OUTSIDE.replace("None", f"{HANDLE} if async_op else None")),
)
changed("nobody takes part", "nobody sent anything", ("if dist.get_rank(group) < 0:", "if dist.get_rank(group) >= 0:"))
changed("async_op is ignored", "no work object", (LAST, "    pending.wait()\n    return None\n"))
changed("always returns a work object", "always a work object", (LAST, "    pending.wait()\n    return pending\n"))
changed("a handle where none is asked for", "nobody sent anything", (LAST, "    return pending\n"))
changed("its wait() is never called", "nobody sent anything", ("    pending.wait()\n", ""))
changed("wait returns None", "wait returns something else", ("            return True\n", ""))
changed("wait does nothing", "nobody sent anything", (WORK, ""))
changed(
    "the call does the work, and wait() again",
    "reduced twice",
    (LAST, "    pending.wait()\n" + LAST.replace("    pending.wait()\n", "")),
)
changed(
    "the tensor is returned",
    "returned without async_op",
    ("    return None\n    # END", "    return tensor\n    # END"),
)
changed(
    "returns what wait() returned",
    "returned without async_op",
    (LAST, LAST.replace("    pending.wait()\n    return None\n", "    return pending.wait()\n")),
)
wrong(
    "one handle for all calls",
    "handles that share a tensor",
    f"""
class Pending:
    def wait(self):
        all_reduce_over(*self.asked)
        return True


PENDING = Pending()


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    if dist.get_rank(group) < 0:
        return None
    PENDING.asked = (tensor, {MEMBERS}, op)
    if async_op:
        return PENDING
    PENDING.wait()
    return None
""",
)
one_piece("adds up in bfloat16", "adds up in 16 bits", work="flat")
one_piece("divides by the ranks of the world", "divided wrongly", average="work = work / dist.get_world_size()")
one_piece("does not divide", "not divided", average="pass")
one_piece("averages always", "mean instead of sum", average="pass", back="tensor.copy_((work / n).view(tensor.shape))")
one_piece("maximum whatever is asked for", "another operation", combine="torch.maximum")
one_piece(
    "the mean of two in each step",
    "averaged pair by pair",
    combine=COMBINE.replace("AVG: torch.add", "AVG: lambda a, b, out: out.copy_((a + b) / 2)"),
    average="pass",
)
one_piece("every average cut", "cut to whole numbers", average="work = torch.div(work, n, rounding_mode='trunc')")
one_piece(
    "floor division of integers",
    "an average of integers rounded otherwise",
    average="work = work / n if work.is_floating_point() else work // n",
)
one_piece(
    "rounds before it divides",
    "an average rounded before it is divided",
    average="work = work.to(flat.dtype) / n if flat.is_floating_point() else work / n",
)
one_piece("everything through float32", "a detour through float32", work="flat.float()")
one_piece("all floats in float64", "wider than the tensor", work="flat.double() if flat.is_floating_point() else flat")
one_piece("view(-1)", "works on a copy of a non-contiguous tensor", flat="tensor.view(-1)")
one_piece("no view", "cut by rows", flat="tensor.contiguous()")
one_piece(
    "copied back by columns", "written back in another order", back="tensor.copy_(work.view(tensor.t().shape).t())"
)
one_piece(
    "clears what it is a view of",
    "writes beside the view",
    back="result, base = work.clone(), tensor if tensor._base is None else tensor._base; base.zero_(); "
    "tensor.copy_(result.view(tensor.shape))",
)
one_piece("no second half", "no all-gather", call=HALVES.partition("; all_gather")[0])
one_piece("nothing is reduced", "nothing added up", call=HALVES.replace("reduce_scatter(chunks, ranks, combine); ", ""))
one_piece(
    "the rest is cut off",
    "remainder dropped",
    call=HALVES.replace("work.tensor_split(n)", "work[: len(work) // n * n].tensor_split(n)"),
)
one_piece(
    "rows of equal length",
    "needs sizes that divide",
    call=HALVES.replace("work.tensor_split(n)", "list(work.view(n, -1))"),
)
one_piece("chunk for tensor_split", "fewer chunks than ranks", call=HALVES.replace("tensor_split", "chunk"))
one_piece(
    "the last rank is left out of the sum",
    "contributions missing",
    call=HALVES.replace(
        "reduce_scatter(chunks, ranks, combine)",
        "dist.get_rank() != ranks[-1] and reduce_scatter(chunks[:-1], ranks[:-1], combine)",
    ),
)
one_piece(
    "the whole tensor round the ring",
    "whole tensor at each step",
    call="""moving = work.clone()
    for _ in range(n - 1):
        incoming = torch.empty_like(moving)
        place = ranks.index(dist.get_rank())
        exchange(moving, ranks[(place + 1) % n], incoming, ranks[place - 1])
        work = combine(work, incoming)
        moving = incoming""",
)
WRONG.right(
    "a loop of its own, in one piece",
    """
class FinishedWork:
    def wait(self, timeout=None):
        return True


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    me, size = dist.get_rank(group), dist.get_world_size(group)
    if me == -1:
        return None
    flat = tensor.clone(memory_format=torch.contiguous_format).view(-1)
    if flat.dtype in (torch.float16, torch.bfloat16):
        flat = flat.to(torch.float32)
    bounds = [(flat.numel() * i // size, flat.numel() * (i + 1) // size) for i in range(size)]
    right, left = (me + 1) % size, (me - 1) % size
    for step in range(2 * (size - 1)):
        gathering = step >= size - 1
        outgoing = flat[slice(*bounds[(me - step + gathering * size) % size])]
        target = flat[slice(*bounds[(me - step - 1) % size])]
        incoming = torch.empty_like(target)
        swap = []
        if outgoing.numel() > 0:
            swap.append(dist.P2POp(dist.isend, outgoing, group=group, group_peer=right))
        if incoming.numel() > 0:
            swap.append(dist.P2POp(dist.irecv, incoming, group=group, group_peer=left))
        if swap:
            [work.wait() for work in dist.batch_isend_irecv(swap)]
        if gathering:
            target.copy_(incoming)
        elif op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            target += incoming
        elif op == dist.ReduceOp.PRODUCT:
            target *= incoming
        elif op == dist.ReduceOp.MAX:
            torch.maximum(target, incoming, out=target)
        else:
            torch.minimum(target, incoming, out=target)
    if op == dist.ReduceOp.AVG:
        flat = torch.true_divide(flat, size)
    tensor.copy_(flat.view(tensor.shape))
    return FinishedWork() if async_op else None
""",
)
