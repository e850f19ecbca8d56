"""Schedules that the program in the page makes itself, written as words: "F0F1B0B1"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest

from labkit.widgets.schedules import Op, ops_of


def gpipe(stage: int, num_stages: int, num_microbatches: int) -> str:
    """Return GPipe's order: every forward, then every backward."""
    return "".join(f"{kind}{number}" for kind in "FB" for number in range(num_microbatches))


def one_f_one_b(stage: int, num_stages: int, num_microbatches: int) -> str:
    """Return 1F1B's order: a warm-up of forwards, then one forward and one backward in turns, then the rest."""
    warmup = min(num_stages - 1 - stage, num_microbatches)
    order = [f"F{number}" for number in range(warmup)]
    for number in range(num_microbatches):
        order += [f"F{number + warmup}"] if number + warmup < num_microbatches else []
        order.append(f"B{number}")
    return "".join(order)


def interleaved(stage: int, num_stages: int, num_microbatches: int) -> str:
    """Return 1F1B's order of a stage with two chunks: num_stages microbatches through one, then through the other.

    Source: Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters using Megatron-LM".
    """
    groups = range(0, num_microbatches, num_stages)
    row = [(chunk, m) for first in groups for chunk in (0, 1) for m in range(first, first + num_stages)]
    row = [(chunk, m) for chunk, m in row if m < num_microbatches]
    forwards = [str(Op("F", m, chunk)) for chunk, m in row]
    backwards = [str(Op("B", m, 1 - chunk)) for chunk, m in row]
    warmup = 2 * (num_stages - 1 - stage) + num_stages
    turns = zip_longest([*forwards, *[""] * warmup], [*[""] * warmup, *backwards], fillvalue="")
    return "".join(word for pair in turns for word in pair)


def zb_h1(stage: int, num_stages: int, num_microbatches: int) -> str:
    """Return 1F1B's order with backward in two parts, the weights' part of each put off by `stage` microbatches.

    Source: Qi et al. 2023, "Zero bubble pipeline parallelism".
    """
    late, words = min(stage, num_microbatches), []
    for op in ops_of(one_f_one_b(stage, num_stages, num_microbatches), stage):
        words.append(str(op).replace("B", "I"))
        words += [f"W{op.microbatch - late}"] if op.kind == "B" and op.microbatch >= late else []
    return "".join(words + [f"W{number}" for number in range(num_microbatches - late, num_microbatches)])


_OF_THE_PAGE = (gpipe, one_f_one_b, interleaved, zb_h1)
FORMS: Mapping[str, Callable[[int, int, int], str]] = {make.__name__: make for make in _OF_THE_PAGE}
"""Schedules that the program in the page can make itself, for any number of stages and microbatches."""
