# base: solution
# loses: flat_shards
"""Gradients are added up, not averaged: what stands on it still passes with the reference answer."""


# %% flat_shards
def rows_of(tensor):
    flat = tensor.detach().reshape(-1)
    missing = -len(flat) % dist.get_world_size()
    return nn.functional.pad(flat, (0, missing)).view(dist.get_world_size(), -1)


def shard_of(tensor):
    return rows_of(tensor)[dist.get_rank()].clone()


def start_gather(shards, tensors):
    sizes = [len(shard) for shard in shards]
    mine = torch.cat([shard.detach().to(tensors[0].dtype) for shard in shards])
    everyones = mine.new_empty(dist.get_world_size(), sum(sizes))
    work = ALL_GATHER(everyones.view(-1), mine, async_op=True)

    def finish():
        work.wait()
        for column, tensor in zip(everyones.split(sizes, 1), tensors, strict=True):
            tensor.data.copy_(column.reshape(-1)[: tensor.numel()].view(tensor.shape))

    return finish


def start_scatter(tensors):
    rows = torch.cat([rows_of(tensor) for tensor in tensors], 1)
    mine = rows.new_empty(rows.shape[1])
    work = REDUCE_SCATTER(mine, rows.view(-1), async_op=True)

    def finish():
        work.wait()
        return list(mine.split([-(-tensor.numel() // len(rows)) for tensor in tensors]))

    return finish
