"""What matrix products of a size reach on a device, from published measurements.

A product of 16-bit matrices reaches less than the best one where it is small: few tiles for the processors, and short
sums that pay for filling them. Two numbers say which it is, how many sums it has and how long each is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_NEAR, _AT = 4, 0.05


@dataclass(frozen=True)
class ProductRates:
    """Rates of matrix products with 16-bit operands, under load.

    Attributes:
        points: Length of each sum, number of sums, and the operations a second that such a product reached.
        source: Where they were read.
    """

    points: tuple[tuple[int, int, float], ...]
    source: str

    def flops_per_second(self, sums: int, length: float) -> float:
        """Return what a product reaches: the mean of the nearest points, those nearer counting more.

        Args:
            sums: Numbers that the product yields, of all matrices of a batch together.
            length: Of each sum.

        Products larger than any that was measured count as the largest.
        """
        at = [
            min(max(math.log2(max(value, 1)), least), most)
            for value, (least, most) in zip((length, sums), self._ranges(), strict=True)
        ]
        near = sorted(
            ((math.log2(point[0]) - at[0]) ** 2 + (math.log2(point[1]) - at[1]) ** 2, point[2]) for point in self.points
        )[:_NEAR]
        weights = [1 / (away + _AT) for away, _ in near]
        logs = sum(weight * math.log(rate) for weight, (_, rate) in zip(weights, near, strict=True))
        return math.exp(logs / sum(weights))

    def _ranges(self) -> tuple[tuple[float, float], tuple[float, float]]:
        lengths, sums = ([math.log2(point[place]) for point in self.points] for place in (0, 1))
        return (min(lengths), max(lengths)), (min(sums), max(sums))


def _grid(
    scale: float, sums: tuple[int, ...], rows: dict[int, tuple[float, ...]]
) -> tuple[tuple[int, int, float], ...]:
    return tuple(
        (length, 2**power, scale * tera * 1e12)
        for length, row in rows.items()
        for power, tera in zip(sums, row, strict=True)
    )


_BEST, _UNDER_LOAD = 793.0, 720.0

H100 = ProductRates(
    _grid(
        _UNDER_LOAD / _BEST, (18, 20, 22, 24, 26),
        {
            256: (22, 82, 213, 394, 504),
            512: (41, 146, 344, 543, 620),
            1024: (71, 236, 490, 677, 726),
            2048: (115, 350, 630, 730, 765),
            4096: (175, 470, 738, 779, 793),
        },
    ),
    "by size: an H100's bfloat16 products in XLA's table of measurements (xla/service/gpu/model/"
    "matmul_interpolator_data.h, sm_90, 2025), one alone at a time; all times 720 / 793, since products of training's "
    "shapes reach 720 TFLOP/s (SemiAnalysis, MI300X vs H100 vs H200, December 2024)",
)  # fmt: skip

A100 = ProductRates(
    tuple(
        (length, sums, tera * 1e12)
        for length, sums, tera in (
            (1024, 1024**2, 119.4), (1024, 1024 * 2145, 132.8), (2048, 2048**2, 221.8), (4096, 4096**2, 228.0),
            (8192, 8192**2, 253.7), (12288, 6144 * 12288, 250.8), (16384, 16384**2, 256.5),
        )
    ),
    "by size: cuBLASLt FP16 after 10,000 products (Azure AI-benchmarking-guide, ND A100 v4 results, but for the thin "
    "one that memory limits)",
)  # fmt: skip
