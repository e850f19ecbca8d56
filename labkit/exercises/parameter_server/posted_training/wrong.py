"""Wrong answers to posted_training, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


changed("receives and does not apply", "nothing was served", ("weight -= lr * gradient", "pass"))
changed("tells nobody", "the others were not told", ("    dist.broadcast(weight, src=0)\n", ""))
changed("one message of each worker", "messages that nobody takes",
        ("        for _ in range(num_gradients):\n", "        for _ in range(1):\n"))  # fmt: skip
changed("adds", "uphill", ("weight -= lr", "weight += lr"))
changed("in place", "works on the weight that was handed in", ("    weight = weight.clone()\n", ""))
changed("applies once, after the loop", "only the last message counts",
        ("                weight -= lr * gradient\n", "        weight -= lr * gradient\n"))  # fmt: skip
changed("all_reduces the sum", "gradients not sent one by one",
        ("    if dist.get_rank() > 0:\n        for gradient in gradients:\n            dist.send(gradient.contiguous(), dst=0)\n",
         "    total = sum(gradients, torch.zeros_like(weight))\n    dist.all_reduce(total)\n    weight -= lr * total\n    if True:\n        pass\n"))  # fmt: skip

changed("divides by the workers", "divided by the number of workers",
        ("weight -= lr * gradient", "weight -= lr * gradient / (dist.get_world_size() - 1)"))  # fmt: skip
changed("isend, and nobody waits", "messages that nobody takes", ("dist.send(", "dist.isend("))
changed("the mean over all", "mean instead of sum",
        ("lr * gradient", "lr * gradient / num_gradients / (dist.get_world_size() - 1)"))  # fmt: skip
SENDS = "        for gradient in gradients:\n            dist.send(gradient.contiguous(), dst=0)\n"
TAKES = "        for _ in range(num_gradients):\n            for worker in range(1, dist.get_world_size()):\n                dist.recv(gradient, src=worker)\n                weight -= lr * gradient\n"
changed(
    "one message with the sum",
    "gradients not sent one by one",
    (SENDS, "        dist.send(sum(gradients), dst=0)\n"),
    ("for _ in range(num_gradients):", "for _ in range(1):"),
)
changed("one message with all of them", "gradients not sent one by one", (SENDS, "        dist.send(torch.stack(gradients), dst=0)\n"),
        (TAKES, "        gradients = torch.stack([weight] * num_gradients)\n        for worker in range(1, dist.get_world_size()):\n            dist.recv(gradients, src=worker)\n            weight -= lr * gradients.sum(0)\n"))  # fmt: skip
changed("gathers them", "gradients not sent one by one", (SENDS, "        for gradient in gradients:\n            dist.gather(gradient, dst=0)\n"),
        (TAKES, "        for _ in range(num_gradients):\n            parts = [torch.empty_like(weight) for _ in range(dist.get_world_size())]\n            dist.gather(torch.zeros_like(weight), parts, dst=0)\n            weight -= lr * sum(parts)\n"))  # fmt: skip
changed(
    "the workers return nothing",
    "the workers return nothing",
    ("    return weight\n", "    return weight if dist.get_rank() == 0 else None\n"),
)
changed(
    "workers subtract their own",
    "the others were not told",
    ("    dist.broadcast(weight, src=0)\n", "    for gradient in gradients:\n        weight -= lr * gradient\n"),
)
changed(
    "broadcasts after each gradient, to those that listen once",
    "messages that nobody takes",
    (
        "                weight -= lr * gradient\n",
        "                weight -= lr * gradient\n                dist.broadcast(weight, src=0)\n",
    ),
    (
        "    dist.broadcast(weight, src=0)\n    return",
        "    if dist.get_rank() > 0:\n        dist.broadcast(weight, src=0)\n    return",
    ),
)
changed(
    "a mean of each round",
    "mean instead of sum",
    ("weight -= lr * gradient\n", "weight -= lr * gradient / num_gradients\n"),
)
changed("no learning rate", "the learning rate left out", ("weight -= lr * gradient", "weight -= gradient"))
changed("takes from the first worker", "messages that nobody takes", ("src=worker)", "src=1)"))
changed("reads before it waits", "message not waited for", ("dist.recv(gradient", "dist.irecv(gradient"))
changed(
    "a buffer in the default dtype",
    "received as something else",
    ("torch.empty_like(weight)", "torch.empty(weight.shape)"),
)
WRONG.right(
    "from whoever comes, and a message back to each",
    """
def posted_training(weight, gradients, num_gradients, lr):
    weight, workers = weight.clone(), dist.get_world_size() - 1
    if dist.get_rank():
        for gradient in gradients:
            dist.send(gradient, dst=0)
        dist.recv(weight, src=0)
        return weight
    buffer = torch.empty_like(weight)
    for _ in range(num_gradients * workers):
        dist.recv(buffer)
        weight -= lr * buffer
    for worker in range(1, workers + 1):
        dist.send(weight, dst=worker)
    return weight
""",
)
