"""Hidden cases of replicated_server."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.keys_rows_failures.replicas import dying_case, replica_case, safely_case


def cases(draw: random.Random) -> list[Case]:
    alone = " ".join(f"w{draw.randrange(3)}.{draw.randrange(4)}" for _ in range(12))
    pushed = [f"w{draw.randrange(3)}.{draw.randrange(3)}" for _ in range(8)]
    said, unanswered = list[str](), list[int]()
    for number, word in enumerate(pushed):
        said.append(word)
        unanswered.append(number)
        while len(unanswered) > 1 and draw.random() < 0.6:
            said.append(f"{draw.choice('aaaf')}{unanswered.pop(draw.randrange(len(unanswered)))}")
    said += [f"a{number}" for number in unanswered]
    behaviours = [[draw.choice(["fail", "raise"]) for _ in range(draw.randint(0, 3))] + ["answer"] for _ in range(4)]
    return [
        replica_case("no backup, some again", seed(draw), alone, with_backup=False),
        of_another_kind(replica_case("with a backup", seed(draw), " ".join(said), with_backup=True), draw),
        of_another_kind(safely_case("the first that answers", seed(draw), behaviours), draw),
        safely_case("nobody answers", seed(draw), [["raise", "fail", "fail"]]),
        *(dying_case("the primary dies", seed(draw), 3, 10, draw.uniform(0.003, 0.025)) for _ in range(3)),
    ]
