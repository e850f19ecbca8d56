"""The rules of a bucket plan, told of a plan as it came: no plan is made here."""

from __future__ import annotations

from collections.abc import Sequence


def broken_rule(plan: Sequence[Sequence[int]], sizes: Sequence[int], cap: int) -> str:
    """Return in words the first rule that a plan breaks, or "".

    Args:
        plan: Indices of the parameters in each bucket.
        sizes: Bytes of each parameter.
        cap: Bytes a bucket may hold, unless one parameter alone is larger.
    """
    flat = [index for bucket in plan for index in bucket]
    if sorted(flat) != list(range(len(sizes))):
        doubled = sorted({index for index in flat if flat.count(index) > 1})
        missing = sorted(set(range(len(sizes))) - set(flat))
        what = f"parameter {missing[0]} is in no bucket" if missing else f"parameter {doubled[0]} is in two places"
        if not missing and not doubled:
            what = "there are indices of no parameter"
        return f"{what}: each of the {len(sizes)} parameters must stand in exactly one bucket"
    if flat != sorted(flat, reverse=True):
        return (
            f"the parameters come in the order {list(flat)}: begin with the last one, whose gradient is there first, "
            "and go down to 0"
        )
    for number, bucket in enumerate(plan):
        if not bucket:
            return f"bucket {number} is empty"
        held = sum(sizes[index] for index in bucket)
        if len(bucket) > 1 and held > cap:
            return f"bucket {number} holds {held} bytes, and the cap is {cap}"
        if number + 1 < len(plan) and plan[number + 1] and held + sizes[plan[number + 1][0]] <= cap:
            after = plan[number + 1][0]
            return (
                f"bucket {number} holds {held} bytes; parameter {after} with {sizes[after]} bytes still fits under the "
                f"cap of {cap}"
            )
    return ""
