"""Wrong answers to average, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()


wrong = WRONG.within("def average(tensor):\n    ...\n")

wrong("only adds", "sum instead of mean", "dist.all_reduce(tensor)")
wrong(
    "the quotient gets a new name",
    "sum instead of mean",
    "dist.all_reduce(tensor)\ntensor = tensor / dist.get_world_size()",
)
wrong(
    "returns a new tensor",
    "not in place",
    "total = tensor.clone()\ndist.all_reduce(total)\nreturn total / dist.get_world_size()",
)
wrong(
    "divides before and after",
    "divided twice",
    "tensor /= dist.get_world_size()\ndist.all_reduce(tensor)\ntensor /= dist.get_world_size()",
)
wrong("divides by four", "number of ranks written into the code", "dist.all_reduce(tensor)\ntensor /= 4")
wrong(
    "rank 0 alone divides",
    "divided on rank 0 only",
    "dist.all_reduce(tensor)\nif dist.get_rank() == 0:\n    tensor /= dist.get_world_size()",
)
wrong(
    "reduces to rank 0",
    "only rank 0 has it",
    "dist.reduce(tensor, dst=0)\nif dist.get_rank() == 0:\n    tensor /= dist.get_world_size()",
)
wrong("divides by its rank", "divided by the rank", "dist.all_reduce(tensor)\ntensor /= dist.get_rank() + 1")
wrong("mean() after the sum", "mean over elements too", "dist.all_reduce(tensor)\ntensor.fill_(tensor.mean())")
wrong("mean of its own elements", "mean of the elements", "tensor.fill_(tensor.mean())")
wrong(
    "rank 0 alone calls",
    "not every rank takes part",
    "if dist.get_rank() == 0:\n    dist.all_reduce(tensor)\n    tensor /= dist.get_world_size()",
)
wrong(
    "divides what all_reduce returns",
    "what all_reduce returns",
    "tensor = dist.all_reduce(tensor) / dist.get_world_size()",
)
wrong("divides alone", "divided, never added up", "tensor /= dist.get_world_size()")
wrong("multiplies", "multiplied, not divided", "dist.all_reduce(tensor)\ntensor *= dist.get_world_size()")
wrong(
    "adds up a copy",
    "divided, never added up",
    "total = tensor.clone()\ndist.all_reduce(total)\ntensor /= dist.get_world_size()",
)
wrong(
    "hands out rank 0's numbers",
    "one rank's numbers for all",
    "tensor /= dist.get_world_size()\ndist.broadcast(tensor, src=0)",
)
wrong(
    "the mean of the others",
    "its own left out",
    "own = tensor.clone()\ndist.all_reduce(tensor)\ntensor -= own\ntensor /= dist.get_world_size() - 1",
)
wrong("divides by numel", "divided by the number of elements", "dist.all_reduce(tensor)\ntensor /= tensor.numel()")
wrong(
    "divides by the number of other ranks",
    "one rank too few",
    "dist.all_reduce(tensor)\ntensor /= dist.get_world_size() - 1",
)
wrong(
    "the mean of all elements of all ranks",
    "mean over elements too",
    "parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]\n"
    "dist.all_gather(parts, tensor)\ntensor.copy_(torch.stack(parts).mean())",
)
WRONG.right(
    "gathers all and takes the mean over ranks",
    """
def average(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    tensor.copy_(torch.stack(parts).mean(0))
""",
)
GATHERS = "parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]\ndist.all_gather(parts, tensor)\n"
wrong(
    "adds what is gathered to its own",
    "its own counted twice",
    GATHERS + "for part in parts:\n    tensor += part\ntensor /= dist.get_world_size()",
)
wrong(
    "the mean so far and the next",
    "averaged two by two",
    GATHERS + "for part in parts:\n    tensor.copy_((tensor + part) / 2)",
)
wrong(
    "the mean with its left neighbour",
    "averaged two by two",
    GATHERS + "tensor.copy_((tensor + parts[dist.get_rank() - 1]) / 2)",
)
wrong(
    "nobody waits",
    "divided, never added up",
    "dist.all_reduce(tensor, async_op=True)\ntensor /= dist.get_world_size()",
)
wrong(
    "divides before it waits",
    "divided before the sum was there",
    "work = dist.all_reduce(tensor, async_op=True)\ntensor /= dist.get_world_size()\nwork.wait()",
)
wrong(
    "adds the mean",
    "the mean added to its own",
    "mean = tensor.clone()\ndist.all_reduce(mean)\ntensor += mean / dist.get_world_size()",
)
wrong(
    "other memory for the tensor",
    "not in place",
    "mean = tensor.clone()\ndist.all_reduce(mean)\ntensor.data = mean / dist.get_world_size()",
)
wrong(
    "gathers into one tensor",
    "one tensor in all places",
    "parts = [torch.empty_like(tensor)] * dist.get_world_size()\n"
    "dist.all_gather(parts, tensor)\ntensor.copy_(torch.stack(parts).mean(0))",
)
wrong("rounds", "rounded", "dist.all_reduce(tensor)\ntensor //= dist.get_world_size()")
wrong("takes the median", "the median", GATHERS + "tensor.copy_(torch.stack(parts).median(0).values)")
wrong(
    "everybody is the source",
    "ranks call different things",
    "dist.reduce(tensor, 0)\ndist.broadcast(tensor, dist.get_rank())\ntensor /= dist.get_world_size()",
)
wrong(
    "averages in float32",
    "in float32",
    "total = tensor.float()\ndist.all_reduce(total)\ntensor.copy_(total / dist.get_world_size())",
)
