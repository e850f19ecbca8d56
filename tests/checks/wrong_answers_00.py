"""Wrong answers to lesson 00, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.checks.wrong_answer import WrongAnswer

WRONG: list[WrongAnswer] = []


def wrong(exercise: str, name: str, mistake: str, body: str) -> None:
    heads = {
        "0.1": "def average(tensor):",
        "0.2": "def who_am_i(environ):",
        "0.3": "def damaged(before, after):",
        "0.4": "def never_heard(messages):",
    }
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    WRONG.append(WrongAnswer(exercise, name, mistake, f"{heads[exercise]}\n{lines}"))


# ---- 0.1

wrong("0.1", "only adds", "sum called mean", "dist.all_reduce(tensor)")
wrong(
    "0.1",
    "the quotient gets a new name",
    "sum called mean",
    "dist.all_reduce(tensor)\ntensor = tensor / dist.get_world_size()",
)
wrong(
    "0.1",
    "returns a new tensor",
    "not in place",
    "total = tensor.clone()\ndist.all_reduce(total)\nreturn total / dist.get_world_size()",
)
wrong(
    "0.1",
    "divides before and after",
    "divided twice",
    "tensor /= dist.get_world_size()\ndist.all_reduce(tensor)\ntensor /= dist.get_world_size()",
)
wrong("0.1", "divides by four", "number of ranks written into the code", "dist.all_reduce(tensor)\ntensor /= 4")
wrong(
    "0.1",
    "rank 0 alone divides",
    "divided on rank 0 only",
    "dist.all_reduce(tensor)\nif dist.get_rank() == 0:\n    tensor /= dist.get_world_size()",
)
wrong(
    "0.1",
    "reduces to rank 0",
    "only rank 0 has it",
    "dist.reduce(tensor, dst=0)\nif dist.get_rank() == 0:\n    tensor /= dist.get_world_size()",
)
wrong("0.1", "mean of its own elements", "mean of the elements", "tensor.fill_(tensor.mean())")
wrong(
    "0.1",
    "rank 0 alone calls",
    "not every rank takes part",
    "if dist.get_rank() == 0:\n    dist.all_reduce(tensor)\n    tensor /= dist.get_world_size()",
)
wrong(
    "0.1",
    "divides what all_reduce returns",
    "what all_reduce returns",
    "tensor = dist.all_reduce(tensor) / dist.get_world_size()",
)

# ---- 0.2

wrong(
    "0.2",
    "takes the local rank",
    "local rank for rank",
    'environ["RANK"]\nreturn int(environ["LOCAL_RANK"]), int(environ["WORLD_SIZE"])',
)
wrong("0.2", "returns texts", "texts, not numbers", 'return environ["RANK"], environ["WORLD_SIZE"]')
wrong(
    "0.2",
    "has defaults",
    "a default hides it",
    'return int(environ.get("RANK", 0)), int(environ.get("WORLD_SIZE", 1))',
)
wrong(
    "0.2",
    "the other way round",
    "the pair the other way round",
    'return int(environ["WORLD_SIZE"]), int(environ["RANK"])',
)
wrong(
    "0.2",
    "one machine only",
    "the world ends at the machine",
    'environ["WORLD_SIZE"]\nreturn int(environ["RANK"]), int(environ["LOCAL_WORLD_SIZE"])',
)
wrong(
    "0.2",
    "an error of another kind",
    "another error",
    'return int(environ.get("RANK")), int(environ.get("WORLD_SIZE"))',
)
wrong("0.2", "prints it", "returns nothing", 'print(int(environ["RANK"]), int(environ["WORLD_SIZE"]))')
wrong(
    "0.2",
    "the notebook's own environment",
    "not from the argument",
    'return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))',
)
wrong("0.2", "asks the group", "not from the argument", "return dist.get_rank(), dist.get_world_size()")
wrong(
    "0.2",
    "looks for other names",
    "an error where nothing is missing",
    'return int(environ["RANK"]), int(environ["NUM_PROCS"])',
)

# ---- 0.3

wrong(
    "0.3",
    "all that differ",
    "dropped counted as damaged",
    "return (after != before).nonzero().flatten().tolist()",
)
wrong(
    "0.3",
    "compares magnitudes",
    "magnitudes compared",
    "return ((after != 0) & (after.abs() != before.abs())).nonzero().flatten().tolist()",
)
wrong(
    "0.3",
    "looks at signs",
    "signs alone",
    "return (after * before < 0).nonzero().flatten().tolist()",
)
wrong("0.3", "counts", "a count instead of places", "return int(((after != 0) & (after != before)).sum())")
wrong("0.3", "a mask", "a tensor or flags instead of places", "return ((after != 0) & (after != before)).tolist()")
wrong("0.3", "a tensor", "a tensor or flags instead of places", "return ((after != 0) & (after != before)).nonzero()")

# ---- 0.4

wrong(
    "0.4",
    "takes 0 for nobody",
    "0 taken for not received",
    "return sorted({m.src for m in messages if not m.received})",
)
wrong(
    "0.4",
    "who should have received",
    "receivers instead of senders",
    "return sorted({m.dst for m in messages if m.received is None})",
)
wrong(
    "0.4",
    "one entry a message",
    "a rank more than once",
    "return sorted(m.src for m in messages if m.received is None)",
)
wrong(
    "0.4",
    "those that arrived",
    "those who were heard",
    "return sorted({m.src for m in messages if m.received is not None})",
)
wrong(
    "0.4",
    "in any order",
    "not in order",
    "return sorted({m.src for m in messages if m.received is None}, reverse=True)",
)
wrong(
    "0.4",
    "all but those who were heard",
    "one message that arrived is taken for all",
    "return sorted({m.src for m in messages} - {m.src for m in messages if m.received is not None})",
)
