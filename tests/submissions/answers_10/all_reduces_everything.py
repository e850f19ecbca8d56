# base: solution
# loses: compression_hook
"""An all_reduce of whatever is in the packet."""


# %% compression_hook
def compression_hook(state, bucket):
    n = dist.get_world_size(state.group)
    packet = state.feedback.compress(bucket.buffer() / n, (bucket.index(), len(bucket.buffer())))
    state.sent_bytes += wire_bytes(packet)
    values = packet.parts[0] if state.feedback.compressor.addable else packet.parts[-1]
    work = dist.all_reduce(values, group=state.group, async_op=True)
    return work.get_future().then(lambda _: state.feedback.decompress(packet))
