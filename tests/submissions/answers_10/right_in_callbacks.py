# base: solution
"""Right: waits only where the program goes on meanwhile, in callbacks, and completes a future of its own there."""


# %% compression_hook
def compression_hook(state, bucket):
    n, feedback = dist.get_world_size(state.group), state.feedback
    packet = feedback.compress(bucket.buffer() / n, (bucket.index(), bucket.buffer().numel()))
    state.sent_bytes += wire_bytes(packet)
    mean = Future()
    if feedback.compressor.addable:
        work = dist.all_reduce(packet.parts[0], group=state.group, async_op=True)

        def unpack(future):
            (total,) = future.wait()
            mean.set_result(feedback.decompress(replace(packet, parts=(total, *packet.parts[1:]))))

        work.get_future().add_done_callback(unpack)
        return mean
    gathered = [[torch.empty_like(part) for _ in range(n)] for part in packet.parts]
    works = [
        dist.all_gather(of_ranks, part, group=state.group, async_op=True)
        for of_ranks, part in zip(gathered, packet.parts)
    ]

    def add_up(futures):
        for future in futures.wait():
            future.wait()
        mean.set_result(sum(feedback.decompress(replace(packet, parts=parts)) for parts in zip(*gathered)))

    torch.futures.collect_all([work.get_future() for work in works]).add_done_callback(add_up)
    return mean
