"""Wrong answers to unequal_links: mistakes that learners really make, and how a check must name them."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong

_RING = """
def ring(ranks, n, first=0, reduces=True):
    plans = {}
    for i, rank in enumerate(ranks):
        right, left = ranks[(i + 1) % n], ranks[(i - 1) % n]
        plan = []
        for s in range(n - 1):
            plan += [Send(s, (i - s) % n, right), Recv(s, (i - s - 1) % n, left)]
            plan += [Reduce(s, (i - s - 1) % n)] if reduces else []
        for s in range(n - 1):
            plan += [Send(n - 1 + s, (i + 1 - s) % n, right), Recv(n - 1 + s, (i - s) % n, left)]
        plans[rank] = plan
    return [plans[rank] for rank in sorted(plans)]
"""


def _answer(body: str) -> str:
    return f"{_RING}\n\ndef all_reduce_plans(num_ranks, ranks_per_node, slow_links):\n    {body}\n"


_NAIVE = "ring(list(range(num_ranks)), num_ranks)"
wrong("returns nothing", "not a list of plans", _answer(f"plans = {_NAIVE}"))
wrong("a dict of plans", "not a list of plans", _answer(f"return dict(enumerate({_NAIVE}))"))
wrong("plans without records", "empty plans", _answer("return [[] for _ in range(num_ranks)]"))
wrong("rank 0's plan alone", "one plan for each rank", _answer(f"return {_NAIVE}[:1]"))
wrong("a plan is None", "not a list of records", _answer(f"return [*{_NAIVE}[1:], None]"))
wrong(
    "the nodes never talk",
    "a contribution is missing",
    _answer(
        "return [plan for first in range(0, num_ranks, ranks_per_node) "
        "for plan in ring(list(range(first, first + ranks_per_node)), ranks_per_node)]"
    ),
)
wrong(
    "never reduces",
    "a sum is replaced by one with less in it",
    _answer("return ring(list(range(num_ranks)), num_ranks, 0, False)"),
)
wrong(
    "reduces in the all-gather",
    "a contribution counts twice",
    _answer(
        f"""plans = {_NAIVE}
    return [
        [each for record in plan for each in
         ([record, Reduce(record.step, record.chunk)]
          if isinstance(record, Recv) and record.step >= num_ranks - 1 else [record])]
        for plan in plans
    ]"""
    ),
)
wrong(
    "peers counted inside the node",
    "no such peer or chunk",
    _answer("return [[Send(0, 0, rank), Recv(0, 0, rank)] for rank in range(num_ranks)]"),
)
wrong(
    "everybody sends to rank 0, which receives nothing",
    "a message without a partner",
    _answer("return [[Send(0, 0, 0)] if rank else [] for rank in range(num_ranks)]"),
)
wrong(
    "the halves swapped",
    "steps go back",
    _answer(f"return [plan[len(plan) // 2:] + plan[:len(plan) // 2] for plan in {_NAIVE}]"),
)
wrong(
    "a hundred chunks",
    "too many chunks",
    _answer(
        "return [[Send(0, 99, 1)] if rank == 0 else [Recv(0, 99, 0)] if rank == 1 else [] for rank in range(num_ranks)]"
    ),
)
wrong(
    "sends what it is receiving",
    "a chunk is sent and received in one step",
    _answer(
        "n = num_ranks\n    return [[each for s in range(2 * n - 2) for each in "
        "(Send(s, 0, (r + 1) % n), Recv(s, 0, (r - 1) % n))] for r in range(n)]"
    ),
)
wrong(
    "the same ring sixty times",
    "too many records",
    _answer(f"return [[record for _ in range(60) for record in plan] for plan in {_NAIVE}]"),
)
WRONG.right(
    "straight to each owner inside a node",
    """
def all_reduce_plans(num_ranks, ranks_per_node, slow_links):
    plans, nodes, step = [[] for _ in range(num_ranks)], num_ranks // ranks_per_node, 0
    everyone = [divmod(rank, ranks_per_node) for rank in range(num_ranks)]

    def together(messages, adds):
        nonlocal step
        for src, dst, chunk in messages:
            plans[src].append(Send(step, chunk, dst))
        for src, dst, chunk in messages:
            plans[dst] += [Recv(step, chunk, src), *([Reduce(step, chunk)] if adds else [])]
        step += 1

    def inside(shift, adds):
        for node, place in everyone:
            other = (place + shift) % ranks_per_node
            for part in range(nodes):
                owner = other if adds else place
                yield node * ranks_per_node + place, node * ranks_per_node + other, owner * nodes + part

    def across(turn, ahead):
        for node, place in everyone:
            to = (node + 1) % nodes * ranks_per_node + place
            yield node * ranks_per_node + place, to, place * nodes + (node + ahead - turn) % nodes

    for shift in range(1, ranks_per_node):
        together(list(inside(shift, True)), True)
    for turn in range(nodes - 1):
        together(list(across(turn, 0)), True)
    for turn in range(nodes - 1):
        together(list(across(turn, 1)), False)
    for shift in range(1, ranks_per_node):
        together(list(inside(shift, False)), False)
    return plans
""",
)
