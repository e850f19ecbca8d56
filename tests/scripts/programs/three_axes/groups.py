"""The process groups of this rank, made once and read everywhere: module state, as large programs keep it."""

import torch.distributed as dist

manager = None


class GroupManager:
    def __init__(self, tp, pp, dp):
        rank, size = dist.get_rank(), dist.get_world_size()
        assert tp * pp * dp == size
        self.tp_size, self.pp_size, self.dp_size = tp, pp, dp
        self.tp_rank, self.pp_rank, self.dp_rank = rank % tp, rank // tp % pp, rank // (tp * pp)
        at = lambda d, p, t: (d * pp + p) * tp + t  # noqa: E731
        for d in range(dp):
            for p in range(pp):
                group = dist.new_group([at(d, p, t) for t in range(tp)])
                if (d, p) == (self.dp_rank, self.pp_rank):
                    self.tp_group = group
        for p in range(pp):
            for t in range(tp):
                group = dist.new_group([at(d, p, t) for d in range(dp)])
                if (p, t) == (self.pp_rank, self.tp_rank):
                    self.dp_group = group
        self.previous = at(self.dp_rank, self.pp_rank - 1, self.tp_rank) if self.pp_rank else None
        self.next = at(self.dp_rank, self.pp_rank + 1, self.tp_rank) if self.pp_rank < pp - 1 else None


def setup(tp, pp, dp):
    global manager
    manager = GroupManager(tp, pp, dp)
