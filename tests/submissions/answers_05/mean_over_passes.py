# base: solution
# loses: accumulating_ddp
"""Passes are averaged, not added up; a rank without any divides by zero, and all that stands on it fails with it."""


# %% accumulating_ddp
class AccumulatingDDP(OneBucketDDP):
    synchronize, passes = True, 0

    def forward(self, *args, **kwargs):
        self.passes += 1
        return super().forward(*args, **kwargs)

    @contextmanager
    def no_sync(self):
        self.synchronize = False
        try:
            yield
        finally:
            self.synchronize = True

    def on_gradient(self, parameter):
        if self.synchronize:
            super().on_gradient(parameter)

    def launch(self):
        self.flat = self.pack() * (1 / self.passes) / dist.get_world_size()
        self.passes = 0
        self.work = dist.all_reduce(self.flat, async_op=True)
