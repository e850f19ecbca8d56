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


# %% place_keys
def place_by_range(keys, num_keys, num_servers):
    home = torch.empty(num_keys, dtype=torch.int64)
    start = 0
    for server in range(num_servers):
        length = num_keys // num_servers + (server < num_keys % num_servers)
        home[start : start + length] = server
        start += length
    return home[keys]


def place_by_hash(keys, num_servers):
    scrambled = (keys * 2654435761) & (2**32 - 1)
    return (scrambled * num_servers) >> 32


# %% sparse_rows
def pull_rows(servers, place, keys):
    wanted = sorted(set(keys.tolist()))
    home = place(torch.tensor(wanted)).tolist()
    asked = {}
    for key, server in zip(wanted, home):
        asked.setdefault(server, []).append(key)
    calls = [(some, servers[number].rpc_async().pull(torch.tensor(some))) for number, some in asked.items()]
    torch.futures.wait_all([call for _, call in calls])
    rows = {}
    for some, call in calls:
        for key, row in zip(some, call.value()):
            rows[key] = row
    return torch.stack([rows[key] for key in keys.tolist()])


def push_rows(servers, place, keys, gradients):
    totals = {}
    for key, gradient in zip(keys.tolist(), gradients):
        totals[key] = totals[key] + gradient if key in totals else gradient.clone()
    wanted = torch.tensor(list(totals))
    home, calls = place(wanted), []
    for number in home.unique().tolist():
        some = wanted[home == number]
        calls.append(servers[number].rpc_async().push(some, torch.stack([totals[key] for key in some.tolist()])))
    torch.futures.collect_all(calls).wait()


# %% hot_keys
def server_loads(reads, writes, home, num_servers, num_hot):
    order = reads.argsort(descending=True)
    hot, cold = order[:num_hot], order[num_hot:]
    loads = torch.full((num_servers,), (reads[hot].sum() / num_servers + writes[hot].sum()).item(), dtype=torch.float64)
    for key in cold.tolist():
        loads[home[key]] += reads[key] + writes[key]
    return loads


# %% server_hybrid
def hybrid_step(model, optimizer, pull, push, keys, targets, group=None):
    count = dist.get_world_size(group)
    rows = pull(keys.reshape(-1)).reshape(*keys.shape, -1).clone().requires_grad_(True)
    loss = (model(rows) - targets).square().mean()
    parameters = [each for each in model.parameters() if each.requires_grad]
    *layers, of_rows = torch.autograd.grad(loss / count, [*parameters, rows])
    push(keys.reshape(-1), of_rows.reshape(-1, rows.shape[-1]))
    for parameter, gradient in zip(parameters, layers):
        dist.all_reduce(gradient, op=dist.ReduceOp.SUM, group=group)
        parameter.grad = gradient
    optimizer.step()
    return loss.detach()


# %% replicated_server
class Replica(Server):
    def __init__(self, weight, num_workers, lr, backup=None):
        super().__init__(weight, num_workers, lr)
        self.backup, self.known = backup, {}

    @rpc.functions.async_execution
    def push(self, worker, number, gradient):
        with self.lock:
            if number not in self.known.setdefault(worker, set()):
                self.known[worker].add(number)
                self.weight = self.weight - self.lr * gradient
                self.version += 1
            version = self.version
        promise = Future()
        if self.backup is None:
            promise.set_result(version)
            return promise

        def tell(answer):
            answer.wait()
            return version

        return self.backup.push(worker, number, gradient).then(tell)


def push_safely(replicas, worker, number, gradient):
    last = RuntimeError("there is no replica")
    for place in range(len(replicas)):
        try:
            replicas[place].push(worker, number, gradient).wait()
            return place
        except Exception as error:
            last = error
    raise RuntimeError("nobody answered") from last


# %% checkpoints
def save_checkpoint(folder, version, weight):
    torch.save((version, weight), folder / "unfinished")
    written = os.open(folder / "unfinished", os.O_RDONLY)
    os.fsync(written)
    os.close(written)
    (folder / "unfinished").rename(folder / f"version-{version}.pt")


def load_checkpoint(folder):
    for path in sorted(folder.glob("version-*.pt"), key=lambda path: -int(path.stem.split("-")[1])):
        try:
            version, weight = torch.load(path)
            return version, weight
        except Exception as error:
            print(path.name, "is damaged:", type(error).__name__)
    return None
