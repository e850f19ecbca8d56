"""Wrong answers to overlapped_ddp, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


OVERLAPPED = """
class OverlappedDDP(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        broadcast_module(module)
        self.handles = []
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.on_gradient)

    def on_gradient(self, parameter):
        parameter.grad /= dist.get_world_size()
        self.handles.append(dist.all_reduce(parameter.grad, async_op=True))

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        for handle in self.handles:
            handle.wait()
        self.handles.clear()
"""


overlapped = WRONG.changing(OVERLAPPED)
overlapped("no broadcast", "no broadcast", ("        broadcast_module(module)\n", ""))
overlapped(
    "buffers stay",
    "buffers not broadcast",
    ("broadcast_module(module)", "[dist.broadcast(p.detach(), src=0) for p in module.parameters()]"),
)
overlapped("sum", "sum instead of mean", ("        parameter.grad /= dist.get_world_size()\n", ""))
overlapped("divided by two", "divided by a constant", ("/= dist.get_world_size()", "/= 2"))
overlapped(
    "divided and AVG",
    "divided twice",
    (
        "        self.handles.clear()",
        "        self.handles.clear()\n        average_gradients(self.module)\n        "
        "for p in self.module.parameters():\n            if p.grad is not None:\n                p.grad /= "
        "dist.get_world_size()",
    ),
)
overlapped(
    "the sum for rank 0",
    "reduced to one rank",
    ("dist.all_reduce(parameter.grad, async", "dist.reduce(parameter.grad, 0, async"),
)
overlapped("no wait", "a wait is missing", ("            handle.wait()\n", "            pass\n"))
overlapped(
    "waits for the last one only",
    "a wait is missing",
    ("        for handle in self.handles:\n            handle.wait()\n", "        self.handles[-1].wait()\n"),
)
overlapped(
    "biases stay",
    "biases left out",
    ("if parameter.requires_grad:", "if parameter.requires_grad and parameter.dim() > 1:"),
)
overlapped(
    "waits in the hook",
    "waits in the hook",
    ("self.handles.append(dist.all_reduce(parameter.grad, async_op=True))", "dist.all_reduce(parameter.grad)"),
)
overlapped(
    "starts after backward",
    "no overlap",
    (
        "        parameter.grad /= dist.get_world_size()\n        self.handles.append(dist.all_reduce(parameter.grad, "
        "async_op=True))",
        "        pass",
    ),
    (
        "        for handle in self.handles:\n            handle.wait()\n        self.handles.clear()",
        "        average_gradients(self.module)",
    ),
)
overlapped(
    "hooks on frozen parameters",
    "frozen parameters reduced",
    (
        "            if parameter.requires_grad:\n                parameter.reg",
        "            if True:\n                parameter.reg",
    ),
)
overlapped(
    "hooks by module",
    "the shared weight counted twice",
    ("for parameter in module.parameters():", "for _, parameter in module.named_parameters(remove_duplicate=False):"),
)
overlapped(
    "a hook of the tensor",
    "a hook before the gradient is written",
    ("parameter.register_post_accumulate_grad_hook(self.on_gradient)", "parameter.register_hook(self.on_gradient)"),
)
overlapped(
    "only what is trained is broadcast",
    "frozen parameters not broadcast",
    (
        "broadcast_module(module)",
        "trained = [p.detach() for p in module.parameters() if p.requires_grad]\n        "
        "[dist.broadcast(each, src=0) for each in [*trained, *module.buffers()]]",
    ),
)
overlapped(
    "neither frozen ones nor buffers are broadcast",
    "frozen parameters not broadcast",
    (
        "broadcast_module(module)",
        "[dist.broadcast(p.detach(), src=0) for p in module.parameters() if p.requires_grad]",
    ),
)
overlapped(
    "the mean stays in a copy",
    "never averaged",
    (
        "        parameter.grad /= dist.get_world_size()\n        self.handles.append(dist.all_reduce(parameter.grad, ",
        "        mean = parameter.grad / dist.get_world_size()\n        self.handles.append(dist.all_reduce(mean, ",
    ),
)
overlapped(
    "rank 0 sends nothing",
    "ranks call different things",
    ("        parameter.grad /= ", "        if dist.get_rank() == 0:\n            return\n        parameter.grad /= "),
)
wrong(
    "torch's own",
    "wraps torch's DDP",
    """
class OverlappedDDP(nn.parallel.DistributedDataParallel):
    def finish_gradient_synchronization(self):
        pass
""",
)
WRONG.changed("not asynchronous", "no handle to wait for", (", async_op=True", ""))
overlapped(
    "reduces the parameters",
    "parameters averaged",
    ("dist.all_reduce(parameter.grad,", "dist.all_reduce(parameter.data,"),
)
WRONG.changed(
    "two hooks", "each gradient twice",
    ("                parameter.register_post_accumulate_grad_hook(self.on_gradient)\n",
     "                parameter.register_post_accumulate_grad_hook(self.on_gradient)\n" * 2),
)  # fmt: skip
DIVIDES = "        parameter.grad.div_(dist.get_world_size())\n"
STARTS = "        self.handles.append(dist.all_reduce(parameter.grad, async_op=True))\n"
WRONG.changed("divides once it is on its way", "divided on its way", (DIVIDES + STARTS, STARTS + DIVIDES))
overlapped(
    "multiplies", "multiplied, not divided",
    ("parameter.grad /= dist.get_world_size()", "parameter.grad *= dist.get_world_size()"),
)  # fmt: skip
overlapped(
    "divides the first alone", "not all divided",
    ("parameter.grad /= dist.get_world_size()", "parameter.grad /= 1 if self.handles else dist.get_world_size()"),
)  # fmt: skip
overlapped(
    "one hook alone", "some are left out",
    ("(self.on_gradient)\n", "(self.on_gradient)\n                break\n"),
)  # fmt: skip
WRONG.changed(
    "broadcast when it runs",
    "broadcast in a step",
    ("        broadcast_module(module)\n", ""),
    ("        return self.module(*", "        broadcast_module(self.module)\n        return self.module(*"),
)
WRONG.changed(
    "all in the hook of the last gradient",
    "all in the last hook",
    (
        "        parameter.grad.div_(dist.get_world_size())\n"
        "        self.handles.append(dist.all_reduce(parameter.grad, async_op=True))",
        "        trained = [each for each in self.module.parameters() if each.requires_grad]\n"
        "        if any(each.grad is None for each in trained):\n            return\n"
        "        for each in trained:\n            each.grad.div_(dist.get_world_size())\n"
        "            self.handles.append(dist.all_reduce(each.grad, async_op=True))",
    ),
)
WRONG.changed(
    "hooks go after the first step",
    "the first step alone",
    (
        "parameter.register_post",
        "self.hooks = getattr(self, 'hooks', [])\n                self.hooks += [parameter.register_post",
    ),
    ("hook(self.on_gradient)", "hook(self.on_gradient)]"),
    (
        "        self.handles.clear()\n",
        "        self.handles.clear()\n        for hook in self.hooks:\n            hook.remove()\n",
    ),
)
WRONG.changed(
    "hooks in forward",
    "hooks added in every step",
    (
        "        for parameter in module.parameters():\n            if parameter.requires_grad:\n"
        "                parameter.register_post_accumulate_grad_hook(self.on_gradient)\n",
        "",
    ),
    (
        "        return self.module(*",
        "        for parameter in self.module.parameters():\n            if parameter.requires_grad:\n"
        "                parameter.register_post_accumulate_grad_hook(self.on_gradient)\n        return self.module(*",
    ),
)
WRONG.changed(
    "waits for the one before in the hook",
    "waits in the hook",
    (
        "        parameter.grad.div_(",
        "        if self.handles:\n            self.handles[-1].wait()\n        parameter.grad.div_(",
    ),
)
WRONG.changed(
    "average params",
    "averaged at the start",
    (
        "        broadcast_module(module)\n",
        (
            "        for t in [*module.parameters(), *module.buffers()]:\n"
            "            dist.all_reduce(t.detach())\n"
            "            t.detach().div_(dist.get_world_size())\n"
        ),
    ),
)
WRONG.changed(
    "broadcasts and does not wait",
    "a broadcast not waited for",
    (
        "        broadcast_module(module)\n",
        (
            "        for t in [*module.parameters(), *module.buffers()]:\n"
            "            dist.broadcast(t.detach(), 0, async_op=True)\n"
        ),
    ),
)
WRONG.changed(
    "a lambda for register_hook",
    "a hook before the gradient is written",
    (
        "parameter.register_post_accumulate_grad_hook(self.on_gradient)",
        "parameter.register_hook(lambda grad, parameter=parameter: self.on_gradient(parameter))",
    ),
)
WRONG.changed(
    "a lambda that looks the parameter up",
    "every hook has the last parameter",
    (
        "parameter.register_post_accumulate_grad_hook(self.on_gradient)",
        "parameter.register_post_accumulate_grad_hook(lambda _: self.on_gradient(parameter))",
    ),
)
WRONG.changed(
    "handles of the step before",
    "not ready for the next step",
    ("        self.handles.clear()\n", ""),
    (
        (
            "        parameter.grad.div_(dist.get_world_size())\n"
            "        self.handles.append(dist.all_reduce(parameter.grad, async_op=True))"
        ),
        "        self.handles.append((parameter, dist.all_reduce(parameter.grad, async_op=True)))",
    ),
    (
        "            handle.wait()",
        ("            handle[1].wait()\n            handle[0].grad /= dist.get_world_size()"),
    ),
)
WRONG.changed(
    "broadcasts in forward too",
    "broadcast in every forward",
    (
        "        return self.module(*args, **kwargs)",
        ("        broadcast_module(self.module)\n        return self.module(*args, **kwargs)"),
    ),
)
WRONG.changed(
    "divides all at the end",
    "a frozen parameter has no gradient",
    ("        parameter.grad.div_(dist.get_world_size())\n", ""),
    (
        "        self.handles.clear()",
        "        self.handles.clear()\n"
        "        for parameter in self.module.parameters():\n"
        "            parameter.grad /= dist.get_world_size()",
    ),
)
WRONG.changed(
    "rank 0 alone broadcasts",
    "a broadcast that not every rank calls",
    ("        broadcast_module(module)", "        if dist.get_rank() == 0:\n            broadcast_module(module)"),
)
