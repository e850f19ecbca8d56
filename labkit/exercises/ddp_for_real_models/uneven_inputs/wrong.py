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
uneven("gradients of steps before", "all ranks agree on a wrong model", ("        optimizer.zero_grad()\n", ""))
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
