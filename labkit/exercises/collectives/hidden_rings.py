"""A ring for any tensor, line by line: wrong answers of lesson 03 are this one with another line."""

from __future__ import annotations

COMBINE = (
    "{dist.ReduceOp.SUM: torch.add, dist.ReduceOp.AVG: torch.add, dist.ReduceOp.MAX: torch.maximum, "
    "dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.PRODUCT: torch.mul}[op]"
)
HALVES = "chunks = work.tensor_split(n); reduce_scatter(chunks, ranks, combine); all_gather(chunks, ranks)"


def ring(
    combine: str = COMBINE,
    flat: str = "tensor.contiguous().view(-1)",
    work: str = "flat.float() if flat.dtype in (torch.bfloat16, torch.float16) else flat",
    average: str = "work = work / n",
    back: str = "tensor.copy_(work.view(tensor.shape))",
    number: str = "len(ranks)",
    call: str = HALVES,
) -> str:
    """Return an answer of which some lines are others."""
    return f"""
def all_reduce_over(tensor, ranks, op=dist.ReduceOp.SUM):
    n = {number}
    combine = {combine}
    flat = {flat}
    work = {work}
    {call}
    if op == dist.ReduceOp.AVG:
        {average}
    {back}
"""
