# base: solution
# loses: one_f_one_b
"""All forwards before all backwards, under another name."""


# %% one_f_one_b
def one_f_one_b(stage, num_stages, num_microbatches):
    return [kind(m) for kind in (Forward, Backward) for m in range(num_microbatches)]
