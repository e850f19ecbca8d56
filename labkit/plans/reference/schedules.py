"""Schedules that the program in the page makes itself, written as words: "F0F1B0B1"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from labkit.plans.pipeline_records import Op

Plan = list[tuple[int, str]]
"""What a stage does how many times: words of a kind and a chunk, "F0 B0"."""


def _written(plan: Plan, num_microbatches: int) -> str:
    """Return an order: each word stands for its kind's and chunk's next microbatch, if there is one."""
    done: Counter[str] = Counter()
    ops = []
    for word in (word for times, words in plan for word in times * words.split()):
        ops.append(Op(word[0], done[word], int(word[1])))
        done[word] += 1
    return "".join(str(op) for op in ops if op.microbatch < num_microbatches)


def gpipe(stage: int, num_stages: int, num_microbatches: int) -> str:
    """Return GPipe's order: every forward, then every backward."""
    return _written([(num_microbatches, "F0"), (num_microbatches, "B0")], num_microbatches)


def one_f_one_b(stage: int, num_stages: int, num_microbatches: int) -> str:
    """Return 1F1B's order: a warm-up of forwards, then one forward and one backward in turns, then the rest."""
    return _written([(num_stages - 1 - stage, "F0"), (num_microbatches, "F0 B0")], num_microbatches)


def interleaved(stage: int, num_stages: int, num_microbatches: int) -> str:
    """Return 1F1B's order of a stage with two chunks: num_stages microbatches through one, then through the other.

    Source: Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters using Megatron-LM".
    """
    wait = 3 * num_stages - 2 - 2 * stage
    plan = [(1, f"F{turn // num_stages % 2}") for turn in range(wait)]
    for turn in range(2 * (num_microbatches + num_stages)):
        plan.append((1, f"F{(turn + wait) // num_stages % 2} B{1 - turn // num_stages % 2}"))
    return _written(plan, num_microbatches)


def zb_h1(stage: int, num_stages: int, num_microbatches: int) -> str:
    """Return 1F1B's order with backward in two parts, the weights' part of each put off by `stage` microbatches.

    Source: Qi et al. 2023, "Zero bubble pipeline parallelism".
    """
    plan = [(num_stages - 1 - stage, "F0"), (stage, "F0 I0"), (num_microbatches, "F0 I0 W0")]
    return _written(plan, num_microbatches)


def zb_v(stage: int, num_stages: int, num_microbatches: int) -> str:
    """Return the order of a stage with two chunks, the second of which goes back from the last stage to the first.

    Where F, I and W take equal times and there are 2P - 1 microbatches or more, no stage waits between its first
    operation and its last, and none holds more than 1F1B's fullest.

    Source: Qi et al. 2023, "Zero bubble pipeline parallelism", section 6.
    """
    behind, steady = num_stages - stage, max(num_microbatches - num_stages, num_stages - 1)
    plan = [(2 * behind - 1, "F0"), (stage, "F1 F0"), (behind, "F1 I1 W1"), (steady, "F0 I0 W0 F1 I1 W1")]
    plan += [(stage, "I0 I1"), (behind, "I0 W0"), (stage, "W1"), (stage, "W0")]
    return _written(plan, num_microbatches)


_OF_THE_PAGE = (gpipe, one_f_one_b, interleaved, zb_h1, zb_v)
FORMS: Mapping[str, Callable[[int, int, int], str]] = {make.__name__: make for make in _OF_THE_PAGE}
"""Schedules that the program in the page can make itself, for any number of stages and microbatches."""

V_SHAPED = ("zb_v",)
"""Those whose second chunk goes from the last stage to the first."""
