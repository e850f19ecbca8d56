"""Pictures that a learner's notebook brings: those of cells tagged ``figure``, out of the executed solution.

A notebook that nobody has signed shows pictures and runs no programs: so a figure is seen before its cell is run, and
plays once it is.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

_KEPT = ("image/png", "text/plain")


def pictures_of(solution: Path) -> dict[str, Any]:
    """Return the picture of each figure cell, as an output of a notebook, by the cell's id; {} without a solution.

    Args:
        solution: The executed notebook.
    """
    try:
        cells = json.loads(solution.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    found = {}
    for cell in cells:
        if "figure" in cell["metadata"].get("tags", ()):
            pictures = (output for output in cell.get("outputs", ()) if "image/png" in output.get("data", {}))
            if (picture := next(pictures, None)) is not None:
                found[cell["id"]] = _still(picture)
    return found


def digest(output: Any) -> str:
    """Return a hash of an output: of all it holds, joined as it is shown."""
    plain = dict(output) | {"data": {kind: "".join(text) for kind, text in output.get("data", {}).items()}}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _still(output: Any) -> dict[str, Any]:
    """Return an output without what a page would have to run."""
    data = {kind: "".join(output["data"][kind]) for kind in _KEPT if kind in output["data"]}
    size = {kind: of for kind, of in output.get("metadata", {}).items() if kind == "image/png"}
    return {"output_type": "display_data", "data": data, "metadata": size}
