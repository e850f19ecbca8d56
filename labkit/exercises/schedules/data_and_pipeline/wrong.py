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
COUNT = "dist.all_reduce(everybody, group=data)"
changed("samples of all ranks", "samples counted along the pipeline", (COUNT, "dist.all_reduce(everybody)"))
changed(
    "samples of the row", "samples counted along the pipeline", (COUNT, COUNT.replace("data", "mesh.get_group('pipe')"))
)
changed(
    "averages what is weighed", "weighed and averaged", (SUM, SUM.replace("tensor,", "tensor, op=dist.ReduceOp.AVG,"))
)
ZEROS = "    for p in module.parameters():\n        if p.grad is None:\n            p.grad = torch.zeros_like(p)\n    for tensor in ["
changed("zeros for None", "a gradient in place of None", ("    for tensor in [", ZEROS))
changed("zeros for the unused", "a gradient in place of None",
        ("    for tensor in [", ZEROS.replace("p.grad is None", "p.requires_grad and p.grad is None")))  # fmt: skip
changed("reduces to the first pipeline", "summed on one pipeline alone",
        (SUM, "        dist.reduce(tensor, group=data, group_dst=0)\n"))  # fmt: skip
changed("the loss of the first pipeline alone", "the loss not returned",
        ("    return loss\n", "    return loss if mesh.get_coordinate()[0] == 0 else None\n"))  # fmt: skip
LOSS = " + ([] if loss is None else [loss])"
changed("adds up losses", "the loss of one pipeline", (LOSS, ""),
        ("    return loss\n", "    if loss is not None:\n        dist.all_reduce(loss, group=data)\n    return loss\n"))  # fmt: skip
changed("the mean of the pipelines' losses", "the loss of one pipeline", (LOSS, ""),
        ("    return loss\n", "    if loss is not None:\n        dist.all_reduce(loss, group=data)\n        loss /= mesh['data'].size()\n    return loss\n"))  # fmt: skip
changed("the loss for everybody", "a loss on every stage", (LOSS, ""),
        ("    return loss\n", "    loss = torch.zeros(1, dtype=torch.float64) if loss is None else loss * share\n    dist.all_reduce(loss)\n    return loss\n"))  # fmt: skip
changed("weighs before the pipeline runs", "summed, not weighed",
        ('    loss = run_step(mesh.get_group("pipe"))\n', ""),
        ("        tensor *= share\n", ""),
        ("    for tensor in [", """\
    for p in module.parameters():
        if p.grad is not None:
            p.grad *= share
    loss = run_step(mesh.get_group("pipe"))
    if loss is not None:
        loss *= share
    for tensor in ["""))  # fmt: skip
changed("over the mean of samples", "weights that add up to N",
        ("everybody.item()\n", "(everybody.item() / mesh['data'].size())\n"))  # fmt: skip
changed("a number for the loss", "the loss not returned",
        ("    return loss\n", "    return None if loss is None else loss.item()\n"))  # fmt: skip
changed("sums copies", "no sum over the column", ("        tensor *= share\n", "        tensor = tensor * share\n"))
WEIGHED = "        tensor *= share\n"
changed("weighs what is summed", "weighed after the sum", (WEIGHED + SUM, SUM + WEIGHED))
changed("the means over all samples", "divided by all samples alone", ("num_samples / every", "1 / every"))
changed("a smaller mesh", "a mesh for a group", ('run_step(mesh.get_group("pipe"))', 'run_step(mesh["pipe"])'))
changed("adds what was there", "an earlier gradient added",
        ('    loss = run_step(mesh.get_group("pipe"))\n', """\
    before = {p: p.grad.clone() for p in module.parameters() if p.grad is not None}
    loss = run_step(mesh.get_group("pipe"))
"""),
        ("    return loss\n", "    for p, old in before.items():\n        p.grad += old\n    return loss\n"))  # fmt: skip
changed("runs the step last", "no sum over the column",
        ('    loss = run_step(mesh.get_group("pipe"))\n', ""),
        ("([] if loss is None else [loss])", "[]"),
        ("    return loss\n", '    return run_step(mesh.get_group("pipe"))\n'))  # fmt: skip
