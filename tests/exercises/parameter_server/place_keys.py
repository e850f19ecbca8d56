"""Wrong answers to place_keys, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
changed = WRONG.changed


RANGE = "return torch.bucketize(keys, firsts, right=True)"
HASH = "return (keys * 2654435761 % 2**32) * num_servers // 2**32"
changed(
    "ceiling",
    "equal stretches, the last one short",
    (RANGE, "return keys // -(-num_keys // num_servers)"),
)
changed("scales", "proportional", (RANGE, "return keys * num_servers // num_keys"))
changed("round robin", "dealt round robin", (RANGE, "return keys % num_servers"))
changed("longer ones last", "longer stretches last",
        (RANGE, "return num_servers - 1 - torch.bucketize(num_keys - 1 - keys, firsts, right=True)"))  # fmt: skip
changed("modulo", "no scramble", (HASH, "return keys % num_servers"))
changed(
    "modulo at the end",
    "modulo after the scramble",
    (HASH, "return (keys * 2654435761 % 2**32) % num_servers"),
)
changed("forgets the cut", "not cut to 32 bits", (HASH, "return keys * 2654435761 * num_servers // 2**32"))
changed(
    "a list",
    "another type or shape",
    (HASH, HASH + ".tolist()".replace(".", ".", 1) if False else HASH.replace("return ", "return list(") + ")"),
)

changed("bounds to the left", "the first of a stretch in the one before",
        (RANGE, "return torch.searchsorted(torch.cat([torch.zeros(1, dtype=torch.int64), firsts]), keys) - 1"))  # fmt: skip
changed("divides first", "rounded", (HASH, "return (keys * 2654435761 % 2**32 / 2**32 * num_servers).long()"))
