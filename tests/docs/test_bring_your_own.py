"""The page on one's own programs shows what its runs give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import labkit
from labkit.timeline.training import training
from labkit.units import format_bytes, format_percent, format_time

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "bring_your_own.md").read_text(encoding="utf-8")
PROGRAM = ROOT / "tests" / "scripts" / "programs" / "llama3.py"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
@pytest.mark.parametrize(("parameters", "ranks"), [("8 B", 64), ("70 B", 512)])
def test_llama_takes_what_the_table_shows(parameters: str, ranks: int) -> None:
    script = labkit.script(PROGRAM, parameters.replace(" ", "").lower())
    run = labkit.run(script, on=labkit.virtual(ranks, gpu="h100", shapes=True, fold=1), echo=False, timeout=None)
    assert run.timeline is not None
    found = training(run.timeline)
    assert found.step_ns is not None and found.exposed_ns is not None and found.peak_bytes is not None
    shown = [
        format_time(found.step_ns),
        format_percent(found.exposed_ns / found.step_ns),
        format_bytes(found.peak_bytes),
    ]
    assert f"| {parameters} | {ranks}, folded | {' | '.join(shown)} |" in PAGE


def test_the_price_of_ranks_that_do_not_run_is_the_one_measured() -> None:
    measured = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
    (ratio,) = re.findall(r"^\| 4,096 ranks of which 64 run, over 64 ranks.+?\| ([\d.]+) \|", measured, re.MULTILINE)
    assert f"took {float(ratio):.2f} times the processor time of 64" in " ".join(PAGE.split())
