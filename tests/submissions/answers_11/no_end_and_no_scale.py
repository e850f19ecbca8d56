# base: solution
# loses: prefetching_loader, recompute_plan, loss_scaling
"""A loader that has no end, steps that are never skipped, and a plan that keeps everything."""


# %% prefetching_loader
def prefetched(batches, depth=2):
    ready = queue.Queue(maxsize=depth)

    def fetch():
        for batch in batches:
            ready.put(batch)

    threading.Thread(target=fetch, daemon=True).start()
    while True:
        yield ready.get()


# %% loss_scaling
class LossScaler:
    def __init__(self, scale=2.0**16, growth_interval=2000):
        self.scale, self.growth_interval, self.good_steps = scale, growth_interval, 0

    def scaled(self, loss):
        return loss * self.scale

    def step(self, optimizer):
        for group in optimizer.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    each.grad /= self.scale
        optimizer.step()
        return True


# %% recompute_plan
def recompute_plan(sizes_mb, times_us, limit_mb):
    return list(range(len(sizes_mb)))
