"""Wrong answers to scatter_and_gather, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

CUT = "tensor.tensor_split(count)"
COUNT = "count = min(num_samples, len(devices))"
PIECES = "return [{key: parts[i].to(devices[i]) for key, parts in cut.items()} for i in range(count)]"
JOIN = "return torch.stack(there) if there[0].dim() == 0 else torch.cat(there)"
EQUAL = "sum(there) if len({len(each) for each in there}) == 1 else torch.cat(there)"
NUMBERS = "torch.tensor([each.item() for each in there])"
LISTS = "return [[parts[i].to(devices[i]) for parts in cut.values()] for i in range(count)]"

changed(
    "chunk",
    "pieces as chunk cuts them",
    (CUT, "tensor.chunk(count)"),
    ("range(count)", "range(len(cut[next(iter(cut))]))"),
)
changed("as many pieces as devices", "empty pieces", (COUNT, "count = len(devices)"))
changed("n // N each", "samples lost", (CUT, "tensor[: num_samples // count * count].tensor_split(count)"))
changed(
    "the rest at the end",
    "longer pieces not first",
    (CUT, "tensor.split(sorted(map(len, tensor.tensor_split(count))))"),
)
changed("the whole batch to each", "every device gets all", (CUT, "[tensor] * len(devices)"))
changed("every n-th", "in turns", (CUT, "[tensor[i::count] for i in range(count)]"))
changed("lists of tensors", "pieces that are not dicts", (PIECES, LISTS))
changed("the first tensor only", "keys lost", ("batch.items()", "list(batch.items())[:1]"))
changed("pieces stay", "not on its device", ("parts[i].to(devices[i])", "parts[i]"))
changed("pieces detached", "gradients cut off", ("parts[i].to(devices[i])", "parts[i].detach().to(devices[i])"))
changed("scatter prints", "nothing returned", (PIECES, "print(len(cut))"))

changed("stack for all", "stack for cat", (JOIN, "return torch.stack(there)"))
changed("along the last dimension", "along another dimension", ("torch.cat(there)", "torch.cat(there, dim=-1)"))
changed("the sum of equal ones", "mixed instead of joined", ("torch.cat(there)", EQUAL))
changed("the mean of losses", "mixed instead of joined", ("torch.stack(there)", "torch.stack(there).mean()"))
changed("the last first", "in another order", ("for output in outputs]", "for output in outputs][::-1]"))
changed("the first one's", "only the first", (JOIN, "return there[0]"))
changed("cat for all", "losses cannot be joined", (JOIN, "return torch.cat(there)"))
changed("outputs stay", "not on its device", ("output.to(device)", "output"))
changed("losses as plain numbers", "gradients cut off", ("torch.stack(there)", NUMBERS))
changed("outputs detached", "gradients cut off", ("output.to(device)", "output.detach().to(device)"))
changed("gather prints", "nothing returned", (JOIN, "print(len(there))"))
WRONG.changed(
    "one piece too few", "the last piece is missing", ("for i in range(count)]", "for i in range(count - 1)]")
)
WRONG.changed(
    "hands back a single output",
    "a single loss left as it is",
    (
        "    return torch.stack(there)",
        "    if len(there) == 1:\n        return there[0]\n    return torch.stack(there)",
    ),
)
changed("the first piece to each", "the first piece for everybody", ("parts[i].to", "parts[0].to"))
changed("as long as a key", "too few pieces", ("next(iter(batch.values()))", "next(iter(batch))"))
WRONG.changed(
    "the rest to the last",
    "the remainder in the last piece",
    (
        "tensor.tensor_split(count)",
        "tensor.split([num_samples // count] * (count - 1) + [num_samples - num_samples // count * (count - 1)])",
    ),
)
changed(
    "copies without gradients",
    "gradients cut off",
    ("    there = [output", "    with torch.no_grad():\n        there = [output"),
)
changed(
    "fills up with the last sample",
    "samples repeated",
    (
        COUNT,
        "count = len(devices)\n    more = max(0, count - num_samples)\n"
        "    batch = {key: torch.cat([t, t[-1:].repeat(more, *[1] * (t.dim() - 1))]) for key, t in batch.items()}",
    ),
)
changed(
    "all on one device where samples are few",
    "too few pieces",
    (COUNT, "count = len(devices) if num_samples >= len(devices) else 1"),
)
changed("all pieces on the first device", "not on its device", ("parts[i].to(devices[i])", "parts[i].to(devices[0])"))
changed(
    "stacks and flattens",
    "stack for cat",
    ("torch.cat(there)", "torch.stack(there).flatten(0, 1)"),
)
changed("cuts the features", "cut along another dimension", (CUT, "tensor.tensor_split(count, dim=-1)"))
changed(
    "joins flat outputs", "other dimensions lost", ("torch.cat(there)", "torch.cat([each.flatten() for each in there])")
)
changed(
    "each loss gets a dimension",
    "a column of losses",
    ("torch.stack(there)", "torch.stack([each.reshape(1) for each in there])"),
)
changed(
    "writes into a new tensor",
    "another dtype",
    (
        "else torch.cat(there)",
        "else torch.empty(sum(map(len, there)), *there[0].shape[1:], device=device).copy_(torch.cat(there))",
    ),
)
changed(
    "new tensors of the numbers",
    "another dtype",
    ("parts[i].to(devices[i])", "torch.tensor(parts[i].tolist(), device=devices[i])"),
)
changed("devices from the last", "not on its device", ("parts[i].to(devices[i])", "parts[i].to(devices[-1 - i])"))
