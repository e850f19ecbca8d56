"""Wrong answers to mini_ddp, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed, wrong = WRONG.changed, WRONG.wrong

BROADCAST = "                dist.broadcast(buffer, src=0)"
LAUNCH = "        if self.work is None:\n            self.launch()\n"
AT_THE_END = """
class MiniDDP(AccumulatingDDP):
    def forward(self, *args, **kwargs):
        if self.training:
            for buffer in self.module.buffers():
                dist.broadcast(buffer, src=0)
        return super().forward(*args, **kwargs)

    def on_gradient(self, parameter):
        pass
"""
GRADIENT = "p.grad = torch.empty_like(p).copy_(mean.view_as(p))"

changed("buffers follow nobody", "buffers drift apart", (BROADCAST, "                pass"))
changed(
    "buffers follow in evaluation too", "buffers sent in evaluation", ("        if self.training:", "        if True:")
)
changed(
    "buffers follow while gradients are on",
    "buffers sent in evaluation",
    ("        if self.training:", "        if torch.is_grad_enabled():"),
)
changed("zeros for all", "an unused parameter gets zeros", ("            if flag > 0:", "            if True:"))
changed("packs None", "None goes into the bucket", ("torch.zeros_like(p).flatten() if p.grad is None else ", ""))
changed(
    "forgets the passes before",
    "only the last pass tells who used what",
    ("float(p.grad is not None)", "float(p in getattr(self, 'used', ()))"),
    (
        "    def pack(self)",
        """    def on_gradient(self, parameter):
        if self.synchronize:
            self.used = {*getattr(self, "used", ()), parameter}
        super().on_gradient(parameter)

    def pack(self)""",
    ),
    (
        "        super().finish_gradient_synchronization()",
        "        super().finish_gradient_synchronization()\n        self.used = set()",
    ),
)
changed("what is left stays", "an unused parameter stops everything", (LAUNCH, ""))
changed(
    "what is left stays where nothing was used",
    "an unused parameter stops everything",
    (LAUNCH, LAUNCH.replace("self.work is None", "self.missing")),
)
changed("gives back to the first alone", "not all copied back", (GRADIENT, f"{GRADIENT}\n                break"))
changed("copies into what is not there", "no gradient to copy into", (GRADIENT, "p.grad.copy_(mean.view_as(p))"))
changed("values tell", "zero taken for none", ("            if flag > 0:", "            if mean.any():"))
changed(
    "only where I used it",
    "what only some ranks used is not averaged",
    ("if flag > 0:", "if p.grad is not None:"),
)
changed(
    "mean over those that used it",
    "the mean of those that used it",
    ("copy_(mean.view_as(p))", "copy_(mean.view_as(p) / (flag if 'spare' in self.names[id(p)] else 1))"),
    (
        "        sizes = [p.numel()",
        "        self.names = {id(p): name for name, p in self.module.named_parameters()}\n        sizes = [p.numel()",
    ),
)
changed(
    "the whole model at every forward",
    "parameters sent in every step",
    ("for buffer in self.module.buffers():", "for buffer in [*self.module.buffers(), *self.trained]:"),
    (BROADCAST, "                dist.broadcast(buffer.detach(), src=0)"),
)
changed(
    "divided by all passes",
    "mean over the passes",
    (
        "        return super().forward",
        "        self.passes = getattr(self, 'passes', 0) + 1\n        return super().forward",
    ),
    (
        "        sizes = [p.numel()",
        "        self.flat /= max(getattr(self, 'passes', 1), 1)\n        self.passes = 0\n        sizes = [p.numel()",
    ),
)
wrong(
    "only what I have",
    "an unused parameter is left out",
    AT_THE_END
    + """
    def finish_gradient_synchronization(self):
        for p in self.trained:
            if p.grad is not None:
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
""",
)
wrong(
    "torch's own",
    "wraps torch's DDP",
    """
class MiniDDP(nn.parallel.DistributedDataParallel):
    def finish_gradient_synchronization(self):
        pass
""",
)
WRONG.changed(
    "the means are not handed back",
    "never averaged",
    ("                p.grad = torch.empty_like(p).copy_(mean.view_as(p))", "                pass"),
)
changed("packs the data", "parameters for gradients", ("else p.grad.flatten()", "else p.data.flatten()"))
changed(
    "three flags for each",
    "too much beside the gradients",
    ("flags.to(parts[0])])", "*3 * [flags.to(parts[0])]])"),
    ("        *means, flags = self.flat.split([*sizes, len(sizes)])\n",
     "        *means, flags, _, _ = self.flat.split([*sizes, *3 * [len(sizes)]])\n"),
)  # fmt: skip
BUFFERS = "            for buffer in self.module.buffers():\n" + BROADCAST
RETURN = "        return super().forward(*args, **kwargs)"
changed(
    "buffers once a step",
    "buffers drift apart",
    (
        "        if self.training:",
        "        if self.training and self.work is None and all(p.grad is None for p in self.trained):",
    ),
)
changed("buffers at construction alone", "buffers drift apart", (BUFFERS, "            pass"))
changed(
    "buffers after forward",
    "buffers drift apart",
    ("        if self.training:\n" + BUFFERS + "\n", ""),
    (
        RETURN,
        "        output = super().forward(*args, **kwargs)\n        if self.training:\n"
        + BUFFERS
        + "\n        return output",
    ),
)
changed(
    "buffers averaged",
    "buffers drift apart",
    (
        BROADCAST,
        """                mean = buffer.double()
                dist.all_reduce(mean)
                buffer.copy_(mean / dist.get_world_size())""",
    ),
)
changed(
    "float buffers alone",
    "buffers drift apart",
    (BROADCAST, "                if buffer.is_floating_point():\n    " + BROADCAST),
)
changed(
    "old gradients in the bucket",
    "an old gradient for what was not used",
    (
        "        parts = [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in self.trained]",
        """        if not hasattr(self, "parts"):
            self.parts = [torch.zeros_like(p).flatten() for p in self.trained]
        parts = self.parts
        for part, p in zip(parts, self.trained):
            if p.grad is not None:
                part.copy_(p.grad.flatten())""",
    ),
)
changed(
    "where all used it",
    "used only if all used it",
    ("            if flag > 0:", "            if flag > 1 - 1e-9:"),
)
ASKS = (
    AT_THE_END
    + """
    def finish_gradient_synchronization(self):
        flags = torch.tensor([float(p.grad is not None) for p in self.trained])
        dist.all_reduce(flags)
        for p, flag in zip(self.trained, flags):
            if flag:
                grad = torch.zeros_like(p) if p.grad is None else p.grad
                dist.all_reduce(grad)
                p.grad = grad / dist.get_world_size()
"""
)
wrong("asks first and sends what was used", "an unused parameter is left out", ASKS)
asked = WRONG.changing(ASKS)
asked(
    "flags by all_gather",
    "another collective for the gradients",
    (
        "        dist.all_reduce(flags)\n",
        """        gathered = [torch.zeros_like(flags) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, flags)
        flags = sum(gathered)
""",
    ),
    ("            if flag:\n", "            if True:\n"),
    ("                p.grad = grad", "                p.grad = None if not flag else grad"),
)
asked(
    "gathered at rank 0 and sent back",
    "another collective for the gradients",
    ("            if flag:\n", "            if True:\n"),
    (
        "                dist.all_reduce(grad)\n",
        "                dist.reduce(grad, 0)\n                dist.broadcast(grad, 0)\n",
    ),
    ("                p.grad = grad", "                p.grad = None if not flag else grad"),
)
changed(
    "does not begin anew",
    "not ready for the next step",
    ("        super().finish_gradient_synchronization()", "        self.work.wait()\n        self.unpack()"),
)
changed(
    "does not wait",
    "a wait is missing",
    (
        "        super().finish_gradient_synchronization()",
        "        self.unpack()\n        self.work, self.missing = None, 0",
    ),
)
RIGHT = ASKS.replace("            if flag:\n", "            if True:\n").replace(
    "p.grad = grad /", "p.grad = None if not flag else grad /"
)
WRONG.right(
    "each gradient by itself, buffers not copied inside no_sync",
    RIGHT.replace("if self.training:", "if self.training and self.synchronize:"),
)
WRONG.changed(
    "averages whole numbers too",
    "buffers drift apart",
    (
        "                dist.broadcast(buffer, src=0)",
        ("                dist.all_reduce(buffer)\n                buffer.div_(dist.get_world_size())"),
    ),
)
WRONG.changed(
    "buffers when the step is over",
    "buffers at the end of the step",
    (
        (
            "        if self.training:\n"
            "            for buffer in self.module.buffers():\n"
            "                dist.broadcast(buffer, src=0)\n"
        ),
        "",
    ),
    (
        "        super().finish_gradient_synchronization()\n",
        (
            "        super().finish_gradient_synchronization()\n"
            "        for buffer in self.module.buffers():\n"
            "            dist.broadcast(buffer, src=0)\n"
        ),
    ),
)
WRONG.changed(
    "launches what has left",
    "the bucket leaves twice",
    (("        if self.work is None:\n            self.launch()"), "        self.launch()"),
)
WRONG.changed(
    "packs what there is",
    "an unused parameter is left out",
    (
        "torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in self.trained]",
        "p.grad.flatten() for p in self.trained if p.grad is not None]",
    ),
)
WRONG.changed(
    "a set of what was ever used",
    "what was used stays used",
    (
        "    def pack(self)",
        (
            "    def on_gradient(self, parameter):\n"
            '        self.used = getattr(self, "used", set()) | {parameter}\n'
            "        super().on_gradient(parameter)\n"
            "\n"
            "    def pack(self)"
        ),
    ),
    ("float(p.grad is not None) for", 'float(p in getattr(self, "used", ())) for'),
)
WRONG.changed("whole flags", "used only if all used it", ("            if flag > 0:", "            if int(flag):"))
WRONG.changed(
    "a mean of flags that must be 1",
    "used only if all used it",
    ("            if flag > 0:", "            if flag >= 1:"),
)
WRONG.changed(
    "a flag of its own where the bucket is late",
    "one call more where it was unused",
    ("            self.launch()\n", "            self.launch()\n            dist.all_reduce(torch.ones(1))\n"),
)
WRONG.changed(
    "counts inside no_sync",
    "sends inside no_sync",
    (
        "    def pack(self)",
        "    def on_gradient(self, parameter):\n        OneBucketDDP.on_gradient(self, parameter)\n\n"
        "    def pack(self)",
    ),
)
WRONG.changed(
    "rank 0 alone broadcasts",
    "a broadcast that not every rank calls",
    ("        if self.training:", "        if self.training and dist.get_rank() == 0:"),
)
