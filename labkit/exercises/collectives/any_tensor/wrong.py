"""Wrong answers to any_tensor, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers
from labkit.exercises.collectives.hidden_rings import HALVES, ring

WRONG = WrongAnswers()
wrong = WRONG.wrong


wrong(
    "calls dist.all_reduce",
    "calls the library",
    """
def all_reduce_over(tensor, ranks, op=dist.ReduceOp.SUM):
    dist.all_reduce(tensor, op=op)
""",
)
wrong("op is ignored", "op ignored", ring(combine="torch.add"))
wrong("divides twice", "divided wrongly", ring(average="work = work / n / n"))
wrong("divides by a constant 2", "divided wrongly", ring(average="work = work / 2"))
wrong(
    "averages always",
    "mean instead of sum",
    ring(back="work = work / n if op == dist.ReduceOp.SUM else work; tensor.copy_(work.view(tensor.shape))"),
)
wrong("adds up in bfloat16", "adds up in 16 bits", ring(work="flat"))
wrong(
    "adds up in float16",
    "adds up in 16 bits",
    ring(work="flat.float() if flat.dtype == torch.bfloat16 else flat"),
)
wrong("the average is not divided", "not divided", ring(average="pass"))
wrong(
    "integers are divided by floor division",
    "an average of integers rounded otherwise",
    ring(average="work = work // n if not work.is_floating_point() else work / n"),
)
wrong("integers are divided in place", "an average of integers rounded otherwise", ring(average="work /= n"))
wrong(
    "integers are divided before they are added",
    "an average of integers rounded otherwise",
    ring(
        work="(flat / n).to(flat.dtype) if op == dist.ReduceOp.AVG and not flat.is_floating_point() else "
        "flat.float() if flat.element_size() == 2 else flat",
        average="work = work / n if work.is_floating_point() else work",
    ),
)
wrong("everything through float32", "a detour through float32", ring(work="flat.float()"))
wrong(
    "a copy of a non-contiguous tensor is reduced",
    "works on a copy of a non-contiguous tensor",
    ring(back="tensor.copy_(work.view(tensor.shape)) if tensor.is_contiguous() else None"),
)
wrong(
    "view refuses a non-contiguous tensor",
    "works on a copy of a non-contiguous tensor",
    ring(flat="tensor.view(-1)"),
)
wrong(
    "whole tensor round the ring",
    "whole tensor at each step",
    ring(
        call="""moving = work.clone()
    for _ in range(n - 1):
        incoming = torch.empty_like(moving)
        for w in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, moving, ranks[(ranks.index(dist.get_rank()) + 1) % n]),
            dist.P2POp(dist.irecv, incoming, ranks[ranks.index(dist.get_rank()) - 1]),
        ]):
            w.wait()
        work = combine(work, incoming)
        moving = incoming"""
    ),
)
wrong(
    "places in ranks for ranks",
    "group ranks taken for global ranks",
    ring(number="len(ranks); ranks = [*range(n)] if dist.get_rank() < n else ranks"),
)
wrong("divides by the ranks of the world", "divided wrongly", ring(average="work = work / dist.get_world_size()"))
wrong(
    "rounds to 16 bits before it divides",
    "an average rounded before it is divided",
    ring(average="work = (work.to(flat.dtype) / n if flat.is_floating_point() else work / n)"),
)
wrong("no second half", "no all-gather", ring(call=HALVES.partition("; all_gather")[0]))
wrong("the rest is cut off", "remainder dropped",
      ring(call=HALVES.replace("work.tensor_split(n)", "work[: len(work) // n * n].tensor_split(n)")))  # fmt: skip
wrong("rows of equal length", "needs sizes that divide",
      ring(call=HALVES.replace("work.tensor_split(n)", "list(work.view(n, -1))")))  # fmt: skip
wrong("nothing is reduced", "nothing added up",
      ring(call=HALVES.replace("reduce_scatter(chunks, ranks, combine); ", "")))  # fmt: skip
wrong("clears what it is a view of", "writes beside the view",
      ring(back="result, base = work.clone(), tensor if tensor._base is None else tensor._base; base.zero_(); "
                    "tensor.copy_(result.view(tensor.shape))"))  # fmt: skip
WRONG.changed("no reduce-scatter", "nothing added up", ("    reduce_scatter(wide, ranks, combine)\n", ""))
WRONG.changed("the sum stays in float32", "nothing added up", ("    narrow[place].copy_(wide[place])", "    pass"))
WRONG.changed(
    "maximum for add", "another operation", ("dist.ReduceOp.SUM: torch.add", "dist.ReduceOp.SUM: torch.maximum")
)
WRONG.changed(
    "every average cut", "cut to whole numbers", ('None if partial.is_floating_point() else "trunc"', '"trunc"')
)
wrong(
    "the last rank is left out of the sum",
    "contributions missing",
    ring(
        call=HALVES.replace(
            "reduce_scatter(chunks, ranks, combine)",
            "dist.get_rank() != ranks[-1] and reduce_scatter(chunks[:-1], ranks[:-1], combine)",
        )
    ),
)
WRONG.changed("works on a clone", "not in place", ("source = tensor.detach()", "source = tensor.detach().clone()"))
WRONG.changed("no view", "cut by rows", ("source.contiguous().view(-1)", "source.contiguous()"))
WRONG.changed(
    "float32 for sums alone",
    "adds up in 16 bits",
    (
        "flat.float() if flat.dtype in (torch.bfloat16, torch.float16) else flat",
        "flat.float() if flat.dtype in (torch.bfloat16, torch.float16) and combine is torch.add else flat",
    ),
)
WRONG.changed(
    "the mean of two in each step",
    "averaged pair by pair",
    (
        "dist.ReduceOp.AVG: torch.add",
        "dist.ReduceOp.AVG: lambda a, b, out: out.copy_(torch.div(a + b, 2, rounding_mode=None "
        'if a.is_floating_point() else "trunc"))',
    ),
    ("if op == dist.ReduceOp.AVG:", "if False:"),
)
WRONG.changed(
    "all floats in float64",
    "wider than the tensor",
    (
        "flat.float() if flat.dtype in (torch.bfloat16, torch.float16) else flat",
        "flat.double() if flat.is_floating_point() else flat",
    ),
)
WRONG.changed(
    "float32 in the ring, 16 bits between the steps",
    "adds up in 16 bits",
    ("partial = flat.float() if flat.dtype in (torch.bfloat16, torch.float16) else flat", "partial = flat"),
    (
        "reduce_scatter(wide, ranks, combine)",
        "reduce_scatter(wide, ranks, lambda a, b, out: out.copy_(combine(a.float(), b.float())) "
        "if a.element_size() == 2 else combine(a, b, out=out))",
    ),
)
WRONG.changed(
    "copied back by columns",
    "written back in another order",
    ("source.copy_(flat.view(source.shape))", "source.copy_(flat.view(source.T.shape).T)"),
)
WRONG.changed(
    "the smallest for the largest",
    "another operation",
    ("dist.ReduceOp.MAX: torch.maximum", "dist.ReduceOp.MAX: torch.minimum"),
)
WRONG.changed(
    "a product is a sum",
    "op ignored",
    ("dist.ReduceOp.PRODUCT: torch.mul", "dist.ReduceOp.PRODUCT: torch.add"),
)
WRONG.changed(
    "float32 for bfloat16 alone",
    "adds up in 16 bits",
    ("in (torch.bfloat16, torch.float16)", "== torch.bfloat16"),
)
WRONG.changed(
    "to the nearest integer",
    "an average of integers rounded otherwise",
    (
        'wide[place].div_(size, rounding_mode=None if partial.is_floating_point() else "trunc")',
        "wide[place].copy_(wide[place] / size if partial.is_floating_point() else (wide[place] / size).round())",
    ),
)
WRONG.changed(
    "chunk for tensor_split",
    "fewer chunks than ranks",
    ("partial.tensor_split(size), flat.tensor_split(size)", "partial.chunk(size), flat.chunk(size)"),
)
WRONG.changed(
    "puts the result under tensor.data",
    "works on a copy of a non-contiguous tensor",
    (
        ("    if not source.is_contiguous():\n        source.copy_(flat.view(source.shape))\n"),
        "    tensor.data = flat.clone().view(source.shape)\n",
    ),
)
wrong(
    "as many chunks as the world has ranks",
    "chunks for all ranks of the world",
    ring(number="dist.get_world_size()", average="work = work / len(ranks)"),
)
WRONG.changed(
    "its rank for its place", "a rank for a place in ranks", ("ranks.index(dist.get_rank())", "dist.get_rank()")
)
WRONG.changed(
    "all ranks of the world",
    "group ranks taken for global ranks",
    ("    place, size", "    ranks = range(dist.get_world_size())\n    place, size"),
)
WRONG.changed(
    "who takes part returns",
    "nobody sent anything",
    ("    place, size", "    if dist.get_rank() in ranks:\n        return\n    place, size"),
)
