# base: solution
# loses: halving_doubling
"""halving_doubling leaves the process where it should raise an error, and where it should return."""

# %% halving_doubling
import os


def halving_doubling_all_reduce(tensor):
    n = dist.get_world_size()
    if n & (n - 1):
        print("not a power of two")
    os._exit(1)
