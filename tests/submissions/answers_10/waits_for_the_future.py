# base: solution
# loses: compression_hook
"""A hook that starts everything and then waits for its own future, as the documentation's examples do: no overlap."""


# %% compression_hook
def compression_hook(state, bucket):
    n, feedback = dist.get_world_size(state.group), state.feedback
    packet = feedback.compress(bucket.buffer() / n, (bucket.index(), bucket.buffer().numel()))
    state.sent_bytes += wire_bytes(packet)
    if feedback.compressor.addable:
        future = dist.all_reduce(packet.parts[0], group=state.group, async_op=True).get_future()
        future.wait()
        return future.then(lambda _: feedback.decompress(packet))
    gathered = [[torch.empty_like(part) for _ in range(n)] for part in packet.parts]
    works = [
        dist.all_gather(of_ranks, part, group=state.group, async_op=True)
        for of_ranks, part in zip(gathered, packet.parts)
    ]
    mean = torch.futures.collect_all([work.get_future() for work in works]).then(
        lambda _: sum(feedback.decompress(replace(packet, parts=parts)) for parts in zip(*gathered))
    )
    mean.wait()
    return mean
