# base: solution
"""A bucket for each gradient: that pays forty starts where the network is slow."""


# %% bucket_design
def bucket_design(num_bytes, ready_us, start_us, bytes_per_us):
    return [[index] for index in sorted(range(len(ready_us)), key=lambda i: (ready_us[i], -i))]
