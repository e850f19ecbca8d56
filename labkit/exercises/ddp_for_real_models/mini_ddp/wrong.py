"""Wrong answers to mini_ddp, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed, wrong = WRONG.changed, WRONG.wrong

BROADCAST = "                dist.broadcast(buffer, src=0)"
LAUNCH = "        if self.work is None:\n            self.launch()\n"
GRADIENT = "p.grad = torch.empty_like(p).copy_(mean.view_as(p))"

changed("buffers follow nobody", "buffers drift apart", (BROADCAST, "                pass"))
changed(
    "buffers follow in evaluation too", "buffers sent in evaluation", ("        if self.training:", "        if True:")
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
    "what only some ranks used is not averaged",
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
    """
class MiniDDP(AccumulatingDDP):
    def forward(self, *args, **kwargs):
        if self.training:
            for buffer in self.module.buffers():
                dist.broadcast(buffer, src=0)
        return super().forward(*args, **kwargs)

    def on_gradient(self, parameter):
        pass

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
