# base: solution
"""Right: a bucket keeps its number as the key, and its residual goes when DDP builds the bucket anew."""


# %% compression_hook
def compression_hook(state, bucket):
    n, feedback, key = dist.get_world_size(state.group), state.feedback, bucket.index()
    if key in feedback.residuals and len(feedback.residuals[key]) != len(bucket.buffer()):
        del feedback.residuals[key]
    packet = feedback.compress(bucket.buffer() / n, key)
    state.sent_bytes += wire_bytes(packet)
    if feedback.compressor.addable:
        work = dist.all_reduce(packet.parts[0], group=state.group, async_op=True)
        return work.get_future().then(lambda _: feedback.decompress(packet))
    gathered = [[torch.empty_like(part) for _ in range(n)] for part in packet.parts]
    works = [
        dist.all_gather(of_ranks, part, group=state.group, async_op=True)
        for of_ranks, part in zip(gathered, packet.parts)
    ]

    def add_up(_):
        return sum(feedback.decompress(replace(packet, parts=parts)) for parts in zip(*gathered))

    return torch.futures.collect_all([work.get_future() for work in works]).then(add_up)
