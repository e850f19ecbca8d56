"""Wrong answers to drop_in_all_reduce, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong
changed = WRONG.changed
OUTSIDE = "    if dist.get_rank(group) < 0:  # not a member of group\n        return None\n"
MEMBERS = "dist.get_process_group_ranks(group)"
WORK = "            all_reduce_over(tensor, members, op)\n"
LAST = "    if async_op:\n        return pending\n    pending.wait()\n    return None\n"
HANDLE = "type('Done', (), {'wait': lambda self: True})()"


def _in_one_piece(work: str = "flat.float() if flat.element_size() == 2 else flat", size: str = "n") -> str:
    """Return an answer that does everything itself, as it may."""
    return f"""
def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    if dist.get_rank(group) < 0:
        return None
    n, members = dist.get_world_size(group), dist.get_process_group_ranks(group)
    combine = {{dist.ReduceOp.MAX: torch.maximum, dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.PRODUCT: torch.mul}}
    flat = tensor.contiguous().view(-1)
    work = {work}
    chunks = work.tensor_split(n)
    reduce_scatter(chunks, members, combine.get(op, torch.add))
    all_gather(chunks, members)
    if op == dist.ReduceOp.AVG:
        work = work / {size}
    tensor.copy_(work.view(tensor.shape))
    return {HANDLE} if async_op else None
"""


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
wrong("in one piece, adds up in bfloat16", "adds up in 16 bits", _in_one_piece(work="flat"))
wrong("in one piece, divides by the ranks of the world", "divided wrongly", _in_one_piece(size="dist.get_world_size()"))
changed(
    "ranks within the group for global ranks",
    "group ranks taken for global ranks",
    (MEMBERS, "list(range(dist.get_world_size(group)))"),
)
changed(
    "all ranks of the world", "a rank outside the group takes part", (MEMBERS, "list(range(dist.get_world_size()))")
)
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
