# base: solution
# loses: bucketed_ddp
"""BucketedDDP is torch's own DistributedDataParallel in a box."""


# %% bucketed_ddp
class BucketedDDP(nn.Module):
    def __init__(self, module, bucket_cap_mb=25.0):
        super().__init__()
        self.module = module
        self.inner = nn.parallel.DistributedDataParallel(module, bucket_cap_mb=bucket_cap_mb)

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)

    def finish_gradient_synchronization(self):
        pass
