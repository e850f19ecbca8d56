# base: solution
# loses: sparse_rows, replicated_server
"""A primary that does not wait for its backup, and rows pushed without a sum."""


# %% sparse_rows
def pull_rows(servers, place, keys):
    home = place(keys)
    rows = None
    for number, server in enumerate(servers):
        if (home == number).any():
            answer = server.rpc_sync().pull(keys[home == number])
            rows = answer.new_empty(len(keys), answer.shape[1]) if rows is None else rows
            rows[home == number] = answer
    return rows


def push_rows(servers, place, keys, gradients):
    home = place(keys)
    for number, server in enumerate(servers):
        if (home == number).any():
            server.rpc_sync().push(keys[home == number], gradients[home == number])


# %% replicated_server
class Replica(Server):
    def __init__(self, weight, num_workers, lr, backup=None):
        super().__init__(weight, num_workers, lr)
        self.backup, self.applied = backup, set()

    @rpc.functions.async_execution
    def push(self, worker, number, gradient):
        with self.lock:
            if (worker, number) not in self.applied:
                self.applied.add((worker, number))
                self.weight -= self.lr * gradient
                self.version += 1
            version = self.version
        if self.backup is not None:
            self.backup.push(worker, number, gradient)
        done = Future()
        done.set_result(version)
        return done


def push_safely(replicas, worker, number, gradient):
    for place, replica in enumerate(replicas):
        try:
            replica.push(worker, number, gradient).wait()
            return place
        except RuntimeError:
            pass
    raise RuntimeError("none")
