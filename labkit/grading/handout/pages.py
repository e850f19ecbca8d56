"""What a release brings to read without a network: slides, the lessons with their pictures, glossary, reference."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

from labkit.errors import EnvironmentProblem
from labkit.grading.handout.repository_files import REPOSITORY
from labkit.interpreter import python
from labkit.lessons import manifest
from labkit.lessons.class_course import class_course
from labkit.lessons.decks import write_decks

_INSTRUCTORS = ("workshop.md", "instructors.md", "elsewhere.md", "attacks.md", "tried.md", "_build")
_NOT_READ = ("objects.inv", ".buildinfo", ".doctrees", "_sources")
_SITE_NEEDS = ("sphinx", "myst_nb", "furo", "latex2mathml")
_STYLE = ":root{color-scheme:light dark}body{font:18px/1.5 system-ui,sans-serif;max-width:40rem;margin:2rem auto;padding:0 1rem}"  # noqa: E501
_SITE = """<h2>Read</h2>
<ul><li><a href="site/index.html">The site: lessons with their pictures, reference, errors</a></li>
<li><a href="site/glossary.html">Glossary</a></li></ul>
"""


def write_pages(notebooks: Sequence[Path], course: Path, folder: Path) -> None:
    """Write slides and site of these lessons, and a page that leads to all of it.

    Args:
        notebooks: Of the lessons that are released.
        course: The course's folder; the site is that of labkit's own course, another course gets slides alone.
        folder: Where they go.

    Raises:
        EnvironmentProblem: If what makes slides and site is not installed, or fails.
    """
    own = course.resolve() == REPOSITORY
    if own and (missing := [name for name in _SITE_NEEDS if importlib.util.find_spec(name) is None]):
        raise EnvironmentProblem(
            f"a release's pages are built with {' and '.join(missing)}, not installed here: run "
            "pip install -e '.[docs]' in the repository (make setup does), or give --no-pages to leave them out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    executed = [path for path in notebooks if (course / "solutions" / path.name).is_file()]
    names = [path.stem for path in executed]
    sources = [course / "solutions" / f"{name}.py" for name in names]
    with class_course(course, sources) as seen:
        if names:
            write_decks(names, [], folder / "slides", course=seen, browser=None, say=lambda _: None, public=True)
        if own:
            _write_site([path.stem for path in notebooks], seen, folder / "site")
    rows = "\n".join(
        f'<li><a href="slides/{path.stem}.html">{escape(manifest.read(path).title)}</a></li>' for path in executed
    )
    title = "Distributed training, built by hand"
    page = (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">\n'
        f"<title>{title}</title><style>{_STYLE}</style>\n<h1>{title}</h1>\n<h2>Slides</h2>\n<ul>{rows}</ul>\n"
        f"{_SITE if own else ''}</html>\n"
    )
    (folder / "index.html").write_text(page, encoding="utf-8")


def _write_site(lessons: Sequence[str], seen: Path, folder: Path) -> None:
    """Write the site with what the solutions in ``seen`` show of their lessons."""
    with tempfile.TemporaryDirectory() as temporary:
        docs = Path(temporary) / "docs"
        shutil.copytree(REPOSITORY / "docs", docs, ignore=shutil.ignore_patterns("made", "_build"))
        for path in REPOSITORY.iterdir():  # pages are made from all of it
            if path.name not in ("docs", "solutions", ".git"):
                (Path(temporary) / path.name).symlink_to(path, target_is_directory=path.is_dir())
        (Path(temporary) / "solutions").symlink_to(seen / "solutions", target_is_directory=True)
        others = [path.stem for path in (REPOSITORY / "solutions").glob("[0-9][0-9]_*.py") if path.stem not in lessons]
        left_out = ",".join([*_INSTRUCTORS, *(f"made/lessons/{name}.ipynb" for name in others)])
        command = python("-m", "sphinx", "-Q", "-b", "html", "-t", "class", "-D", f"exclude_patterns={left_out}")
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        made = Path(temporary) / "out" / "html"
        done = subprocess.run([*command, str(docs), str(made)], capture_output=True, text=True, env=environment)
        if done.returncode:
            raise EnvironmentProblem(
                f"the release's pages could not be built ({_why(done.stderr)}); --no-pages leaves them out"
            )
        shutil.copytree(made, folder)
    for name in _NOT_READ:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _why(said: str) -> str:
    """Return the line of Sphinx's report that names the fault."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line) or "rror:" in line]
    return (named or lines or ["Sphinx said nothing"])[-1]
