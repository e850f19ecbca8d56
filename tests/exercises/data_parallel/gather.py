"""Wrong answers to gather, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
wrong = WRONG.wrong


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
    wrong(name, mistake, GATHER.format(tensors=tensors, kind=kind))


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
