"""Wrong answers to few_exchanges, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

COPY = "        worker.weights.copy_(shared)\n"
LOOP = "    for _ in range(num_steps):\n"
THERE = "[move for move in moves if move is not None]"
STEP = "shared + rate * (average + beta * momentum)"
RETURN = "return min("

changed("goes on from its own", "stale weights", (COPY, "        pass\n"))
changed("a new optimizer each round", "inner moments lost",
        (LOOP, "    from labkit.failures.apart import BETAS, DECAY, INNER_RATE\n"
         "    worker.optimizer = torch.optim.AdamW([worker.weights], lr=INNER_RATE, betas=BETAS, weight_decay=DECAY)\n"
         + LOOP))  # fmt: skip
changed("a plain AdamW each round", "inner moments lost",
        (LOOP, "    worker.optimizer = torch.optim.AdamW([worker.weights], lr=0.01)\n" + LOOP))  # fmt: skip
changed("no zero_grad", "gradients add up", ("        worker.optimizer.zero_grad()\n", ""))
changed("nothing for the absent", "the absent are averaged",
        (THERE, "[torch.zeros_like(shared) if move is None else move for move in moves]"))  # fmt: skip
changed("down the moves", "the wrong direction", (STEP, "shared - rate * (average + beta * momentum)"))
changed("averages weights", "weights are averaged", (STEP, "shared + average"))
changed("a plain step", "no momentum", (STEP, "shared + rate * average"))
changed("heavy ball", "momentum without Nesterov", (STEP, "shared + rate * momentum"))
changed("the weights alone", "not a pair", (STEP + ", momentum", STEP))
WRONG.changed("a pair for a recipe", "no recipe", (RETURN, "return (20, 0.7)\n    return min("))
WRONG.changed("half a step", "no recipe", (RETURN, "return Recipe(20.5, 0.7, 0.9)\n    return min("))
WRONG.changed("one round", "the goal is never reached", (RETURN, "return Recipe(300, 0.7, 0.9)\n    return min("))
WRONG.changed("a rate of 50", "no recipe", (RETURN, "return Recipe(20, 50.0, 0.9)\n    return min("))
WRONG.changed("hardly moves", "the goal is never reached", (RETURN, "return Recipe(20, 0.01)\n    return min("))
WRONG.right(
    "torch's SGD",
    """def inner_steps(worker, shared, num_steps):
    worker.weights.data = shared.clone()
    for _ in range(num_steps):
        worker.weights.grad = None
        worker.loss().backward()
        worker.optimizer.step()
    return worker.weights.data - shared


def outer_step(shared, momentum, moves, rate, beta):
    there = [move for move in moves if move is not None]
    weights = shared.clone()
    weights.grad = -sum(there) / len(there)
    optimizer = torch.optim.SGD([weights], lr=rate, momentum=beta, nesterov=True)
    optimizer.state[weights]["momentum_buffer"] = momentum
    optimizer.step()
    return weights, optimizer.state[weights]["momentum_buffer"]


def plan_rounds(crew):
    known = {steps: kilobytes(crew, Recipe(steps, 1.0, 0.9), seeds=(4, 5)) for steps in (15, 20, 40)}
    return Recipe(min((steps for steps in known if known[steps]), key=lambda steps: known[steps]), 1.0, 0.9)
""",
)
changed(
    "before minus after",
    "the wrong direction",
    ("worker.weights.detach() - shared", "shared - worker.weights.detach()"),
)
changed("adds the moves up", "moves added up", ("is not None]).mean(0)", "is not None]).sum(0)"))
changed(
    "divides by all workers", "the absent are averaged", ("is not None]).mean(0)", "is not None]).sum(0) / len(moves)")
)
changed(
    "averages into the momentum", "momentum averaged",
    ("momentum = beta * momentum + average", "momentum = beta * momentum + (1 - beta) * average"),
)  # fmt: skip
changed("trains in the shared weights", "nothing moves", (COPY, "        worker.weights.data = shared\n"))
changed("zero_grad once a round", "gradients add up in a round",
        (LOOP + "        worker.optimizer.zero_grad()\n", "    worker.optimizer.zero_grad()\n" + LOOP))  # fmt: skip
changed("counts from its own weights", "moved from its own weights",
        ("worker.weights.detach() - shared", "worker.weights.detach() - before"),
        ("    with torch.no_grad():\n" + COPY,
         "    before = worker.weights.detach().clone()\n    with torch.no_grad():\n" + COPY))  # fmt: skip
changed("a momentum of this round alone", "a momentum that forgets",
        ("momentum = beta * momentum + average", "momentum = average"))  # fmt: skip
changed("returns the weights", "weights for their change",
        ("worker.weights.detach() - shared", "worker.weights.detach().clone()"))  # fmt: skip
changed("a new parameter that the optimizer does not know", "nothing moves",
        (COPY, "        worker.weights = torch.nn.Parameter(shared.clone())\n"))  # fmt: skip
