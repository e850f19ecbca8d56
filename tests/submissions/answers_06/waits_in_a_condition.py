# base: solution
# loses: sync_server
"""A synchronous server whose push waits in a Condition instead of returning a future."""


# %% sync_server
import threading


class SyncServer(Server):
    def __init__(self, weight, num_workers, lr):
        super().__init__(weight, num_workers, lr)
        self.full, self.gradients = threading.Condition(self.lock), []

    def push(self, worker, version, gradient):
        with self.full:
            self.updates.append(Update(len(self.updates), worker, version, self.version))
            self.gradients.append(gradient)
            if len(self.gradients) == self.num_workers:
                self.weight -= self.lr * torch.stack(self.gradients).mean(0)
                self.version += 1
                self.gradients = []
                self.full.notify_all()
            else:
                now = self.version
                self.full.wait_for(lambda: self.version > now)
            return self.version, self.weight.clone()
