"""Wrong answers to uneven_inputs, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


UNEVEN = """
def train_uneven(ddp, batches, loss_of, optimizer):
    steps = 0
    while True:
        active = torch.tensor(float(steps < len(batches)))
        dist.all_reduce(active)
        if active == 0:
            return steps
        optimizer.zero_grad()
        if steps < len(batches):
            inputs, targets = batches[steps]
            loss_of(ddp(inputs), targets).backward()
        ddp.finish_gradient_synchronization()
        for parameter in ddp.parameters():
            if parameter.grad is not None:
                parameter.grad *= dist.get_world_size() / active.item()
        optimizer.step()
        steps += 1
"""


uneven = WRONG.changing(UNEVEN)
uneven("the mean over all", "divided by all ranks", ("*= dist.get_world_size() / active.item()", "*= 1"))
uneven(
    "the last batch again",
    "a batch comes twice",
    (
        "        if steps < len(batches):\n            inputs, targets = batches[steps]",
        "        if batches:\n            inputs, targets = batches[min(steps, len(batches) - 1)]",
    ),
    ("*= dist.get_world_size() / active.item()", "*= 1"),
)
uneven("stops with the first", "stops with the shortest", ("if active == 0:", "if active < dist.get_world_size():"))
uneven(
    "a loop over the own batches",
    "a rank leaves early",
    (
        "        active = torch.tensor(float(steps < len(batches)))\n        dist.all_reduce(active)\n"
        "        if active == 0:\n",
        "        active = torch.tensor(float(dist.get_world_size()))\n        if steps == len(batches):\n",
    ),
)
uneven(
    "no step without data",
    "the ranks end with different models",
    ("        optimizer.step()\n", "        if steps < len(batches):\n            optimizer.step()\n"),
)
uneven("gradients of steps before", "gradients of earlier steps", ("        optimizer.zero_grad()\n", ""))
uneven("the own steps", "another number of steps", ("            return steps\n", "            return len(batches)\n"))
uneven("stops where somebody has data", "no step was taken", ("if active == 0:", "if active != 0:"))
uneven(
    "the mean over all samples",
    "weighed by samples",
    ("float(steps < len(batches))", "float(len(batches[steps][0]) if steps < len(batches) else 0)"),
    (
        "            loss_of(ddp(inputs), targets).backward()",
        "            (len(inputs) * loss_of(ddp(inputs), targets)).backward()",
    ),
)
uneven(
    "old gradients without data",
    "all ranks agree on a wrong model",
    ("        optimizer.zero_grad()\n", ""),
    ("            inputs, targets", "            optimizer.zero_grad()\n            inputs, targets"),
)
WRONG.right(
    "as the hint says",
    """
def train_uneven(ddp, batches, loss_of, optimizer):
    rest, steps = iter(batches), 0
    while True:
        optimizer.zero_grad()
        batch = next(rest, None)
        active = torch.tensor(float(batch is not None))
        dist.all_reduce(active)
        if active == 0:
            return steps
        if batch is not None:
            loss_of(ddp(batch[0]), batch[1]).backward()
        ddp.finish_gradient_synchronization()
        for p in ddp.parameters():
            if p.grad is not None:
                p.grad *= dist.get_world_size() / active
        optimizer.step()
        steps += 1
""",
)
uneven(
    "the last batch again, among those that have one",
    "a batch comes twice among those that have one",
    (
        "        if steps < len(batches):\n            inputs, targets = batches[steps]",
        "        if batches:\n            inputs, targets = batches[min(steps, len(batches) - 1)]",
    ),
)
uneven("the last batch first", "the last batch first", ("batches[steps]", "batches[-1 - steps]"))
uneven(
    "from the first again",
    "begins anew with the first batch",
    (
        "        if steps < len(batches):\n            inputs, targets = batches[steps]",
        "        if batches:\n            inputs, targets = batches[steps % len(batches)]",
    ),
)
uneven(
    "counts once who has any",
    "divided by all ranks",
    (
        "        active = torch.tensor(float(steps < len(batches)))\n        dist.all_reduce(active)\n"
        "        if active == 0:\n",
        "        active, most = torch.tensor(float(bool(batches))), torch.tensor(len(batches))\n"
        "        dist.all_reduce(active)\n        dist.all_reduce(most, dist.ReduceOp.MAX)\n"
        "        if steps == most:\n",
    ),
)
uneven(
    "divides its own loss by who is there",
    "divided by all ranks as well",
    (
        "            loss_of(ddp(inputs), targets).backward()",
        "            (loss_of(ddp(inputs), targets) / active).backward()",
    ),
    ("*= dist.get_world_size() / active.item()", "*= 1"),
)
uneven(
    "scales where it had data",
    "the ranks end with different models",
    (
        "            if parameter.grad is not None:",
        "            if parameter.grad is not None and steps < len(batches):",
    ),
)
uneven(
    "one step for all batches",
    "all ranks agree on a wrong model",
    ("        optimizer.zero_grad()\n", ""),
    ("        optimizer.step()\n", ""),
    ("            return steps\n", "            optimizer.step()\n            return steps\n"),
)
uneven(
    "idle ranks call nothing",
    "other calls without data",
    (
        "        ddp.finish_gradient_synchronization()\n",
        "        if steps < len(batches):\n            ddp.finish_gradient_synchronization()\n",
    ),
)
WRONG.right(
    "asks once for all lengths",
    """
def train_uneven(ddp, batches, loss_of, optimizer):
    lengths = [None] * dist.get_world_size()
    dist.all_gather_object(lengths, len(batches))
    for step in range(max(lengths)):
        active = sum(step < length for length in lengths)
        optimizer.zero_grad()
        if step < len(batches):
            inputs, targets = batches[step]
            (loss_of(ddp(inputs), targets) * len(lengths) / active).backward()
        ddp.finish_gradient_synchronization()
        optimizer.step()
    return max(lengths)
""",
)
WRONG.changed(
    "asks from the second step on",
    "a step without a batch",
    ("        if active == 0:", "        if active == 0 and steps:"),
)
uneven(
    "steps before it averages",
    "steps with its own gradient",
    (
        "        ddp.finish_gradient_synchronization()\n",
        "        optimizer.step()\n        ddp.finish_gradient_synchronization()\n",
    ),
    ("        optimizer.step()\n        steps += 1", "        steps += 1"),
)
uneven(
    "scales the wrong way",
    "scaled the wrong way",
    ("dist.get_world_size() / active.item()", "active.item() / dist.get_world_size()"),
)
