"""``labkit lab``: lessons where the learner wants them, a self-check in words, JupyterLab on the first."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from labkit.doctor import as_text, examine
from labkit.errors import LessonError
from labkit.interpreter import python
from labkit.lessons.course import brought_course, find_course
from labkit.lessons.pristine import ORIGINALS, TUTOR

DEFAULT = Path("labkit-lessons")
_NOTEBOOKS = "[0-9][0-9]_*.ipynb"


def open_lab(folder: Path | None, arguments: Sequence[str], say: Callable[[str], None]) -> int:
    """Return JupyterLab's exit code; 1, before it starts, if labs cannot run here.

    Args:
        folder: Where the lessons go, or are. None is the course around the working directory; where there is none,
            ``labkit-lessons/`` in it.
        arguments: JupyterLab's own, such as ``--port 8899``.
        say: Told what was found and done.

    Raises:
        LessonError: If the folder cannot be written, or this copy of labkit brings no lessons.
    """
    findings = examine(jupyter_args=" ".join(arguments))
    say(as_text(findings))
    if any(each.state == "essential" for each in findings):
        return 1
    root = _course_at(folder, say)
    return _start(root, arguments)


def write_lessons(folder: Path, say: Callable[[str], None]) -> None:
    """Put the lessons into a folder; a notebook that is there stays as it is.

    What was handed out goes to ``notebooks/.originals`` as well, for `labkit reset` and `labkit catch-up`.

    Raises:
        LessonError: If the folder cannot be written, or this copy of labkit brings no lessons.
    """
    brought = brought_course()
    notebooks = sorted((brought / "notebooks").glob(_NOTEBOOKS))
    if not notebooks:
        raise LessonError(
            f"This copy of labkit has no lessons ({brought / 'notebooks'} is not there): install the wheel that "
            "`make dist` writes, or run `labkit lab` in a checkout or in what your instructor gave you."
        )
    mine = folder / "notebooks"
    try:
        (mine / ORIGINALS).mkdir(parents=True, exist_ok=True)
        new = [path for path in notebooks if not (mine / path.name).exists()]
        for path in new:
            shutil.copyfile(path, mine / path.name)
        for path in notebooks:
            shutil.copyfile(path, mine / ORIGINALS / path.name)
        shutil.copyfile(brought / "notebooks" / TUTOR, mine / TUTOR)
        shutil.copytree(brought / ".jupyter", folder / ".jupyter", dirs_exist_ok=True)
    except OSError as error:
        raise LessonError(
            f"The lessons could not be written to {folder}: {error.strerror or error}. Choose another folder with "
            "--folder DIR."
        ) from error
    stay = f"; {len(notebooks) - len(new)} were there and stay as they are" if len(new) < len(notebooks) else ""
    say(f"{mine}: {len(new)} notebooks written{stay}.")


def _course_at(folder: Path | None, say: Callable[[str], None]) -> Path:
    """Return the folder that holds ``notebooks/``, written first where that is asked for."""
    if folder is None:
        try:
            return find_course()
        except LessonError:
            folder = DEFAULT
    write_lessons(folder, say)
    return folder.resolve()


def _start(root: Path, arguments: Sequence[str]) -> int:
    notebooks = root / "notebooks"
    first = next(iter(sorted(notebooks.glob(_NOTEBOOKS))), None)
    command = python("-m", "jupyterlab", f"--ServerApp.root_dir={notebooks}")
    if first is not None:
        command.append(f"--LabApp.default_url=/lab/tree/{first.name}")
    if "JUPYTER_TOKEN" not in os.environ:  # with one, the address is among what JupyterLab tells of its own start
        command.append("--Application.log_level=WARN")
    if getattr(os, "geteuid", lambda: 1)() == 0:
        command.append("--allow-root")
    configured = os.environ.get("JUPYTER_CONFIG_PATH")
    # Not the folder's own: it may be a student's, and JupyterLab runs what its configuration names.
    own = str(brought_course() / ".jupyter")
    environment = {**os.environ, "JUPYTER_CONFIG_PATH": f"{own}{os.pathsep}{configured}" if configured else own}
    if os.name != "nt":  # there it would give the terminal back before JupyterLab is done
        os.execve(sys.executable, [*command, *arguments], environment)
    return subprocess.call([*command, *arguments], env=environment)
