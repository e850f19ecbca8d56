"""Wrong answers to lesson 01, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.checks.wrong_answer import WrongAnswer

WRONG: list[WrongAnswer] = []


def wrong(exercise: str, name: str, mistake: str, source: str) -> None:
    WRONG.append(WrongAnswer(exercise, name, mistake, source))


# ---- scatter

SCATTER = """
def cut(tensor, devices):
    {cut}


def scatter(value, devices):
    if isinstance(value, Tensor):
        if value.dim() == 0:
            return [value.to(device) for device in devices]
        return cut(value, devices)
    if isinstance(value, (tuple, list)){and_full}:
        return [{kind}(parts) for parts in zip(*(scatter(item, devices) for item in value))]
    if isinstance(value, dict){and_full}:
        return [dict(zip(value, parts)) for parts in zip(*(scatter(item, devices) for item in value.values()))]
    return [value] * len(devices)
"""
RIGHT_CUT = "return [p.to(d) for p, d in zip(tensor.tensor_split(min(len(tensor), len(devices))), devices)]"


def wrong_scatter(
    name: str, mistake: str, cut: str = RIGHT_CUT, full: str = " and value", kind: str = "type(value)"
) -> None:
    wrong("scatter", name, mistake, SCATTER.format(cut=cut, and_full=full, kind=kind))


wrong_scatter(
    "chunk", "pieces as chunk cuts them", "return [p.to(d) for p, d in zip(tensor.chunk(len(devices)), devices)]"
)
wrong_scatter(
    "as many pieces as devices",
    "empty pieces",
    "return [p.to(d) for p, d in zip(tensor.tensor_split(len(devices)), devices)]",
)
wrong_scatter(
    "n // N each",
    "samples lost",
    "size = len(tensor) // len(devices); "
    "return [tensor[i * size : (i + 1) * size].to(d) for i, d in enumerate(devices)]",
)
wrong_scatter("an empty dict makes no pieces", "an empty container swallows all", full="")
wrong_scatter("every n-th", "in turns", "return [tensor[i :: len(devices)].to(d) for i, d in enumerate(devices)]")
wrong_scatter("always tuples", "kind changed", kind="tuple")
wrong_scatter("to nowhere", "not on its device", "return list(tensor.tensor_split(min(len(tensor), len(devices))))")
wrong_scatter(
    "detached",
    "gradients cut off",
    "return [p.detach().to(d) for p, d in zip(tensor.tensor_split(min(len(tensor), len(devices))), devices)]",
)
wrong(
    "scatter",
    "tensors only",
    "every device gets all",
    """
def scatter(value, devices):
    if isinstance(value, Tensor) and value.dim():
        return [p.to(d) for p, d in zip(value.tensor_split(min(len(value), len(devices))), devices)]
    return [value] * len(devices)
""",
)

for uncut, kinds in (("list", "tuple"), ("dict", "(tuple, list)")):
    wrong(
        "scatter",
        f"no {uncut}s",
        f"{uncut}s not cut",
        SCATTER.format(cut=RIGHT_CUT, and_full=" and value", kind="type(value)")
        .replace("(tuple, list)", kinds)
        .replace("isinstance(value, dict)", "isinstance(value, dict)" if uncut == "list" else "False"),
    )

# ---- gather

GATHER = """
def gather(outputs, device):
    first = outputs[0]
    if isinstance(first, Tensor):
        {tensors}
    if isinstance(first, (tuple, list)):
        return {kind}(gather(list(items), device) for items in zip(*outputs))
    if isinstance(first, dict):
        return {{key: gather([output[key] for output in outputs], device) for key in first}}
    return first
"""
RIGHT_JOIN = (
    "there = [o.to(device) for o in outputs]; return torch.stack(there) if first.dim() == 0 else torch.cat(there)"
)


def wrong_gather(name: str, mistake: str, tensors: str = RIGHT_JOIN, kind: str = "type(first)") -> None:
    wrong("gather", name, mistake, GATHER.format(tensors=tensors, kind=kind))


wrong_gather("stack", "stack for cat", "return torch.stack([o.to(device) for o in outputs])")
wrong_gather(
    "along dimension 1",
    "along another dimension",
    "return torch.cat([o.to(device) for o in outputs], dim=-1) if first.dim() else torch.stack(list(outputs))",
)
wrong_gather("the mean", "mixed instead of joined", "return sum(o.to(device) for o in outputs) / len(outputs)")
wrong_gather(
    "the last first",
    "in another order",
    "there = [o.to(device) for o in outputs][::-1]; return torch.cat(there) if first.dim() else torch.stack(there)",
)
wrong_gather("the first one's", "only the first", "return first.to(device)")
wrong_gather("cat for everything", "losses cannot be joined", "return torch.cat([o.to(device) for o in outputs])")
wrong_gather("always lists", "kind changed", kind="list")
wrong_gather(
    "where they are", "not on the device", "return torch.stack(outputs) if first.dim() == 0 else torch.cat(outputs)"
)
wrong_gather(
    "new tensors",
    "gradients cut off",
    "there = [o.detach().to(device) for o in outputs]; return torch.cat(there) if first.dim() else torch.stack(there)",
)

wrong_gather(
    "losses as plain numbers",
    "gradients cut off",
    "return torch.cat([o.to(device) for o in outputs]) if first.dim() else torch.tensor([o.item() for o in outputs])",
)

# ---- replicate

REPLICATE = """
def replicate(module, devices):
    replicas = []
    for number, device in enumerate(devices):
        {memo}
        replicas.append(copy.deepcopy(module, memo))
    return replicas
"""


def wrong_replicate(name: str, mistake: str, memo: str) -> None:
    wrong("replicate", name, mistake, REPLICATE.format(memo=memo))


TENSORS = "[*module.parameters(), *module.buffers()]"
wrong(
    "replicate",
    "a bare deepcopy",
    "detached",
    "def replicate(module, devices):\n    return [copy.deepcopy(module).to(device) for device in devices]",
)
wrong_replicate(
    "under no_grad",
    "detached",
    f"""with torch.no_grad():
            memo = {{id(t): nn.Parameter(t.to(device, copy=True), t.requires_grad) if isinstance(t, nn.Parameter)
                    else t.to(device, copy=number > 0) for t in {TENSORS}}}""",
)
wrong(
    "replicate",
    "the module and deep copies",
    "only replica 0's gradients",
    """
def replicate(module, devices):
    return [module] + [copy.deepcopy(module).to(device) for device in devices[1:]]
""",
)
wrong_replicate(
    "replica 0 detached",
    "only the others' gradients",
    f"""memo = {{id(t): t.to(device, copy=number > 0) for t in {TENSORS}}}
        if number == 0:
            memo = {{id(b): b for b in module.buffers()}}""",
)
wrong(
    "replicate",
    "scaled by the number of replicas",
    "averaged",
    """
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, count):
        ctx.count = count
        return tensor.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / ctx.count, None


def replicate(module, devices):
    replicas = []
    for number, device in enumerate(devices):
        memo = {id(p): Scaled.apply(p, len(devices)).to(device) for p in module.parameters()}
        memo |= {id(b): b.to(device, copy=number > 0) for b in module.buffers()}
        replicas.append(copy.deepcopy(module, memo))
    return replicas
""",
)
wrong(
    "replicate",
    "by name",
    "the shared weight lost",
    """
def replicate(module, devices):
    replicas = []
    for number, device in enumerate(devices):
        replica = copy.deepcopy(module, {id(b): b.to(device, copy=number > 0) for b in module.buffers()}).to(device)
        for name, parameter in module.named_parameters():
            path, _, last = name.rpartition(".")
            owner = replica.get_submodule(path)
            del owner._parameters[last]
            setattr(owner, last, parameter.to(device, copy=True))
        replicas.append(replica)
    return replicas
""",
)
wrong_replicate(
    "buffers not copied",
    "buffers of all replicas",
    """memo = {id(p): p.to(device, copy=number > 0) for p in module.parameters()}
        memo |= {id(b): b.to(device) for b in module.buffers()}""",
)
wrong_replicate(
    "copies for replica 0 too",
    "buffers of nobody",
    f"memo = {{id(t): t.to(device, copy=True) for t in {TENSORS}}}",
)
wrong_replicate(
    "the last replica's buffers",
    "another replica's buffers",
    """memo = {id(p): p.to(device, copy=number > 0) for p in module.parameters()}
        memo |= {id(b): b.to(device, copy=number < len(devices) - 1) for b in module.buffers()}""",
)
wrong_replicate(
    "parameters not copied",
    "the same memory",
    """memo = {id(p): p.to(device) for p in module.parameters()}
        memo |= {id(b): b.to(device, copy=number > 0) for b in module.buffers()}""",
)
wrong_replicate(
    "clones stay where they are",
    "not on its device",
    f"memo = {{id(t): t.clone() if number else t for t in {TENSORS}}}",
)

# ---- parallel_apply

APPLY = """
def parallel_apply(replicas, inputs):
    outputs, errors = [None] * len(replicas), {{}}
    enabled = torch.is_grad_enabled()

    def apply(number):
        arguments, keywords = inputs[number]
        {body}

    threads = [threading.Thread(target=apply, args=(number,)) for number in range(len(replicas))]
    {run}
    {end}
    return outputs
"""
BODY = """try:
            with torch.set_grad_enabled(enabled):
                outputs[number] = replicas[number](*arguments, **keywords)
        except Exception as error:
            errors[number] = error"""
RUN = """for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()"""
END = """if errors:
        number = min(errors)
        errors[number].add_note(f"in replica {number}")
        raise errors[number]"""


def wrong_apply(name: str, mistake: str, body: str = BODY, run: str = RUN, end: str = END) -> None:
    wrong("parallel_apply", name, mistake, APPLY.format(body=body, run=run, end=end))


wrong(
    "parallel_apply",
    "a plain loop",
    "one after another",
    """
def parallel_apply(replicas, inputs):
    return [replica(*arguments, **keywords) for replica, (arguments, keywords) in zip(replicas, inputs)]
""",
)
wrong_apply(
    "start and join together",
    "one after another",
    run="""for thread in threads:
        thread.start()
        thread.join()""",
)
wrong_apply("no join", "not joined", run="for thread in threads:\n        thread.start()")
wrong_apply("returned by the thread", "results lost", BODY.replace("outputs[number] =", "return"))
wrong_apply(
    "append",
    "in the order of their end",
    BODY.replace("outputs[number] = ", "output = ").replace(
        "keywords)", "keywords)\n                outputs.append(output)"
    ),
    run="outputs.clear()\n    " + RUN,
)
wrong_apply("positional only", "keywords dropped", BODY.replace(", **keywords", ""))
wrong_apply(
    "gradients as a thread has them",
    "gradients not as outside",
    BODY.replace("with torch.set_grad_enabled(enabled):", "with contextmanager(lambda: iter([None]))():"),
)
wrong_apply(
    "errors are dropped",
    "an exception swallowed",
    BODY.replace("errors[number] = error", "pass"),
)
wrong_apply(
    "of the one who failed first", "another replica's exception", end=END.replace("min(errors)", "next(iter(errors))")
)
wrong_apply(
    "a RuntimeError with the text",
    "another type",
    end=END.replace("raise errors[number]", 'raise RuntimeError(f"in replica {number}: {errors[number]}")'),
)
wrong_apply("as it was", "which replica", end=END.replace('errors[number].add_note(f"in replica {number}")', "pass"))
wrong_apply(
    "one of the same type made anew",
    "the line is lost",
    end="""if errors:
        number = min(errors)
        error = copy.copy(errors[number]).with_traceback(None) if type(errors[number]) is ValueError else errors[number]
        error.add_note(f"in replica {number}")
        raise error""",
)
wrong_apply(
    "at the first join that finds an error",
    "raised before the others ended",
    run="""for thread in threads:
        thread.start()
    while not errors and any(thread.is_alive() for thread in threads):
        time.sleep(0.001)
    if errors:
        number = min(errors)
        errors[number].add_note(f"in replica {number}")
        raise errors[number]""",
)

# ---- mini_data_parallel

WRAPPER = """
class MiniDataParallel(nn.Module):
    def __init__(self, module, devices):
        super().__init__()
        self.module, self.devices = module, devices
        {init}

    def forward(self, *arguments, **keywords):
        {forward}
"""
FORWARD = """pieces = scatter((arguments, keywords), self.devices)
        replicas = replicate(self.module, self.devices[: len(pieces)])
        return gather(parallel_apply(replicas, pieces), self.devices[0])"""


def wrong_wrapper(name: str, mistake: str, forward: str = FORWARD, init: str = "pass", before: str = "") -> None:
    wrong("mini_data_parallel", name, mistake, before + WRAPPER.format(init=init, forward=forward))


wrong_wrapper(
    "deep copies for replicas",
    "no gradients",
    FORWARD.replace(
        "replicate(self.module, self.devices[: len(pieces)])", "[copy.deepcopy(self.module) for _ in pieces]"
    ),
)
wrong_wrapper(
    "a plain loop",
    "one after another",
    FORWARD.replace("parallel_apply(replicas, pieces)", "[r(*a, **k) for r, (a, k) in zip(replicas, pieces)]"),
)
wrong_wrapper(
    "gathered on the last device", "gathered elsewhere", FORWARD.replace("self.devices[0])", "self.devices[-1])")
)
wrong_wrapper(
    "detached outputs",
    "no gradients",
    FORWARD.replace(
        "return gather(", "return gather([o.detach().requires_grad_() if isinstance(o, Tensor) else o for o in "
    ).replace("pieces), self", "pieces)], self"),
)
wrong_wrapper("arguments only", "keywords dropped", FORWARD.replace("(arguments, keywords)", "(arguments, {})"))
wrong_wrapper("calls the module", "not split", "return self.module(*arguments, **keywords)")
wrong_wrapper(
    "torch's own class",
    "not split",
    "return nn.DataParallel(self.module)(*arguments, **keywords)",
)
wrong_wrapper(
    "everybody computes everything, rank 0's is taken",
    "the whole batch everywhere",
    """pieces = [(arguments, keywords)] * len(self.devices)
        return parallel_apply(replicate(self.module, self.devices), pieces)[0]""",
)
wrong_wrapper(
    "replicas in __init__",
    "replicas made once",
    """pieces = scatter((arguments, keywords), self.devices)
        return gather(parallel_apply(self.__dict__["made"][: len(pieces)], pieces), self.devices[0])""",
    init='self.__dict__["made"] = replicate(module, devices)',
)
wrong_wrapper(
    "gradients divided by the replicas",
    "gradients divided",
    FORWARD.replace("return gather(", "whole = gather(")
    + """
        count = len(pieces)

        def scaled(value):
            if isinstance(value, Tensor):
                if value.requires_grad:
                    value.register_hook(lambda gradient: gradient / count)
                return value
            if isinstance(value, (tuple, list)):
                return type(value)(map(scaled, value))
            return {k: scaled(v) for k, v in value.items()} if isinstance(value, dict) else value

        return scaled(whole)""",
)
wrong_wrapper(
    "buffers thrown away",
    "buffers of nobody",
    FORWARD.replace("replicate(self.module,", "replicate(copied_buffers(self.module),"),
    before="""
def copied_buffers(module):
    memo = {id(p): p for p in module.parameters()} | {id(b): b.clone() for b in module.buffers()}
    return copy.deepcopy(module, memo)
""",
)
wrong_wrapper(
    "one module in all threads",
    "buffers of all replicas",
    FORWARD.replace("replicate(self.module, self.devices[: len(pieces)])", "[self.module] * len(pieces)"),
)
wrong_wrapper(
    "a replica for each device",
    "more replicas than pieces",
    FORWARD.replace("self.devices[: len(pieces)]", "self.devices"),
)
wrong_wrapper(
    "gradients always on",
    "gradients under no_grad",
    FORWARD.replace("        return gather", "        with torch.enable_grad():\n            return gather"),
)
wrong_wrapper(
    "keeps a copy",
    "another module",
    init="self.spare = copy.deepcopy(module)",
)

# ---- whole_batch_loss

LOSS = "def whole_batch_loss(losses, counts):\n    {body}\n"


def wrong_loss(name: str, mistake: str, body: str) -> None:
    wrong("whole_batch_loss", name, mistake, LOSS.format(body=body))


wrong_loss("losses.mean()", "mean of means", "return losses.mean()")
wrong_loss("nanmean", "mean of means", "return losses.nanmean()")
wrong_loss(
    "weights that are zero", "nan from an empty piece", "return (losses * torch.tensor(counts)).sum() / sum(counts)"
)
wrong_loss(
    "nansum",
    "nan from an empty piece",
    "weights = torch.tensor(counts) / sum(counts)\n    "
    "return torch.nansum(losses * torch.where(weights > 0, weights, losses))",
)
wrong_loss("not divided", "sum of sums", "return sum(loss * count for loss, count in zip(losses, counts) if count)")
wrong_loss("sum", "sum of means", "return sum(loss for loss, count in zip(losses, counts) if count)")
wrong_loss(
    "divided by the replicas",
    "divided by the number of devices",
    "return sum(loss * count for loss, count in zip(losses, counts) if count) / len(counts)",
)
wrong_loss(
    "as plain numbers",
    "gradients cut off",
    "return torch.tensor(sum(x * n for x, n in zip(losses.tolist(), counts) if n) / sum(counts), dtype=losses.dtype)",
)

# ---- step_plan

PLAN = """
def step_plan(sizes, input_bytes, output_bytes, model_bytes, gradient_bytes):
    plan = []
    for what, out, size_of in (
        ("inputs", True, lambda d: sizes[d] * input_bytes),
        ("model", True, lambda d: model_bytes),
        ("outputs", False, lambda d: sizes[d] * output_bytes),
        ("output gradients", True, lambda d: sizes[d] * output_bytes),
        ("model gradients", False, lambda d: gradient_bytes),
    ):
        for d in range(1, len(sizes)):
            plan.append(Move(what, 0, d, size_of(d)) if out else Move(what, d, 0, size_of(d)))
    return plan
"""


def wrong_plan(name: str, mistake: str, *changes: tuple[str, str]) -> None:
    source = PLAN
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    wrong("step_plan", name, mistake, source)


wrong_plan("printed", "returns nothing", ("return plan", "print(len(plan))"))
wrong_plan("tuples", "no Moves", ("Move(what, 0, d, size_of(d))", "(what, 0, d, size_of(d))"))
wrong_plan("device 0 as well", "moves to itself", ("range(1, len(sizes))", "range(len(sizes))"))
wrong_plan(
    "forward only", "backward forgotten", ("return plan", 'return [m for m in plan if "gradients" not in m.what]')
)
wrong_plan(
    "no output gradients",
    "output gradients forgotten",
    ("return plan", 'return [m for m in plan if m.what != "output gradients"]'),
)
wrong_plan(
    "the model is there already",
    "the model stays at home",
    ("return plan", 'return [m for m in plan if m.what != "model"]'),
)
wrong_plan("all inputs to all", "the whole batch for everyone", ("sizes[d] * input_bytes", "sum(sizes) * input_bytes"))
wrong_plan("equal pieces", "equal pieces assumed", ("sizes[d]", "sum(sizes) // len(sizes)"))
wrong_plan("outputs go out", "the wrong way", ('"outputs", False', '"outputs", True'))
wrong_plan(
    "gradients of buffers", "gradients as large as the model", ("lambda d: gradient_bytes", "lambda d: model_bytes")
)
wrong_plan(
    "device by device",
    "another order",
    ("return plan", "return sorted(plan, key=lambda m: m.src + m.dst)"),
)

# ---- plan_cost

COSTS = """
def port_bytes(plan, num_devices):
    {ports}


def plan_seconds(plan, latency_s, bandwidth_Bps):
    {seconds}
"""
PORTS = "return [sum(m.num_bytes for m in plan if d in (m.src, m.dst)) for d in range(num_devices)]"
SECONDS = "return sum(latency_s + m.num_bytes / bandwidth_Bps for m in plan)"


def wrong_costs(name: str, mistake: str, ports: str = PORTS, seconds: str = SECONDS) -> None:
    wrong("plan_cost", name, mistake, COSTS.format(ports=ports, seconds=seconds))


wrong_costs("prints", "returns nothing", ports="print(len(plan))")
wrong_costs("sent", "only what is sent", PORTS.replace("d in (m.src, m.dst)", "d == m.src"))
wrong_costs("received", "only what is received", PORTS.replace("d in (m.src, m.dst)", "d == m.dst"))
wrong_costs("bytes only", "latency forgotten", seconds="return sum(m.num_bytes for m in plan) / bandwidth_Bps")
wrong_costs("one latency", "latency once", seconds="return latency_s + sum(m.num_bytes for m in plan) / bandwidth_Bps")
wrong_costs(
    "the longest",
    "all at the same time",
    seconds="return max((latency_s + m.num_bytes / bandwidth_Bps for m in plan), default=0.0)",
)

# ---- shares_by_speed

SHARES = """
def shares_by_speed(num_samples, speeds):
    shares = [num_samples * speed // sum(speeds) for speed in speeds]
    rest = num_samples - sum(shares)
    {rest}
    return shares
"""


def wrong_shares(name: str, mistake: str, rest: str, more: str = "") -> None:
    wrong("shares_by_speed", name, mistake, SHARES.format(rest=rest) + more)


RIGHT_REST = """remainders = [num_samples * speed % sum(speeds) for speed in speeds]
    for device in sorted(range(len(speeds)), key=lambda d: -remainders[d])[:rest]:
        shares[device] += 1"""
wrong_shares(
    "equal",
    "speeds ignored",
    "shares = [len(piece) for piece in torch.arange(num_samples).tensor_split(len(speeds))]",
)
wrong_shares("rounded down", "rest forgotten", "pass")
wrong_shares(
    "rounded", "each rounded by itself", "shares = [round(num_samples * speed / sum(speeds)) for speed in speeds]"
)
wrong_shares("the rest to the last", "the rest to one device", "shares[-1] += rest")
wrong_shares("from the first on", "the rest in order", "for d in range(rest): shares[d] += 1")
wrong_shares(
    "the fastest first",
    "the rest to the fastest",
    "for d in sorted(range(len(speeds)), key=lambda d: -speeds[d])[:rest]: shares[d] += 1",
)
wrong_shares(
    "sorted the other way",
    "the last of equals first",
    """order = sorted(range(len(speeds)), key=lambda d: (num_samples * speeds[d] % sum(speeds), d))
    for d in order[len(order) - rest :]: shares[d] += 1""",
)
wrong_shares(
    "the mean of the times",
    "the mean time",
    RIGHT_REST,
    "\n\ndef slowest_seconds(shares, speeds):\n    return sum(shares) / sum(speeds)\n",
)
wrong_shares(
    "the largest share by the least speed",
    "the largest share by the least speed",
    RIGHT_REST,
    "\n\ndef slowest_seconds(shares, speeds):\n    return max(shares) / min(speeds)\n",
)
for exact in ("num_samples * speed / sum(speeds)", "speed / sum(speeds) * num_samples"):
    wrong_shares(
        f"by the fractions of {exact}",
        "remainders as fractions",
        f"""exact = [{exact} for speed in speeds]
    for d in sorted(range(len(speeds)), key=lambda d: exact[d] - int(exact[d]), reverse=True)[:rest]: shares[d] += 1""",
    )

# ---- split_loader

LOADER = """
class SplitLoader:
    def __init__(self, dataset, batch_size, speeds, shuffle=True, seed=0):
        self.dataset, self.batch_size, self.speeds, self.shuffle, self.seed = dataset, batch_size, speeds, shuffle, seed
        self.epoch = 0

    def __len__(self):
        return -(-len(self.dataset) // self.batch_size)

    def __iter__(self):
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(f"{self.seed} {self.epoch}").shuffle(order)
        self.epoch += 1
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            first, pieces = 0, {}
            for device, share in enumerate(shares_by_speed(len(batch), self.speeds)):
                if share:
                    samples = [self.dataset[index] for index in batch[first : first + share]]
                    pieces[device] = tuple(torch.stack(column) for column in zip(*samples))
                first += share
            yield pieces
"""


def wrong_loader(name: str, mistake: str, *changes: tuple[str, str]) -> None:
    source = LOADER
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    wrong("split_loader", name, mistake, source)


wrong_loader(
    "whole batches only",
    "the last batch dropped",
    ("range(0, len(order), self.batch_size)", "range(0, len(order) - self.batch_size + 1, self.batch_size)"),
)
wrong_loader(
    "an iterator made once",
    "it ends for ever",
    ("self.epoch = 0", "self.epoch = 0\n        self.batches = self.make()"),
    ("def __iter__(self):", "def __iter__(self):\n        return self.batches\n\n    def make(self):"),
)
wrong_loader(
    "round and round",
    "it does not end",
    (
        "for start in range(0, len(order), self.batch_size):",
        "for start in (s for _ in range(99) for s in range(0, len(order), self.batch_size)):",
    ),
)
wrong_loader("one order for all", "no new order", ('f"{self.seed} {self.epoch}"', "self.seed"))
wrong_loader(
    "the global generator", "not repeatable", ('random.Random(f"{self.seed} {self.epoch}").shuffle', "random.shuffle")
)
wrong_loader("never shuffled", "not shuffled", ("if self.shuffle:", "if False:"))
wrong_loader("shuffled whatever is said", "always shuffled", ("if self.shuffle:", "if True:"))
wrong_loader(
    "pieces without samples",
    "empty pieces",
    ("if share:", "if True:"),
    (
        "tuple(torch.stack(column) for column in zip(*samples))",
        "tuple(torch.stack(column) for column in zip(*samples)) if samples "
        "else (torch.empty(0, 2), torch.empty(0).long())",
    ),
)
wrong_loader(
    "equal pieces",
    "speeds ignored",
    ("shares_by_speed(len(batch), self.speeds)", "shares_by_speed(len(batch), [1] * len(self.speeds))"),
)
wrong_loader(
    "shares of a whole batch",
    "shares of a whole batch",
    ("shares_by_speed(len(batch), self.speeds)", "shares_by_speed(self.batch_size, self.speeds)"),
    ("samples = [self", "if not batch[first : first + share]: continue\n                    samples = [self"),
)
wrong_loader(
    "stack of nothing",
    "empty pieces",
    ("if share:", "if True:"),
    (
        "tuple(torch.stack(column) for column in zip(*samples))",
        "torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])",
    ),
)
wrong_loader("a pair of nothing", "empty pieces", ("if share:", "if True:"))
wrong_loader("every device from the start", "samples lost or doubled", ("first += share", "pass"))
