"""Wrong answers to bucketed_ddp, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong

BUCKETED = """
class BucketedDDP(nn.Module):
    def __init__(self, module, bucket_cap_mb=25.0):
        super().__init__()
        self.module = module
        broadcast_module(module)
        self.trained = [p for p in module.parameters() if p.requires_grad]
        sizes = [p.numel() * p.element_size() for p in self.trained]
        self.buckets = bucket_plan(sizes, int(bucket_cap_mb * 2**20))
        self.bucket_of = {index: number for number, bucket in enumerate(self.buckets) for index in bucket}
        self.start_over()
        for index, parameter in enumerate(self.trained):
            parameter.register_post_accumulate_grad_hook(partial(self.on_gradient, index))

    def start_over(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.in_flight = []

    def on_gradient(self, index, parameter):
        self.missing[self.bucket_of[index]] -= 1
        while len(self.in_flight) < len(self.buckets) and self.missing[len(self.in_flight)] == 0:
            self.launch(len(self.in_flight))

    def launch(self, number):
        flat = self.pack(number)
        flat /= dist.get_world_size()
        self.in_flight.append((flat, dist.all_reduce(flat, async_op=True)))

    def pack(self, number):
        return torch.cat([self.trained[index].grad.reshape(-1) for index in self.buckets[number]])

    def unpack(self, number, flat):
        start = 0
        for index in self.buckets[number]:
            parameter = self.trained[index]
            parameter.grad.copy_(flat[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        for number, (flat, handle) in enumerate(self.in_flight):
            handle.wait()
            self.unpack(number, flat)
        self.start_over()
"""


bucketed = WRONG.changing(BUCKETED)
wrong(
    "wraps torch's DDP",
    "wraps torch's DDP",
    """
class BucketedDDP(nn.Module):
    def __init__(self, module, bucket_cap_mb=25.0):
        super().__init__()
        self.ddp = nn.parallel.DistributedDataParallel(module, bucket_cap_mb=bucket_cap_mb)

    def forward(self, *args, **kwargs):
        return self.ddp(*args, **kwargs)

    def finish_gradient_synchronization(self):
        pass
""",
)
bucketed("no broadcast", "no broadcast", ("        broadcast_module(module)\n", ""))
bucketed(
    "frozen ones stay",
    "frozen parameters not broadcast",
    (
        "broadcast_module(module)",
        "[dist.broadcast(t.detach(), src=0) for t in [*(p for p in module.parameters() if "
        "p.requires_grad), *module.buffers()]]",
    ),
)
bucketed("sum", "sum instead of mean", ("        flat /= dist.get_world_size()\n", ""))
bucketed("divided by two", "divided by a constant", ("/= dist.get_world_size()", "/= 2"))
bucketed(
    "divided twice",
    "divided twice",
    ("            self.unpack", "            flat /= dist.get_world_size()\n            self.unpack"),
)
bucketed(
    "the sum for rank 0",
    "reduced to one rank",
    ("dist.all_reduce(flat, async_op=True)", "dist.reduce(flat, 0, async_op=True)"),
)
bucketed(
    "counts of the first step",
    "not ready for the next step",
    ("flat)\n        self.start_over()", "flat)\n        self.in_flight = []"),
)
bucketed("never copied back", "never averaged", ("            self.unpack(number, flat)\n", ""))
bucketed("no wait", "a wait is missing", ("            handle.wait()\n", ""))
bucketed("weights only", "biases left out", ("if p.requires_grad]", "if p.requires_grad and p.dim() > 1]"))
bucketed(
    "all after backward",
    "no overlap",
    (
        "        while len(self.in_flight) < len(self.buckets) and self.missing[len(self.in_flight)] == 0:\n"
        "            self.launch(len(self.in_flight))\n",
        "",
    ),
    (
        "        for number, (flat, handle)",
        "        for number in range(len(self.buckets)):\n            "
        "self.launch(number)\n        for number, (flat, handle)",
    ),
)
bucketed(
    "the first layer's bucket first",
    "buckets in the order of registration",
    (
        "self.buckets = bucket_plan(sizes, int(bucket_cap_mb * 2**20))",
        "last = len(sizes) - 1\n        self.buckets = [[last - i for i in b] for b in bucket_plan(sizes[::-1], "
        "int(bucket_cap_mb * 2**20))]",
    ),
)
bucketed(
    "a bucket for each",
    "one all_reduce for each parameter",
    ("bucket_plan(sizes, int(bucket_cap_mb * 2**20))", "[[i] for i in reversed(range(len(sizes)))]"),
)
bucketed("the cap is in bytes already", "one bucket for all", ("bucket_cap_mb * 2**20", "bucket_cap_mb * 2**40"))
bucketed(
    "waits in the hook",
    "waits in the hook",
    (
        "self.in_flight.append((flat, dist.all_reduce(flat, async_op=True)))",
        "handle = dist.all_reduce(flat, async_op=True)\n        handle.wait()\n"
        "        self.in_flight.append((flat, handle))",
    ),
)
bucketed(
    "one rank forgets a bucket",
    "ranks call different things",
    (
        "self.missing[len(self.in_flight)] == 0:",
        "self.missing[len(self.in_flight)] == 0 and not (\n            "
        "dist.get_rank() == 1 and len(self.in_flight) == 1):",
    ),
)
bucketed(
    "shared weights twice",
    "the shared weight counted twice",
    (
        "[p for p in module.parameters() if p.requires_grad]",
        "[p for _, p in module.named_parameters(remove_duplicate=False) if p.requires_grad]",
    ),
)
bucketed(
    "frozen ones travel",
    "frozen parameters reduced",
    ("[p for p in module.parameters() if p.requires_grad]", "list(module.parameters())"),
    ("            parameter.register_post", "            if parameter.requires_grad: parameter.register_post"),
    (
        "self.missing = [len(bucket) for bucket in self.buckets]",
        "self.missing = [sum(self.trained[i].requires_grad for i in bucket) for bucket in self.buckets]",
    ),
    (
        "self.trained[index].grad.reshape(-1)",
        "(torch.zeros_like(self.trained[index]) if self.trained[index].grad is "
        "None else self.trained[index].grad).reshape(-1)",
    ),
    ("            parameter.grad.copy_", "            if parameter.requires_grad: parameter.grad.copy_"),
)
bucketed(
    "each bucket when it is full",
    "sent as they fill",
    (
        "        while len(self.in_flight) < len(self.buckets) and self.missing[len(self.in_flight)] == 0:\n"
        "            self.launch(len(self.in_flight))\n",
        "        if self.missing[self.bucket_of[index]] == 0:\n            self.launch(self.bucket_of[index])\n",
    ),
    ("self.in_flight.append((flat,", "self.in_flight.append((number, flat,"),
    ("for number, (flat, handle) in enumerate(self.in_flight):", "for number, flat, handle in self.in_flight:"),
)
bucketed("four bytes a number", "bytes counted otherwise", ("p.numel() * p.element_size()", "p.numel() * 4"))
bucketed(
    "one bucket a hook",
    "a full bucket stays behind",
    ("while len(self.in_flight) <", "if len(self.in_flight) <"),
)
bucketed(
    "a lambda in a loop",
    "every hook has the last index",
    ("partial(self.on_gradient, index)", "lambda p: self.on_gradient(index, p)"),
)
bucketed("one too few is missing", "packed too early", ("[len(bucket) for", "[max(len(bucket) - 1, 1) for"))
bucketed(
    "unpacks row by row",
    "too much exposed",
    (
        "            parameter.grad.copy_(flat[start : start + parameter.numel()].view_as(parameter))\n",
        "            piece = flat[start : start + parameter.numel()].view_as(parameter)\n"
        "            for row in range(len(piece)) if piece.dim() else []:\n"
        "                parameter.grad[row] = piece[row]\n"
        "            if not piece.dim():\n"
        "                parameter.grad.copy_(piece)\n",
    ),
)
bucketed(
    "keeps a copy of each gradient",
    "too much memory",
    ("        self.in_flight = []", "        self.in_flight, self.copies = [], {}"),
    (
        "        self.missing[self.bucket_of[index]] -= 1\n",
        "        self.copies[index] = parameter.grad.clone()\n        self.missing[self.bucket_of[index]] -= 1\n",
    ),
    ("self.trained[index].grad.reshape(-1) for", "self.copies[index].reshape(-1) for"),
)
bucketed(
    "buffers stay",
    "buffers not broadcast",
    ("broadcast_module(module)", "[dist.broadcast(p.detach(), src=0) for p in module.parameters()]"),
)
WRONG.changed("not asynchronous", "no handle to wait for", (", async_op=True", ""))
bucketed(
    "copies the last piece back",
    "not all copied back",
    (
        "            parameter.grad.copy_(flat[start : start + parameter.numel()].view_as(parameter))\n"
        "            start += parameter.numel()",
        "            start += parameter.numel()\n"
        "        parameter.grad.copy_(flat[start - parameter.numel() :].view_as(parameter))",
    ),
)
bucketed(
    "multiplies", "multiplied, not divided",
    ("flat /= dist.get_world_size()", "flat *= dist.get_world_size()"),
)  # fmt: skip
bucketed(
    "divides the first bucket alone", "not all divided",
    ("        flat /= dist.get_world_size()\n", "        flat /= 1 if number else dist.get_world_size()\n"),
)  # fmt: skip
WRONG.changed(
    "a hook of the tensor",
    "called before the gradient is there",
    (
        "parameter.register_post_accumulate_grad_hook(self.on_gradient)",
        "parameter.register_hook(lambda _, p=parameter: self.on_gradient(p))",
    ),
)
WRONG.changed(
    "goes on to the next bucket",
    "sent as they fill",
    ("                break", "                continue"),
)
WRONG.changed(
    "frozen ones have a place in the plan",
    "a full bucket stays behind",
    (
        "trained = [parameter for parameter in module.parameters() if parameter.requires_grad]",
        "trained = list(module.parameters())",
    ),
    (
        "        for parameter in trained:\n",
        "        for parameter in filter(lambda each: each.requires_grad, trained):\n",
    ),
)
WRONG.changed(
    "all buckets in the last hook",
    "all in the last hook",
    (
        "        for bucket in self.buckets[len(self.in_flight) :]:\n",
        "        if len(self.complete) < sum(map(len, self.buckets)):\n            return\n"
        "        for bucket in self.buckets:\n",
    ),
)
WRONG.changed(
    "sets the gradients to None",
    "no gradients after it",
    (
        "        self.start_over()\n\n    def start_over",
        "        self.module.zero_grad()\n        self.start_over()\n\n    def start_over",
    ),
)
WRONG.changed(
    "copies back as it sends",
    "copied back too early",
    (
        "            pieces = flat.split([parameter.numel() for parameter in bucket])\n"
        "            for parameter, piece in zip(bucket, pieces, strict=True):\n"
        "                parameter.grad.copy_(piece.view_as(parameter))\n",
        "",
    ),
    (
        "            self.in_flight.append((flat, dist",
        "            for each, piece in zip(bucket, flat.split([each.numel() for each in bucket]), strict=True):\n"
        "                each.grad.copy_(piece.view_as(each))\n            self.in_flight.append((flat, dist",
    ),
)
WRONG.changed(
    "a million bytes for a megabyte", "bytes counted otherwise", ("bucket_cap_mb * 2**20", "bucket_cap_mb * 10**6")
)
WRONG.changed(
    "waits for the bucket before",
    "waits in the hook",
    (
        "            self.in_flight.append((flat, dist",
        "            if self.in_flight:\n                self.in_flight[-1][1].wait()\n"
        "            self.in_flight.append((flat, dist",
    ),
)
WRONG.changed(
    "broadcast when it runs",
    "broadcast in a step",
    ("        broadcast_module(module)\n", ""),
    ("        return self.module(*", "        broadcast_module(self.module)\n        return self.module(*"),
)
WRONG.changed(
    "its plan from the last bucket on",
    "buckets in the order of registration",
    ("for bucket in plan]", "for bucket in reversed(plan)]"),
)
WRONG.right(
    "each gradient is a view of its bucket",
    """
class BucketedDDP(nn.Module):
    def __init__(self, module, bucket_cap_mb=25.0):
        super().__init__()
        self.module = module
        broadcast_module(module)
        trained = [each for each in module.parameters() if each.requires_grad]
        sizes = [each.numel() * each.element_size() for each in trained]
        self.buckets = [[trained[i] for i in bucket] for bucket in bucket_plan(sizes, int(bucket_cap_mb * 2**20))]
        self.sent, self.complete = [], set()
        for each in trained:
            each.register_post_accumulate_grad_hook(self.on_gradient)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def on_gradient(self, parameter):
        self.complete.add(parameter)
        while len(self.sent) < len(self.buckets) and self.complete.issuperset(self.buckets[len(self.sent)]):
            bucket = self.buckets[len(self.sent)]
            flat = torch.cat([each.grad.flatten() for each in bucket]).div_(dist.get_world_size())
            for each, piece in zip(bucket, flat.split([each.numel() for each in bucket])):
                each.grad = piece.view_as(each)
            self.sent.append(dist.all_reduce(flat, async_op=True))

    def finish_gradient_synchronization(self):
        for handle in self.sent:
            handle.wait()
        self.sent, self.complete = [], set()
""",
)
WRONG.changed(
    "a bucket in a list of buckets",
    "a tensor looked up in a list",
    ("self.buckets[len(self.in_flight) :]:", "self.buckets:"),
    ("if not self.complete", "if bucket in self.sent or not self.complete"),
    ("                break", "                continue\n            self.sent.append(bucket)"),
    ("        self.complete: set", "        self.sent = []\n        self.complete: set"),
    ("zip(self.buckets, self.in_flight, strict=True)", "zip(self.sent, self.in_flight, strict=True)"),
)
WRONG.changed(
    "cut from the other end",
    "pieces for other parameters",
    ("zip(bucket, pieces, strict=True):", "zip(bucket[::-1], flat.split([p.numel() for p in bucket[::-1]])):"),
)
ANY = "for each in [*module.parameters(), *module.buffers()]:\n            "
WRONG.changed(
    "begins with the mean",
    "averaged at the start",
    ("broadcast_module(module)", f"{ANY}dist.all_reduce(each.detach())\n            each.detach().div_(2)"),
)
WRONG.changed(
    "broadcasts on their way",
    "a broadcast not waited for",
    ("broadcast_module(module)", f"{ANY}dist.broadcast(each.detach(), 0, async_op=True)"),
)
WRONG.changed(
    "broadcasts in forward too",
    "broadcast in every forward",
    ("        return self.module(*", "        broadcast_module(self.module)\n        return self.module(*"),
)
WRONG.changed(
    "divides all at the end",
    "a frozen parameter has no gradient",
    ("            flat /= dist.get_world_size()\n", ""),
    (
        "                parameter.grad.copy_(piece.view_as(parameter))\n",
        "                parameter.grad.copy_(piece.view_as(parameter))\n"
        "        for parameter in self.module.parameters():\n"
        "            parameter.grad /= dist.get_world_size()\n",
    ),
)
