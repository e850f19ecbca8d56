"""An answer that is copied and then moved, padded or hidden: `labkit copies` names it, or says what it cannot see."""

from __future__ import annotations

import ast
import base64
import re
from pathlib import Path

import pytest

from grading.small_lesson import RIGHT
from labkit.grading.reports.copies import Work, copies
from labkit.grading.reports.idle_code import without_idle
from labkit.lessons.cuts import without_markers
from labkit.lessons.source import load

LESSON = load(next((Path(__file__).parents[2] / "solutions").glob("03_*.py")))
ANSWERS = {
    str(cell.exercise): ast.unparse(ast.parse(without_markers(cell.source)))
    for cell in LESSON.cells
    if cell.is_code_exercise
}


def padded(source: str) -> str:
    lines = []
    for number, line in enumerate(source.splitlines()):
        lines.append(line)
        if line.startswith("    ") and not line.rstrip().endswith((":", ",", "(", "[", "{")):
            indent = re.match(" *", line)[0]  # type: ignore[index]
            lines.append(f"{indent}_q{number} = {number} * {number + 3} - len('x{number}')")
    return "\n".join(lines)


def alike(answers: dict[str, str]) -> tuple[list[set[str]], dict[str, str]]:
    """Return who is alike in a class with one original, one disguised copy and others' own work."""
    others = [Work(f"other {n}", {key: RIGHT["total"].replace("x", f"x{n}") for key in ("a",)}) for n in range(3)]
    found = copies([Work("original", ANSWERS), Work("copy", answers), *others], {})
    return [set(case.names) for case in found.cases], dict(found.unread)


def test_an_answer_in_another_exercises_cell_is_a_copy() -> None:
    keys = list(ANSWERS)
    shifted = {key: ANSWERS[keys[(at + 1) % len(keys)]] for at, key in enumerate(keys)}
    assert {"original", "copy"} in alike(shifted)[0]


def test_lines_that_do_nothing_hide_no_copy() -> None:
    dead = {key: padded(source) for key, source in ANSWERS.items()}
    assert len(dead["drop_in_all_reduce"]) > 1.3 * len(ANSWERS["drop_in_all_reduce"])
    assert {"original", "copy"} in alike(dead)[0]


def test_what_runs_a_text_as_code_is_named_because_it_cannot_be_compared() -> None:
    def hidden(source: str) -> str:
        return f"import base64\nexec(base64.b64decode({base64.b64encode(source.encode())!r}).decode(), globals())\n"

    _, unread = alike({key: hidden(source) for key, source in ANSWERS.items()})
    assert set(unread) == {"copy"} and "drop_in_all_reduce" in unread["copy"]
    assert "runs a text as code (exec, eval), so look at it yourself" in unread["copy"]


@pytest.mark.parametrize(
    "hidden",
    [
        "get_ipython().run_cell_magic('writefile', 'tools.py', {0!r})\nfrom tools import *\n",
        "with open('tools.py', 'w') as file:\n    file.write({0!r})\nfrom tools import *\n",
        "TEXT = {0!r}\nexec(TEXT)\n",
    ],
    ids=["writefile", "open", "exec"],
)
def test_a_copy_in_a_module_or_text_of_ones_own_is_a_copy(hidden: str) -> None:
    assert {"original", "copy"} in alike({key: hidden.format(source) for key, source in ANSWERS.items()})[0]


@pytest.mark.parametrize(
    "way",
    [
        "import marshal, types\nf = types.FunctionType(marshal.loads(b'x'), globals())\n",
        "getattr(__builtins__, 'ex' + 'ec')(TEXT)\n",
        "import builtins\nbuiltins.eval(TEXT)\n",
        "import runpy\nrunpy.run_path('x')\n",
        "import builtins as b\ngetattr(b, 'exec')(TEXT)\n",
    ],
)
def test_other_ways_to_run_a_text_are_named_too(way: str) -> None:
    _, unread = alike(dict.fromkeys(ANSWERS, way))
    assert "runs a text as code" in unread["copy"]


def test_ordinary_code_is_not_taken_for_text_that_runs() -> None:
    usual = "import re\nmodel.eval()\nre.compile('x')\ntorch.compile(model)\nprint('def f(x): in words')\n"
    assert alike(dict.fromkeys(ANSWERS, usual))[1] == {} and without_idle(usual) == usual.rstrip("\n")


def test_only_what_has_no_effect_is_taken_for_idle() -> None:
    kept = "def f(x):\n    y = dist.recv(x)\n    a = 1\n    x[0] = 2\n    return x + a\n"
    assert without_idle(kept) == kept.rstrip("\n")
    assert without_idle("def f(x):\n    3\n    _q = len('a')\n    return x") == "def f(x):\n\n\n    return x"
    assert without_idle("not python (") == "not python ("
