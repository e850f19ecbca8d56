"""Wrong answers to who_am_i, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()


wrong = WRONG.within("def who_am_i(environ):\n    ...\n")

wrong(
    "takes the local rank",
    "local rank for rank",
    'environ["RANK"]\nreturn int(environ["LOCAL_RANK"]), int(environ["WORLD_SIZE"])',
)
wrong("returns texts", "texts, not numbers", 'return environ["RANK"], environ["WORLD_SIZE"]')
wrong(
    "has defaults",
    "a default hides it",
    'return int(environ.get("RANK", 0)), int(environ.get("WORLD_SIZE", 1))',
)
wrong(
    "the other way round",
    "the pair the other way round",
    'return int(environ["WORLD_SIZE"]), int(environ["RANK"])',
)
wrong(
    "one machine only",
    "only the ranks of one machine",
    'environ["WORLD_SIZE"]\nreturn int(environ["RANK"]), int(environ["LOCAL_WORLD_SIZE"])',
)
wrong(
    "an error of another kind",
    "another error",
    'return int(environ.get("RANK")), int(environ.get("WORLD_SIZE"))',
)
wrong("prints it", "returns nothing", 'print(int(environ["RANK"]), int(environ["WORLD_SIZE"]))')
wrong(
    "the notebook's own environment",
    "not from the argument",
    'return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))',
)
wrong("asks the group", "not from the argument", "return dist.get_rank(), dist.get_world_size()")
wrong(
    "looks for other names",
    "an error where nothing is missing",
    'return int(environ["RANK"]), int(environ["NUM_PROCS"])',
)
wrong(
    "None where a name is missing",
    "None where a name is missing",
    'if "RANK" not in environ or "WORLD_SIZE" not in environ:\n    return None\n'
    'return int(environ["RANK"]), int(environ["WORLD_SIZE"])',
)
wrong(
    "a world of one by default",
    "a default hides it",
    'return int(environ["RANK"]), int(environ.get("WORLD_SIZE", 1))',
)
wrong(
    "the local rank for the size",
    "local rank for the world size",
    'environ["WORLD_SIZE"]\nreturn int(environ["RANK"]), int(environ["LOCAL_RANK"])',
)
wrong("floats", "numbers with a fraction", 'return float(environ["RANK"]), float(environ["WORLD_SIZE"])')
