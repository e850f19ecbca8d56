"""Schedules that the program in the page makes itself, written as words: "F0F1B0B1"."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from labkit.widgets.schedules import Op


def _turns(*lists: tuple[int, list[str]]) -> str:
    """Return an order: at each turn the next word of every list that has one; a list waits some turns before."""
    number = max(wait + len(words) for wait, words in lists)
    return "".join(words[at - wait] for at in range(number) for wait, words in lists if 0 <= at - wait < len(words))


def _row(kind: str, num_microbatches: int) -> list[str]:
    return [f"{kind}{number}" for number in range(num_microbatches)]


def gpipe(stage: int, num_stages: int, num_microbatches: int) -> str:
    """Return GPipe's order: every forward, then every backward."""
    return _turns((0, _row("F", num_microbatches)), (num_microbatches, _row("B", num_microbatches)))


def one_f_one_b(stage: int, num_stages: int, num_microbatches: int) -> str:
    """Return 1F1B's order: a warm-up of forwards, then one forward and one backward in turns, then the rest."""
    return _turns((0, _row("F", num_microbatches)), (num_stages - 1 - stage, _row("B", num_microbatches)))


def interleaved(stage: int, num_stages: int, num_microbatches: int) -> str:
    """Return 1F1B's order of a stage with two chunks: num_stages microbatches through one, then through the other.

    Source: Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters using Megatron-LM".
    """
    groups = range(0, num_microbatches, num_stages)
    row = [(chunk, m) for first in groups for chunk in (0, 1) for m in range(first, first + num_stages)]
    row = [(chunk, m) for chunk, m in row if m < num_microbatches]
    forwards = [str(Op("F", m, chunk)) for chunk, m in row]
    backwards = [str(Op("B", m, 1 - chunk)) for chunk, m in row]
    return _turns((0, forwards), (2 * (num_stages - 1 - stage) + num_stages, backwards))


def zb_h1(stage: int, num_stages: int, num_microbatches: int) -> str:
    """Return 1F1B's order with backward in two parts, the weights' part of each put off by `stage` microbatches.

    Source: Qi et al. 2023, "Zero bubble pipeline parallelism".
    """
    waits = {"F": 0, "I": num_stages - 1 - stage, "W": num_stages - 1}
    return _turns(*((wait, _row(kind, num_microbatches)) for kind, wait in waits.items()))


_OF_THE_PAGE = (gpipe, one_f_one_b, interleaved, zb_h1)
FORMS: Mapping[str, Callable[[int, int, int], str]] = {make.__name__: make for make in _OF_THE_PAGE}
"""Schedules that the program in the page can make itself, for any number of stages and microbatches."""
