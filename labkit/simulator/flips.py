"""A bit of a tensor that turns over."""

from __future__ import annotations

import torch

from labkit.failures.records import Flip
from labkit.torch_port.operators import uncounted


def flip_bit(one: Flip, tensors: list[torch.Tensor]) -> None:
    """Turn over the bit of the first of these tensors that has values."""
    for tensor in tensors:
        if tensor.is_meta or not tensor.numel():
            continue
        with uncounted(), torch.no_grad():
            flat = tensor.detach().reshape(-1)
            bits = flat[one.element % flat.numel() :][:1].clone().view(torch.uint8)
            place = one.bit % (8 * len(bits))
            bits[place // 8] ^= 1 << place % 8
            index = torch.unravel_index(torch.tensor(one.element % flat.numel()), tensor.shape)
            tensor.detach()[index] = bits.view(tensor.dtype)[0]
        return
