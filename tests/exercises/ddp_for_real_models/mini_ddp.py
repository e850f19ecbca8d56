"""Wrong answers to mini_ddp, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers, replaced

WRONG = WrongAnswers(__name__)
wrong = WRONG.wrong


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
    wrong(name, mistake, replaced(MINI, *changes))


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
