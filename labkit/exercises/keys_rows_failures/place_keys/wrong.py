"""Wrong answers to place_keys, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


CIRCLE = "return owners[torch.searchsorted(points, keys * 2654435761 % 2**32) % len(points)]"
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
changed("modulo", "not hashed", (HASH, "return keys % num_servers"))
changed(
    "modulo at the end",
    "modulo after the hash",
    (HASH, "return (keys * 2654435761 % 2**32) % num_servers"),
)
changed("forgets the cut", "not cut to 32 bits", (HASH, "return keys * 2654435761 * num_servers // 2**32"))
changed("a list", "wrong type", (HASH, HASH.replace("return ", "return list(") + ")"))

changed("bounds to the left", "the first of a stretch in the one before",
        (RANGE, "return torch.searchsorted(torch.cat([torch.zeros(1, dtype=torch.int64), firsts]), keys) - 1"))  # fmt: skip
changed("divides first", "rounded", (HASH, "return (keys * 2654435761 % 2**32 / 2**32 * num_servers).long()"))

SEARCH = "torch.searchsorted(points, keys * 2654435761 % 2**32)"
changed("the last stays", "no way round", (CIRCLE, f"return owners[{SEARCH}.clamp(max=len(points) - 1)]"))
changed("the one before", "the point before", (CIRCLE, f"return owners[{SEARCH[:-1]}, right=True) - 1]"))
changed(
    "past a point",
    "a point that is hit is passed",
    (CIRCLE, f"return owners[{SEARCH[:-1]}, right=True) % len(points)]"),
)
changed("the key itself", "keys not hashed", (CIRCLE, "return owners[torch.searchsorted(points, keys) % len(points)]"))
changed("which point", "the point's number", (CIRCLE, f"return {SEARCH} % len(points)"))
changed("the nearest", "the nearest point",
        (CIRCLE, "apart = (points - (keys * 2654435761 % 2**32).unsqueeze(-1)).abs()\n    return owners[torch.minimum(apart, 2**32 - apart).argmin(-1)]"))  # fmt: skip
changed("forgets the cut on the circle", "none among the points",
        (CIRCLE, "return owners[torch.searchsorted(points, keys * 2654435761) % len(points)]"))  # fmt: skip
WRONG.changed("a bound to the left", "the first of a stretch in the one before", (", right=True", ""))
CUT = "keys * 2654435761 % 2**32) % len(points)"
changed("divides on the circle", "none among the points", (CUT, CUT.replace(" * ", " / ", 1)))
changed(
    "the last server first",
    "the last server first",
    (RANGE, "return num_servers - 1 - torch.bucketize(keys, firsts, right=True)"),
)
changed(
    "buckets in place of the circle",
    "arcs of equal length",
    (CIRCLE, "return owners[(keys * 2654435761 % 2**32) * len(points) // 2**32]"),
)
changed(
    "the rest to the last",
    "the rest to the last server",
    (RANGE, "return (keys // (num_keys // num_servers)).clamp(max=num_servers - 1)"),
)
changed("hashes over 31 bits", "a scale of 31 bits", (HASH, HASH.replace("32", "31")))
changed("no hash, scaled", "scaled and not hashed", (HASH, "return keys * num_servers // 2**31"))
changed("the range of the hash", "the circle left out", (CIRCLE, "return place_by_hash(keys, int(owners.max()) + 1)"))
changed(
    "the highest bits, modulo",
    "a power of two of parts",
    (HASH, "return (keys * 2654435761 % 2**32 >> 32 - (num_servers - 1).bit_length()) % num_servers"),
)
changed(
    "a list for the circle",
    "lists for keys",
    (
        CIRCLE,
        "hashes = [int(key) * 2654435761 % 2**32 for key in keys.tolist()]\n"
        "    return owners[torch.searchsorted(points, torch.tensor(hashes)) % len(points)]",
    ),
)
changed("a floor for all", "stretches too short", (RANGE, "return keys // (num_keys // num_servers)"))
changed("ends at rounded multiples", "rounded bounds",
        ("server * length + min(server, longer)", "round(server * num_keys / num_servers)"))  # fmt: skip
changed("ends at multiples, cut off", "rounded bounds",
        ("server * length + min(server, longer)", "server * num_keys // num_servers"))  # fmt: skip
changed("splits the tensor", "by position",
        (RANGE, "return torch.cat([torch.full_like(part, n) for n, part in enumerate(keys.flatten().tensor_split(num_servers))]).view(keys.shape)"))  # fmt: skip
changed("a flat result", "shape lost", (RANGE, RANGE.replace("keys,", "keys.flatten(),")))
changed("a part's length cut off", "rounded", (HASH, "return (keys * 2654435761 % 2**32) // (2**32 // num_servers)"))
changed(
    "the product's highest bits",
    "scaled and not hashed",
    (HASH, "return (keys * 2654435761 >> 32) * num_servers // 2**32"),
)
changed("the one strictly before", "the point before", (CIRCLE, f"return owners[{SEARCH} - 1]"))
changed(
    "the nearest, not round",
    "the nearest point",
    (CIRCLE, "return owners[(points - (keys * 2654435761 % 2**32)[..., None]).abs().argmin(-1)]"),
)
changed("round by the servers", "modulo the servers", (CIRCLE, f"return owners[{SEARCH} % (int(owners.max()) + 1)]"))
changed("falls off the end", "no way round", (" % len(points)]", "]"))
changed(
    "multiplies in float64",
    "a product in float64",
    (HASH, "return (keys.double() * 2654435761 % 2**32 * num_servers / 2**32).long()"),
)
changed(
    "multiplies in float64 on the circle",
    "a product in float64",
    (CIRCLE, "return owners[torch.searchsorted(points, (keys.double() * 2654435761 % 2**32).long()) % len(points)]"),
)
