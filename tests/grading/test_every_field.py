"""Whatever a student may write into a field stays text in every page, sheet and report that is made of it."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from grading.conftest import SANDBOX
from labkit.grading.reports.github import job_summary
from labkit.grading.reports.results import read_results
from tests.submissions.making import ROOT

EVIL = (
    "=cmd|' /C calc'!A0\n\"'></title></style></script></pre></textarea></svg><evil-tag evil-attr=1>"
    "<a href=javascript:evil>[evil](javascript:evil) {{7*7}} \\write18{evil} ]]> | evil | \x1b[31m \u202e\n\n"
    "![evil](http://evil.invalid/x.png)\n\n"
)
CALLED = '=1+1"><evil-tag evil-attr=1>'
HOSTILE = """
import labkit
EVIL = {evil!r}
Evil = type(EVIL, (Exception,), {{"__repr__": lambda self: EVIL}})
print(EVIL)
get_ipython().display_pub.publish({{kind: EVIL for kind in (
    "text/plain", "text/html", "image/svg+xml", "text/markdown", "text/latex", "application/javascript",
    "application/vnd.evil+json", EVIL)}}, metadata={{EVIL: EVIL}})
def {name}(*args, **options):
    print(EVIL)
    raise Evil(EVIL)
{name}.__name__ = {name}.__qualname__ = EVIL
raise Evil(EVIL)
"""


class _Tags(HTMLParser):
    """Notes what of the payload became a tag, an attribute or a link."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag.startswith("evil") or any(name.startswith("evil") or _leads(value or "") for name, value in attrs):
            self.found.append(f"{tag} {attrs}")


def _leads(value: str) -> bool:
    return "".join(value.split()).lower().startswith(("javascript:", "http://evil"))


def tags_of(page: str) -> list[str]:
    parser = _Tags()
    parser.feed(page)
    parser.close()
    return parser.found


def test_the_payload_would_be_seen() -> None:
    assert tags_of(f'<p title="{EVIL}">') and tags_of(f"<p>{EVIL}") and tags_of(f"<script>x = '{EVIL}'</script>")
    assert tags_of(MarkdownIt().render(EVIL))
    assert formulas([["a", EVIL], [f"'{EVIL}"]]) == [EVIL]


def formulas(rows: list[list[str]]) -> list[str]:
    return [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@")) and not _is_number(cell)]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def hostile(lesson: Path) -> dict[str, Any]:
    """Return a lesson's notebook in which every field that a student can write holds the payload."""
    notebook: dict[str, Any] = json.loads(lesson.read_text(encoding="utf-8"))
    notebook["metadata"] |= {"title": EVIL, "authors": [{"name": EVIL}], EVIL: EVIL}
    notebook["metadata"]["kernelspec"] = {"name": EVIL, "display_name": EVIL, "language": EVIL}
    for cell in notebook["cells"]:
        about: Mapping[str, Any] = cell["metadata"].get("labkit", {})
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            cell["attachments"] = {EVIL: {"image/svg+xml": EVIL}}
        if "write" in cell["metadata"].get("tags", ()):
            source = EVIL
        elif "labkit.predict(" in source:
            source = source.partition("(")[0] + f"({about.get('prediction', source.split(chr(34))[1])!r}, {EVIL!r})"
        elif "raise NotImplementedError" in source and "def " in source:
            name = source.partition("def ")[2].partition("(")[0]
            source = HOSTILE.format(evil=EVIL, name=name) + f"# {EVIL.splitlines()[-1]}\n"
        cell["source"] = source
        cell["metadata"][EVIL] = EVIL
        if cell["cell_type"] == "code":
            cell["outputs"] = [
                {"output_type": "error", "ename": EVIL, "evalue": EVIL, "traceback": [EVIL]},
                {"output_type": "display_data", "data": {"text/html": EVIL, EVIL: EVIL}, "metadata": {EVIL: EVIL}},
            ]
    extra: dict[str, Any] = {
        "cell_type": "code",
        "id": CALLED,
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": EVIL,
    }
    notebook["cells"].append(extra)
    return notebook


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the real commands have graded two such submissions and written all that there is of it."""
    folder = tmp_path_factory.mktemp("evil")
    (folder / "in").mkdir()
    (lesson,) = (ROOT / "notebooks").glob("08_*.ipynb")
    for name in ("a", "b"):
        path = folder / "in" / f"{name}{CALLED}.ipynb"
        path.write_text(json.dumps(hostile(lesson)), encoding="utf-8")
    book = f"sqlite:///{folder / 'book.db'}"
    grade = ["in", "--lesson", "08", "--course", str(ROOT), "--out", "out", "--jobs", "1", "--sandbox", SANDBOX]
    for words in (
        ["grade", *grade],
        ["copies", "in", "--lesson", "08", "--course", str(ROOT), "--out", "copies.html"],
        ["gradebook", "record", "out"],
        ["gradebook", "pages", "pages", "--lesson", "08"],
        ["gradebook", "export", "marks.csv", "--lesson", "08"],
    ):
        ran = subprocess.run(
            [sys.executable, "-c", "from labkit.cli import main; main()", *words],
            cwd=folder,
            env={**os.environ, "LABKIT_GRADEBOOK": book},
            capture_output=True,
            text=True,
        )
        (folder / f"{words[0]}-{words[1]}.txt").write_text(ran.stdout + ran.stderr)
        assert ran.returncode == 0, (words, ran.stderr)
    return folder


def _files(folder: Path, ending: str) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob(f"*{ending}")):
        if not path.is_relative_to(folder / "in"):
            yield path, path.read_text(encoding="utf-8")


@pytest.mark.long
def test_it_is_text_in_every_page_and_sheet(made: Path) -> None:
    pages = dict(_files(made, ".html"))
    assert len(pages) >= 5 and any("evil-tag" in page for page in pages.values())
    assert {path.name: found for path, page in pages.items() if (found := tags_of(page))} == {}
    sheets = dict(_files(made, ".csv"))
    assert len(sheets) >= 2
    assert [formulas(list(csv.reader(text.splitlines()))) for text in sheets.values()] == [[]] * len(sheets)
    reports = dict(_files(made, ".xml"))
    assert reports and all(
        "evil-tag" not in {each.tag for each in ElementTree.fromstring(text).iter()} for text in reports.values()
    )


@pytest.mark.long
def test_it_is_text_in_the_summary_of_a_job_and_steers_no_terminal(made: Path) -> None:
    said = "".join(text for _, text in _files(made, ".txt"))
    assert "\x1b" not in said and "\u202e" not in said
    both = list(read_results(made / "out"))
    for entries in (both, both[:1]):
        summary = job_summary(entries)  # type: ignore[arg-type]
        assert "evil" in summary and "\x1b" not in summary
        assert tags_of(MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(summary)) == []
