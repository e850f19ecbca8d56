# base: solution
# loses: error_feedback, compression_hook
"""Error feedback without feedback, and a hook that goes around it."""


# %% error_feedback
class ErrorFeedback:
    def __init__(self, compressor):
        self.compressor = compressor
        self.residuals = {}

    def compress(self, gradient, key=0):
        packet = self.compressor.compress(gradient)
        self.residuals[key] = gradient - self.compressor.decompress(packet)
        return packet

    def decompress(self, packet):
        return self.compressor.decompress(packet)


# %% compression_hook
def compression_hook(state, bucket):
    n = dist.get_world_size(state.group)
    packet = state.feedback.compressor.compress(bucket.buffer() / n)
    state.sent_bytes += wire_bytes(packet)
    gathered = [[torch.empty_like(part) for _ in range(n)] for part in packet.parts]
    for of_ranks, part in zip(gathered, packet.parts):
        dist.all_gather(of_ranks, part, group=state.group)
    future = Future()
    future.set_result(sum(state.feedback.decompress(replace(packet, parts=parts)) for parts in zip(*gathered)))
    return future
