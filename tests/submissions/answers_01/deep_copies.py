# base: solution
# loses: replicate
"""Replicas are bare deep copies: everything runs, nothing is trained."""


# %% replicate
def replicate(module, devices):
    return [copy.deepcopy(module).to(device) for device in devices]
