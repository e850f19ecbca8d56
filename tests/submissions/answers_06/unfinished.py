# base: student
# loses: server_or_ring
"""Somebody who came as far as 6.3, and tried 6.6."""


# %% posted_training
def posted_training(weight, gradients, num_gradients, lr):
    weight = weight.clone()
    if dist.get_rank() > 0:
        for gradient in gradients:
            dist.send(gradient, dst=0)
    else:
        gradient = torch.empty_like(weight)
        for worker in range(1, dist.get_world_size()):
            for _ in range(num_gradients):
                dist.recv(gradient, src=worker)
                weight -= lr * gradient
    dist.broadcast(weight, src=0)
    return weight


# %% async_server
class AsyncServer(Server):
    def push(self, worker, version, gradient):
        with self.lock:
            self.updates.append(Update(len(self.updates), worker, version, self.version))
            self.weight -= self.lr * gradient
            self.version += 1
            return self.version, self.weight.clone()


# %% server_or_ring
def server_seconds(num_bytes, num_workers, num_servers, latency_s, bandwidth_Bps):
    return 2 * (latency_s + num_workers / num_servers * num_bytes / bandwidth_Bps)


def largest_share(num_workers, num_servers):
    return min(1.0, (num_workers - 1) / num_workers / max(1, num_workers / num_servers))
