"""``labkit new-exercise``: the files of one exercise and its cells, which work as they stand.

The templates beside this file are two tiny examples: add up a list of numbers, or pass a tensor to the next rank. What
they make passes its check, its stub fails with its own message, and wrong answers are told what is wrong with them.
"""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from labkit.errors import ConfigError
from labkit.lessons.course import find_course, select, source_files
from labkit.lessons.references import references
from labkit.lessons.source import parse
from labkit.slugs import LONGEST, is_slug

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, keep_trailing_newline=True
)

_BONUS = re.compile(r"^# %% \[markdown\]\n(?P<heading># ## Bonus)", re.MULTILINE)
_SOURCES = re.compile(r"^(# %% \[markdown\]\n)?(?P<heading># ### Sources)", re.MULTILINE)


def new_exercise(lesson: str, title: str, course: Path | None = None, *, on_ranks: bool = False) -> list[Path]:
    """Write an exercise's files, put its cells behind the lesson's other ones, and return what was written.

    They come before the bonus and the sources.

    Args:
        lesson: The lesson's number, slug or name.
        title: What the exercise is called; its slug follows: "Ring plan" is ``ring_plan``.
        course: A folder in the course; None is the working directory.
        on_ranks: Whether the learner's function runs on several ranks, and not in one process.

    Raises:
        ConfigError: If the title makes no slug, or one that the course has already.
        LessonError: If there is no such course or lesson, or its source is wrong.
    """
    root = find_course(course, sources=True)
    source = select(source_files(root), lesson)
    slug, lesson_slug = _slug(title), source.stem.partition("_")[2]
    text = source.read_text(encoding="utf-8")
    if slug in references(source.stem, text, source.parent).numbers:
        raise ConfigError(f"{title!r} makes the slug {slug}, which the course already has; choose another title.")
    package, rooms = _rooms(root)
    room = rooms / lesson_slug / slug
    example = "on_ranks" if on_ranks else "one_process"
    templates = {
        room / name: f"{example}/{name}.jinja" for name in ("exercise.py", "driver.py", "hidden.py", "wrong.py")
    }
    there = [path.relative_to(root).as_posix() for path in templates if path.exists()]
    if there:
        raise ConfigError(f"{title!r} makes the slug {slug}, but {there[0]} already exists; choose another title.")
    names = {"slug": slug, "title": title, "package": f"{package}.{lesson_slug}.{slug}"}
    extended = _inserted(text, _TEMPLATES.get_template(f"{example}/cells.py.jinja").render(names))
    parse(extended, source)
    for path, template in templates.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_TEMPLATES.get_template(template).render(names), encoding="utf-8")
    source.write_text(extended, encoding="utf-8")
    return [*templates, source]


def _inserted(text: str, cells: str) -> str:
    """Return the source with these cells before its bonus, or else before its sources, or at its end."""
    for heading in (_BONUS, _SOURCES):
        if found := heading.search(text):
            before, after = text[: found.start()].rstrip("\n"), text[found.start("heading") :]
            before = re.sub(r"(\n#)+$", "", before)
            return f"{before}\n\n{cells.rstrip()}\n\n# %% [markdown]\n{after}"
    return text.rstrip("\n") + "\n\n" + cells


def _slug(title: str) -> str:
    """Return the slug that a title makes."""
    slug = re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")
    if not is_slug(slug) or not title.isprintable() or '"' in title:
        raise ConfigError(
            f"the title {title!r} cannot become a slug: begin with a letter, use at most {LONGEST} letters, digits and "
            'spaces, and no ", as in "Ring plan".'
        )
    return slug


def _rooms(root: Path) -> tuple[str, Path]:
    """Return the package of the course's exercises and its folder: labkit's own in its checkout, else the course's."""
    own = root / "labkit" / "exercises"
    return ("labkit.exercises", own) if own.is_dir() else ("course_exercises", root / "exercises")
