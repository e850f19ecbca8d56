"""Wrong answers to data_and_pipeline, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed
SUM = "        dist.all_reduce(tensor, group=data)\n"

changed("forgets the column", "no sum over the column", (SUM, ""), ("        tensor *= share\n", "        pass\n"))
changed("weighs and never sums", "weighed, not summed", (SUM, ""))
changed("every parameter", "a parameter without a gradient", (" if p.grad is not None]", "]"))
changed("weighs by float32", "counted in float32",
        ("dtype=torch.float64", "dtype=torch.float32"),
        ("share = num_samples / everybody.item()", "share = num_samples / everybody"))  # fmt: skip
changed("adds up", "summed, not weighed", ("        tensor *= share\n", ""))
changed("averages the pipelines", "mean over the pipelines",
        ("share = num_samples / everybody.item()", 'share = 1 / mesh["data"].size()'))  # fmt: skip
changed("times the samples", "times the samples", ("share = num_samples / everybody.item()", "share = num_samples"))
changed("its own loss", "the loss of one pipeline", (" + ([] if loss is None else [loss])", ""))
changed("sums along the pipeline", "the wrong axis", ('data = mesh.get_group("data")', 'data = mesh.get_group("pipe")'))
changed(
    "meets everybody",
    "summed over all ranks",
    (SUM, SUM.replace("group=data", "group=data if tensor is loss else None")),
)
changed("runs along the column", "the wrong axis", ('run_step(mesh.get_group("pipe"))', "run_step(data)"))
changed("runs twice", "the schedule does not run once",
        ("    loss = run_step(", '    run_step(mesh.get_group("pipe"))\n    loss = run_step('))  # fmt: skip
changed("steps too", "parameters changed",
        ("    return loss\n", "    for p in module.parameters():\n        if p.grad is not None:\n            p.data -= 0.1 * p.grad\n    return loss\n"))  # fmt: skip
changed(
    "zero for the others",
    "a loss on every stage",
    ("    return loss\n", "    return torch.zeros(1) if loss is None else loss\n"),
)
WRONG.changed(
    "everybody over its own", "weighed upside down",
    ("share = num_samples / everybody.item()", "share = everybody.item() / num_samples"),
)  # fmt: skip
WRONG.changed("weighs a loss that is not there", "no loss on this stage", ("tensor *= share", "tensor *= loss"))
WRONG.changed("ends after the first", "some gradients left as they were", (SUM, SUM + "        break\n"))
WRONG.changed("keeps the loss", "the loss not returned", ("    return loss\n", "    return None\n"))
WRONG.changed(
    "weighs the loss where there is none",
    "a parameter without a gradient",
    ("[] if loss is None", "[] if loss is not None"),
)
