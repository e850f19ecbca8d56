# base: solution
"""Right answers that look otherwise: a loop for the gradients, semaphores in place of a queue, a table of plans."""


# %% starved_step
labkit.answer("starved_step", waits_in="next batch", share=0.36, every=1, cause="each batch loads slower than it trains")


# %% autocast
class Autocast(TorchFunctionMode):
    def __init__(self, dtype=torch.bfloat16):
        super().__init__()
        self.wanted = dict.fromkeys(IN_16_BITS, dtype) | dict.fromkeys(IN_32_BITS, torch.float32)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        named = dict(kwargs or {})
        if function in self.wanted:
            dtype = self.wanted[function]
            fit = lambda x: x.to(dtype) if torch.is_tensor(x) and torch.is_floating_point(x) else x  # noqa: E731
            args = [fit(x) for x in args]
            named = {key: fit(x) for key, x in named.items()}
        return function(*args, **named)


# %% loss_scaling
class LossScaler:
    def __init__(self, scale=2.0**16, growth_interval=2000):
        self.scale, self.growth_interval, self.good_steps = scale, growth_interval, 0

    def scaled(self, loss):
        return self.scale * loss

    def step(self, optimizer):
        good = True
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(1 / self.scale)
                    good = good and math.isfinite(parameter.grad.abs().sum())
        if good:
            optimizer.step()
            self.good_steps += 1
            if self.good_steps % self.growth_interval == 0:
                self.scale = self.scale * 2.0
        else:
            self.scale, self.good_steps = self.scale * 0.5, 0
        return good


# %% prefetching_loader
def prefetched(batches, depth=2):
    room, there, left = threading.Semaphore(depth), threading.Semaphore(0), []
    closed = threading.Event()

    def fetch():
        try:
            for batch in batches:
                room.acquire()
                if closed.is_set():
                    return
                left.append((batch, None))
                there.release()
        except BaseException as failure:
            left.append((None, failure))
        else:
            left.append((None, StopIteration()))
        there.release()

    thread = threading.Thread(target=fetch)
    thread.start()
    try:
        while True:
            there.acquire()
            batch, over = left.pop(0)
            if isinstance(over, StopIteration):
                break
            if over is not None:
                raise over
            room.release()
            yield batch
    finally:
        closed.set()
        room.release()
        thread.join()


# %% recompute_plan
def recompute_plan(sizes_mb, times_us, limit_mb):
    begun = [{0: (0, ())}]  # for each tensor, by what is held before it: the longest time kept, and which tensors
    for place, (size, time_us) in enumerate(zip(sizes_mb, times_us)):
        begun.append({})
        for first in range(place + 1):
            stretch = sum(sizes_mb[first:place])
            for held, (saved, kept) in begun[first].items():
                if held + stretch <= limit_mb and held + size <= limit_mb:
                    found = (saved + time_us, (*kept, place))
                    begun[-1][held + size] = max(begun[-1].get(held + size, found), found)
    ends = [
        way
        for first, ways in enumerate(begun)
        for held, way in ways.items()
        if held + sum(sizes_mb[first:]) <= limit_mb
    ]
    return list(max(ends)[1])
