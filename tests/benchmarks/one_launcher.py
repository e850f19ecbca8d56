"""One launcher in a fresh process: python -m tests.benchmarks.one_launcher NAME RANKS, driven over its standard input.

For each line it reads it makes one call and answers with the seconds that took; the first call is the cold one. The
process has imported torch and labkit before, as a kernel in which a learner works has.
"""

from __future__ import annotations

import os
import sys
import time

import labkit  # noqa: F401 - a kernel has it
from tests.benchmarks.launchers import LAUNCHERS


def main() -> None:
    """Answer each line with the seconds of one call."""
    name, world_size = sys.argv[1], int(sys.argv[2])
    expected = [(rank, world_size * (world_size + 1) / 2) for rank in range(world_size)]
    # What a launcher or a rank prints goes to standard error; the answers keep standard output for themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    calls = LAUNCHERS[name](world_size)
    answers.write("ready\n")
    answers.flush()
    while sys.stdin.readline():
        begin = time.perf_counter()
        results = next(calls)
        seconds = time.perf_counter() - begin
        if sorted(map(tuple, results)) != expected:
            raise SystemExit(f"{name} on {world_size} ranks returned {results}, not {expected}")
        answers.write(f"{seconds}\n")
        answers.flush()
    calls.close()


if __name__ == "__main__":
    main()
