# base: solution
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
    packet = state.feedback.compressor.compress(bucket.buffer() / dist.get_world_size(state.group))
    state.sent_bytes += wire_bytes(packet)
    mean = mean_of_packets(state.feedback, packet, state.group) * dist.get_world_size(state.group)
    future = Future()
    future.set_result(mean)
    return future
