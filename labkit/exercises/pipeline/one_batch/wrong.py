"""Wrong answers to one_batch, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


changed("forward only", "forward only",
    ("        torch.autograd.backward(left, gradient)", "        pass"),
        ("entered.grad.contiguous()", "torch.zeros_like(entered)"))  # fmt: skip
changed("what entered is no leaf", "no gradient for what entered", ("        entered.requires_grad_()\n", ""))
changed("runs the module under no_grad", "the graph was cut",
        ('with labkit.span("F0"):', 'with labkit.span("F0"), torch.no_grad():'))  # fmt: skip
changed("the last stage only", "only the last stage has gradients",
        ("        torch.autograd.backward(left, gradient)",
         "        torch.autograd.backward(left, gradient) if is_last else None"),
        ("entered.grad.contiguous()", "torch.zeros_like(entered)"))  # fmt: skip
changed("a run to see the shape", "forward more than once",
        ("torch.empty_like(left, memory", "torch.empty_like(module(entered), memory"))  # fmt: skip
changed("sends a view", "not contiguous", ("left.detach().contiguous()", "left.detach()"))
changed("the first stage receives too", "the first stage receives", ("    if stage == 0:\n", "    if False:\n"))
changed("sets gradients to zero first", "earlier gradients are lost",
        ("    loss, gradient = None, None\n", "    loss, gradient = None, None\n    module.zero_grad()\n"))  # fmt: skip
changed("divides by the number of stages", "scaled by the number of stages",
        ("loss_fn(left, targets)", "loss_fn(left, targets) / dist.get_world_size()"))  # fmt: skip
changed("does not send the gradient on", "waits for a message that nobody sends",
        ("    if stage > 0:\n        dist.send(entered.grad.contiguous(), dst=stage - 1)\n", ""))  # fmt: skip
changed("room of torch's default dtype", "room of another size",
        ("torch.empty_like(left, memory_format=torch.contiguous_format)", "torch.empty(left.shape)"))  # fmt: skip
changed(
    "passes on the gradient of its output",
    "room of another size",
    ("dist.send(entered.grad.contiguous()", "dist.send(torch.zeros_like(left) if is_last else gradient"),
)
changed("a number", "the loss is a number", ("loss = left.detach()", "loss = left.item()"))
changed("the loss as it is", "the loss keeps its graph", ("loss = left.detach()", "loss = left"))
changed("a barrier at the end", "calls a collective", ("    return loss\n", "    dist.barrier()\n    return loss\n"))
changed("times the samples", "sum over the samples",
        ("loss_fn(left, targets)", "loss_fn(left, targets) * num_samples"))  # fmt: skip
WRONG.changed(
    "every stage sends back",
    "the first stage sends back",
    ("    if stage > 0:\n        dist.send", "    if True:\n        dist.send"),
)
changed("returns nothing", "no loss returned", ("    return loss\n", "    return None\n"))
changed("sends the data back", "what entered was sent back", ("entered.grad.contiguous()", "entered.data.contiguous()"))
changed(
    "samples one at a time",
    "forward more than once",
    ("left = module(entered)", "left = torch.cat([module(each) for each in entered.split(1)])"),
)
changed(
    "backward of its own sum",
    "each stage goes backward from its own output",
    ("torch.autograd.backward(left, gradient)", "left.sum().backward()"),
)
changed(
    "tells the first stage its loss",
    "a message to no neighbour",
    (
        "    return loss\n",
        "    if is_last and stage > 1:\n        dist.send(loss, dst=0)\n"
        "    if stage == 0 and dist.get_world_size() > 2:\n"
        "        dist.recv(torch.zeros((), dtype=sample.dtype), src=dist.get_world_size() - 1)\n    return loss\n",
    ),
)
changed(
    "zero on the other stages",
    "a loss on every stage",
    ("    loss, gradient = None, None\n", "    loss, gradient = torch.zeros(()), None\n"),
)
changed(
    "sends on what entered",
    "room of another size",
    ("dist.send(left.detach().contiguous()", "dist.send(entered.detach().contiguous()"),
)
changed(
    "divides by the samples again",
    "scaled twice or in another place",
    ("loss_fn(left, targets)", "loss_fn(left, targets) / num_samples"),
)
GOES_BACK = """        torch.autograd.backward(left, gradient)
    if stage > 0:
        dist.send(entered.grad.contiguous(), dst=stage - 1)
"""
changed("asks autograd for one gradient", "gradients not added to .grad", (GOES_BACK, """\
        if stage > 0:
            (back,) = torch.autograd.grad(left, entered, gradient)
            dist.send(back.contiguous(), dst=stage - 1)
        else:
            torch.autograd.backward(left, gradient)
"""))  # fmt: skip
changed("the last stage detaches its output", "backward does not reach the module",
        ("left = loss_fn(left, targets)", "left = loss_fn(left.detach().requires_grad_(), targets)"),
        ("entered.grad.contiguous()", "torch.zeros_like(entered) if entered.grad is None else entered.grad.contiguous()"))  # fmt: skip
changed("does not wait for the gradient", "not waited for", ("dist.recv(gradient,", "dist.irecv(gradient,"))
changed("does not wait for what enters", "not waited for", ("dist.recv(entered,", "dist.irecv(entered,"))
changed("the mean of a product", "the mean of a product",
        ("torch.autograd.backward(left, gradient)", "(left if is_last else (left * gradient).mean()).backward()"))  # fmt: skip
changed("hands the module a copy", "no gradient for what entered", (
    "        left = module(entered)", "        left = module(entered if stage == 0 else entered.detach().clone())"
))  # fmt: skip
changed("whoever has loss_fn is last", "a loss where no targets are",
        ("is_last = stage == dist.get_world_size() - 1", "is_last = loss_fn is not None"))  # fmt: skip
changed("the gradient from the last stage", "a message to no neighbour",
        ("dist.recv(gradient, src=stage + 1)", "dist.recv(gradient, src=dist.get_world_size() - 1)"))  # fmt: skip
changed(
    "backward of an output alone",
    "backward without a gradient",
    ("torch.autograd.backward(left, gradient)", "left.backward()"),
)
