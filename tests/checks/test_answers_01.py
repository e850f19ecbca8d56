"""The four proofs of lesson 01."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson01(FourProofs):
    number = "01"
    main = frozenset({"scatter_and_gather", "replicate", "parallel_apply"})
    slow = frozenset({"replicate", "parallel_apply"})
    sample = frozenset(
        {
            ("replicate", "a bare deepcopy"),
            ("replicate", "buffers not copied"),
            ("parallel_apply", "append"),
            ("parallel_apply", "asked in the thread"),
        }
    )
    style_sample = frozenset({("right_as_torch_does", "replicate"), ("right_in_few_lines", "parallel_apply")})
