"""Calls functions of labkit's modules for the browser in node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

STATIC = Path(__file__).parents[2] / "labkit" / "widgets" / "static"


def evaluate(module: str, expression: str, **inputs: Any) -> Any:
    """Return the value of an expression in which the module's functions and the inputs are known."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine")
    names = ",".join(inputs)
    program = (
        f"import * as module from {json.dumps((STATIC / module).as_uri())};"
        f"const {{{names}}} = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
        f"Object.assign(globalThis, module);"
        f"process.stdout.write(JSON.stringify({expression}));"
    )
    program = "import {createRequire} from 'node:module'; const require = createRequire(import.meta.url);" + program
    command = [node, "--input-type=module", "-e", program]
    done = subprocess.run(command, input=json.dumps(inputs), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
