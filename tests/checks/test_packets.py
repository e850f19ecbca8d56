"""What recognisers of packets do not take for a mistake of another kind."""

from __future__ import annotations

import pytest

from labkit.checks.case import Case, Failure
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.packets import LEFT


@pytest.mark.parametrize(
    ("owner", "is_left_behind"), [("Int8", True), ("Packet", False), ("PacketStandIn", False), ("Tensor", False)]
)
def test_what_a_packet_or_a_tensor_lacks_was_not_left_behind_in_a_compressor(owner: str, is_left_behind: bool) -> None:
    message = f"It raised AttributeError: '{owner}' object has no attribute 'to'."
    failure = Failure("exception", 0, message, "line 38, in decompress:  packet.to(packet.dtype)", "AttributeError")
    assert LEFT.seen is not None and LEFT.seen(Case("one", 1, ({},)), failure, Wire()) is is_left_behind
