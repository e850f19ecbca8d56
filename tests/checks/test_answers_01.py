"""The four proofs of lesson 01."""

from __future__ import annotations

from typing import ClassVar

from tests.checks.four_proofs import FourProofs


class TestLesson01(FourProofs):
    number = "01"
    main = frozenset({"replicate", "mini_data_parallel"})
    slow = frozenset({"replicate", "parallel_apply", "mini_data_parallel"})
    sample = frozenset(
        {
            ("replicate", "a bare deepcopy"),
            ("replicate", "buffers not copied"),
            ("parallel_apply", "append"),
            ("parallel_apply", "as it was"),
            ("mini_data_parallel", "arguments only"),
            ("mini_data_parallel", "replicas in __init__"),
        }
    )
    style_sample = frozenset({("right_as_torch_does", "mini_data_parallel"), ("right_in_few_lines", "parallel_apply")})
    stub_sample: ClassVar[frozenset[str]] = frozenset({"replicate", "mini_data_parallel"})
