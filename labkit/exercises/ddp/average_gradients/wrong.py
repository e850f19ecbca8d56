"""Wrong answers to average_gradients, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
whole = WRONG.within("""
def average_gradients(module):
    ...
""")
wrong = WRONG.wrong


LOOP = """
def average_gradients(module):
    for parameter in module.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            {body}
"""

wrong(
    "zeros in place of what is there",
    "gradients set to zero",
    """
def average_gradients(module):
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
""",
)
wrong("sum", "sum instead of mean", LOOP.format(body="dist.all_reduce(parameter.grad)"))
wrong(
    "divided before and after",
    "divided twice",
    LOOP.format(
        body="parameter.grad /= dist.get_world_size(); dist.all_reduce(parameter.grad); "
        "parameter.grad /= dist.get_world_size()"
    ),
)
wrong(
    "divided by two",
    "divided by a constant",
    LOOP.format(body="dist.all_reduce(parameter.grad); parameter.grad /= 2"),
)
wrong(
    "a copy is reduced",
    "never averaged",
    LOOP.format(body="mean = parameter.grad.clone(); dist.all_reduce(mean); mean /= dist.get_world_size()"),
)
wrong(
    "biases are small anyway",
    "biases left out",
    LOOP.format(
        body="""if parameter.dim() > 1:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()"""
    ),
)
whole(
    "module by module",
    "the shared weight counted twice",
    """
for child in module.children():
    for parameter in [*child.parameters(recurse=False)]:
        if parameter.grad is None and parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.requires_grad:
            parameter.grad /= dist.get_world_size()
            dist.all_reduce(parameter.grad)
if isinstance(module.scale, nn.Parameter):
    module.scale.grad /= dist.get_world_size()
    dist.all_reduce(module.scale.grad)
""",
)
wrong(
    "averages the parameters",
    "never averaged",
    LOOP.format(body="dist.all_reduce(parameter.data); parameter.data /= dist.get_world_size()"),
)
whole(
    "skips None",
    "a missing gradient is skipped",
    """
for parameter in module.parameters():
    if parameter.grad is not None:
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
""",
)
whole(
    "reduces frozen parameters",
    "None is reduced",
    """
for parameter in module.parameters():
    dist.all_reduce(parameter.grad)
    parameter.grad /= dist.get_world_size()
""",
)
whole(
    "zeros for frozen parameters too",
    "frozen parameters get zeros",
    """
for parameter in module.parameters():
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    dist.all_reduce(parameter.grad)
    parameter.grad /= dist.get_world_size()
""",
)
whole(
    "zeros are sent and forgotten",
    "the mean was not kept",
    """
for parameter in module.parameters():
    if parameter.requires_grad:
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
""",
)
wrong(
    "only rank 0 averages",
    "ranks call different things",
    LOOP.format(
        body="if dist.get_rank() == 0: dist.all_reduce(parameter.grad); parameter.grad /= dist.get_world_size()"
    ),
)
wrong("divides alone", "divided, never added up", LOOP.format(body="parameter.grad /= dist.get_world_size()"))
WRONG.changed("stops at a frozen one", "some are left out", ("            continue", "            break"))
wrong(
    "multiplies",
    "multiplied, not divided",
    LOOP.format(body="dist.all_reduce(parameter.grad); parameter.grad *= dist.get_world_size()"),
)
wrong(
    "divides the last one alone",
    "not all divided",
    LOOP.format(body="dist.all_reduce(parameter.grad)") + "    parameter.grad /= dist.get_world_size()\n",
)
wrong(
    "divides by those that have one",
    "not all divided",
    """
def average_gradients(module):
    for parameter in module.parameters():
        if parameter.requires_grad:
            has = torch.tensor(float(parameter.grad is not None))
            dist.all_reduce(has)
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= has
""",
)
WRONG.changed(
    "hands out rank 0's gradients",
    "rank 0's gradients for all",
    (
        "        dist.all_reduce(parameter.grad)\n        parameter.grad.div_(dist.get_world_size())",
        "        dist.broadcast(parameter.grad, src=0)",
    ),
)
WRONG.changed(
    "zeros are sent for frozen parameters",
    "frozen parameters travel",
    (
        "        if not parameter.requires_grad:\n",
        "        if not parameter.requires_grad:\n            dist.all_reduce(torch.zeros_like(parameter))\n",
    ),
)
WRONG.changed(
    "one message of what is there",
    "a missing gradient is skipped",
    (
        "    for parameter in module.parameters():\n",
        "    there = [each for each in module.parameters() if each.grad is not None]\n"
        "    flat = torch.cat([each.grad.flatten() for each in there])\n"
        "    dist.all_reduce(flat)\n    flat /= dist.get_world_size()\n"
        "    for each, piece in zip(there, flat.split([each.numel() for each in there])):\n"
        "        each.grad = piece.view_as(each)\n    for parameter in ():\n",
    ),
)
WRONG.changed(
    "the module's own parameters", "some are left out", ("module.parameters()", "module.parameters(recurse=False)")
)
WRONG.right(
    "assigns a new tensor",
    """
def average_gradients(module):
    for parameter in module.parameters():
        if parameter.requires_grad:
            total = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
            dist.all_reduce(total)
            parameter.grad = total / dist.get_world_size()
""",
)
WRONG.changed(
    "divides into another tensor",
    "sum instead of mean",
    ("        parameter.grad.div_(dist.get_world_size())\n", "        grad = parameter.grad / dist.get_world_size()\n"),
)
WRONG.changed(
    "reduces the parameters",
    "never averaged",
    ("dist.all_reduce(parameter.grad)", "dist.all_reduce(parameter.data)"),
    ("parameter.grad.div_(", "parameter.data.div_("),
)
WRONG.changed(
    "zeros of float32", "zeros of another type", ("torch.zeros_like(parameter)", "torch.zeros(parameter.shape)")
)
WRONG.changed(
    "requires zeros",
    "zeros that require a gradient",
    ("torch.zeros_like(parameter)", "torch.zeros_like(parameter, requires_grad=True)"),
)
WRONG.changed(
    "async_op and no wait",
    "a wait is missing",
    ("dist.all_reduce(parameter.grad)", "dist.all_reduce(parameter.grad, async_op=True)"),
)
WRONG.changed(
    "reduces a clone",
    "divided, never added up",
    ("dist.all_reduce(parameter.grad)", ("grad = parameter.grad.clone()\n        dist.all_reduce(grad)")),
)
WRONG.changed(
    "dist.reduce", "reduced to one rank", ("dist.all_reduce(parameter.grad)", "dist.reduce(parameter.grad, 0)")
)
WRONG.changed(
    "MAX",
    "another operation",
    ("dist.all_reduce(parameter.grad)", "dist.all_reduce(parameter.grad, op=dist.ReduceOp.MAX)"),
)
WRONG.changed(
    "steps too",
    "a step for the optimizer",
    ("(dist.get_world_size())\n", "(dist.get_world_size())\n        parameter.data.sub_(parameter.grad)\n"),
)
WRONG.changed(
    "empty_like", "memory as it was for zeros", ("torch.zeros_like(parameter)", "torch.empty_like(parameter)")
)
