"""Wrong answers to lesson 00, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.checks.wrong_answer import WrongAnswer

WRONG: list[WrongAnswer] = []


def wrong(exercise: str, name: str, mistake: str, body: str) -> None:
    heads = {
        "average": "def average(tensor):",
        "who_am_i": "def who_am_i(environ):",
        "damaged": "def damaged(before, after):",
        "never_heard": "def never_heard(messages):",
    }
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    WRONG.append(WrongAnswer(exercise, name, mistake, f"{heads[exercise]}\n{lines}"))


# ---- average

wrong("average", "only adds", "sum called mean", "dist.all_reduce(tensor)")
wrong(
    "average",
    "the quotient gets a new name",
    "sum called mean",
    "dist.all_reduce(tensor)\ntensor = tensor / dist.get_world_size()",
)
wrong(
    "average",
    "returns a new tensor",
    "not in place",
    "total = tensor.clone()\ndist.all_reduce(total)\nreturn total / dist.get_world_size()",
)
wrong(
    "average",
    "divides before and after",
    "divided twice",
    "tensor /= dist.get_world_size()\ndist.all_reduce(tensor)\ntensor /= dist.get_world_size()",
)
wrong("average", "divides by four", "number of ranks written into the code", "dist.all_reduce(tensor)\ntensor /= 4")
wrong(
    "average",
    "rank 0 alone divides",
    "divided on rank 0 only",
    "dist.all_reduce(tensor)\nif dist.get_rank() == 0:\n    tensor /= dist.get_world_size()",
)
wrong(
    "average",
    "reduces to rank 0",
    "only rank 0 has it",
    "dist.reduce(tensor, dst=0)\nif dist.get_rank() == 0:\n    tensor /= dist.get_world_size()",
)
wrong("average", "mean of its own elements", "mean of the elements", "tensor.fill_(tensor.mean())")
wrong(
    "average",
    "rank 0 alone calls",
    "not every rank takes part",
    "if dist.get_rank() == 0:\n    dist.all_reduce(tensor)\n    tensor /= dist.get_world_size()",
)
wrong(
    "average",
    "divides what all_reduce returns",
    "what all_reduce returns",
    "tensor = dist.all_reduce(tensor) / dist.get_world_size()",
)

# ---- who_am_i

wrong(
    "who_am_i",
    "takes the local rank",
    "local rank for rank",
    'environ["RANK"]\nreturn int(environ["LOCAL_RANK"]), int(environ["WORLD_SIZE"])',
)
wrong("who_am_i", "returns texts", "texts, not numbers", 'return environ["RANK"], environ["WORLD_SIZE"]')
wrong(
    "who_am_i",
    "has defaults",
    "a default hides it",
    'return int(environ.get("RANK", 0)), int(environ.get("WORLD_SIZE", 1))',
)
wrong(
    "who_am_i",
    "the other way round",
    "the pair the other way round",
    'return int(environ["WORLD_SIZE"]), int(environ["RANK"])',
)
wrong(
    "who_am_i",
    "one machine only",
    "the world ends at the machine",
    'environ["WORLD_SIZE"]\nreturn int(environ["RANK"]), int(environ["LOCAL_WORLD_SIZE"])',
)
wrong(
    "who_am_i",
    "an error of another kind",
    "another error",
    'return int(environ.get("RANK")), int(environ.get("WORLD_SIZE"))',
)
wrong("who_am_i", "prints it", "returns nothing", 'print(int(environ["RANK"]), int(environ["WORLD_SIZE"]))')
wrong(
    "who_am_i",
    "the notebook's own environment",
    "not from the argument",
    'return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))',
)
wrong("who_am_i", "asks the group", "not from the argument", "return dist.get_rank(), dist.get_world_size()")
wrong(
    "who_am_i",
    "looks for other names",
    "an error where nothing is missing",
    'return int(environ["RANK"]), int(environ["NUM_PROCS"])',
)

# ---- damaged

wrong(
    "damaged",
    "all that differ",
    "dropped counted as damaged",
    "return (after != before).nonzero().flatten().tolist()",
)
wrong(
    "damaged",
    "compares magnitudes",
    "magnitudes compared",
    "return ((after != 0) & (after.abs() != before.abs())).nonzero().flatten().tolist()",
)
wrong(
    "damaged",
    "looks at signs",
    "signs alone",
    "return (after * before < 0).nonzero().flatten().tolist()",
)
wrong("damaged", "counts", "a count instead of places", "return int(((after != 0) & (after != before)).sum())")
wrong("damaged", "a mask", "a tensor or flags instead of places", "return ((after != 0) & (after != before)).tolist()")
wrong(
    "damaged", "a tensor", "a tensor or flags instead of places", "return ((after != 0) & (after != before)).nonzero()"
)

# ---- never_heard

wrong(
    "never_heard",
    "takes 0 for nobody",
    "0 taken for not received",
    "return sorted({m.src for m in messages if not m.received})",
)
wrong(
    "never_heard",
    "who should have received",
    "receivers instead of senders",
    "return sorted({m.dst for m in messages if m.received is None})",
)
wrong(
    "never_heard",
    "one entry a message",
    "a rank more than once",
    "return sorted(m.src for m in messages if m.received is None)",
)
wrong(
    "never_heard",
    "those that arrived",
    "those who were heard",
    "return sorted({m.src for m in messages if m.received is not None})",
)
wrong(
    "never_heard",
    "in any order",
    "not in order",
    "return sorted({m.src for m in messages if m.received is None}, reverse=True)",
)
wrong(
    "never_heard",
    "all but those who were heard",
    "one message that arrived is taken for all",
    "return sorted({m.src for m in messages} - {m.src for m in messages if m.received is not None})",
)
