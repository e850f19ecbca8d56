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
