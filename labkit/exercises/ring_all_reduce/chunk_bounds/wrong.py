"""Wrong answers to chunk_bounds, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
whole = WRONG.within("""
def chunk_bounds(numel, num_chunks):
    ...
""")
wrong = WRONG.wrong


whole(
    "end included",
    "end included",
    """
size, rest = divmod(numel, num_chunks)
bounds, start = [], 0
for i in range(num_chunks):
    end = start + size + (i < rest)
    bounds.append((start, end - 1))
    start = end
return bounds
""",
)
whole(
    "remainder dropped",
    "remainder dropped",
    """
size = numel // num_chunks
return [(i * size, (i + 1) * size) for i in range(num_chunks)]
""",
)
whole(
    "remainder in the last chunk",
    "sizes differ by more than one",
    """
size = numel // num_chunks
bounds = [(i * size, (i + 1) * size) for i in range(num_chunks)]
bounds[-1] = (bounds[-1][0], numel)
return bounds
""",
)
whole(
    "as torch.chunk cuts",
    "sizes differ by more than one",
    """
bounds, start = [], 0
for piece in torch.arange(numel).chunk(num_chunks):
    bounds.append((start, start + len(piece)))
    start += len(piece)
return bounds
""",
)
whole(
    "longer chunks last",
    "longer chunks last",
    """
cuts = [i * numel // num_chunks for i in range(num_chunks + 1)]
return list(zip(cuts, cuts[1:]))
""",
)
whole(
    "rounded up beyond the end",
    "beyond the end",
    """
size = -(-numel // num_chunks)
return [(i * size, (i + 1) * size) for i in range(num_chunks)]
""",
)
whole(
    "start and size",
    "size instead of end",
    """
size, rest = divmod(numel, num_chunks)
bounds, start = [], 0
for i in range(num_chunks):
    mine = size + (i < rest)
    bounds.append((start, mine))
    start += mine
return bounds
""",
)
WRONG.changed("prints", "returns nothing", ("    return bounds", "    print(bounds)"))
WRONG.changed(
    "empty chunks left out",
    "wrong number of chunks",
    ("        bounds.append((start, end))\n", "        if end > start:\n            bounds.append((start, end))\n"),
)
WRONG.changed("pairs turned round", "a chunk ends before it starts", ("(start, end)", "(end, start)"))
WRONG.changed("every chunk from the start", "gap or overlap", ("        start = end\n", ""))
WRONG.changed("the last of the longer chunks is short", "elements left out", ("< remainder", "< remainder - 1"))
WRONG.changed("entries of a tensor", "tensors for whole numbers", ("(start, end)", "(torch.tensor(start), end)"))
WRONG.changed("sizes alone", "sizes without places", ("bounds.append((start, end))", "bounds.append(end - start)"))
