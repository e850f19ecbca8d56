"""Which published figures are those of a GPU, by the name its maker gives it."""

from __future__ import annotations

import re

from labkit.hardware import DEVICES, Device

_NAMES = {
    r"V100-SXM2-32GB": "v100",
    r"A100-SXM4-80GB": "a100",
    r"H100 80GB HBM3": "h100",
    r"H200$": "h200",
    r"B200$": "b200",
    r"T4$": "t4",
    r"L4$": "l4",
    r"RTX 4090$": "rtx4090",
}
"""Of each device of the catalogue its full-size form, which its figures are those of; H100 PCIe is another one."""


def published(model: str) -> Device | None:
    """Return the catalogue's device that a GPU is, or None where the catalogue has another form of it, or none.

    Args:
        model: What the driver calls it, such as "NVIDIA H100 80GB HBM3".
    """
    return next((DEVICES[name] for pattern, name in _NAMES.items() if re.search(pattern, model)), None)
