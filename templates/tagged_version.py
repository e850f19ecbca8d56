"""Fails unless a tag, such as v0.3.0, is the version that labkit says it has; publish.yml calls it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

INIT = Path(__file__).parents[1] / "labkit" / "__init__.py"


def version() -> str:
    """Return the version in labkit/__init__.py, read without importing it."""
    for node in ast.parse(INIT.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__":
            return str(ast.literal_eval(node.value))
    raise SystemExit(f"{INIT} has no __version__")


if __name__ == "__main__":
    tag, found = sys.argv[1], version()
    if tag != f"v{found}":
        raise SystemExit(f"the tag is {tag}, and labkit's version is {found}; tag v{found}, or change the version")
    print(f"{tag} is labkit's version")
