"""place_keys and hot_keys: where keys live, and what copies of hot keys do to the loads."""

from __future__ import annotations

import torch
from torch import Tensor


def keys_near_a_bound(num_servers: int) -> Tensor:
    """Return keys whose hash is the largest of a server's, or nearly: float32 puts them on the next one."""
    back = pow(2654435761, -1, 2**32)
    largest = [-(-(server + 1) * 2**32 // num_servers) - 1 for server in range(num_servers)]
    keys = [(hashed - below) * back % 2**32 for hashed in largest for below in range(20)]
    return torch.tensor([key for key in keys if key < 2**31])
