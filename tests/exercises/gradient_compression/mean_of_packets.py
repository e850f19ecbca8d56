"""Wrong answers to mean_of_packets, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
changed = WRONG.changed


RETURN = "return sum(compressor.decompress(each) for each in packets) / num_ranks"
GATHER = "dist.all_gather(of_ranks, part, group=group)"
changed(
    "all_reduce of the parts",
    "added entry by entry",
    (
        RETURN,
        """reduced = []
    for part in packet.parts[1:]:
        reduced.append(part.clone())
        dist.all_reduce(reduced[-1], group=group)
    return compressor.decompress(replace(packet, parts=(packet.parts[0], *reduced))) / num_ranks""",
    ),
)
changed("a sum", "sum instead of mean", (RETURN, RETURN.replace(" / num_ranks", "")))
changed("own packet", "only my packet", (RETURN, "return compressor.decompress(packet)"))
changed(
    "unpacks first",
    "more than packets travels",
    (
        "    num_ranks = dist.get_world_size(group)\n",
        """    num_ranks = dist.get_world_size(group)
    whole = compressor.decompress(packet)
    of_ranks = [torch.empty_like(whole) for _ in range(num_ranks)]
    dist.all_gather(of_ranks, whole, group=group)
    return sum(of_ranks) / num_ranks
""",
    ),
)
changed("the whole world", "all ranks of the world", (GATHER, "dist.all_gather(of_ranks, part)"))
changed(
    "divides by the senders",
    "divided by those that sent the entry",
    (
        RETURN,
        "back = [compressor.decompress(each) for each in packets]\n    return sum(back) / sum((b != 0) * 1 for b "
        "in back).clamp(min=1)",
    ),
)
changed("twice", "divided twice", (RETURN, RETURN + " / num_ranks"))
LISTED = "[torch.empty_like(part) for _ in range(num_ranks)]"
changed(
    "one tensor N times",
    "one buffer for all ranks",
    (LISTED, "[torch.empty_like(part)] * num_ranks"),
)
changed(
    "all_reduce of what was unpacked",
    "a whole gradient travels",
    (
        RETURN,
        "whole = compressor.decompress(packet)\n    dist.all_reduce(whole, group=group)\n    return whole / num_ranks",
    ),
)
changed(
    "values alone",
    "other ranks' values in this rank's places",
    (
        RETURN,
        "mine = [replace(packet, parts=(packet.parts[0], each.parts[1])) for each in packets]\n    "
        + RETURN.replace("in packets", "in mine"),
    ),
)
