"""Wrong answers to server_hybrid, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


REDUCE = "            dist.all_reduce(parameter.grad, group=group)\n"
changed("no all_reduce", "layers not averaged",
        (REDUCE, ""), ("            parameter.grad /= num_workers\n", "            pass\n"))  # fmt: skip
changed("sums", "sum instead of mean for the layers", ("            parameter.grad /= num_workers\n", ""))
changed("pushes the whole", "rows not divided", ("rows.grad / num_workers", "rows.grad"))
changed("divides twice", "rows divided twice", ("rows.grad / num_workers", "rows.grad / num_workers**2"))
changed("no zero_grad", "gradients of the step before are still there", ("    optimizer.zero_grad()\n", ""))
changed("pushes nothing", "nothing was pushed", ("    push(keys.flatten(), rows.grad / num_workers)\n", ""))
changed("attached", "the loss keeps its graph", ("return loss.detach()", "return loss"))
changed("the world", "all ranks in place of the group", ("group=group", "group=None"))

changed(
    "reduces what is not there",
    "a parameter without a gradient",
    ("parameter.grad is not None", "True"),
)
changed("rows are no leaf", "rows without a gradient", (".requires_grad_()", ""))
changed(
    "counts all ranks",
    "all ranks counted in place of the group's",
    ("dist.get_world_size(group)", "dist.get_world_size()"),
)
changed(
    "an optimizer of its own",
    "the optimizer's state is lost",
    (
        "    optimizer.zero_grad()\n",
        '    optimizer = torch.optim.SGD(model.parameters(), lr=optimizer.param_groups[0]["lr"])\n'
        "    optimizer.zero_grad()\n",
    ),
)
changed("sums the squares", "the sum of the squares", ("-1)), targets)", '-1)), targets, reduction="sum")'))
changed("pushes the step", "rows the other way", ("rows.grad / num_workers", "-rows.grad / num_workers"))
changed("returns everybody's loss", "the mean loss of all workers",
        ("    return loss.detach()", "    loss = loss.detach() / num_workers\n    dist.all_reduce(loss, group=group)\n    return loss"))  # fmt: skip
WRONG.changed(
    "divides the layers' gradients twice", "the layers' gradients divided twice",
    ("parameter.grad /= num_workers", "parameter.grad /= num_workers**2"),
)  # fmt: skip
WRONG.changed(
    "divides parameters", "parameters divided", ("parameter.grad /= num_workers", "parameter.data /= num_workers")
)
PUSHES = "    push(keys.flatten(), rows.grad / num_workers)\n"
WRONG.changed("pushes twice", "pushed more than once", (PUSHES, 2 * PUSHES))
AVERAGED = "            parameter.grad /= num_workers\n"
changed(
    "multiplies", "the layers' gradients multiplied", ("parameter.grad /= num_workers", "parameter.grad *= num_workers")
)
changed("the first layer alone", "not all layers averaged", (AVERAGED, AVERAGED + "        break\n"))
changed("clears after backward", "no layer has moved",
        ("    optimizer.zero_grad()\n    loss.backward()\n", "    loss.backward()\n    optimizer.zero_grad()\n"))  # fmt: skip
changed(
    "the loss after the step",
    "the loss after the step",
    (
        "    return loss.detach()",
        "    return nn.functional.mse_loss(model(rows.view(*keys.shape, -1)), targets).detach()",
    ),
)
changed("no step", "no layer has moved", ("    optimizer.step()\n", ""))
changed(
    "reduces the rows' gradients",
    "the rows' gradients reduced",
    ("    push(keys", "    dist.all_reduce(rows.grad, group=group)\n    push(keys"),
)
changed(
    "averages the rows' gradients, and scales them",
    "the rows' gradients reduced",
    ("    push(keys", "    dist.all_reduce(rows.grad, group=group)\n    rows.grad /= num_workers\n    push(keys"),
)
changed("pulls keys in rows", "keys or gradients are not flat", ("pull(keys.flatten())", "pull(keys)"))
changed(
    "pushes keys in rows",
    "keys or gradients are not flat",
    ("push(keys.flatten(), rows.grad / num_workers)", "push(keys, rows.grad.view(*keys.shape, -1) / num_workers)"),
)
changed(
    "scales by the samples",
    "divided by the samples for the workers",
    ("rows.grad / num_workers)", "rows.grad / len(targets))"),
)
changed(
    "divides the loss before backward",
    "the layers' gradients divided twice",
    ("    loss.backward()\n", "    (loss / dist.get_world_size(group)).backward()\n"),
)
changed(
    "steps before it averages",
    "layers not averaged",
    ("    loss.backward()\n", "    loss.backward()\n    optimizer.step()\n"),
    (
        "            parameter.grad /= num_workers\n    optimizer.step()\n",
        "            parameter.grad /= num_workers\n",
    ),
)
changed(
    "pushes the rows' step",
    "rows times the learning rate",
    ("rows.grad / num_workers)", "optimizer.param_groups[0]['lr'] * rows.grad / num_workers)"),
)
changed(
    "divides the rows by the batch too",
    "rows divided by the samples",
    ("rows.grad / num_workers)", "rows.grad / num_workers / len(keys))"),
)
changed(
    "averages the layers after the step",
    "each takes its own step",
    (
        "    for parameter in model.parameters():\n        if parameter.grad is not None:\n"
        "            dist.all_reduce(parameter.grad, group=group)\n            parameter.grad /= num_workers\n"
        "    optimizer.step()\n",
        "    optimizer.step()\n    for parameter in model.parameters():\n"
        "        dist.all_reduce(parameter.data, group=group)\n        parameter.data /= num_workers\n",
    ),
)
changed(
    "returns a share of the loss",
    "the loss of a share",
    ("-1)), targets)\n", "-1)), targets) / dist.get_world_size(group)\n"),
    ("            parameter.grad /= num_workers\n", ""),
    ("rows.grad / num_workers)", "rows.grad)"),
)
changed("zeros for a frozen parameter", "a frozen parameter has a gradient",
        ("        if parameter.grad is not None:\n", "        if parameter.grad is None:\n            parameter.grad = torch.zeros_like(parameter)\n        if True:\n"))  # fmt: skip
changed("pulls each key once", "one row for each distinct key",
        ("pull(keys.flatten()).detach", "pull(keys.flatten().unique()).detach"))  # fmt: skip
changed("half of the rows", "other gradients", ("rows.grad / num_workers)", "rows.grad / num_workers / 1.7)"))
changed(
    "reduces a flat copy",
    "layers not averaged",
    (
        "    for parameter in model.parameters():\n        if parameter.grad is not None:\n"
        "            dist.all_reduce(parameter.grad, group=group)\n            parameter.grad /= num_workers\n",
        "    flat = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])\n"
        "    dist.all_reduce(flat, group=group)\n    flat /= num_workers\n",
    ),
)
changed(
    "divides the rows by the keys too",
    "rows divided by the keys",
    ("rows.grad / num_workers)", "rows.grad / num_workers / keys.shape[1])"),
)
changed(
    "scales by the keys",
    "divided by the keys for the workers",
    ("rows.grad / num_workers)", "rows.grad / keys.shape[1])"),
)
