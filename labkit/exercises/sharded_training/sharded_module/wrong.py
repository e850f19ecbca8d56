"""Wrong answers to sharded_module, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed
AFTER = (
    "        if number + 1 < len(self.units) or not torch.is_grad_enabled():\n            self.units[number].free()\n"
)
BEHIND = "        if number + 1 < len(self.units):\n            self.units[number + 1].free()\n"
AHEAD = "        if 0 <= then < len(self.units):\n            self.units[then].start_gather()\n"
FREED = """            if len(unit.trained) == len(unit.params):  # backward may still compute with frozen ones
                unit.free()
"""
FULL = """            unit.free()
            whole = [torch.empty_like(w, dtype=p.dtype) for p, w in zip(unit.params, unit.whole, strict=True)]
            if whole:
                start_gather(unit.shards, whole)()
            full.update(zip(unit.params, whole, strict=True))
"""
LEAVES = "            unit.start_scatter()\n"

changed("never frees after forward", "not freed after forward", (AFTER, "        pass\n"))
changed("never frees in backward", "not freed after backward", (BEHIND, ""), (FREED, ""))
changed(
    "gathers all ahead",
    "all gathered at once",
    (AHEAD, "        for unit in self.units[number + 1 :]:\n            unit.gather()\n"),
)
changed("no prefetch at all", "no prefetch", (AHEAD, ""))
changed(
    "prefetches the wrong way in backward",
    "no prefetch in backward",
    ("        self.before(number, number - 1)\n", "        self.before(number, len(self.units))\n"),
)
changed("forward only", "not gathered for backward", ("        self.before(number, number - 1)\n", "        pass\n"))
changed(
    "drops the tensor, not the storage",
    "autograd holds it",
    (
        AFTER,
        "        unit = self.units[number]\n        if number + 1 < len(self.units):\n"
        "            for p, shard in zip(unit.params, unit.shards):\n                p.data = shard\n"
        "            unit.whole = [torch.empty_like(w) for w in unit.whole]\n            unit.is_whole = False\n",
    ),
)
changed(
    "scatters in the end",
    "all at the end",
    (LEAVES, "            pass\n"),
    (
        "            unit.free()\n            unit.finish_scatter()\n",
        "            unit.free()\n            if unit.trained:\n                unit.start_scatter()\n          "
        "  unit.finish_scatter()\n",
    ),
)
changed(
    "waits at once",
    "waits in backward",
    (LEAVES, LEAVES + "            unit.free()\n            unit.finish_scatter()\n"),
)
changed(
    "waits at once, except for the root",
    "waits in backward",
    (
        LEAVES,
        LEAVES
        + "            if unit is not self.root:\n                unit.free()\n                unit.finish_scatter()\n",
    ),
)
changed(
    "full parameters stay",
    "full parameters stay",
    (FULL, "            unit.gather()\n            full.update((p, p.detach().clone()) for p in unit.params)\n"),
)
changed(
    "full parameters as they compute",
    "full parameters in low precision",
    (
        FULL,
        "            unit.gather()\n            full.update((p, p.detach().clone()) for p in unit.params)\n"
        "            unit.free()\n",
    ),
)
changed(
    "leaves the root out",
    "the root left out",
    (
        "        for unit in [self.root, *self.units]:\n            unit.free()\n            unit.finish",
        "        for unit in self.units:\n            unit.free()\n            unit.finish",
    ),
)
changed(
    "frees the root after forward",
    "the root freed too soon",
    ("        if not torch.is_grad_enabled():\n            self.root.free()\n", "        self.root.free()\n"),
)
changed("the wrapper's names", "other names", ("return {name: full", 'return {f"module.{name}": full'))
changed("frees a block with its last gradient", "freed with its last gradient", (FREED, "            unit.free()\n"))
changed(
    "all-reduces first, as DDP does", "all-reduced",
    (LEAVES, "            for each in unit.trained:\n                dist.all_reduce(each.grad)\n"
     "                each.grad.div_(dist.get_world_size())\n" + LEAVES),
)  # fmt: skip
changed(
    "scatters each gradient by itself", "a collective for each parameter",
    (LEAVES, "            parts = [start_scatter([each.grad]) for each in unit.trained]\n"
     "            unit.leaving = lambda parts=parts: [each for part in parts for each in part()]\n"
     "            for each in unit.trained:\n                each.grad = None\n"),
)  # fmt: skip
changed(
    "a shared weight in the first block's unit", "a shared weight in one block",
    ("        alone = {p for p in module.parameters() if sum(p in each for each in inside) == 1}\n",
     "        alone = set().union(*inside)\n        taken = set()\n"),
    ("[p for p in block.parameters() if p in alone]",
     "[p for p in block.parameters() if not (p in taken or taken.add(p))]"),
)  # fmt: skip
changed("wants a list of blocks", "blocks is None",
        ("list(module.children() if blocks is None else blocks)", "list(blocks)"))  # fmt: skip
changed(
    "the leaves for children", "leaves for children",
    ("module.children() if blocks", "[m for m in module.modules() if not list(m.children())] if blocks"),
)  # fmt: skip
changed(
    "keeps the last two", "not freed after forward",
    ("        if number + 1 < len(self.units) or not torch.is_grad_enabled():\n            self.units[number].free()\n",
     "        if number + 2 < len(self.units):\n            self.units[number].free()\n"),
)  # fmt: skip
changed("returns nothing", "nothing returned", ("        return outputs\n", ""))
changed(
    "computes in the parameters' dtype", "compute_dtype ignored",
    ("not in alone], compute_dtype)", "not in alone])"), ("in alone], compute_dtype)", "in alone])"),
)  # fmt: skip
changed(
    "the root in its own dtype", "compute_dtype ignored",
    ("not in alone], compute_dtype)", "not in alone])"),
)  # fmt: skip
changed(
    "hands out what computes", "no copies",
    (FULL, "            unit.gather()\n            full.update((p, p.data) for p in unit.params)\n"
     "            unit.free()\n"),
)  # fmt: skip
changed(
    "frees and finishes nothing", "gradients not finished",
    ("            unit.free()\n            unit.finish_scatter()\n", "            unit.free()\n"),
)  # fmt: skip
changed(
    "finishes the one started last", "gradients not finished",
    ("            unit.free()\n            unit.finish_scatter()\n", "            unit.free()\n"
     "        if self.last_left is not None:\n            self.last_left.finish_scatter()\n"),
    ("            if self.last_left is not None:\n                self.last_left.finish_scatter()\n            if len",
     "            if len"),
)  # fmt: skip
WRONG.right(
    "frees the last block, too, and waits for no scatter in backward",
    """class ShardedModule(nn.Module):
    def __init__(self, module, blocks=None, compute_dtype=None):
        super().__init__()
        self.module = module
        blocks = list(module.children()) if blocks is None else list(blocks)
        uses = {}
        for number, block in enumerate(blocks):
            for parameter in block.parameters():
                uses.setdefault(parameter, set()).add(number)
        own = [[p for p in block.parameters() if len(uses[p]) == 1] for block in blocks]
        rest = [p for p in module.parameters() if len(uses.get(p, ())) != 1]
        self.units = [Unit(each, compute_dtype) for each in own]
        self.rest = Unit(rest, compute_dtype)
        for number, block in enumerate(blocks):
            block.register_forward_pre_hook(lambda layer, given, number=number: self.arrive(number, number + 1))
            block.register_forward_hook(lambda layer, given, output, number=number: self.leave(number, output))
        for unit in (*self.units, self.rest):
            for parameter in unit.trained:
                parameter.register_post_accumulate_grad_hook(lambda p, unit=unit: self.complete(unit))

    def arrive(self, number, following):
        self.units[number].gather()
        if following in range(len(self.units)):
            self.units[following].start_gather()

    def leave(self, number, output):
        self.units[number].free()
        if output.requires_grad:
            output.register_hook(lambda gradient: self.back(number))

    def back(self, number):
        for unit in self.units[number + 1 : number + 2]:
            unit.free()
        self.arrive(number, number - 1)

    def complete(self, unit):
        if not any(p.grad is None for p in unit.trained):
            unit.start_scatter()

    def forward(self, *args, **kwargs):
        self.rest.gather()
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        for unit in (*self.units, self.rest):
            unit.free()
            unit.finish_scatter()

    def gather_full_params(self):
        full = {}
        for unit in (*self.units, self.rest):
            unit.free()
            if unit.params:
                copies = [torch.empty(w.shape, dtype=p.dtype) for p, w in zip(unit.params, unit.whole)]
                start_gather(unit.shards, copies)()
                full.update(zip(unit.params, copies))
        return {name: full[parameter] for name, parameter in self.module.named_parameters()}
""",
)
NEXT = "            self.units[then].start_gather()\n"
changed(
    "two ahead",
    "gathered too far ahead",
    (
        NEXT,
        NEXT + "        if then > number and then + 1 < len(self.units):\n"
        "            self.units[then + 1].start_gather()\n",
    ),
)
changed("backward goes on as forward", "no prefetch in backward", ("number, number - 1)", "number, number + 1)"))
COMPLETE = "        if all(p.grad is not None for p in unit.trained):\n"
changed(
    "counts on in the next step",
    "gradients stay whole",
    (
        COMPLETE,
        '        unit.count = getattr(unit, "count", 0) + 1\n        if unit.count == len(unit.trained):\n',
    ),
)
changed("waits for frozen ones", "gradients stay whole", (COMPLETE, COMPLETE.replace("trained", "params")))
changed(
    "no unit for the rest",
    "in no unit",
    ("self.root = Unit([p for p in module.parameters() if p not in alone], compute_dtype)", "self.root = Unit([])"),
)
changed("positions alone", "keywords not passed on", ("self.module(*args, **kwargs)", "self.module(*args)"))
changed(
    "gathers the root once",
    "the root freed too soon",
    (
        "        self.root.gather()\n        if self.units",
        '        if not hasattr(self, "begun"):\n            self.begun = True\n            self.root.gather()\n'
        "        if self.units",
    ),
)
