"""What the designs of this lesson train."""

from __future__ import annotations

from labkit.plans.sharded_step import Job

GB = 1_000_000_000
TOKENS = 2048


def job_of(
    *, width: int = 4096, num_layers: int = 32, num_ranks: int = 8, memory_gb: float = 24, link_gb_s: float = 25,
    num_samples: int = 8, tflops: float = 80,
) -> Job:  # fmt: skip
    """Return a job: a transformer on devices of so much memory, so many useful TFLOP/s and so fast a link."""
    params = 13 * width * width
    return Job(
        layer_params=(params,) * num_layers,
        num_ranks=num_ranks,
        memory_bytes=int(memory_gb * GB),
        num_samples=num_samples,
        forward_s=2 * params * TOKENS / (tflops * 1e12),
        link_bytes_s=link_gb_s * GB,
        activation_bytes=(34 * TOKENS * width,) * num_layers,
        input_bytes=(2 * TOKENS * width,) * num_layers,
    )
