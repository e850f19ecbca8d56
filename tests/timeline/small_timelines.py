"""Timelines small enough to count by hand."""

from __future__ import annotations

import numpy as np

from labkit.timeline import COMMUNICATION, COMPUTE, HOST, Problem, Timeline


def exchange() -> Timeline:
    """Return rank 0 computing, sending to rank 1, and waiting; rank 1 receiving."""
    return Timeline(
        rank=[0, 0, 0, 1],
        lane=[COMPUTE, COMMUNICATION, HOST, COMMUNICATION],
        start_ns=[0, 1_000_000, 1_500_000, 500_000],
        end_ns=[1_000_000, 2_000_000, 2_000_000, 2_000_000],
        name=["forward", "isend", "wait", "recv"],
        kind=["span", "isend", "wait", "recv"],
        bytes=[0, 4000, 4000, 4000],
        peer=[-1, 1, 1, 0],
        flow=[-1, 0, -1, 0],
        tables={
            "source": {"span": np.array([1, 3]), "line": np.array(["a.py:1", "a.py:2"])},
            "call": {
                "span": np.array([1, 3]),
                "group": np.array(["0", "0"]),
                "number": np.array([0, 0]),
                "blocking": np.array([False, True]),
            },
            "wait": {"span": np.array([2]), "of": np.array([1])},
            "clock": {"rank": np.array([0, 1]), "err_ns": np.array([0, 0])},
        },
        problems=(Problem("unmatched_send", 0, "Rank 0 sent and nobody received.", row=1),),
    )
