# base: solution
# loses: fill_stages
"""fill_stages: one microbatch after the other, which beats nobody."""


# %% fill_stages
def fill_stages(num_stages, num_microbatches, most_held):
    return [[kind(m) for m in range(num_microbatches) for kind in (Forward, Backward)] for _ in range(num_stages)]
