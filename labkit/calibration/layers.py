"""The layers that a host is measured with: every one of several sizes, forwards and backwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

Build = Callable[[torch.device], Callable[[], None]]
"""Makes a layer and its input on a device and returns what runs it once, forwards and backwards."""


def layers() -> Iterator[Build]:
    """Yield what builds each layer, small ones first."""
    for width in (16, 64, 256, 512, 1024):
        for rows in (16, 128, 1024):
            yield _module(partial(nn.Linear, width, width), (rows, width))
    for width, rows in ((2048, 32), (256, 4096), (2048, 256)):
        yield _module(partial(nn.Linear, width, width), (rows, width))
    for channels, size, batch in ((3, 32, 8), (16, 32, 8), (32, 16, 16), (64, 16, 16), (64, 32, 8), (128, 8, 32)):
        for out in (max(16, channels), 2 * max(16, channels)):
            yield _module(partial(nn.Conv2d, channels, out, 3, padding=1), (batch, channels, size, size))
    for heads, tokens, width, batch in ((2, 32, 16, 4), (4, 64, 32, 4), (4, 128, 32, 8), (8, 256, 64, 2)):
        yield _attention(batch, heads, tokens, width)
    for num in (2**10, 2**14, 2**17, 2**20, 2**22):
        rows = max(1, num // 512)
        width = num // rows
        for one in (nn.ReLU, nn.GELU, nn.Tanh, partial(nn.Softmax, -1), partial(nn.Dropout, 0.1)):
            yield _module(one, (rows, width))
        yield _module(partial(nn.LayerNorm, width), (rows, width))
        yield _arithmetic(num)
        yield _optimizers(num)
        yield _cross_entropy(rows, width)
        yield _embedding(rows, width)
    for channels, size, batch in ((16, 8, 2), (16, 32, 8), (64, 32, 8), (64, 64, 16)):
        shape = (batch, channels, size, size)
        yield _module(partial(nn.BatchNorm2d, channels), shape)
        yield _module(partial(nn.MaxPool2d, 2), shape)
        yield _module(partial(nn.AdaptiveAvgPool2d, 1), shape)


def _module(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> Build:
    def build(device: torch.device) -> Callable[[], None]:
        module, inputs = make().to(device), torch.randn(shape, device=device, requires_grad=True)

        def step() -> None:
            module.zero_grad()
            inputs.grad = None
            out = module(inputs)
            torch.autograd.backward(out, torch.ones_like(out))

        return step

    return build


def _attention(batch: int, heads: int, tokens: int, width: int) -> Build:
    def build(device: torch.device) -> Callable[[], None]:
        query, key, value = (
            torch.randn(batch, heads, tokens, width, device=device, requires_grad=True) for _ in range(3)
        )

        def step() -> None:
            out = scaled_dot_product_attention(query, key, value, is_causal=True)
            torch.autograd.backward(out, torch.ones_like(out))
            # The same by hand, with products of batches.
            scores = query @ key.transpose(-1, -2)
            out = torch.softmax(scores, -1) @ value
            torch.autograd.backward(out, torch.ones_like(out))

        return step

    return build


def _arithmetic(num: int) -> Build:
    def build(device: torch.device) -> Callable[[], None]:
        one, two = (torch.randn(num, device=device) for _ in range(2))

        def step() -> None:
            three = one + two
            three = one * two
            three = one / 3.0
            three.copy_(one)
            three.add_(two)
            three.mul_(0.5)
            three.div_(2.0)
            three.zero_()
            three.pow(2).mean()
            one.clone()
            one.sum()
            torch.cat([one, two])

        return step

    return build


def _optimizers(num: int) -> Build:
    def build(device: torch.device) -> Callable[[], None]:
        parameter = nn.Parameter(torch.randn(num, device=device))
        parameter.grad = torch.randn(num, device=device)
        kinds = [
            torch.optim.SGD([parameter], lr=0.01),
            torch.optim.SGD([parameter], lr=0.01, momentum=0.9),
            torch.optim.Adam([parameter], lr=0.01),
            torch.optim.AdamW([parameter], lr=0.01),
        ]

        def step() -> None:
            for kind in kinds:
                kind.step()

        return step

    return build


def _cross_entropy(rows: int, width: int) -> Build:
    def build(device: torch.device) -> Callable[[], None]:
        logits = torch.randn(rows, width, device=device, requires_grad=True)
        labels = torch.zeros(rows, dtype=torch.long, device=device)

        def step() -> None:
            torch.autograd.backward(cross_entropy(logits, labels))

        return step

    return build


def _embedding(rows: int, width: int) -> Build:
    def build(device: torch.device) -> Callable[[], None]:
        table = nn.Embedding(1024, width, device=device)
        labels = torch.randint(0, 1024, (rows,), device=device)

        def step() -> None:
            table.zero_grad()
            out = table(labels)
            torch.autograd.backward(out, torch.ones_like(out))

        return step

    return build
