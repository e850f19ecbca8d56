# base: solution
"""Right, in other words: shifts, dictionaries of tensors, loops in place of index_add_."""


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


def place_on_circle(keys, points, owners):
    places = torch.bucketize((keys * 2654435761) & (2**32 - 1), points)
    return torch.cat([owners, owners[:1]])[places]


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
