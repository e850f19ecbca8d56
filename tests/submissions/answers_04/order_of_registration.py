# base: solution
"""Buckets from the first layer to the last."""


# %% bucket_plan
def bucket_plan(sizes, cap_bytes):
    buckets, filled = [], 0
    for index, size in enumerate(sizes):
        if not buckets or filled + size > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(index)
        filled += size
    return buckets
