"""Wrong answers to lay_out, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()


def plan(name: str, mistake: str, sizes: str, microbatch: str = "1", more: str = "") -> None:
    WRONG.wrong(name, mistake, f"def lay_out(job):\n    return MeshPlan({sizes}, {microbatch}{more})\n")


WRONG.wrong("a dict", "no plan", "def lay_out(job):\n    return {'data': 8, 'pipeline': 8, 'tensor': 8}\n")
plan("no pipeline axis", "other axes", '(("data", job.num_gpus // 8), ("tensor", 8))')
plan("eight everywhere", "not all GPUs", '(("data", 8), ("pipeline", 8), ("tensor", 4))')
plan(
    "stages of unequal size", "stages do not divide", '(("data", job.num_gpus // 64), ("pipeline", 64), ("tensor", 1))'
)
plan(
    "microbatches too large", "microbatches do not divide",
    '(("data", job.num_gpus // 8), ("pipeline", 1), ("tensor", 8))', "3",
)  # fmt: skip
plan("data alone", "does not fit", '(("data", job.num_gpus), ("pipeline", 1), ("tensor", 1))')
DEEP = '(("pipeline", 8), ("data", job.num_gpus // 8), ("tensor", 1))'
plan("one number for all", "not each stage", DEEP, more=", recompute=(1,)")
plan("a layer too few", "layers lost", DEEP, more=", layers=(job.num_layers // 8 - 1,) * 8")
plan("a hundred again", "more than it has", DEEP, more=", recompute=(100,) * 8")
