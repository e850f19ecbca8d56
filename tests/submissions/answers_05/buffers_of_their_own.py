# base: solution
# loses: mini_ddp
"""Every rank keeps its own running statistics."""


# %% mini_ddp
class MiniDDP(AccumulatingDDP):
    def finish_gradient_synchronization(self):
        used = torch.tensor([float(p.grad is not None) for p in self.trained])
        for p in self.trained:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        if self.work is None:
            self.launch()
        dist.all_reduce(used)
        super().finish_gradient_synchronization()
        for p, count in zip(self.trained, used.tolist()):
            if count == 0:
                p.grad = None
