"""Wrong answers to mini_ddp, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
changed = WRONG.changed

BROADCAST = "                dist.broadcast(buffer, src=0)"
LAUNCH = "        if self.work is None:\n            self.launch()\n"
GRADIENT = "p.grad = torch.empty_like(p).copy_(mean.view_as(p))"

changed("buffers follow nobody", "buffers drift apart", (BROADCAST, "                pass"))
changed("zeros for all", "an unused parameter gets zeros", ("            if flag > 0:", "            if True:"))
changed("what is left stays", "an unused parameter stops everything", (LAUNCH, ""))
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
