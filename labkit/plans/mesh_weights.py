"""A weight of a stage on a mesh: this rank's parameter, and who else holds it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

CUT, WHOLE, TOKENS = "cut", "whole", "tokens"


@dataclass(frozen=True)
class Weight:
    """A parameter of a stage, and who else holds it.

    Attributes:
        parameter: What this rank holds of it.
        tensor: What the other tensor ranks hold. "cut": other pieces of it. "whole": the same, and each has computed
            its whole gradient. "tokens": the same, but each has seen its own tokens only (sequence parallelism).
        tied: Whether the first and the last stage both hold it, as the embedding and the output layer.
    """

    parameter: nn.Parameter
    tensor: str
    tied: bool = False
