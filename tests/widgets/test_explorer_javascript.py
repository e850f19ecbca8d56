"""The explorers' programs: pure functions under node, and how much of them there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from labkit.widgets.explorer import javascript
from tests.widgets.in_node import STATIC

VIEWS = sorted(path.name for path in STATIC.glob("*.js") if 'from "./figure.js"' in path.read_text())
LIMIT_BYTES = 52_000  # as sent, all together


def test_pure_functions_under_node() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine")
    tests = Path(__file__).with_name("explorers.test.mjs")
    done = subprocess.run([node, "--test", str(tests)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_explorers_programs_are_small() -> None:
    assert sum(len(javascript(name)) for name in ("figure.js", *VIEWS)) <= LIMIT_BYTES


@pytest.mark.parametrize("name", ["figure.js", *VIEWS])
def test_a_program_asks_no_address_and_needs_no_other_file(name: str) -> None:
    program = javascript(name)
    assert not re.search(r"https?:|\bfetch\(|XMLHttpRequest|WebSocket|^\s*(import|export)\b", program, re.MULTILINE)


def test_the_pieces_of_a_figure_do_not_share_a_name() -> None:
    for view in VIEWS:
        program = javascript("figure.js") + "\n" + javascript(view)
        node = shutil.which("node")
        if node is None:
            pytest.skip("no node on this machine")
        command = [node, "--input-type=module", "--check"]
        done = subprocess.run(command, input=program, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
