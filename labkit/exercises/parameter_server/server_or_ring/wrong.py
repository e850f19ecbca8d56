"""Wrong answers to server_or_ring, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


SECONDS = "return 2 * (latency_s + max(1, num_workers / num_servers) * num_bytes / bandwidth_Bps)"
changed("half a step", "one way only", (SECONDS, SECONDS.replace("2 * ", "")))
changed(
    "N over S",
    "the workers' links forgotten",
    ("max(1, num_workers / num_servers) * num_bytes", "num_workers / num_servers * num_bytes"),
)
changed(
    "every server has all",
    "servers do not share",
    ("max(1, num_workers / num_servers) * num_bytes", "num_workers * num_bytes"),
)
changed(
    "latency for each worker",
    "workers one after the other in latency too",
    ("(latency_s", "(num_workers * latency_s"),
)
changed("whole ring", "a ring that sends everything once", ("(num_workers - 1) / num_workers", "1.0"))
changed("prints", "returns nothing", ("return min(1.0", "print(1.0"))
changed("always a server", "the busiest link is always a server's",
        ("min(1.0, ring / max(1, num_workers / num_servers))", "min(1.0, ring * num_servers / num_workers)"))  # fmt: skip

changed("more than all", "more than all",
        ("min(1.0, ring / max(1, num_workers / num_servers))", "ring / (num_workers / num_servers)"))  # fmt: skip
changed("the ring both ways", "one direction set against two", ("min(1.0, ring", "min(1.0, 2 * ring"))
changed(
    "the other way round",
    "all of them in every world",
    ("ring / max(1, num_workers / num_servers)", "max(1, num_workers / num_servers) / ring"),
)
changed(
    "one latency in all",
    "one latency in all",
    (
        "2 * (latency_s + max(1, num_workers / num_servers) * num_bytes / bandwidth_Bps)",
        "latency_s + 2 * max(1, num_workers / num_servers) * num_bytes / bandwidth_Bps",
    ),
)
changed(
    "both directions share a link",
    "both directions share a link",
    ("* num_bytes / bandwidth_Bps", "* 2 * num_bytes / bandwidth_Bps"),
)
changed(
    "a latency for each server",
    "workers one after the other in latency too",
    ("(latency_s", "(num_servers * latency_s"),
)
changed(
    "workers and servers one after the other",
    "a worker's link and a server's one after the other",
    ("max(1, num_workers / num_servers)", "(1 + num_workers / num_servers)"),
)
changed("pushes overlap with pulls", "pushes overlap with pulls", ("2 * (latency_s +", "(2 * latency_s +"))
changed(
    "the servers are in the ring",
    "the servers are in the ring",
    ("ring = (num_workers - 1) / num_workers", "ring = (num_workers + num_servers - 1) / (num_workers + num_servers)"),
)
changed(
    "a ring of what is left",
    "a ring for what the servers leave",
    ("min(1.0, ring / max(1, num_workers / num_servers))", "ring / (ring + max(1, num_workers / num_servers))"),
)
changed(
    "servers hold all of it", "servers do not share", ("ring / max(1, num_workers / num_servers)", "ring / num_workers")
)
