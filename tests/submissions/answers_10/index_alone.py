# base: solution
# loses: compression_hook
"""Residuals under the bucket's number, which another bucket has after the first step; and everything is gathered."""


# %% compression_hook
def compression_hook(state, bucket):
    n = dist.get_world_size(state.group)
    packet = state.feedback.compress(bucket.buffer() / n, bucket.index())
    state.sent_bytes += wire_bytes(packet)
    gathered = [[torch.empty_like(part) for _ in range(n)] for part in packet.parts]
    for of_ranks, part in zip(gathered, packet.parts):
        dist.all_gather(of_ranks, part, group=state.group)
    future = Future()
    future.set_result(sum(state.feedback.decompress(replace(packet, parts=parts)) for parts in zip(*gathered)))
    return future
