"""Wrong answers to broadcast_module, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
wrong = WRONG.wrong


wrong(
    "parameters only",
    "buffers not broadcast",
    """
def broadcast_module(module):
    for parameter in module.parameters():
        dist.broadcast(parameter.detach(), src=0)
""",
)
wrong(
    "only what needs a gradient",
    "frozen parameters not broadcast",
    """
def broadcast_module(module):
    for tensor in [p for p in module.parameters() if p.requires_grad] + list(module.buffers()):
        dist.broadcast(tensor.detach(), src=0)
""",
)
wrong(
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
    "into copies",
    "nothing reached the model",
    """
def broadcast_module(module):
    for tensor in [*module.parameters(), *module.buffers()]:
        dist.broadcast(tensor.detach().clone(), src=0)
""",
)
wrong(
    "from the last rank",
    "another root",
    """
def broadcast_module(module):
    for tensor in [*module.parameters(), *module.buffers()]:
        dist.broadcast(tensor.detach(), src=dist.get_world_size() - 1)
""",
)
wrong(
    "averages the models",
    "averaged instead of broadcast",
    """
def broadcast_module(module):
    for parameter in module.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size()
""",
)
