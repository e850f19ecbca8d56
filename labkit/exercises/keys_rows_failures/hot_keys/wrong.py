"""Wrong answers to hot_keys, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


changed(
    "shares writes",
    "writes shared like reads",
    ("+ writes[hot].sum()", "+ writes[hot].sum() / num_servers"),
)
changed("writes at home", "writes at home only",
        ("torch.where(hot, 0.0, reads + writes)", "torch.where(hot, writes, reads + writes)"), (" + writes[hot].sum()", ""))  # fmt: skip
changed(
    "reads everywhere",
    "every copy serves every read",
    ("reads[hot].sum() / num_servers", "reads[hot].sum()"),
)
changed("the first", "the first keys taken for hot", ("reads.topk(num_hot).indices", "torch.arange(num_hot)"))
changed("by writes", "hot by writes", ("reads.topk(num_hot)", "writes.topk(num_hot)"))
changed("assigns at home", "one key for each server",
        (".index_add_(0, home, at_home)", "\n    loads[home] += at_home"))  # fmt: skip
changed(
    "counts all at home", "hot keys loaded at home too", ("torch.where(hot, 0.0, reads + writes)", "reads + writes")
)
changed("reads alone", "writes left out", ("reads + writes)", "reads)"), (" + writes[hot].sum()", ""))
changed(
    "copies on the other servers",
    "copies on the other servers alone",
    ("reads[hot].sum() / num_servers", "reads[hot].sum() / (num_servers - 1)"),
)
changed("hot by both", "hot by writes", ("reads.topk(num_hot)", "(reads + writes).topk(num_hot)"))
changed("the least read", "the least read taken for hot", ("reads.topk(num_hot)", "reads.topk(num_hot, largest=False)"))
changed(
    "cold ones spread as well",
    "every read is spread",
    (
        "return loads + reads[hot].sum() / num_servers",
        "return (writes.new_zeros(num_servers).index_add_(0, home, torch.where(hot, 0.0, writes))) + reads.sum() / num_servers",
    ),
)
changed(
    "reads of hot keys at home",
    "reads at home only",
    ("torch.where(hot, 0.0, reads + writes)", "torch.where(hot, reads, reads + writes)"),
    ("reads[hot].sum() / num_servers + ", ""),
)
HOT = "hot[reads.topk(num_hot).indices] = True"
changed(
    "as many reads as the next one",
    "one hot key too many",
    (HOT, "hot = reads >= reads.sort(descending=True).values[min(num_hot, len(reads) - 1)]"),
)
changed("the end of the sorted", "all where there are none", (HOT, "hot[reads.argsort()[-num_hot:]] = True"))
changed("no load where no key lives", "shape lost",
        ("torch.zeros(num_servers, dtype=torch.float64).index_add_(0, home, at_home)", "torch.bincount(home, weights=at_home)"))  # fmt: skip
changed(
    "writes at home once more",
    "written twice at home",
    ("torch.where(hot, 0.0, reads + writes)", "torch.where(hot, writes, reads + writes)"),
)
