"""Wrong answers to quantised_all_reduce, each a mistake that learners make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed, wrong = WRONG.changed, WRONG.wrong

MEAN = "total = sum(map(int8.decompress, theirs)) / size"
BACK = "means = torch.cat([int8.decompress(each) for each in gathered])"
changed("a sum", "sum instead of mean", (MEAN, MEAN.replace(" / size", "")))
changed("divides by the world", "divided by the whole world", (MEAN, MEAN.replace("size", "dist.get_world_size()")))
changed("divides again", "divided twice", (BACK, BACK + " / size"))
changed(
    "keeps its own piece exact",
    "ranks differ",
    (BACK, BACK + "\n    means.view(size, -1)[dist.get_rank(group)] = total"),
)
changed(
    "one scale for all ranks",
    "codes without their scales",
    ("theirs = [pack(codes, scale)", "theirs = [pack(codes, scales[0])"),
)
changed("no filling up", "pieces that do not divide", ("nn.functional.pad(flat, (0, -flat.numel() % size))", "flat"))
changed("view", "taken for contiguous", ("flat = tensor.flatten()", "flat = tensor.view(-1)"))
changed(
    "the whole world",
    "all ranks of the world",
    ("group=group", "group=None"),
    ("get_world_size(group)", "get_world_size()"),
)
wrong(
    "plain all_reduce",
    "floats travel",
    """
def quantised_all_reduce(tensor, group=None):
    total = tensor.clone().contiguous()
    dist.all_reduce(total, group=group)
    return total / dist.get_world_size(group)
""",
)
wrong(
    "gathers everything",
    "everybody gathers everything",
    """
def quantised_all_reduce(tensor, group=None):
    size, int8 = dist.get_world_size(group), Int8()
    packet = int8.compress(tensor)
    gathered = [[torch.empty_like(part.contiguous()) for _ in range(size)] for part in packet.parts]
    for of_ranks, part in zip(gathered, packet.parts):
        dist.all_gather(of_ranks, part.contiguous(), group=group)
    return sum(int8.decompress(replace(packet, parts=parts)) for parts in zip(*gathered)) / size
""",
)
changed(
    "codes in 32 bits", "more than codes travel",
    ("exchange(codes)", "exchange(codes.to(torch.int32)).to(torch.int8)"),
)  # fmt: skip
changed("its own tensor", "only this rank's tensor", ("    return means[", "    means = flat\n    return means["))
changed(
    "its own piece, and no other", "some pieces only",
    (BACK, "means = flat.clone()\n    piece = total.numel()\n    at = dist.get_rank(group) * piece\n"
     "    means[at : at + piece] = total[: len(means[at : at + piece])]"),
)  # fmt: skip
changed(
    "divides in place first", "tensor changed",
    (MEAN, MEAN.replace(" / size", "")), ("flat = tensor.flatten()", "flat = tensor.div_(size).flatten()"),
)  # fmt: skip
changed(
    "exchanges among all ranks", "all ranks of the world",
    ("dist.all_to_all_single(others, mine, group=group)", "dist.all_to_all_single(others, mine)"),
)  # fmt: skip
changed(
    "each rank its own sum", "ranks differ",
    (BACK, BACK + "\n    if dist.get_rank(group) == 0:\n        means.view(size, -1)[0] = total"),
)  # fmt: skip
changed(
    "averages scales and codes", "codes without their scales",
    ("    theirs = [pack", "    scales = scales.mean(0).expand_as(scales).contiguous()\n    theirs = [pack"),
)  # fmt: skip
changed("the filling stays", "shape lost", ("return means[: flat.numel()].view(tensor.shape)", "return means"))
changed(
    "always float32", "dtype lost", ("    return means[: flat.numel()]", "    return means.float()[: flat.numel()]")
)
changed(
    "the mean is rounded by one rank alone", "floats travel",
    ("both = [[torch.empty_like(part) for _ in range(size)] for part in mine]",
     "mine = (total,)\n    both = [[torch.empty_like(total) for _ in range(size)]]"),
    ("gathered = [pack(codes, scale) for codes, scale in zip(*both, strict=True)]", "gathered = both[0]"),
    (BACK, "means = torch.cat(gathered)"),
)  # fmt: skip
changed("scales stay at home", "codes without their scales", ("    scales = exchange(scales)\n", ""))
PIECEWISE = "zip(*(int8.compress(piece).parts for piece in pieces), strict=True)"
ONE_SCALE = "[int8.compress(pieces).parts[0].view_as(pieces), int8.compress(pieces).parts[1].expand(size, 1)]"
changed(
    "one scale for the whole tensor",
    "one scale for all pieces",
    (f"torch.stack(parts) for parts in {PIECEWISE}", f"part.contiguous() for part in {ONE_SCALE}"),
)
changed(
    "one scale for all means",
    "one scale for all pieces",
    (
        "    mine = int8.compress(total).parts\n",
        "    largest = total.abs().max()\n"
        "    dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)\n"
        "    scale = (largest / 127).float().clamp(min=1e-30).reshape(1)\n"
        "    mine = (total / scale).round().clamp(-127, 127).to(torch.int8), scale\n",
    ),
)
