"""Times calls of one launcher in a fresh process: python -m tests.benchmarks.one_launcher NAME RANKS CALLS.

Prints one JSON line: the seconds of each call, the first one cold. The process has imported torch and labkit before,
as a kernel in which a learner works has.
"""

from __future__ import annotations

import json
import sys
import time

import labkit  # noqa: F401 - a kernel has it
from tests.benchmarks.launchers import LAUNCHERS


def main() -> None:
    name, world_size, num_calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    expected = [(rank, world_size * (world_size + 1) / 2) for rank in range(world_size)]
    calls = LAUNCHERS[name](world_size)
    seconds = []
    for _ in range(num_calls):
        begin = time.perf_counter()
        results = next(calls)
        seconds.append(time.perf_counter() - begin)
        if sorted(map(tuple, results)) != expected:
            raise SystemExit(f"{name} on {world_size} ranks returned {results}, not {expected}")
    sys.stdout.write(json.dumps(seconds) + "\n")
    sys.stdout.flush()
    calls.close()


if __name__ == "__main__":
    main()
