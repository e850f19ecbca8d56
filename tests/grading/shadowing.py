"""A folder in which every module that Python or labkit could import has a namesake, which tells that it ran.

Beside them lie the settings that programs look for where they are started. Those that are Python or shell tell that
they ran; who opened one of the others would wait for ever, because it is a pipe.
"""

from __future__ import annotations

import os
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


PYTHON = (
    "ipython_config.py", "ipython_kernel_config.py", "jupyter_config.py", "jupyter_server_config.py",
    "jupyter_nbconvert_config.py", "jupyter_lab_config.py", ".pythonrc", ".pdbrc.py", "setup.py", "noxfile.py",
    ".ipython/profile_default/startup/00.py", ".jupyter/jupyter_server_config.py",
)  # fmt: skip
PTH = ("a.pth", "distutils-precedence.pth", "site-packages/a.pth", "lib/python3/site-packages/a.pth")
SHELL = (".git/hooks/post-checkout", ".git/hooks/pre-commit", ".envrc", ".bashrc", ".profile", "Makefile")
PIPES = (
    "matplotlibrc", "pyproject.toml", "pytest.ini", "setup.cfg", "tox.ini", ".coveragerc", "pip.conf", "pyvenv.cfg",
    "python._pth", ".env", ".netrc", ".pdbrc", "dask.yaml", "distributed.yaml", "jupyter_server_config.json",
    "jupyter_config.json", ".condarc", "alembic.ini", "logging.conf", "gradebook.key", ".gitattributes", "labkit.toml",
)  # fmt: skip


def write_settings(folder: Path, ran: Path) -> None:
    """Write the files that programs take for their own settings in a folder.

    Args:
        folder: Where they go.
        ran: What those that are run add a line to.
    """
    python = f"open({str(ran)!r}, 'a').write(%r)\n"
    texts = {name: python % name for name in PYTHON}
    texts |= {name: "import sys; " + python % name for name in PTH}
    texts |= {name: f"#!/bin/sh\necho {name} >> {ran}\n" for name in SHELL}
    texts[".git/config"] = f'[core]\n\tfsmonitor = "echo git >> {ran}"\n\thooksPath = .git/hooks\n'
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name in PIPES:
        os.mkfifo(folder / name)
