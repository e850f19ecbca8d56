"""What all tests share.

Property tests draw the same examples on every machine, and none is too slow: a loaded machine stops for seconds.
``pytest --hypothesis-profile=search`` draws others, and many of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.submissions.making import write

settings.register_profile(
    "same", deadline=None, derandomize=True, database=None, print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.register_profile("search", settings.get_profile("same"), derandomize=False, max_examples=5_000)
settings.load_profile("same")


@pytest.fixture(scope="session")
def submissions(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns the folder of a lesson's submissions: workers share it, the first to ask writes it."""
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "submissions"
    shared.mkdir(exist_ok=True)

    def made(number: str) -> Path:
        if not (shared / number).is_dir():
            scratch = tmp_path_factory.mktemp(f"submissions-{number}-") / number
            write(number, scratch)
            with contextlib.suppress(OSError):  # another worker was first, and wrote the same
                scratch.rename(shared / number)
        return shared / number

    return made
