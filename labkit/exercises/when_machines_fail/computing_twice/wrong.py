"""Wrong answers to computing_twice, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

DIFFER = "every[one][0] != every[checker][1]"
BLAME = "one if digest(right) != every[one][0] else checker"
KEEP = "            if rank == one:\n                gradient = right\n"

changed(
    "checks itself",
    "checks itself",
    ("compute((rank + 1) % size)", "compute(rank)"),
    (DIFFER, "every[one][0] != every[one][1]"),
)
changed(
    "almost equal",
    "small differences let pass",
    ("tensor.view(torch.int64).sum()", "tensor.sum()"),
    (DIFFER, "not torch.isclose(every[one][0], every[checker][1])"),
)
changed("the checked one it is", "blames the wrong one", (BLAME, "one"))
changed("the checker it is", "blames the wrong one", (BLAME, "checker"))
changed("names it and goes on", "the wrong gradient stays", (KEEP, ""))
changed("a sum", "sum instead of mean", ("gradient / size", "gradient"))
changed("no pair", "not a pair", ("return gradient / size, broken", "return gradient / size"))
changed("without its batch", "a batch is left out", ("gradient = right", "gradient = torch.zeros_like(gradient)"))
WRONG.wrong("compares the batches", "other batches compared", """def checked_mean(gradient, compute):
    every = [torch.empty_like(gradient) for _ in range(dist.get_world_size())]
    dist.all_gather(every, gradient)
    odd = [rank for rank, each in enumerate(every) if not torch.equal(each, every[0])]
    return torch.stack(every).mean(0), odd[0] if odd else None
""")  # fmt: skip
WRONG.wrong("a plain mean", "never computes twice", """def checked_mean(gradient, compute):
    dist.all_reduce(gradient)
    return gradient / dist.get_world_size(), None
""")  # fmt: skip
WRONG.wrong("keeps it to itself", "one rank knows", """def checked_mean(gradient, compute):
    rank, size = dist.get_rank(), dist.get_world_size()
    every = [torch.empty_like(gradient) for _ in range(size)]
    dist.all_gather(every, gradient)
    checked = (rank + 1) % size
    right = compute(checked)
    broken = None if torch.equal(right, every[checked]) else checked
    if broken is not None:
        every[checked] = right
    return torch.stack(every).mean(0), broken
""")  # fmt: skip
EVERYTHING = """def checked_mean(gradient, compute):
    rank, size = dist.get_rank(), dist.get_world_size()
    every = [torch.empty(size, len(gradient), dtype=gradient.dtype) for _ in range(size)]
    dist.all_gather(every, torch.stack([gradient if of == rank else compute(of) for of in range(size)]))
    right = [
        next(each[of] for each in every if sum(torch.equal(each[of], other[of]) for other in every) > size / 2)
        for of in range(size)
    ]
    odd = [rank for rank in range(size) if not torch.equal(every[rank], torch.stack(right))]
    return torch.stack(right).mean(0), odd[0] if odd else None
"""
WRONG.wrong("computes all on all", "computes too much", EVERYTHING)
WHOLE = """def checked_mean(gradient, compute):
    rank, size = dist.get_rank(), dist.get_world_size()
    pair = torch.stack([gradient, compute((rank + 1) % size)])
    every = [torch.empty_like(pair) for _ in range(size)]
    dist.all_gather(every, pair)
    own = [each[0] for each in every]
    again = [every[one - 1][1] for one in range(size)]
    doubts = [one for one in range(size) if not torch.equal(own[one], again[one])]
    broken = None
    if doubts:
        one = doubts[0]  # the broken rank made this gradient or checked it; the next in line did neither
        third = (one + 1) % size
        right = compute(one) if rank == third else torch.empty_like(gradient)
        dist.broadcast(right, third)
        broken = (one - 1) % size if torch.equal(right, own[one]) else one
        own[one] = right
        for other in doubts[1:]:
            own[other] = again[other] if other == broken else own[other]
    return torch.stack(own).mean(0), broken
"""
WRONG.right("sends whole gradients, and asks all where two differ", WHOLE)
WRONG.wrong(
    "puts in what the checker sent", "the checker's word", WHOLE.replace("own[one] = right", "own[one] = again[one]")
)
WRONG.right(
    "whole gradients gathered, and the third rank's word in all_gather",
    """def checked_mean(gradient, compute):
    rank, size = dist.get_rank(), dist.get_world_size()
    pair = torch.stack([gradient, compute((rank - 1) % size)])
    every = [torch.empty_like(pair) for _ in range(size)]
    dist.all_gather(every, pair)
    right, broken = [each[0] for each in every], None
    for one in range(size):
        checker = (one + 1) % size
        if torch.equal(every[one][0], every[checker][1]):
            continue
        third = (one + 2) % size
        told = compute(one) if rank == third else torch.zeros_like(gradient)
        dist.broadcast(told, src=third)
        broken = checker if torch.equal(told, every[one][0]) else one
        right[one] = told
    return torch.stack(right).mean(0), broken
""",
)
changed(
    "the third is the checker where there are three", "blames the wrong one",
    ("checker, third = (one - 1) % size, (one + 1) % size", "checker, third = (one - 1) % size, (one + 2) % size"),
)  # fmt: skip
changed(
    "the mean without the broken rank", "a batch is left out",
    ("    dist.all_reduce(gradient)\n    return gradient / size, broken\n",
     "    gradient = gradient if rank != broken else torch.zeros_like(gradient)\n    dist.all_reduce(gradient)\n"
     "    return gradient / (size - (broken is not None)), broken\n"),
)  # fmt: skip
changed(
    "the mean without those in doubt", "a batch is left out",
    ("                gradient = right\n", "                gradient = torch.zeros_like(gradient)\n"),
    ("return gradient / size, broken", "return gradient / (size - (broken is not None)), broken"),
)  # fmt: skip
changed("compares the first element", "small differences let pass",
        ("tensor.view(torch.int64).sum()", "tensor.view(torch.int64)[0]"))  # fmt: skip
changed("stops at the first difference", "the wrong gradient stays",
        ("                gradient = right\n", "                gradient = right\n            break\n"))  # fmt: skip
changed("never blames the checker", "a checker cannot be broken",
        ("broken = one if digest(right) != every[one][0] else checker",
         "broken = one if digest(right) != every[one][0] else broken"))  # fmt: skip
changed("puts it in on every rank", "one gradient for all",
        ("            if rank == one:\n                gradient = right\n",
         "            gradient = right\n"))  # fmt: skip
