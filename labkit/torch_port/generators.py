"""A torch.Generator that begins from a hash: nothing it gives tells anything of what another one gives.

`torch.Generator.manual_seed` keeps 32 bits of a seed, which can be tried one by one, and who has seen 624 numbers of a
Mersenne twister knows all that follow.
"""

from __future__ import annotations

import hashlib

import torch

_WORDS = 624
_STATE = slice(24, 24 + 8 * _WORDS)
"""Where a CPU generator's state holds its words, 8 bytes each of which 4 count: behind seed, counters and position."""


def generator(seed: int, *part: object) -> torch.Generator:
    """Return a generator for this part of what a seed stands for; another seed or part gives unrelated numbers.

    Args:
        seed: Of any size.
        part: Names and numbers: ("rank", 3).
    """
    made = torch.Generator().manual_seed(0)
    state = made.get_state()
    words = torch.frombuffer(bytearray(_bytes(seed, part, 4 * _WORDS)), dtype=torch.int32).to(torch.int64)
    state[_STATE] = (words & 0xFFFFFFFF).view(torch.uint8)
    made.set_state(state)
    return made


def part_of(seed: int, *part: object) -> int:
    """Return a seed of its own for this part, 0 <= seed < 2**62; it tells nothing of the whole, nor of another part."""
    return int.from_bytes(_bytes(seed, part, 8), "little") >> 2


def _bytes(seed: int, part: tuple[object, ...], count: int) -> bytes:
    return hashlib.shake_256("/".join(map(str, (seed, *part))).encode()).digest(count)
