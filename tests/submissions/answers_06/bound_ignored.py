# base: solution
# loses: bounded_server
"""A bounded server that answers everybody at once."""


# %% bounded_server
class BoundedServer(Server):
    def __init__(self, weight, num_workers, lr, bound):
        super().__init__(weight, num_workers, lr)
        self.bound = bound

    @rpc.functions.async_execution
    def push(self, worker, version, gradient):
        future = Future()
        with self.lock:
            self.updates.append(Update(len(self.updates), worker, version, self.version))
            self.weight -= self.lr * gradient
            self.version += 1
            future.set_result((self.version, self.weight.clone()))
        return future

    def leave(self, worker):
        pass
