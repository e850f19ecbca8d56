"""Wrong answers to whole_batch_loss, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
wrong = WRONG.wrong


LOSS = "def whole_batch_loss(losses, counts):\n    {body}\n"


def wrong_loss(name: str, mistake: str, body: str) -> None:
    wrong(name, mistake, LOSS.format(body=body))


wrong_loss("losses.mean()", "mean of means", "return losses.mean()")
wrong_loss("nanmean", "mean of means", "return losses.nanmean()")
wrong_loss(
    "weights that are zero", "nan from an empty piece", "return (losses * torch.tensor(counts)).sum() / sum(counts)"
)
wrong_loss(
    "nansum",
    "nan from an empty piece",
    "weights = torch.tensor(counts) / sum(counts)\n    "
    "return torch.nansum(losses * torch.where(weights > 0, weights, losses))",
)
wrong_loss("not divided", "sum of sums", "return sum(loss * count for loss, count in zip(losses, counts) if count)")
wrong_loss("sum", "sum of means", "return sum(loss for loss, count in zip(losses, counts) if count)")
wrong_loss(
    "divided by the replicas",
    "divided by the number of devices",
    "return sum(loss * count for loss, count in zip(losses, counts) if count) / len(counts)",
)
wrong_loss(
    "as plain numbers",
    "gradients cut off",
    "return torch.tensor(sum(x * n for x, n in zip(losses.tolist(), counts) if n) / sum(counts), dtype=losses.dtype)",
)
