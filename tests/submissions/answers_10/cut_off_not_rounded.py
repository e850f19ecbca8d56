# base: solution
# loses: fewer_bits
"""Eight bits are cut off, not rounded: twice the error, here and in all that compresses with it."""


# %% fewer_bits
def wire_bytes(packet):
    return sum(part.nbytes for part in packet.parts)


class Cast:
    addable = True

    def __init__(self, dtype=torch.bfloat16):
        self.dtype = dtype

    def compress(self, gradient):
        largest = torch.finfo(self.dtype).max
        return Packet((gradient.clamp(-largest, largest).to(self.dtype),), gradient.shape, gradient.dtype)

    def decompress(self, packet):
        return packet.parts[0].to(packet.dtype).view(packet.shape)


class Int8:
    addable = False

    def compress(self, gradient):
        scale = (gradient.abs().max() / 127).to(torch.float32).clamp(min=1e-30).reshape(1)
        return Packet(((gradient / scale).to(torch.int8), scale), gradient.shape, gradient.dtype)

    def decompress(self, packet):
        codes, scale = packet.parts
        return (codes.to(packet.dtype) * scale.to(packet.dtype)).view(packet.shape)
