"""What a rank runs of autocast."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import tensor, text

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def drive(functions: Functions, inputs: Values) -> Values:
    """Run two layers, a loss and some other functions under the mode; return results, dtypes and gradients (autocast).

    Inputs: dtype, x, first, bias, second (float32), labels.
    """
    x, labels = tensor(inputs, "x").clone(), tensor(inputs, "labels").clone()
    first, bias, second = (nn.Parameter(tensor(inputs, name).clone()) for name in ("first", "bias", "second"))
    with functions["Autocast"](DTYPES[text(inputs, "dtype")]):
        hidden = functional.linear(x, first, bias)
        active = functional.relu(hidden)
        out = torch.matmul(active, second)
        loss = functional.cross_entropy(out, labels)
        named = functional.linear(input=x, weight=first)
        squared = functional.mse_loss(hidden, x.new_zeros(hidden.shape))
        power = torch.exp(hidden * 0.1)
        untouched = functional.relu(x)
        at_sign = active @ second
        counts = labels + 1
        low = DTYPES[text(inputs, "dtype")]
        narrow = torch.float16 if low == torch.bfloat16 else torch.bfloat16
        other = functional.linear(x.to(narrow), first.to(narrow))
        other_untouched = functional.relu(x.to(narrow))
        method = active.softmax(-1)
        moved = first.detach().clone()
        functional.linear(x, moved)
        moved += 1
        after_a_step = functional.linear(x, moved)
    loss.backward()  # type: ignore[no-untyped-call]
    after = functional.linear(x, first)
    results = {
        "linear": hidden, "relu of a 16-bit tensor": active, "matmul": out, "cross_entropy": loss,
        "linear with named arguments": named, "mse_loss": squared, "exp": power, "relu of a float32 tensor": untouched,
        "@": at_sign, "labels + 1": counts, "linear after the mode": after,
        "linear of the other 16-bit type": other, "relu of the other 16-bit type": other_untouched,
        "Tensor.softmax of a 16-bit tensor": method, "x after all": x,
        "linear after its weight has changed": after_a_step,
    }  # fmt: skip
    return {
        "results": {
            name: value.detach() if isinstance(value, Tensor) else f"a {type(value).__name__}"
            for name, value in results.items()
        },
        "gradients": {"first": first.grad, "bias": bias.grad, "second": second.grad},
    }
