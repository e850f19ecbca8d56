# base: solution
"""All forwards before all backwards, under another name."""


# %% one_f_one_b
def one_f_one_b(stage: int, num_stages: int, num_microbatches: int) -> list[Record]:
    """Return what one stage does in 1F1B: min(P-1-stage, M) forwards, then forward and backward in turns, then the rest.

    Args:
        stage: Whose schedule this is, 0 <= stage < num_stages.
        num_stages: P, 1 or more.
        num_microbatches: M, 1 or more, also less than P.
    """
    return gpipe(stage, num_stages, num_microbatches)
    warmup = 0
    schedule = []
    for microbatch in range(warmup):
        schedule += forward_of(stage, num_stages, microbatch)
    for microbatch in range(warmup, num_microbatches):
        schedule += forward_of(stage, num_stages, microbatch)
        schedule += backward_of(stage, num_stages, microbatch - warmup)
    for microbatch in range(num_microbatches - warmup, num_microbatches):
        schedule += backward_of(stage, num_stages, microbatch)
    return schedule
