"""What labkit itself knows of right answers is not there where points are earned."""

from __future__ import annotations

import pytest

from grading.conftest import SANDBOX, Probe

PROGRAM = "def double(x):\n    from {module} import {name}\n    return 2 * x\n"


@pytest.mark.skipif(SANDBOX == "none", reason="needs a sandbox: bubblewrap (labkit doctor says why not)")
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("labkit.plans.reference.rings", "ring_plan"),
        ("labkit.plans.reference.schedules", "one_f_one_b"),
        ("labkit.plans.reference.bucket_plans", "bucket_plan"),
        ("labkit.checks.lesson_02.ring", "sum_case"),
    ],
)
def test_a_rank_of_a_hidden_case_cannot_import_what_knows_the_answer(probe: Probe, module: str, name: str) -> None:
    outcome = probe("double", {"double": PROGRAM.format(module=module, name=name)})
    assert outcome.failure is not None and "No module named" in str(outcome.failure["message"])
    assert str(outcome.failure["message"]).endswith("so it is not there where points are earned.")
    assert not outcome.results
