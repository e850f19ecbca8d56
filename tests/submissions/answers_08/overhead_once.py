# base: solution
# loses: bubble
"""The overhead is paid once, not for each microbatch: the more microbatches, the better, and never is that the best."""


# %% bubble
def bubble_share(num_stages, num_microbatches):
    return (num_stages - 1) / (num_microbatches + num_stages - 1)


def step_seconds(num_stages, num_microbatches, batch_seconds, overhead_s):
    return (num_microbatches + num_stages - 1) * batch_seconds / num_microbatches + overhead_s
