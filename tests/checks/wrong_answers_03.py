"""Wrong answers to lesson 03, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.checks.wrong_answer import WrongAnswer

WRONG: list[WrongAnswer] = []


def wrong(exercise: str, name: str, mistake: str, source: str) -> None:
    WRONG.append(WrongAnswer(exercise, name, mistake, source))


# ---- broadcast_module

wrong(
    "broadcast_module",
    "parameters only",
    "buffers not broadcast",
    """
def broadcast_module(module):
    for parameter in module.parameters():
        dist.broadcast(parameter.detach(), src=0)
""",
)
wrong(
    "broadcast_module",
    "only what needs a gradient",
    "frozen parameters not broadcast",
    """
def broadcast_module(module):
    for tensor in [p for p in module.parameters() if p.requires_grad] + list(module.buffers()):
        dist.broadcast(tensor.detach(), src=0)
""",
)
wrong(
    "broadcast_module",
    "weights only",
    "biases not broadcast",
    """
def broadcast_module(module):
    for parameter in module.parameters():
        if parameter.dim() > 1:
            dist.broadcast(parameter.detach(), src=0)
""",
)
wrong(
    "broadcast_module",
    "into copies",
    "nothing reached the model",
    """
def broadcast_module(module):
    for tensor in [*module.parameters(), *module.buffers()]:
        dist.broadcast(tensor.detach().clone(), src=0)
""",
)
wrong(
    "broadcast_module",
    "from the last rank",
    "another root",
    """
def broadcast_module(module):
    for tensor in [*module.parameters(), *module.buffers()]:
        dist.broadcast(tensor.detach(), src=dist.get_world_size() - 1)
""",
)
wrong(
    "broadcast_module",
    "averages the models",
    "averaged instead of broadcast",
    """
def broadcast_module(module):
    for parameter in module.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size()
""",
)

# ---- average_gradients

LOOP = """
def average_gradients(module):
    for parameter in module.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            {body}
"""

wrong("average_gradients", "sum", "sum for mean", LOOP.format(body="dist.all_reduce(parameter.grad)"))
wrong(
    "average_gradients",
    "divided before and after",
    "divided twice",
    LOOP.format(
        body="parameter.grad /= dist.get_world_size(); dist.all_reduce(parameter.grad); "
        "parameter.grad /= dist.get_world_size()"
    ),
)
wrong(
    "average_gradients",
    "divided by two",
    "divided by a constant",
    LOOP.format(body="dist.all_reduce(parameter.grad); parameter.grad /= 2"),
)
wrong(
    "average_gradients",
    "a copy is reduced",
    "never averaged",
    LOOP.format(body="mean = parameter.grad.clone(); dist.all_reduce(mean); mean /= dist.get_world_size()"),
)
wrong(
    "average_gradients",
    "biases are small anyway",
    "biases left out",
    LOOP.format(
        body="""if parameter.dim() > 1:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()"""
    ),
)
wrong(
    "average_gradients",
    "module by module",
    "the shared weight counted twice",
    """
def average_gradients(module):
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
    "average_gradients",
    "averages the parameters",
    "never averaged",
    LOOP.format(body="dist.all_reduce(parameter.data); parameter.data /= dist.get_world_size()"),
)
wrong(
    "average_gradients",
    "skips None",
    "a missing gradient is skipped",
    """
def average_gradients(module):
    for parameter in module.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
""",
)
wrong(
    "average_gradients",
    "reduces frozen parameters",
    "None is reduced",
    """
def average_gradients(module):
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
""",
)
wrong(
    "average_gradients",
    "zeros for frozen parameters too",
    "frozen parameters get zeros",
    """
def average_gradients(module):
    for parameter in module.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
""",
)
wrong(
    "average_gradients",
    "zeros are sent and forgotten",
    "the mean was not kept",
    """
def average_gradients(module):
    for parameter in module.parameters():
        if parameter.requires_grad:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()
""",
)

# ---- overlapped_ddp: the right answer, with one place changed

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


def changed(source: str, *changes: tuple[str, str]) -> str:
    """Return the source with each piece of text, which must be there, replaced."""
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    return source


def overlapped(name: str, mistake: str, *changes: tuple[str, str]) -> None:
    wrong("overlapped_ddp", name, mistake, changed(OVERLAPPED, *changes))


overlapped("no broadcast", "no broadcast", ("        broadcast_module(module)\n", ""))
overlapped(
    "buffers stay",
    "buffers not broadcast",
    ("broadcast_module(module)", "[dist.broadcast(p.detach(), src=0) for p in module.parameters()]"),
)
overlapped("sum", "sum for mean", ("        parameter.grad /= dist.get_world_size()\n", ""))
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

# ---- bucket_plan

PLAN = """
def bucket_plan(sizes, cap_bytes):
    buckets, filled = [], 0
    for index in reversed(range(len(sizes))):
        if not buckets or filled + sizes[index] > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(index)
        filled += sizes[index]
    return buckets
"""


def plan(name: str, mistake: str, *changes: tuple[str, str]) -> None:
    wrong("bucket_plan", name, mistake, changed(PLAN, *changes))


plan("from the first", "order of registration", ("reversed(range(len(sizes)))", "range(len(sizes))"))
plan("looks after it has added", "over the cap", ("filled + sizes[index] > cap_bytes", "filled >= cap_bytes"))
plan("less than the cap", "closed too early", ("> cap_bytes", ">= cap_bytes"))
plan("begins with an empty bucket", "an empty bucket", ("buckets, filled = [], 0", "buckets, filled = [[]], 0"))
plan("the last bucket is lost", "a parameter is lost", ("return buckets", "return buckets[:-1]"))

# ---- bucketed_ddp

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


def bucketed(name: str, mistake: str, *changes: tuple[str, str]) -> None:
    wrong("bucketed_ddp", name, mistake, changed(BUCKETED, *changes))


wrong(
    "bucketed_ddp",
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
bucketed("sum", "sum for mean", ("        flat /= dist.get_world_size()\n", ""))
bucketed("divided by two", "divided by a constant", ("/= dist.get_world_size()", "/= 2"))
bucketed(
    "divided twice",
    "divided twice",
    (
        "            self.unpack(number, flat)",
        ("            flat /= dist.get_world_size()\n            self.unpack(number, flat)"),
    ),
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
    (
        "while len(self.in_flight) < len(self.buckets) and self.missing[len(self.in_flight)] == 0:",
        "if len(self.in_flight) < len(self.buckets) and self.missing[len(self.in_flight)] == 0:",
    ),
)
bucketed(
    "a lambda in a loop",
    "every hook has the last index",
    ("partial(self.on_gradient, index)", "lambda p: self.on_gradient(index, p)"),
)
bucketed("one too few is missing", "packed too early", ("[len(bucket) for", "[max(len(bucket) - 1, 1) for"))

# ---- accumulating_ddp

ACCUMULATING = """
class AccumulatingDDP(BucketedDDP):
    synchronize = True

    @contextmanager
    def no_sync(self):
        before, self.synchronize = self.synchronize, False
        try:
            yield
        finally:
            self.synchronize = before

    def on_gradient(self, index, parameter):
        if self.synchronize:
            super().on_gradient(index, parameter)
"""


def accumulating(name: str, mistake: str, *changes: tuple[str, str]) -> None:
    wrong("accumulating_ddp", name, mistake, changed(ACCUMULATING, *changes))


accumulating("no_sync does nothing", "sends inside no_sync", ("        if self.synchronize:\n    ", "    "))
accumulating(
    "no finally",
    "no_sync stays on after an error",
    (
        "        try:\n            yield\n        finally:\n            self.synchronize = before",
        "        yield\n        self.synchronize = before",
    ),
)
accumulating(
    "divided by the passes",
    "accumulation is wrong",
    (
        "        if self.synchronize:\n",
        "        self.passes = getattr(self, 'passes', 0) + 1\n        if self.synchronize:\n"
        "            parameter.grad /= 2\n",
    ),
)
accumulating(
    "gradients of quiet passes are thrown away",
    "accumulation is wrong",
    (
        "            super().on_gradient(index, parameter)",
        "            super().on_gradient(index, parameter)\n        else:\n            parameter.grad = None",
    ),
)
accumulating("no decorator", "a generator is no context", ("    @contextmanager\n", ""))

# ---- mini_ddp

MINI = """
class MiniDDP(AccumulatingDDP):
    def forward(self, *args, **kwargs):
        if self.training:
            for buffer in self.module.buffers():
                dist.broadcast(buffer, src=0)
        return super().forward(*args, **kwargs)

    def pack(self, number):
        bucket = [self.trained[index] for index in self.buckets[number]]
        parts = [torch.zeros_like(p).view(-1) if p.grad is None else p.grad.reshape(-1) for p in bucket]
        flags = torch.tensor([float(p.grad is not None) for p in bucket])
        return torch.cat([*parts, flags.to(parts[0])])

    def unpack(self, number, flat):
        bucket = [self.trained[index] for index in self.buckets[number]]
        start = 0
        for parameter, flag in zip(bucket, flat[-len(bucket) :].tolist(), strict=True):
            if flag > 0:
                parameter.grad = flat[start : start + parameter.numel()].view_as(parameter).clone()
            start += parameter.numel()

    def finish_gradient_synchronization(self):
        for number in range(len(self.in_flight), len(self.buckets)):
            self.launch(number)
        super().finish_gradient_synchronization()
"""


def mini(name: str, mistake: str, *changes: tuple[str, str]) -> None:
    wrong("mini_ddp", name, mistake, changed(MINI, *changes))


mini(
    "buffers follow nobody",
    "buffers drift apart",
    ("                dist.broadcast(buffer, src=0)", "                pass"),
)
mini("zeros for all", "an unused parameter gets zeros", ("            if flag > 0:", "            if True:"))
mini(
    "what is left stays",
    "an unused parameter stops everything",
    ("            self.launch(number)\n", "            pass\n"),
)
mini(
    "copies into what is not there",
    "no gradient to copy into",
    (
        "parameter.grad = flat[start : start + parameter.numel()].view_as(parameter).clone()",
        "parameter.grad.copy_(flat[start : start + parameter.numel()].view_as(parameter))",
    ),
)
mini(
    "sends only what is not full",
    "an unused parameter stops everything",
    ("            self.launch(number)\n", "            if self.missing[number] > 0: self.launch(number)\n"),
)
mini(
    "only where I used it",
    "what only some ranks used is not averaged",
    ("if flag > 0:", "if parameter.grad is not None:"),
)
mini(
    "mean over those that used it",
    "what only some ranks used is not averaged",
    (".view_as(parameter).clone()", ".view_as(parameter).clone() / flag"),
)
mini(
    "the whole model at every forward",
    "parameters sent in every step",
    (
        "            for buffer in self.module.buffers():\n                dist.broadcast(buffer, src=0)",
        "            broadcast_module(self.module)",
    ),
)

# ---- sharded_sampler

SAMPLER = """
class ShardedSampler(Sampler):
    def __init__(self, size, world_size, rank, shuffle=True, seed=0, drop_last=False):
        self.size, self.world_size, self.rank = size, world_size, rank
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.size // self.world_size if self.drop_last else math.ceil(self.size / self.world_size)

    def __iter__(self):
        order = list(range(self.size))
        if self.shuffle:
            order = torch.randperm(self.size, generator=torch.Generator().manual_seed(self.seed + self.epoch)).tolist()
        total = len(self) * self.world_size
        order = (order * math.ceil(total / max(self.size, 1)))[:total]
        return iter(order[self.rank : total : self.world_size])
"""


def sampler(name: str, mistake: str, *changes: tuple[str, str]) -> None:
    wrong("sharded_sampler", name, mistake, changed(SAMPLER, *changes))


sampler(
    "returns the list",
    "a list is no iterator",
    ("iter(order[self.rank : total : self.world_size])", "order[self.rank : total : self.world_size]"),
)
sampler(
    "epoch after epoch in one iterator",
    "it does not end",
    (
        "        return iter(order[self.rank : total : self.world_size])\n",
        "        while True:\n            yield from order[self.rank : total : self.world_size]\n",
    ),
)
sampler("set_epoch does nothing", "set_epoch forgotten", ("        self.epoch = epoch", "        pass"))
sampler(
    "seed with the rank",
    "each rank shuffles for itself",
    ("self.seed + self.epoch)", "self.seed + self.epoch + self.rank)"),
)
sampler(
    "blocks",
    "blocks instead of strides",
    ("order[self.rank : total : self.world_size]", "order[self.rank * len(self) : (self.rank + 1) * len(self)]"),
)
sampler(
    "no padding",
    "ranks get unequal numbers",
    ("        order = (order * math.ceil(total / max(self.size, 1)))[:total]\n", "        order = order[:total]\n"),
)
sampler("epoch only", "seed ignored", ("manual_seed(self.seed + self.epoch)", "manual_seed(self.epoch)"))
sampler(
    "repeats once",
    "too few samples to repeat once",
    ("(order * math.ceil(total / max(self.size, 1)))[:total]", "(order + order)[:total]"),
)

# ---- overlap_gain

COST = """
def overlapped_seconds(backward_s, num_bytes, num_buckets, world_size, latency_s, bandwidth_Bps):
    bucket = 2 * (world_size - 1) * (latency_s + num_bytes / num_buckets / world_size / bandwidth_Bps)
    return {formula}


def best_num_buckets(backward_s, num_bytes, world_size, latency_s, bandwidth_Bps, most=1000):
    return {best}
"""
BEST = (
    "min(range(1, most + 1), key=lambda k: overlapped_seconds(backward_s, num_bytes, k, world_size, latency_s, "
    "bandwidth_Bps))"
)


def cost(name: str, mistake: str, formula: str, best: str = BEST) -> None:
    wrong("overlap_gain", name, mistake, COST.format(formula=formula, best=best))


RIGHT = "max(backward_s + bucket, backward_s / num_buckets + num_buckets * bucket)"
cost("one after the other", "no overlap", "backward_s + num_buckets * bucket")
cost("the longer of the two", "everything hidden", "max(backward_s, num_buckets * bucket)")
cost("the first bucket is there at once", "the network never waits", "max(backward_s + bucket, num_buckets * bucket)")
cost("only the last bucket counts", "only the case of a fast network", "backward_s + bucket")
cost("always the most", "not the best number", RIGHT, "most")
cost("always one", "not the best number", RIGHT, "1")

# ---- uneven_inputs

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


def uneven(name: str, mistake: str, *changes: tuple[str, str]) -> None:
    wrong("uneven_inputs", name, mistake, changed(UNEVEN, *changes))


uneven("the mean over all", "divided by all ranks", ("*= dist.get_world_size() / active.item()", "*= 1"))
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
