"""What only Linux lets a test do, in words for where it is skipped."""

from __future__ import annotations

import pytest

from labkit.launch.local import default_start_method

forks = pytest.mark.skipif(
    default_start_method() != "zygote", reason="ranks are forked from a preloaded process on Linux alone"
)
