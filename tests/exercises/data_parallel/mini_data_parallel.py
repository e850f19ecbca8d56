"""Wrong answers to mini_data_parallel, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
wrong = WRONG.wrong


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
    wrong(name, mistake, before + WRAPPER.format(init=init, forward=forward))


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
