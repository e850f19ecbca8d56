# base: solution
"""Residuals under the bucket's number, which another bucket has after the first step; and a sum called mean."""


# %% compression_hook
def compression_hook(state, bucket):
    n = dist.get_world_size(state.group)
    packet = state.feedback.compress(bucket.buffer() / n, bucket.index())
    state.sent_bytes += wire_bytes(packet)
    mean = mean_of_packets(state.feedback, packet, state.group) * n
    future = Future()
    future.set_result(mean)
    return future
