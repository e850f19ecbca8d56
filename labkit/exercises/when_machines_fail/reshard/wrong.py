"""Wrong answers to reshard, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

PAD = "torch.nn.functional.pad(torch.cat(pieces), (0, mine - (end - begin)))"
END = "min(begin + mine, size)"

changed("no padding", "not padded", (PAD, "torch.cat(pieces)"))
changed("reads their padding", "padding in the middle",
        ("    for name, size in sizes.items():\n",
         "    for name, size in sizes.items():\n        size += -size % saved_ranks\n"))  # fmt: skip
changed("its own file", "one file each", ("in range(saved_ranks)", "in [min(rank, saved_ranks - 1)]"),
        ("max(begin, saved * length), min(end, (saved + 1) * length)", "saved * length, (saved + 1) * length"),
        (PAD, "torch.nn.functional.pad(torch.cat(pieces)[:mine], (0, max(0, mine - length)))"))  # fmt: skip
WHOLE = """def load_part(rank, num_ranks, saved_ranks, sizes, read):
    parts = {}
    for name, size in sizes.items():
        length = -(-size // saved_ranks)
        whole = torch.cat([read(saved, name, 0, length) for saved in range(saved_ranks)])[:size]
        padded = torch.nn.functional.pad(whole, (0, -size % num_ranks))
        parts[name] = padded.view(num_ranks, -1)[rank]
    return parts
"""
WRONG.wrong("reads all of it", "everything read", WHOLE)
WRONG.wrong(
    "every so-manieth", "dealt out", WHOLE.replace("padded.view(num_ranks, -1)[rank]", "padded[rank::num_ranks]")
)
changed("whole shards that overlap", "padding read",
        ("read(saved, name, first - saved * length, last - saved * length)",
         "read(saved, name, 0, length)[first - saved * length : last - saved * length]"))  # fmt: skip
changed("counts from the tensor's beginning", "beyond the shard",
        ("first - saved * length, last - saved * length", "first, last"))  # fmt: skip
changed(
    "zeros of its own",
    "another dtype",
    (PAD, "torch.cat([torch.cat(pieces), torch.zeros(mine - (end - begin))]) if end > begin else torch.zeros(mine)"),
)
changed("rounds down", "rounded down", ("mine, length = -(-size // num_ranks),", "mine, length = size // num_ranks,"))
changed("rounds saved shards down", "saved shards rounded down",
        ("-(-size // num_ranks), -(-size // saved_ranks)", "-(-size // num_ranks), size // saved_ranks"))  # fmt: skip
WRONG.wrong(
    "element by element, rounded down", "saved shards rounded down",
    """def load_part(rank, num_ranks, saved_ranks, sizes, read):
    parts = {}
    for name, size in sizes.items():
        mine, length = -(-size // num_ranks), max(1, size // saved_ranks)
        parts[name] = read(0, name, 0, 0).new_zeros(mine)
        for place in range(mine):
            number = rank * mine + place
            if number < size:
                saved, at = divmod(number, length)
                parts[name][place : place + 1] = read(saved, name, at, at + 1)
    return parts
""",
)  # fmt: skip
changed("joins what it read", "no piece at all", ("pieces = [read(0, name, 0, 0)]", "pieces = []"))
changed("a list", "not a dict of tensors", ("    return parts\n", "    return list(parts.values())\n"))
WRONG.right(
    "element by element",
    """def load_part(rank, num_ranks, saved_ranks, sizes, read):
    parts = {}
    for name, size in sizes.items():
        mine, length = -(-size // num_ranks), -(-size // saved_ranks)
        parts[name] = read(0, name, 0, 0).new_zeros(mine)
        for place in range(mine):
            number = rank * mine + place
            if number < size:
                saved, at = divmod(number, length)
                parts[name][place : place + 1] = read(saved, name, at, at + 1)
    return parts
""",
)
changed("a saved shard ends where it begins", "elements are missing", ("(saved + 1) * length", "saved * length"))
changed("begins at its rank", "begins elsewhere", ("min(rank * mine, size)", "min(rank, size)"))
changed("a shard read twice", "elements too many", ("pieces = [read(0, name, 0, 0)]", "pieces = [read(0, name, 0, 1)]"))
WRONG.right(
    "a walk along the saved shards",
    """def load_part(rank, num_ranks, saved_ranks, sizes, read):
    parts = {}
    for name, size in sizes.items():
        mine, length = (size + num_ranks - 1) // num_ranks, (size + saved_ranks - 1) // saved_ranks
        empty = read(0, name, 0, 0)
        part, at = empty.new_zeros(mine), rank * mine
        end = min(at + mine, size)
        while at < end:
            saved, begin = divmod(at, length)
            upto = min(length, begin + end - at)
            part[at - rank * mine :][: upto - begin] = read(saved, name, begin, upto)
            at += upto - begin
        parts[name] = part
    return parts
""",
)
changed(
    "zeros in front", "zeros in front", (PAD, PAD.replace("(0, mine - (end - begin))", "(mine - (end - begin), 0)"))
)
BOUNDS = "        begin = min(rank * mine, size)\n        end = min(begin + mine, size)\n"
changed("borders rounded one by one", "lengths that differ",
        (BOUNDS, "        begin, end = rank * size // num_ranks, (rank + 1) * size // num_ranks\n"))  # fmt: skip
changed("the first ranks one longer", "lengths that differ",
        (BOUNDS, "        each, rest = divmod(size, num_ranks)\n        begin = rank * each + min(rank, rest)\n"
                 "        end = begin + each + (rank < rest)\n"))  # fmt: skip
changed("rounds both lengths down", "rounded down",
        ("-(-size // num_ranks), -(-size // saved_ranks)", "size // num_ranks, size // saved_ranks"))  # fmt: skip
changed("the first tensor's dtype for all", "another dtype",
        ("pieces = [read(0, name, 0, 0)]", "pieces = [read(0, next(iter(sizes)), 0, 0)]"))  # fmt: skip
changed(
    "float64 for all", "another dtype",
    ("pieces = [read(0, name, 0, 0)]", "pieces = [torch.zeros(0, dtype=torch.float64)]"),
)  # fmt: skip
