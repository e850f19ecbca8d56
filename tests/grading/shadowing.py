"""A folder in which every module that Python or labkit could import has a namesake, which tells that it ran."""

from __future__ import annotations

import sys
from importlib.metadata import packages_distributions
from pathlib import Path


def write_shadows(folder: Path, ran: Path) -> None:
    """Write ``NAME.py`` for each module of the standard library and each installed one, and a package ``labkit``.

    Args:
        folder: Where they go.
        ran: What each of them adds a line to when it is imported.
    """
    installed = {name for name in packages_distributions() if name.isidentifier()}
    for name in {*sys.stdlib_module_names, *installed, "labkit", "sitecustomize", "usercustomize", "conftest"}:
        (folder / f"{name}.py").write_text(f'open({str(ran)!r}, "a").write("{name}\\n")\n')
    (folder / "labkit").mkdir()
    (folder / "labkit" / "__init__.py").write_text(f'open({str(ran)!r}, "a").write("labkit, a package\\n")\n')
