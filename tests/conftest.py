"""Property tests draw the same examples on every machine, and none is too slow: a loaded machine stops for seconds.

``pytest --hypothesis-profile=search`` draws others, and many of them.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "same", deadline=None, derandomize=True, database=None, print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.register_profile("search", settings.get_profile("same"), derandomize=False, max_examples=5_000)
settings.load_profile("same")
