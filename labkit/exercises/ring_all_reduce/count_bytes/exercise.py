"""How many bytes pass."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.checks.case import Case
from labkit.checks.declared import Mistake
from labkit.checks.formulas import Counted, calls_case, formulas
from labkit.exercises.ring_all_reduce.count_bytes.driver import drive
from labkit.exercises.sums_over_ranks.costs import ring_bytes, root_bytes

RIGHT: Counted = {"root_bytes": root_bytes, "ring_bytes": ring_bytes}


def bytes_case(name: str, sizes: Sequence[tuple[int, int]]) -> Case:
    """Return a case of count_bytes: (num_bytes, world_size) for both functions."""
    return calls_case(name, [(f, pair) for pair in sizes for f in ("root_bytes", "ring_bytes")])


EXERCISE = formulas(
    id="count_bytes",
    functions=("root_bytes", "ring_bytes"),
    driver=drive,
    counted=RIGHT,
    visible=(
        bytes_case("2 and 4 ranks, 1 and 3 MB", [(1_000_000, 2), (1_000_000, 4), (3_000_000, 4)]),
        bytes_case("3 ranks, 100 bytes; one rank", [(100, 3), (100, 1)]),
    ),
    hints=(
        "Draw three ranks. For each arrow that touches rank 0, how many bytes does it carry?",
        "Rank 0 gets a whole tensor from each of the other N-1 ranks and sends one back to each. In the ring a "
        "message is one chunk, num_bytes / N, and a rank sends N-1 of them in each of two halves.",
        "root: two directions x (N-1) ranks x num_bytes. ring: two halves x (N-1) steps x num_bytes / N.",
    ),
    mistakes=(
        Mistake("one direction only",
                "root_bytes counts one direction: what rank 0 receives and what it sends both pass its link.",
                {"root_bytes": lambda b, n: (n - 1) * b}),
        Mistake("rank 0 counted as its own peer",
                "root_bytes counts N messages each way; rank 0 sends nothing to itself, so there are N-1.",
                {"root_bytes": lambda b, n: 2 * n * b}),
        Mistake("one half of the ring only",
                "ring_bytes counts one half: the reduce-scatter and the all-gather each take N-1 steps.",
                {"ring_bytes": lambda b, n: (n - 1) / n * b}),
        Mistake("whole tensor at each step", "ring_bytes counts whole tensors: a step sends one chunk, num_bytes / N.",
                {"ring_bytes": lambda b, n: 2 * (n - 1) * b}),
        Mistake("the messages of one rank alone",
                "root_bytes counts one other rank: rank 0 receives from each of the N-1 others, and sends to each.",
                {"root_bytes": lambda b, n: 2 * b}),
        Mistake("N steps",
                "ring_bytes is twice the tensor, as if each half had N steps, or N were very large: a half takes N-1 "
                "steps, after which a chunk has met everyone.",
                {"ring_bytes": lambda b, n: 2 * b}),
        Mistake("the messages of all ranks",
                "root_bytes counts N-1 messages for every rank, as if each sent to each: only rank 0's link is asked "
                "for. N-1 tensors come in over it, and N-1 go out.",
                {"root_bytes": (lambda b, n: n * (n - 1) * b, lambda b, n: 2 * n * (n - 1) * b)}),
        Mistake("one rank sends to nobody",
                "A rank that is alone has nobody to send to: with N = 1 there are N-1 = 0 messages.",
                {"root_bytes": lambda b, n: 2 * max(1, n - 1) * b,
                 "ring_bytes": lambda b, n: 2 * max(1, n - 1) / n * b}),
        Mistake("rounded down", "ring_bytes was rounded down: use / and not //, it is a float.",
                {"ring_bytes": lambda b, n: 2 * (n - 1) * (b // n)}),
        Mistake("sent and received added up",
                "ring_bytes counts what a rank sends and what it receives; count only what it sends.",
                {"ring_bytes": lambda b, n: 4 * (n - 1) / n * b}),
        Mistake("the two functions swapped",
                "root_bytes returns what a rank of the ring sends: are the two functions swapped?",
                {"root_bytes": lambda b, n: 2 * (n - 1) / n * b}),
    ),
)  # fmt: skip
