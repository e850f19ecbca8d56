# base: solution
"""Right, with locks of its own making: re-entrant ones, a lock for each part, and `acquire` by hand."""


# %% sync_server
import threading


class SyncServer(Server):
    def __init__(self, weight, num_workers, lr):
        super().__init__(weight, num_workers, lr)
        self.lock = threading.RLock()
        self.step = ([], Future())

    @rpc.functions.async_execution
    def push(self, worker, version, gradient):
        self.lock.acquire()
        try:
            gradients, future = self.step
            self.updates.append(Update(len(self.updates), worker, version, self.version))
            gradients.append(gradient)
            if len(gradients) == self.num_workers:
                self.step = ([], Future())
                self.weight.add_(sum(gradients), alpha=-self.lr / len(gradients))
                self.version += 1
                future.set_result(self.pull())
            return future
        finally:
            self.lock.release()


# %% async_server
import threading


class AsyncServer(Server):
    def __init__(self, weight, num_workers, lr):
        super().__init__(weight, num_workers, lr)
        self.lock = threading.RLock()

    def push(self, worker, version, gradient):
        with self.lock:
            now, weight = self.pull()
            self.updates.append(Update(now, worker, version, now))
            self.weight, self.version = weight - self.lr * gradient, now + 1
            return self.pull()


# %% bounded_server
import threading


class BoundedServer(Server):
    def __init__(self, weight, num_workers, lr, bound):
        super().__init__(weight, num_workers, lr)
        self.lock, self.bound = threading.RLock(), bound
        self.clock = torch.zeros(num_workers, dtype=torch.int64)
        self.gone = torch.zeros(num_workers, dtype=torch.bool)
        self.waiting = [None] * num_workers

    @rpc.functions.async_execution
    def push(self, worker, version, gradient):
        with self.lock:
            self.updates.append(Update(len(self.updates), worker, version, self.version))
            self.weight.sub_(self.lr * gradient)
            self.version += 1
            self.clock[worker] += 1
            future = self.waiting[worker] = Future()
            self.answer()
            return future

    def leave(self, worker):
        with self.lock:
            self.gone[worker] = True
            self.answer()

    def answer(self):
        there = self.clock[~self.gone]
        slowest = there.min().item() if len(there) else self.clock.max().item()
        for worker, future in enumerate(self.waiting):
            if future is not None and self.clock[worker] - slowest <= self.bound:
                self.waiting[worker] = None
                future.set_result(self.pull())
