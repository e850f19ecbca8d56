"""A script under torchrun with a record of all its ranks: what ``LABKIT_RECORD`` asks for.

    LABKIT_RECORD=run.npz torchrun --nproc-per-node=4 -m labkit.record train.py --steps 20

runs train.py as torchrun would, on any number of hosts. Rank 0 writes the file, which labkit.timeline.load() reads.
"""

from __future__ import annotations

import os
import sys

from labkit.errors import ConfigError
from labkit.launch.cluster.in_ranks import recorded_to
from labkit.scripts import script


def main(arguments: list[str]) -> None:
    """Run the script whose path and arguments these are; record it where LABKIT_RECORD names a file."""
    if not arguments:
        raise ConfigError(
            "There is no file behind -m labkit.record; name a script: torchrun ... -m labkit.record train.py"
        )
    program = script(*arguments)
    with recorded_to(os.environ.get("LABKIT_RECORD", "")):
        program()


if __name__ == "__main__":
    main(sys.argv[1:])
