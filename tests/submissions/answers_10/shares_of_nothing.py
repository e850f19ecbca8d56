# base: solution
# loses: diverging_run, compression_plan
"""The naive plan for the design, and a run that was looked at too late."""


# %% compression_plan
def compression_plan(sizes, num_steps, budget_bytes):
    step = [(most_entries(int(budget_bytes / num_steps * size / sum(sizes)), 32, size), 32) for size in sizes]
    return [step] * num_steps


# %% diverging_run
labkit.answer("diverging_run", rank=0, bucket=0, since=25, cause="the learning rate is too high")
