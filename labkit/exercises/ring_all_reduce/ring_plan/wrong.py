"""Wrong answers to ring_plan, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


def _plan(
    scatter: str = "Send(s, (rank - s) % n, right), Recv(s, (rank - s - 1) % n, left), Reduce(s, (rank - s - 1) % n)",
    gather: str = "Send(n - 1 + s, (rank + 1 - s) % n, right), Recv(n - 1 + s, (rank - s) % n, left)",
    steps: tuple[str, str] = ("n - 1", "n - 1"),
    neighbours: tuple[str, str] = ("(rank + 1) % n", "(rank - 1) % n"),
) -> str:
    return f"""
def ring_plan(rank, world_size):
    n = world_size
    right, left = {neighbours[0]}, {neighbours[1]}
    plan = []
    for s in range({steps[0]}):
        plan += [{scatter}]
    for s in range({steps[1]}):
        plan += [{gather}]
    return plan
"""


wrong(
    "sends the chunk just received in the first step",
    "sends the chunk it is receiving",
    _plan(
        scatter="Send(s, (rank - s - 1) % n, right), Recv(s, (rank - s - 1) % n, left), Reduce(s, (rank - s - 1) % n)"
    ),
)
wrong(
    "wrong chunk: + instead of -",
    "sends the chunk it is receiving",
    _plan(scatter="Send(s, (rank + s) % n, right), Recv(s, (rank - s - 1) % n, left), Reduce(s, (rank - s - 1) % n)"),
)
wrong("the last step of the all-gather is missing", "too few steps", _plan(steps=("n - 1", "n - 2")))
wrong("no all-gather", "no all-gather", _plan(steps=("n - 1", "0")))
wrong("N steps in each half", "too many steps", _plan(steps=("n", "n")))
wrong(
    "the all-gather reduces",
    "reduces in the all-gather",
    _plan(
        gather="Send(n - 1 + s, (rank + 1 - s) % n, right), Recv(n - 1 + s, (rank - s) % n, left), "
        "Reduce(n - 1 + s, (rank - s) % n)"
    ),
)
wrong(
    "no Reduce",
    "never reduces",
    _plan(scatter="Send(s, (rank - s) % n, right), Recv(s, (rank - s - 1) % n, left)"),
)
wrong(
    "no modulo",
    "modulo forgotten",
    _plan(scatter="Send(s, rank - s, right), Recv(s, rank - s - 1, left), Reduce(s, rank - s - 1)"),
)
wrong("neighbour without modulo", "modulo forgotten", _plan(neighbours=("rank + 1", "rank - 1")))
wrong(
    "all-gather starts one chunk early",
    "complete chunks are sent in the wrong order",
    _plan(gather="Send(n - 1 + s, (rank - s) % n, right), Recv(n - 1 + s, (rank - s - 1) % n, left)"),
)
wrong(
    "right and left are the same",
    "right and left mixed up",
    _plan(neighbours=("(rank + 1) % n", "(rank + 1) % n")),
)
wrong(
    "steps of the all-gather from 0",
    "steps numbered wrongly",
    _plan(gather="Send(s, (rank + 1 - s) % n, right), Recv(s, (rank - s) % n, left)"),
)
wrong("words", "not a list of records", 'def ring_plan(rank, world_size):\n    return "Send, Recv, Reduce"\n')
wrong("to the left", "the other way round", _plan(neighbours=("(rank - 1) % n", "(rank + 1) % n")))
wrong(
    "receives one chunk further back",
    "sender and receiver name different chunks",
    _plan(scatter="Send(s, (rank - s) % n, right), Recv(s, (rank - s - 2) % n, left), Reduce(s, (rank - s - 2) % n)"),
)
wrong("steps up to the rank", "ranks take different numbers of steps", _plan(steps=("rank", "rank")))
wrong("sends to itself", "a message to itself", _plan(neighbours=("rank", "(rank - 1) % n")))
wrong(
    "a step left out",
    "steps numbered wrongly",
    _plan(gather="Send(n + s, (rank + 1 - s) % n, right), Recv(n + s, (rank - s) % n, left)"),
)
wrong(
    "nobody receives in the all-gather",
    "a Send without its Recv",
    _plan(gather="Send(n - 1 + s, (rank + 1 - s) % n, right)"),
)
wrong(
    "reduces without receiving",
    "a Reduce without its Recv",
    _plan(scatter="Send(s, (rank - s) % n, right), Reduce(s, (rank - s - 1) % n)"),
)
wrong(
    "the records of a step in front",
    "steps numbered wrongly",
    """
def ring_plan(rank, world_size):
    n, plan = world_size, []
    right, left = (rank + 1) % n, (rank - 1) % n
    for s in range(n - 1):
        plan = [Send(s, (rank - s) % n, right), Recv(s, (rank - s - 1) % n, left), Reduce(s, (rank - s - 1) % n)] + plan
    for s in range(n - 1):
        plan += [Send(n - 1 + s, (rank + 1 - s) % n, right), Recv(n - 1 + s, (rank - s) % n, left)]
    return plan
""",
)
WRONG.changed(
    "one Reduce after the loop",
    "some arrivals are not added",
    ("        plan.append(Reduce(step, chunk=arriving))", "    plan.append(Reduce(step, chunk=arriving))"),
)
wrong(
    "sends its own chunk in every step",
    "what was reduced is not sent on",
    _plan(scatter="Send(s, rank, right), Recv(s, left, left), Reduce(s, left)"),
)
WRONG.changed(
    "the all-gather turns back",
    "other ranks than the two neighbours",
    (
        "chunk=(rank + 1 - turn) % world_size, peer=right",
        "chunk=(rank + 1 + turn) % world_size, peer=left",
    ),
    ("chunk=(rank - turn) % world_size, peer=left", "chunk=(rank + 2 + turn) % world_size, peer=right"),
)
WRONG.changed(
    "hands its chunk to everybody itself",
    "other ranks than the two neighbours",
    (
        "chunk=(rank + 1 - turn) % world_size, peer=right",
        "chunk=(rank + 1) % world_size, peer=(rank + 1 + turn) % world_size",
    ),
    ("peer=left))\n    return", "peer=(rank - 1 - turn) % world_size))\n    return"),
)
WRONG.changed(
    "all chunks in every step",
    "several chunks in a step",
    (
        "        plan.append(Send(step, chunk=(rank - step) % world_size, peer=right))\n"
        "        plan.append(Recv(step, chunk=arriving, peer=left))\n"
        "        plan.append(Reduce(step, chunk=arriving))\n",
        "        for chunk in range(world_size):\n            plan.append(Send(step, chunk=chunk, peer=right))\n"
        "            plan.append(Recv(step, chunk=chunk, peer=left))\n"
        "            plan.append(Reduce(step, chunk=chunk))\n",
    ),
)
WRONG.changed(
    "a rank alone talks to itself",
    "a message to itself",
    (
        "    plan: list",
        "    if world_size == 1:\n        return [Send(0, 0, 0), Recv(0, 0, 0), Reduce(0, 0)]\n    plan: list",
    ),
)
WRONG.changed(
    "reduces a step later",
    "a Reduce without its Recv",
    ("Reduce(step, chunk=arriving)", "Reduce(step + 1, chunk=arriving)"),
)
WRONG.right(
    "begins with its right neighbour's chunk, the Reduce first",
    """
def ring_plan(rank, world_size):
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    plan = []
    for step in range(2 * world_size - 2):
        arriving = (rank - step) % world_size
        if step < world_size - 1:
            plan.append(Reduce(step, arriving))
        plan += [Recv(step, arriving, left), Send(step, (rank + 1 - step) % world_size, right)]
    return plan
""",
)
