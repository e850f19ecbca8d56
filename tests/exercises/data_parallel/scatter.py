"""Wrong answers to scatter, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
wrong = WRONG.wrong


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
    wrong(name, mistake, SCATTER.format(cut=cut, and_full=full, kind=kind))


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
        f"no {uncut}s",
        f"{uncut}s not cut",
        SCATTER.format(cut=RIGHT_CUT, and_full=" and value", kind="type(value)")
        .replace("(tuple, list)", kinds)
        .replace("isinstance(value, dict)", "isinstance(value, dict)" if uncut == "list" else "False"),
    )
