"""The time of a server's step, and the share of weights up to which it wins; counted link by link."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from labkit.checks.case import Case
from labkit.checks.declared import Mistake
from labkit.checks.formulas import Call, Counted, calls_case, formulas
from labkit.checks.how_off import one_at_a_time
from labkit.exercises.parameter_server.server_or_ring.driver import drive


def _busiest(num_workers: int, num_servers: int) -> Fraction:
    """Return the load of the busiest link in one direction, in units of all weights, added up message by message."""
    loads: dict[str, Fraction] = {}
    for worker in range(num_workers):
        for server in range(num_servers):
            for end in (f"worker {worker}", f"server {server}"):
                loads[end] = loads.get(end, Fraction(0)) + Fraction(1, num_servers)
    return max(loads.values())


def _seconds(
    num_bytes: float,
    num_workers: int,
    num_servers: int,
    latency_s: float,
    bandwidth_Bps: float,  # noqa: N803
) -> float:
    half = latency_s + float(_busiest(num_workers, num_servers)) * num_bytes / bandwidth_Bps
    return half + half


def _share(num_workers: int, num_servers: int) -> float:
    ring = sum(Fraction(1, num_workers) for _ in range(num_workers - 1))
    return float(min(Fraction(1), ring / _busiest(num_workers, num_servers)))


COUNTED: Counted = {"server_seconds": _seconds, "largest_share": _share}


def server_case(
    name: str, worlds: Sequence[tuple[int, int]], num_bytes: float, latency: float, bandwidth: float
) -> Case:
    """Return a case of server_or_ring: (workers, servers) for both functions."""
    calls: list[Call] = []
    for workers, servers in worlds:
        calls += [
            ("server_seconds", (num_bytes, workers, servers, latency, bandwidth)),
            ("largest_share", (workers, servers)),
        ]
    return calls_case(name, calls)


def _doubled_case(name: str, num_bytes: float, workers: int, servers: int, latency: float, bandwidth: float) -> Case:
    worlds = one_at_a_time(num_bytes, workers, servers, latency, bandwidth)
    calls: list[Call] = [("server_seconds", world) for world in worlds]
    return calls_case(name, calls + [("largest_share", each) for each in one_at_a_time(workers, servers)])


EXERCISE = formulas(
    id="server_or_ring",
    functions=("server_seconds", "largest_share"),
    driver=drive,
    counted=COUNTED,
    visible=(
        _doubled_case("8 workers on 2 servers; then each number doubled", 1e8, 8, 2, 1e-5, 1e10),
        server_case("one server: 8 workers, 2 workers", [(8, 1), (2, 1)], 1e8, 1e-5, 1e10),
        server_case("several servers", [(8, 2), (6, 4), (4, 4)], 4e6, 5e-5, 1e9),
        server_case("more servers than workers", [(2, 8), (3, 5)], 1e7, 1e-4, 2e9),
    ),
    hints=(
        "Draw one server with three workers: what does the server's link carry, what each worker's? Now with three "
        "servers, and with ten.",
        "A worker's link carries B, a server's N/S times B: the larger of the two counts. Half a step is the latency "
        "and that. For the share: share times the busiest = (N-1)/N.",
        "2 * (latency_s + max(1, num_workers / num_servers) * num_bytes / bandwidth_Bps); and "
        "min(1, (N - 1) / N / max(1, N / S))",
    ),
    mistakes=(
        Mistake("one way only", "That is half a step: the gradients go to the server, and the weights come back.",
                {"server_seconds": lambda *args: _seconds(*args) / 2}),
        Mistake("the workers' links forgotten",
                "With more servers than workers, the servers' links are no longer the busiest: a worker still sends "
                "all B itself.", {"server_seconds": lambda b, n, s, a, w: 2 * (a + n / s * b / w)}),
        Mistake("servers do not share", "S servers share the load: each has 1/S of the weights.",
                {"server_seconds": lambda b, n, s, a, w: 2 * (a + n * b / w),
                 "largest_share": lambda n, s: (n - 1) / n / n}),
        Mistake("workers one after the other in latency too",
                "Messages travel at the same time: the latency counts once in each direction, not once for each worker "
                "or server.",
                {"server_seconds": (lambda b, n, s, a, w: 2 * (n * a + max(1, n / s) * b / w),
                                    lambda b, n, s, a, w: 2 * (s * a + max(1, n / s) * b / w))}),
        Mistake("one latency in all",
                "A step has two phases, one after the other, and each costs a latency: first all push, then all get "
                "the weights.", {"server_seconds": lambda b, n, s, a, w: a + 2 * max(1, n / s) * b / w}),
        Mistake("both directions share a link",
                "Every link has its bandwidth in each direction, and a phase uses one: pushes go to the servers, "
                "weights come back.", {"server_seconds": lambda b, n, s, a, w: 2 * (a + 2 * max(1, n / s) * b / w)}),
        Mistake("a worker's link and a server's one after the other",
                "A message leaves the worker's link while it enters the server's: the busier of the two links counts, "
                "not their sum.", {"server_seconds": lambda b, n, s, a, w: 2 * (a + (1 + n / s) * b / w)}),
        Mistake("pushes overlap with pulls",
                "Here nobody gets weights before all have pushed: the busiest link needs its time once for the "
                "gradients, and once more for the weights.",
                {"server_seconds": lambda b, n, s, a, w: 2 * a + max(1, n / s) * b / w}),
        Mistake("the servers are in the ring",
                "The ring is made of the N workers alone; the servers are no part of it.",
                {"largest_share": lambda n, s: min(1.0, (n + s - 1) / (n + s) / max(1, n / s))}),
        Mistake("a ring for what the servers leave",
                "The share was chosen so that a ring takes what the servers leave. Compare two whole ways instead: "
                "servers with the share, and a ring with all weights.",
                {"largest_share": lambda n, s: (n - 1) / n / ((n - 1) / n + max(1, n / s))}),
        Mistake("the busiest link is always a server's",
                "Where there are more servers than workers, the busiest link is a worker's: max(1, N/S).",
                {"largest_share": lambda n, s: min(1.0, (n - 1) / n * s / n)}),
        Mistake("a ring that sends everything once",
                "A rank of a ring sends (N-1)/N of the weights in each of its two halves, a little less than all of "
                "them.", {"largest_share": lambda n, s: min(1.0, 1 / max(1, n / s))}),
        Mistake("more than all",
                "A share is at most 1, and where there are more servers than workers the busiest link is a worker's.",
                {"largest_share": lambda n, s: (n - 1) / n * s / n}),
        Mistake("one direction set against two",
                "The ring's 2 (N-1)/N B is all it sends; a server's link carries the share once in, for pushes, and "
                "once out. Compare both directions with both: share times the busiest equals (N-1)/N.",
                {"largest_share": lambda n, s: min(1.0, 2 * (n - 1) / n / max(1, n / s))}),
        Mistake("all of them in every world",
                "Every share is 1. Is the ring's link divided by the server's busiest, and not the other way round? Is "
                "the smaller of the two taken?", {"largest_share": lambda n, s: 1.0}),
    ),
)  # fmt: skip
