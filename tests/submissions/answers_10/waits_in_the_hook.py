# base: solution
# loses: compression_hook
"""A hook whose gradients are right, and behind which backward stands still: it waits for each work by itself."""


# %% compression_hook
def compression_hook(state, bucket):
    n, feedback = dist.get_world_size(state.group), state.feedback
    packet = feedback.compress(bucket.buffer() / n, (bucket.index(), bucket.buffer().numel()))
    state.sent_bytes += wire_bytes(packet)
    mean = Future()
    if feedback.compressor.addable:
        work = dist.all_reduce(packet.parts[0], group=state.group, async_op=True)
        work.wait()
        mean.set_result(feedback.decompress(packet))
        return mean
    gathered = [[torch.empty_like(part) for _ in range(n)] for part in packet.parts]
    for of_ranks, part in zip(gathered, packet.parts):
        dist.all_gather(of_ranks, part, group=state.group)
    mean.set_result(sum(feedback.decompress(replace(packet, parts=parts)) for parts in zip(*gathered)))
    return mean
