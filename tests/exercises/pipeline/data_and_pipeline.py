"""Wrong answers to data_and_pipeline, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
changed = WRONG.changed


changed(
    "forgets the column",
    "no sum over the column",
    ("        dist.all_reduce(tensor, group=data)\n", ""),
    ("    dist.all_reduce(everybody, group=data)\n", ""),
)
changed("every parameter", "a parameter without a gradient", (" if p.grad is not None]", "]"))
changed("weighs by float32", "counted in float32",
        ("dtype=torch.float64", "dtype=torch.float32"), ("share = own / everybody.item()", "share = own / everybody"))  # fmt: skip  # noqa: E501
changed("adds up", "summed, not weighed", ("        tensor *= share\n", ""))
changed(
    "averages the pipelines",
    "mean over the pipelines",
    ("share = own / everybody.item()", 'share = 1 / mesh["data"].size()'),
)
changed("its own loss", "the loss of one pipeline", (" + ([] if loss is None else [loss])", ""))
changed(
    "sums along the pipeline",
    "the wrong axis",
    ('data = mesh.get_group("data")', 'data = mesh.get_group("pipe")'),
)
