"""Random numbers as ranks draw them: with torch's operators, and with numpy and random while a sample is made."""

from __future__ import annotations

from hashlib import blake2b
from types import FrameType
from typing import Any

import numpy as np

from labkit.auditing.bits import digest, tensors_of, unseen
from labkit.auditing.facts import Draw
from labkit.auditing.rank_watch import RankWatch, is_own, line
from labkit.auditing.seen import Seen
from labkit.simulator.operators import Operator
from labkit.torch_port.operators import schema_of

_DROPOUT = "dropout_p"
_KEEPERS = ("seed", "getstate", "setstate", "get_state", "set_state")


def is_drawing(known: Operator, args: Any, kwargs: Any) -> bool:
    """Return whether an operator draws random numbers: attention without dropout may, and does not."""
    if not known.draws or known.func.namespace != "aten":
        return False
    for place, one in enumerate(schema_of(known.func).arguments):
        if one.name == _DROPOUT:
            return bool((kwargs or {}).get(_DROPOUT, args[place] if place < len(args) else one.default_value))
    return True


def drawn(seen: Seen, mine: RankWatch, name: str, out: Any, frame: FrameType) -> None:
    """Note numbers that a rank draws with an operator, where the program asks for them or a sample is made."""
    own = is_own(frame)
    found = tensors_of(out)
    if not (own or mine.loading) or not found or mine.depth:
        return
    with unseen():
        result, whole = digest(found[0]), not found[0].is_floating_point()
    _note(seen, mine, name, result, found[0].numel(), whole, line(frame), own)


def _note(
    seen: Seen, mine: RankWatch, name: str, result: bytes, numel: int, whole: bool, source: str, own: bool
) -> None:  # fmt: skip
    number = mine.num_drawn[source]
    mine.num_drawn[source] += 1
    when = bool(mine.loading), source, own, len(mine.backwards)
    seen.draws.append(Draw(mine.rank, mine.step, name, number, result, numel, whole, *when))


def loaded_with(seen: Seen, mine: RankWatch, name: str, out: Any, frame: FrameType) -> None:
    """Note what a function of numpy.random or random gave while a sample is made."""
    if not mine.loading or name in _KEEPERS:
        return
    values = np.asarray(out)
    result = blake2b(values.tobytes(), digest_size=8).digest()
    _note(seen, mine, name, result, values.size, values.dtype.kind in "iub", line(frame), True)
