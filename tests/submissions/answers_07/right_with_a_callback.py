# base: solution
"""Right in another style: a future of its own that a callback completes, and a list of what was applied."""


# %% replicated_server
class Replica(Server):
    def __init__(self, weight, num_workers, lr, backup=None):
        super().__init__(weight, num_workers, lr)
        self.next, self.seen = backup, []

    @rpc.functions.async_execution
    def push(self, worker, number, gradient):
        mine = Future()
        with self.lock:
            if [worker, number] not in self.seen:
                self.seen.append([worker, number])
                self.weight.sub_(gradient, alpha=self.lr)
                self.version += 1
            version = self.version
        if self.next is None:
            mine.set_result(version)
            return mine

        def heard(answer):
            try:
                answer.value()
            except Exception as error:
                mine.set_exception(RuntimeError(str(error)))
            else:
                mine.set_result(version)

        self.next.push(worker, number, gradient).add_done_callback(heard)
        return mine


def push_safely(replicas, worker, number, gradient, place=0):
    if place == len(replicas):
        raise RuntimeError("none is left")
    try:
        replicas[place].push(worker, number, gradient).wait()
    except RuntimeError:
        return push_safely(replicas, worker, number, gradient, place + 1)
    return place
