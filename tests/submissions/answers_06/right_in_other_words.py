# base: solution
"""Right, in other words: any source, event queues of futures, dictionaries of tensors, loops in place of index_add_."""


# %% posted_training
def posted_training(weight, gradients, num_gradients, lr):
    mine = weight.detach().clone()
    size = dist.get_world_size()
    if dist.get_rank() != 0:
        for each in [dist.isend(gradient, 0) for gradient in gradients]:
            each.wait()
        dist.recv(mine, 0)
        return mine
    for worker in reversed(range(1, size)):
        for _ in range(num_gradients):
            arrived = torch.zeros_like(mine)
            dist.recv(arrived, worker)
            mine = mine - lr * arrived
    for worker in range(1, size):
        dist.send(mine, worker)
    return mine


# %% sync_server
class SyncServer(Server):
    def __init__(self, weight, num_workers, lr):
        super().__init__(weight, num_workers, lr)
        self.total, self.promises = torch.zeros_like(weight), []

    @rpc.functions.async_execution
    def push(self, worker, version, gradient):
        promise = Future()
        with self.lock:
            self.updates.append(Update(len(self.updates), worker, version, self.version))
            self.total = self.total + gradient / self.num_workers
            self.promises.append(promise)
            ready = self.promises if len(self.promises) == self.num_workers else []
            if ready:
                self.weight = self.weight - self.lr * self.total
                self.version += 1
                self.total, self.promises = torch.zeros_like(self.weight), []
            answer = (self.version, self.weight.clone())
        for each in ready:
            each.set_result(answer)
        return promise


# %% async_server
class AsyncServer(Server):
    @rpc.functions.async_execution
    def push(self, worker, version, gradient):
        step = self.lr * gradient
        promise = Future()
        self.lock.acquire()
        try:
            self.updates.append(
                Update(sequence=self.version, worker=worker, version_read=version, version_applied=self.version)
            )
            self.weight.sub_(step)
            self.version = self.version + 1
            answer = [self.version, self.weight.detach().clone()]
        finally:
            self.lock.release()
        promise.set_result(answer)
        return promise


# %% bounded_server
class BoundedServer(Server):
    def __init__(self, weight, num_workers, lr, bound):
        super().__init__(weight, num_workers, lr)
        self.ahead, self.pushes, self.here, self.line = bound, [0] * num_workers, set(range(num_workers)), []

    @rpc.functions.async_execution
    def push(self, worker, version, gradient):
        promise = Future()
        with self.lock:
            self.updates.append(Update(len(self.updates), worker, version, self.version))
            self.weight = self.weight - self.lr * gradient
            self.version += 1
            self.pushes[worker] += 1
            self.line.append((worker, promise))
            ready, answer = self.pick()
        for each in ready:
            each.set_result(answer)
        return promise

    def leave(self, worker):
        with self.lock:
            self.here.discard(worker)
            ready, answer = self.pick()
        for each in ready:
            each.set_result(answer)

    def pick(self):
        def may_go(worker):
            return all(self.pushes[worker] - self.pushes[other] <= self.ahead for other in self.here)

        ready = [promise for worker, promise in self.line if may_go(worker)]
        self.line = [each for each in self.line if not may_go(each[0])]
        return ready, (self.version, self.weight.clone())


# %% backup_workers
class BackupServer(Server):
    def __init__(self, weight, num_workers, lr, needed):
        super().__init__(weight, num_workers, lr)
        self.needed, self.steps = needed, {}

    @rpc.functions.async_execution
    def push(self, worker, version, gradient):
        promise = Future()
        with self.lock:
            if version != self.version:
                ready = [promise]
            else:
                self.updates.append(Update(len(self.updates), worker, version, version))
                step = self.steps.setdefault(version, [])
                step.append((promise, gradient))
                ready = []
                if len(step) == self.needed:
                    for _, each in step:
                        self.weight -= self.lr / self.needed * each
                    self.version += 1
                    ready = [each for each, _ in step]
            answer = self.version, self.weight.clone()
        for each in ready:
            each.set_result(answer)
        return promise


# %% server_or_ring
def server_seconds(num_bytes, num_workers, num_servers, latency_s, bandwidth_Bps):
    servers, workers = num_bytes * num_workers / num_servers, num_bytes
    return 2 * latency_s + 2 * max(servers, workers) / bandwidth_Bps


def largest_share(num_workers, num_servers):
    ring = 1 - 1 / num_workers
    return min(1, ring * min(1, num_servers / num_workers))


# %% staleness_policy
def staleness_policy(crew):
    def takes(plan):
        return milliseconds(policy_of(plan), crew) or float("inf")

    falls = ([rate] + [rate / late for late in range(1, 999)] for rate in (0.75, 1.0, 1.5))
    return min(({"needed": needed, "bound": None, "rates": rates} for rates in falls for needed in (2, 1)), key=takes)
