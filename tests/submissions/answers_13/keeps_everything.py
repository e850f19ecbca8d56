# base: solution
# loses: sharded_optimizer, memory_plan
"""The optimizer keeps all state on every rank."""


# %% sharded_optimizer
class ShardedOptimizer:
    def __init__(self, params, optimizer_cls, **kwargs):
        self.optimizer = optimizer_cls(params, **kwargs)
        self.param_groups = self.optimizer.param_groups

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad()

    def step(self):
        self.optimizer.step()


# %% memory_plan
def memory_plan(job):
    return StepPlan(1, (False,) * job.num_layers, (False,) * job.num_layers)
