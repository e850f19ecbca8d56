"""What honest learners do to their notebooks, each as a function that does it to one exercise of a right submission.

A habit gets the notebook as JSON, the place of the exercise's cell, and the names of its functions; it changes the
notebook in place, and leaves its kernel with the same right answer.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable
from typing import Any

Notebook = dict[str, Any]
Habit = Callable[[Notebook, int], None]


def habits() -> dict[str, Habit]:
    """Return every habit by its name."""
    return dict(_HABITS)


def places(notebook: Notebook) -> dict[str, int]:
    """Return the place of each exercise's cell whose functions are run, by its slug."""
    return {
        cell["metadata"]["labkit"]["exercise"]: place
        for place, cell in enumerate(notebook["cells"])
        if not {"exercise", "design"}.isdisjoint(cell["metadata"].get("tags", []))
    }


def text_of(cell: dict[str, Any]) -> str:
    """Return a cell's source as one text."""
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


_HABITS: dict[str, Habit] = {}


def _habit(function: Habit) -> Habit:
    _HABITS[function.__name__] = function
    return function


def _new(source: str, **metadata: Any) -> dict[str, Any]:
    identity = f"new-{sum(source.encode()) % 9973}-{len(source)}"
    kept = {"id": identity, "cell_type": "code", "metadata": metadata}
    return {**kept, "source": source, "execution_count": 1, "outputs": []}


def _uses(notebook: Notebook, place: int, line: str) -> None:
    """Let the first function of an answer begin with a line."""
    cell = notebook["cells"][place]
    source = text_of(cell)
    function = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    first = function.body[0]
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    first = function.body[1] if is_text and len(function.body) > 1 else first
    lines = source.splitlines(keepends=True)
    at = first.lineno - 1 if first.lineno > function.lineno else None
    assert at is not None, "a function of one line"
    lines.insert(at, " " * first.col_offset + line + "\n")
    cell["source"] = "".join(lines)


def _begins(line: str) -> Habit:
    """Return the habit of a line above the answer."""

    def habit(notebook: Notebook, place: int) -> None:
        notebook["cells"][place]["source"] = f"{line}\n{text_of(notebook['cells'][place])}"

    return habit


def _ends(line: str) -> Habit:
    """Return the habit of a line below the answer."""

    def habit(notebook: Notebook, place: int) -> None:
        notebook["cells"][place]["source"] = f"{text_of(notebook['cells'][place]).rstrip()}\n{line}\n"

    return habit


def _beside(source: str, use: str, below: bool = False) -> Habit:
    """Return the habit of a cell of one's own that an answer uses."""

    def habit(notebook: Notebook, place: int) -> None:
        _uses(notebook, place, use)
        notebook["cells"].insert(len(notebook["cells"]) if below else place, _new(source))

    return habit


def _over_cells(use: str, *sources: str) -> Habit:
    """Return the habit of several cells of one's own that make what an answer uses."""

    def habit(notebook: Notebook, place: int) -> None:
        _uses(notebook, place, use)
        notebook["cells"][place:place] = [_new(source) for source in sources]

    return habit


_HABITS |= {
    "a question for help": _ends("dist.send?"),
    "a question before": _begins("?dist.send"),
    "the source asked for": _ends("dist.send??"),
    "timeit that keeps its result": _begins("took = %timeit -o -n 1 -r 1 len([])\nprint(took.best)"),
    "time of a line": _begins("%time START = sum(range(3))"),
    "time of the cell": _begins("%%time"),
    "captured cell": _begins("%%capture shown --no-stderr"),
    "an extension": _begins("%load_ext autoreload\n%autoreload 2"),
    "pictures inline": _begins("%matplotlib inline"),
    "a look at the folder": _begins("!ls"),
    "the folder kept": _begins("files = !ls"),
    "a package": _begins("!pip install -q einops"),
    "top-level await": _begins("import asyncio\nslept = await asyncio.sleep(0, 3)\nassert slept == 3"),
    "display": _begins("display('the answer')"),
    "a figure": _begins("import labkit\nlabkit.figure('ring')"),
    "a check in the cell": _ends("import labkit\nlabkit.check('what it is', print)"),
    "a run in the cell": _begins("import labkit\nlabkit.run(print, world_size=2)"),
    "a line that fails": _begins("print(what_is_this)"),
    "annotations from the future": _begins("from __future__ import annotations"),
    "a remark": _begins("# my answer, at last\n"),
    "a helper in its own cell": _beside("def mine(x):\n    return x\n\nprint(mine(1))\n", "assert mine(3) == 3"),
    "a helper below": _beside("def mine(x):\n    return x\n", "assert mine(3) == 3", below=True),
    "helpers of helpers": _beside(
        "import math\nROOT = 2\n\ndef root(x):\n    return math.sqrt(x) * ROOT\n\ndef mine(x):\n    return root(x)\n",
        "assert mine(4) == 4",
    ),
    "a constant in its own cell": _beside("PARTS = 4", "assert PARTS == 4"),
    "an import in its own cell": _beside(
        "import math, os.path\nfrom os import sep as cut", "math.sqrt(4), os.sep, cut"
    ),
    "an import of everything": _beside("from functools import *", "assert reduce(max, [1, 3]) == 3"),
    "a class in its own cell": _beside(
        "from dataclasses import dataclass\n\n\n@dataclass\nclass Part:\n    size: int = 3\n", "assert Part().size == 3"
    ),
    "a table filled by a loop": _beside(
        "TABLE = {}\nfor each in range(3):\n    TABLE[each] = each\nTABLE.update(last=9)",
        "assert TABLE[2] == 2 and TABLE['last'] == 9",
    ),
    "a helper among magics": _beside(
        "%load_ext autoreload\n!ls\ndef mine(x):\n    return x\nmine?", "assert mine(3) == 3"
    ),
    "a table filled in another cell": _over_cells("assert TABLE['last'] == 9", "TABLE = {}", "TABLE['last'] = 9"),
    "a list filled in another cell": _over_cells("assert LIST[0] == 9", "LIST = []", "LIST.append(9)"),
    "a number raised in another cell": _over_cells("assert PARTS == 4", "PARTS = 3", "PARTS += 1"),
    "a method put on in another cell": _over_cells(
        "assert Part().size() == 3",
        "class Part:\n    pass\n",
        "def size(self):\n    return 3\n\nPart.size = size\n",
        "setattr(Part, 'same', size)",
    ),
    "a register of functions": _over_cells(
        "assert REGISTER['mine'](3) == 3",
        "REGISTER = {}\n\ndef register(f):\n    REGISTER[f.__name__] = f\n    return f\n",
        "@register\ndef mine(x):\n    return x\n",
    ),
    "a module written by a cell": _over_cells(
        "assert tools.mine(3) == 3", "%%writefile tools.py\ndef mine(x):\n    return x\n", "import tools"
    ),
    "a module written by a cell and run": _over_cells(
        "assert mine(3) == 3", "%%writefile tools.py\ndef mine(x):\n    return x\n", "%run tools.py"
    ),
    "everything of a module written by a cell": _over_cells(
        "assert mine(3) == 3", "%%writefile tools.py\ndef mine(x):\n    return x\n", "from tools import *"
    ),
    "a module written to a file": _over_cells(
        "assert tools.mine(3) == PARTS",
        "PARTS = 3\nSOURCE = 'def mine(x): return x'",
        "with open('tools.py', 'w') as file:\n    file.write(SOURCE)\nimport tools",
    ),
    "a module written line by line": _over_cells(
        "assert tools.mine(3) == 3",
        "file = open('./tools.py', 'w')\nfile.write('def mine(x):')\nfile.write(' return x')\nfile.close()",
        "import tools",
    ),
    "a module written by a path": _over_cells(
        "assert mine(3) == 3",
        "from pathlib import Path\nPath('tools.py').write_text('def mine(x): return x')",
        "import importlib, tools\nimportlib.reload(tools)\nfrom tools import mine",
    ),
    "a name put into globals()": _over_cells("assert PARTS == 4", "globals()['PARTS'] = 2", "globals()['PARTS'] += 2"),
    "names put into globals()": _over_cells("assert (A, B) == (1, 2)", "globals().update({'A': 1}, B=2)"),
    "a name put on the notebook as a module": _over_cells(
        "assert (A, B, C) == (1, 2, 3)",
        "import sys, __main__\nsys.modules[__name__].A = 1\nsetattr(__main__, 'B', 2)",
        "import builtins\nbuiltins.C = 3",
    ),
    "a name given to IPython": _over_cells(
        "assert (A, B) == (1, 2)", "get_ipython().user_ns['A'] = 1\nget_ipython().push({'B': 2})"
    ),
    "a text that is run": _over_cells("assert mine(3) == 9", "K = 3", "exec('def mine(x):\\n    return x * K')"),
    "a function that sets a name": _over_cells(
        "assert PARTS == 4", "def begin():\n    global PARTS\n    PARTS = 4\n", "begin()"
    ),
    "a counter of its calls": _over_cells("global CALLS; CALLS += 1", "CALLS = 0"),
    "a helper that came twice": _beside(
        "def mine(x):\n    return 0\n\ndef mine(x):\n    return x\n", "assert mine(3) == 3"
    ),
    "a helper under try": _beside(
        "try:\n    from fast import mine\nexcept ImportError:\n    def mine(x): return x\n",
        "assert mine(3) == 3",
    ),
}


@_habit
def an_import_in_the_given_cell(notebook: Notebook, place: int) -> None:
    _uses(notebook, place, "assert math.sqrt(4) == 2")
    given = next(cell for cell in notebook["cells"] if "given" in cell["metadata"].get("tags", []))
    given["source"] = "import math\n" + text_of(given)


@_habit
def a_helper_in_the_check_cell(notebook: Notebook, place: int) -> None:
    _uses(notebook, place, "assert mine(3) == 3")
    check = notebook["cells"][place + 1]
    check["source"] = "def mine(x):\n    return x\n\n" + text_of(check)


@_habit
def hints_of_the_future_in_another_cell(notebook: Notebook, place: int) -> None:
    notebook["cells"].insert(0, _new("from __future__ import annotations"))
    cell = notebook["cells"][place + 1]
    cell["source"] = re.sub(r"^def (\w+)\((\w+)\)", r"def \1(\2: NotMadeYet)", text_of(cell), count=1, flags=re.M)


@_habit
def a_mark_put_on_the_answer_in_another_cell(notebook: Notebook, place: int) -> None:
    name = next(n.name for n in ast.parse(text_of(notebook["cells"][place])).body if hasattr(n, "name"))
    _uses(notebook, place, f"assert {name}.calls == 0")
    notebook["cells"].insert(place + 1, _new(f"{name}.calls = 0"))


@_habit
def merged_with_its_check(notebook: Notebook, place: int) -> None:
    cell, check = notebook["cells"][place : place + 2]
    cell["source"] = f"{text_of(cell)}\n{text_of(check)}"
    del notebook["cells"][place + 1]


@_habit
def merged_into_the_given_cell(notebook: Notebook, place: int) -> None:
    given = next(cell for cell in notebook["cells"] if "given" in cell["metadata"].get("tags", []))
    given["source"] = f"{text_of(given)}\n\n{text_of(notebook['cells'][place])}"
    del notebook["cells"][place]


@_habit
def cells_in_reverse(notebook: Notebook, place: int) -> None:
    notebook["cells"].reverse()


@_habit
def a_decorator_of_ones_own(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    lines = text_of(cell).splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if line.startswith(("def ", "class ", "@")))
    cell["source"] = "".join([*lines[:at], "@as_it_is\n", *lines[at:]])
    notebook["cells"].insert(place, _new("def as_it_is(function):\n    return function\n"))


@_habit
def split_in_two_cells(notebook: Notebook, place: int) -> None:
    source = text_of(notebook["cells"][place])
    last = ast.parse(source).body[-1]
    at = min([last.lineno, *(each.lineno for each in getattr(last, "decorator_list", []))]) - 1
    lines = source.splitlines(keepends=True)
    notebook["cells"][place]["source"] = "".join(lines[:at]) or "# the answer is below\n"
    notebook["cells"].insert(place + 1, _new("".join(lines[at:])))


def _as_handed_out(cell: dict[str, Any]) -> str:
    """Return an answer's cell with the gaps that its functions had."""
    gap = 'raise NotImplementedError("Exercise 1.1: as it was")'
    source = text_of(cell)
    lines = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = node.body[0]
            head = "".join(source.splitlines(keepends=True)[node.lineno - 1 : first.lineno - 1])
            lines.append(f"{head or f'def {node.name}(*args):' + chr(10)}    {gap}\n")
        else:
            lines.append(ast.unparse(node) + "\n")
    return "\n".join(lines)


@_habit
def answered_in_a_copied_cell(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    answer = copy.deepcopy(cell) | {"id": "copied"}
    cell["source"] = _as_handed_out(cell)
    notebook["cells"].insert(place + 1, answer)


@_habit
def answered_in_a_new_cell_with_the_stub_left(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    answer = _new(text_of(cell))
    cell["source"] = _as_handed_out(cell)
    notebook["cells"].insert(place + 1, answer)


@_habit
def answered_in_a_new_cell_at_the_end(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    notebook["cells"].append(_new(text_of(cell)))
    cell["source"] = _as_handed_out(cell)


@_habit
def a_cell_made_anew(notebook: Notebook, place: int) -> None:
    notebook["cells"][place] = _new(text_of(notebook["cells"][place]))


@_habit
def an_old_attempt_above(notebook: Notebook, place: int) -> None:
    name = next(n.name for n in ast.parse(text_of(notebook["cells"][place])).body if hasattr(n, "name"))
    notebook["cells"].insert(place, _new(f"def {name}(*args):\n    return None  # no\n"))


@_habit
def an_old_attempt_in_the_marked_cell(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    name = next(n.name for n in ast.parse(text_of(cell)).body if hasattr(n, "name"))
    notebook["cells"].insert(place + 1, _new(text_of(cell)))
    cell["source"] = f"def {name}(*args):\n    return None  # no\n"


@_habit
def a_broken_copy_kept(notebook: Notebook, place: int) -> None:
    notebook["cells"].insert(place, copy.deepcopy(notebook["cells"][place]) | {"id": "broken", "source": "def ("})


@_habit
def played_with_below_the_check(notebook: Notebook, place: int) -> None:
    name = next(n.name for n in ast.parse(text_of(notebook["cells"][place])).body if hasattr(n, "name"))
    notebook["cells"].append(_new(f"def {name}(*args):\n    return 'what if'\n"))


@_habit
def all_answers_in_one_cell(notebook: Notebook, place: int) -> None:
    cells = [notebook["cells"][each] for each in places(notebook).values()]
    notebook["cells"].append(_new("\n\n\n".join(text_of(cell) for cell in cells)))
    for cell in cells:
        cell["source"] = _as_handed_out(cell)


@_habit
def the_raise_left_below(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    source = text_of(cell).rstrip()
    last = ast.parse(source).body[-1]
    if isinstance(last, ast.FunctionDef):
        cell["source"] = f'{source}\n    raise NotImplementedError("Exercise 1.1: as it was")\n'


@_habit
def ids_made_anew(notebook: Notebook, place: int) -> None:
    for number, cell in enumerate(notebook["cells"]):
        cell["id"] = f"{number:08x}"


@_habit
def saved_without_ids(notebook: Notebook, place: int) -> None:
    notebook["nbformat_minor"] = 4
    for cell in notebook["cells"]:
        cell.pop("id", None)


@_habit
def saved_without_ids_and_marks(notebook: Notebook, place: int) -> None:
    saved_without_ids(notebook, place)
    notebook["metadata"] = {}
    for cell in notebook["cells"]:
        cell["metadata"] = {}


@_habit
def saved_by_vs_code(notebook: Notebook, place: int) -> None:
    ids_made_anew(notebook, place)
    for cell in notebook["cells"]:
        cell["metadata"] = {"vscode": {"languageId": "python"}} if cell["cell_type"] == "code" else {}


@_habit
def saved_by_colab(notebook: Notebook, place: int) -> None:
    notebook |= {"nbformat_minor": 0}
    for cell in notebook["cells"]:
        cell["metadata"] = {"id": cell.pop("id", "x"), "colab": {"base_uri": "https://localhost:8080/"}}


@_habit
def exercises_moved_to_the_top(notebook: Notebook, place: int) -> None:
    own = [notebook["cells"][each] for each in places(notebook).values()]
    notebook["cells"][:] = own + [cell for cell in notebook["cells"] if not any(cell is each for each in own)]
