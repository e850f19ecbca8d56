"""The four proofs of lesson 01."""

from __future__ import annotations

from typing import ClassVar

from tests.checks.four_proofs import FourProofs


class TestLesson01(FourProofs):
    number = "01"
    main = frozenset({"1.3", "1.5"})
    slow = frozenset({"1.3", "1.4", "1.5"})
    sample = frozenset(
        {
            ("1.3", "a bare deepcopy"),
            ("1.3", "buffers not copied"),
            ("1.4", "append"),
            ("1.4", "as it was"),
            ("1.5", "arguments only"),
            ("1.5", "replicas in __init__"),
        }
    )
    style_sample = frozenset({("right_as_torch_does", "1.5"), ("right_in_few_lines", "1.4")})
    stub_sample: ClassVar[frozenset[str]] = frozenset({"1.3", "1.5"})
