"""Wrong answers to scattered_gradients, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed
SEND = "        self.in_flight.append((parameter, start_scatter([parameter.grad])))\n        parameter.grad = None\n"

changed(
    "adds up",
    "sum instead of mean",
    (
        "            (self.shards[parameter].grad,) = finish()\n",
        "            (mean,) = finish()\n            self.shards[parameter].grad = mean * dist.get_world_size()\n",
    ),
)
changed(
    "takes its own",
    "own gradients",
    (
        SEND,
        "        self.in_flight.append((parameter, lambda g=parameter.grad: [shard_of(g)]))\n        "
        "parameter.grad = None\n",
    ),
)
changed("keeps gradients", "gradients kept", (SEND, SEND.split("\n")[0] + "\n"))
changed(
    "all-reduces in the hook",
    "all-reduced",
    (
        SEND,
        "        dist.all_reduce(parameter.grad)\n        g = parameter.grad / dist.get_world_size()\n        "
        "self.in_flight.append((parameter, lambda: [shard_of(g)]))\n        parameter.grad = None\n",
    ),
)
changed(
    "waits in the hook",
    "waits in backward",
    (
        SEND,
        "        mean = start_scatter([parameter.grad])()\n        self.in_flight.append((parameter, lambda: "
        "mean))\n        parameter.grad = None\n",
    ),
)
changed(
    "all after backward",
    "all at the end",
    (SEND, "        self.in_flight.append((parameter, parameter.grad))\n        parameter.grad = None\n"),
    ("finish()", "start_scatter([finish])()"),
)
changed("sends twice", "sent twice", (SEND, "        start_scatter([parameter.grad])()\n" + SEND))
changed(
    "divides twice",
    "divided twice",
    ("(self.shards[parameter].grad,) = finish()", "self.shards[parameter].grad = finish()[0] / dist.get_world_size()"),
)
changed(
    "finishes the first alone",
    "a gradient forgotten",
    ("for parameter, finish in self.in_flight:", "for parameter, finish in self.in_flight[:1]:"),
)
changed(
    "sends all of them in step", "all at the end",
    ("            parameter.register_post_accumulate_grad_hook(self.on_gradient)\n", "            pass\n"),
    ("        for parameter, finish in self", "        for each in self.shards:\n            self.on_gradient(each)\n"
     "        for parameter, finish in self"),
)  # fmt: skip
changed(
    "hooks on all it was given", "a hook on a frozen parameter",
    ("        super().__init__(params, optimizer_cls, **kwargs)\n",
     "        groups = list(params)\n"
     "        groups = groups if isinstance(groups[0], dict) else [{'params': groups}]\n"
     "        super().__init__(groups, optimizer_cls, **kwargs)\n"),
    ("for parameter in self.shards:", "for parameter in [p for group in groups for p in group['params']]:"),
)  # fmt: skip
changed(
    "forgets to finish", "nothing moves",
    ("            (self.shards[parameter].grad,) = finish()\n", "            finish()\n"),
)  # fmt: skip
WRONG.right(
    "hooks of the tensors, and a dict",
    """class ScatteringOptimizer(ShardedOptimizer):
    def __init__(self, params, optimizer_cls, **kwargs):
        super().__init__(params, optimizer_cls, **kwargs)
        self.ends = {}

        def leave(parameter):
            self.ends[parameter] = start_scatter([parameter.grad.detach()])
            parameter.grad = None

        for parameter in self.shards:
            parameter.register_post_accumulate_grad_hook(leave)

    def take_gradients(self):
        for parameter in list(self.ends):
            self.shards[parameter].grad = self.ends.pop(parameter)()[0]
""",
)
changed(
    "sends parameters",
    "parameters for gradients",
    ("start_scatter([parameter.grad])", "start_scatter([parameter.data])"),
)
changed("drops the options", "options lost", ("(params, optimizer_cls, **kwargs)", "(params, optimizer_cls)"))
changed(
    "hooks on the gradient itself", "gradients kept",
    ("parameter.register_post_accumulate_grad_hook(self.on_gradient)",
     "parameter.register_hook(lambda gradient, parameter=parameter: self.on_gradient(parameter, gradient))"),
    ("def on_gradient(self, parameter: Tensor)", "def on_gradient(self, parameter: Tensor, gradient: Tensor)"),
    ("start_scatter([parameter.grad])", "start_scatter([gradient])"),
)  # fmt: skip
changed(
    "waits for the one before", "waits in backward",
    (SEND, "        for _, finish in self.in_flight:\n            finish()\n"
     "        finish = start_scatter([parameter.grad])\n        done = finish()\n"
     "        self.in_flight.append((parameter, lambda: done))\n        parameter.grad = None\n"),
)  # fmt: skip
changed(
    "all in one scatter, from the last hook", "all at the end",
    (SEND, "        self.in_flight.append(parameter)\n"
     "        if len(self.in_flight) == sum(p.requires_grad for p in self.shards):\n"
     "            finish = start_scatter([p.grad for p in self.in_flight])\n"
     "            self.finish = (list(self.in_flight), finish)\n"
     "            for p in self.in_flight:\n                p.grad = None\n"),
    ("        for parameter, finish in self.in_flight:\n            (self.shards[parameter].grad,) = finish()\n",
     "        parameters, finish = self.finish\n        for parameter, gradient in zip(parameters, finish()):\n"
     "            self.shards[parameter].grad = gradient\n"),
)  # fmt: skip
WRONG.changed(
    "a hook before .grad is there", "gradients kept",
    ("parameter.register_post_accumulate_grad_hook(self.on_gradient)",
     "parameter.register_hook(partial(self.on_gradient, parameter))"),
    ("def on_gradient(self, parameter: Tensor) -> None:", "def on_gradient(self, parameter, gradient):"),
    ("start_scatter([parameter.grad])", "start_scatter([gradient])"),
)  # fmt: skip
FINISHES = "            (self.shards[parameter].grad,) = finish()\n"
changed(
    "adds to what the shard had",
    "gradients pile up",
    (
        FINISHES,
        "            (gradient,), shard = finish(), self.shards[parameter]\n"
        '            self.sums = getattr(self, "sums", {})\n'
        "            self.sums[shard] = shard.grad = gradient + self.sums.get(shard, 0)\n",
    ),
)
changed(
    "waits for the one before",
    "waits in backward",
    (
        "        self.in_flight.append((parameter, start_scatter([parameter.grad])))\n",
        "        if self.in_flight:\n"
        "            last, finish = self.in_flight[-1]\n"
        "            came = finish()\n"
        "            self.in_flight[-1] = (last, lambda: came)\n"
        "        self.in_flight.append((parameter, start_scatter([parameter.grad])))\n",
    ),
)
changed(
    "reads the parameters first",
    "params read twice",
    (
        "        super().__init__(params, optimizer_cls, **kwargs)\n",
        "        self.hooked = [each for each in params if not isinstance(each, dict)]\n"
        "        super().__init__(params, optimizer_cls, **kwargs)\n",
    ),
)
changed(
    "a lambda in the loop",
    "the loop's last parameter",
    (
        "            parameter.register_post_accumulate_grad_hook(self.on_gradient)\n",
        "            parameter.register_post_accumulate_grad_hook(lambda _: self.on_gradient(parameter))\n",
    ),
)
changed(
    "a step without a gather",
    "nothing moves",
    ("    def take_gradients(self) -> None:", "    def step(self) -> None:"),
    ("finish()\n        self.in_flight = []", "finish()\n        self.in_flight = []\n        self.optimizer.step()"),
)
changed(
    "never empties the list", "memory grows from step to step", ("finish()\n        self.in_flight = []", "finish()")
)
