# base: solution
# loses: sync_server, async_server
"""Servers that read, compute and write back without a lock."""


# %% sync_server
class SyncServer(Server):
    def __init__(self, weight, num_workers, lr):
        super().__init__(weight, num_workers, lr)
        self.total, self.count, self.future = torch.zeros_like(weight), 0, Future()

    @rpc.functions.async_execution
    def push(self, worker, version, gradient):
        self.updates.append(Update(len(self.updates), worker, version, self.version))
        total = self.total + gradient
        self.total = total
        self.count += 1
        future = self.future
        if self.count == self.num_workers:
            self.weight = self.weight - self.lr * self.total / self.num_workers
            self.version += 1
            self.total, self.count, self.future = torch.zeros_like(self.weight), 0, Future()
            future.set_result((self.version, self.weight.clone()))
        return future


# %% async_server
class AsyncServer(Server):
    def push(self, worker, version, gradient):
        self.updates.append(Update(len(self.updates), worker, version, self.version))
        weight = self.weight - self.lr * gradient
        self.weight = weight
        self.version += 1
        return self.version, self.weight.clone()
