"""What published programs do otherwise than the program of this package: read in their sources, or in other runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Program:
    """How a program differs from plain torch.

    Attributes:
        name: What it is called.
        source: Where all this was read.
        layer_s: What its host takes to issue a layer forward and backward; 0 for what the kernels' launches take.
        step_s: What its host takes for a step besides: clipping, the optimizer's tensors one by one, the loss, its log.
        tensor_s: What each tensor rank adds to layer_s where the pipeline leaves its node.
        shapes_first: Whether a stage sends the shape of what it sends, which the receiver's host waits for and reads.
        polls_s: How long its host sleeps each time it asks whether a message with a shape has passed; 0 where it does
            not ask. It sends and receives one after the other then.
        keeps_gathered: Whether tensor ranks keep the tokens that they gathered for backward, and do not gather again.
        keeps_logits: Whether logits in float32 stay while the loss makes others of them.
        gradients_together: Whether gradients are added to those of the step when backward is over, and not one by one.
        reducer_buckets: Whether replicas without ZeRO hold gradients once more, in the buckets of DDP's reducer.
        attention_share: Share of the device's 16-bit peak that its attention kernel reaches, where it is not
            FlashAttention-2.
    """

    name: str
    source: str
    layer_s: float = 0.0
    step_s: float = 0.0
    tensor_s: float = 0.0
    shapes_first: bool = False
    polls_s: float = 0.0
    keeps_gathered: bool = False
    keeps_logits: bool = False
    gradients_together: bool = False
    reducer_buckets: bool = False
    attention_share: Mapping[str, float] = field(default_factory=lambda: _NONE)


PLAIN = Program("plain torch", "labkit/planned_steps/program.py")

NANOTRON = Program(
    "nanotron",
    "nanotron at commit 0e0a27ea (February 2025): parallel/pipeline_parallel/p2p.py, parallel/tensor_parallel/"
    "functional.py, optim/gradient_accumulator.py, trainer.py. layer_s, step_s, and keeps_gathered, which its "
    "configuration decides: from published runs without a pipeline; tensor_s: from runs of one replica; "
    "docs/planner.md",
    layer_s=4.48e-3,
    step_s=0.110,
    tensor_s=2.13e-3,
    shapes_first=True,
    keeps_gathered=True,
    keeps_logits=True,
    gradients_together=True,
    reducer_buckets=True,
)

POLLING_NANOTRON = replace(
    NANOTRON,
    name="nanotron, polling",
    source="nanotron's branch nouamane/bench2 at commit 67c5ebb6 (December 2024), parallel/pipeline_parallel/p2p.py, "
    "block.py, state.py: an activation, its mask and its gradient are three messages each, and for the first two of "
    "three the host does `while not work.is_completed(): time.sleep(0.1)`",
    polls_s=0.1,
)

FOUNDRY = Program(
    "llm-foundry",
    "attention is Triton's version of the first FlashAttention (submit_benchmarks.py of October 2023 and January "
    "2024), which reaches 25 to 40 % of the peak on A100s; FlashAttention-2 is about twice as quick (Dao 2023, "
    "arXiv 2307.08691), which halves its 35 % on H100s",
    attention_share=MappingProxyType({"a100": 0.325, "h100": 0.175}),
)

PROGRAMS: Mapping[str, Program] = MappingProxyType(
    {each.name: each for each in (PLAIN, NANOTRON, POLLING_NANOTRON, FOUNDRY)}
)
