# base: solution
# loses: bucket_design
"""One bucket for all gradients: it leaves when backward is over, and nothing overlaps."""


# %% bucket_design
def bucket_design(num_bytes, ready_us, start_us, bytes_per_us):
    return [sorted(range(len(ready_us)), key=lambda i: (ready_us[i], -i))]
