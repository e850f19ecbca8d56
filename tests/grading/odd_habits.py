"""Further habits of honest learners, rarer ones, in the same form as `honest_habits`; and what a file is saved as.

`ABOVE` and `BELOW` are lines in an answer's cell; `odd_cells` are cells of one's own that an answer uses. The functions
write the answer itself in another way, or change what is around it. `SAVED` is what a file is called and its bytes.
"""

from __future__ import annotations

import ast
import copy
import json
import re
from collections.abc import Callable
from typing import Any

from grading.odd_cells import cells_beside

Notebook = dict[str, Any]
Habit = Callable[[Notebook, int], None]

ABOVE = {
    "an environment variable by magic": "%env PARTS=4",
    "an environment variable": 'import os\nos.environ["OMP_NUM_THREADS"] = "1"',
    "threads of torch": "import torch\ntorch.set_num_threads(2)\ntorch.set_printoptions(precision=3)",
    "a seed": "import random\nimport torch\nrandom.seed(0)\ntorch.manual_seed(0)",
    "warnings are errors": 'import warnings\nwarnings.simplefilter("error")',
    "a look at the help": "help(len)",
    "a plot": (
        "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, 2], [3, 4])\nplt.show()\nplt.close(fig)"
    ),
    "a question to the keyboard": 'name = input("Your name? ")',
    "a package that is not there": "import seaborn as sns\nsns.set_theme()",
    "a package that is fetched": "%pip install -q seaborn",
    "a configuration": "%config InlineBackend.figure_format = 'retina'",
    "a magic of a converted notebook": "get_ipython().run_line_magic('matplotlib', 'inline')",
    "a path": 'import sys\nsys.path.append("..")\nsys.setrecursionlimit(5000)',
    "a log": 'import logging\nlogging.basicConfig(level=logging.DEBUG)\nlogging.info("begun")',
    "lines of the shell with a variable": "K = 3\n!echo {K} $HOME",
    "everything of a module": "from torch.nn.functional import *",
    "what it measures": "import time\nbegin = time.perf_counter()\nprint(f'{time.perf_counter() - begin:.3f} s')",
    "an exit that is not taken": "import sys\nif len(sys.argv) > 99:\n    sys.exit(1)",
    "a comment that looks like magic": "# %%\n#%% md\n# !rm -rf /",
    "a string over lines": 'NOTES = """\n%%time\n!ls\nlen?\n"""',
    "blank lines above": "\n\n\n   \n",
    "a prompt of the debugger": "%pdb off",
    "an alias of an import": "import torch as th\nimport torch.distributed as dist, torch.nn.functional as F",
    "a clock around a sum": "%timeit -n 1 -r 1 sum(range(3))",
}
"""What stands above an answer in its cell."""

BELOW = {
    "asserts": "assert 2 + 2 == 4, 'the world is wrong'",
    "an assert that fails": "assert 2 + 2 == 5",
    "a main of its own": 'if __name__ == "__main__":\n    print("run as a program")',
    "a semicolon": "print('done');",
    "a last expression": "[each for each in range(3)]",
    "a variable that goes again": "tmp = [1, 2]\ndel tmp",
    "an error that is caught": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    print(error)",
    "comments in other scripts": "# 我的答案: 对了 ✓  Моё решение  إجابتي",
    "the debugger": "# %debug\n%debug -b nothing.py:1",
    "a thread that ends": "import threading\nt = threading.Thread(target=print)\nt.start(); t.join()",
}
"""What stands below an answer in its cell."""


def _new(source: str, at: int) -> dict[str, Any]:
    return {
        "id": f"odd-{at}-{len(source)}", "cell_type": "code", "metadata": {}, "source": source,
        "execution_count": None, "outputs": [],
    }  # fmt: skip


def _text(cell: dict[str, Any]) -> str:
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def _begin_with(source: str, line: str) -> str:
    """Return an answer whose first function begins with a line."""
    function = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    first = function.body[0]
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    first = function.body[1] if is_text and len(function.body) > 1 else first
    lines = source.splitlines(keepends=True)
    lines.insert(first.lineno - 1, " " * first.col_offset + line + "\n")
    return "".join(lines)


def _above(text: str) -> Habit:
    def habit(notebook: Notebook, place: int) -> None:
        notebook["cells"][place]["source"] = f"{text}\n{_text(notebook['cells'][place])}"

    return habit


def _below(text: str) -> Habit:
    def habit(notebook: Notebook, place: int) -> None:
        notebook["cells"][place]["source"] = f"{_text(notebook['cells'][place]).rstrip()}\n\n{text}\n"

    return habit


def _beside(use: str, *sources: str) -> Habit:
    def habit(notebook: Notebook, place: int) -> None:
        cell = notebook["cells"][place]
        cell["source"] = _begin_with(_text(cell), use)
        notebook["cells"][place:place] = [_new(source, at) for at, source in enumerate(sources)]

    return habit


HABITS: dict[str, Habit] = {name: _above(text) for name, text in ABOVE.items()}
HABITS |= {name: _below(text) for name, text in BELOW.items()}
HABITS |= {name: _beside(use, *sources) for name, (use, *sources) in cells_beside().items()}


def _habit(function: Habit) -> Habit:
    HABITS[function.__name__.replace("_", " ").strip()] = function
    return function


def _functions(source: str) -> list[str]:
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def _renamed(source: str, name: str, new: str) -> str:
    return re.sub(rf"(?<![\w.'\"]){name}\b", new, source)


@_habit
def an_alias_of_ones_own_name(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    name = _functions(_text(cell))[-1]
    cell["source"] = f"{_renamed(_text(cell), name, 'my_own')}\n\n{name} = my_own\n"


@_habit
def an_alias_in_another_cell(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    name = _functions(_text(cell))[-1]
    cell["source"] = _renamed(_text(cell), name, "my_own")
    notebook["cells"].insert(place + 1, _new(f"{name} = my_own", 9))


@_habit
def decorated_in_another_cell(notebook: Notebook, place: int) -> None:
    name = _functions(_text(notebook["cells"][place]))[-1]
    decorated = _new(f"import torch\n{name} = torch.no_grad()({name})\n", 7)
    notebook["cells"].insert(place + 1, decorated)


@_habit
def decorated_twice(notebook: Notebook, place: int) -> None:
    name = _functions(_text(notebook["cells"][place]))[-1]
    again = f"old = {name}\n\ndef {name}(*args, **kwargs):\n    return old(*args, **kwargs)\n"
    notebook["cells"].insert(place + 1, _new(again, 7))


@_habit
def an_answer_that_is_a_lambda(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    name = _functions(_text(cell))[-1]
    cell["source"] = (
        f"{_renamed(_text(cell), name, 'my_own')}\n\n{name} = lambda *args, **kwargs: my_own(*args, **kwargs)\n"
    )


@_habit
def an_answer_that_is_a_static_method(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    name = _functions(_text(cell))[-1]
    source = _renamed(_text(cell), name, "my_own")
    cell["source"] = f"{source}\n\nclass Answers:\n    mine = staticmethod(my_own)\n\n{name} = Answers.mine\n"


@_habit
def an_answer_twice_made_anew(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    name = _functions(_text(cell))[-1]
    old = f"def {name}(*args):\n    return 1  # first try\n\n\ndef {name}(*args):\n    return None  # second\n\n\n"
    cell["source"] = old + _text(cell)


@_habit
def an_answer_under_a_condition(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    inner = "".join(f"    {line}" if line.strip() else line for line in _text(cell).splitlines(keepends=True))
    cell["source"] = f"FAST = True\nif FAST:\n{inner}\n"


@_habit
def an_answer_with_a_remark_in_front_of_each_line(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    lines = _text(cell).splitlines()
    cell["source"] = "\n".join(
        part for line in lines for part in (line, "" if line.rstrip().endswith((",", "(")) else "# ok")
    )


@_habit
def tabs_for_spaces(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    cell["source"] = re.sub(r"^( {4})+", lambda found: "\t" * (len(found[0]) // 4), _text(cell), flags=re.M)


@_habit
def line_ends_of_windows_in_cells(notebook: Notebook, place: int) -> None:
    for cell in notebook["cells"]:
        cell["source"] = _text(cell).replace("\n", "\r\n")


@_habit
def blanks_at_the_ends_of_lines(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    cell["source"] = "\n".join(f"{line}  " for line in _text(cell).splitlines()) + "\n\n\n"


@_habit
def blanks_that_do_not_break(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    cell["source"] = f"# my\u00a0answer\u200b, at\u2028last\n{_text(cell)}"


@_habit
def sources_as_lists_of_lines(notebook: Notebook, place: int) -> None:
    for cell in notebook["cells"]:
        cell["source"] = _text(cell).splitlines(keepends=True)


@_habit
def outputs_cleared_and_counts_missing(notebook: Notebook, place: int) -> None:
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell.pop("execution_count", None)
            cell.pop("outputs", None)


@_habit
def raw_cells_and_attachments(notebook: Notebook, place: int) -> None:
    picture = {"a.png": {"image/png": "iVBORw0KGgo="}}
    text = {
        "id": "att",
        "cell_type": "markdown",
        "metadata": {},
        "source": "![a](attachment:a.png)",
        "attachments": picture,
    }
    raw = {"id": "raw", "cell_type": "raw", "metadata": {}, "source": "def not_code("}
    notebook["cells"][place:place] = [text, raw]


@_habit
def a_cell_collapsed_tagged_and_slide(notebook: Notebook, place: int) -> None:
    metadata = notebook["cells"][place]["metadata"]
    metadata |= {"jupyter": {"source_hidden": True}, "collapsed": True, "slideshow": {"slide_type": "slide"}}
    metadata["tags"] = [*metadata.get("tags", []), "done", "hide-input"]
    metadata["editable"] = False


@_habit
def marks_of_deepnote_and_kaggle(notebook: Notebook, place: int) -> None:
    notebook["metadata"] |= {"kaggle": {"accelerator": "gpu"}, "deepnote": {}, "accelerator": "GPU", "widgets": {}}
    for number, cell in enumerate(notebook["cells"]):
        cell["metadata"] |= {
            "cell_id": f"{number:032x}",
            "deepnote_cell_type": "code",
            "execution": {"iopub.busy": "x"},
        }


@_habit
def another_language_named(notebook: Notebook, place: int) -> None:
    notebook["metadata"]["kernelspec"] = {"name": "my-torch", "display_name": "Python (torch 2)", "language": "python"}
    notebook["metadata"].pop("language_info", None)


@_habit
def a_copy_of_the_check_above(notebook: Notebook, place: int) -> None:
    check = copy.deepcopy(notebook["cells"][place + 1]) | {"id": "check-again"}
    notebook["cells"].insert(place, check)


@_habit
def empty_cells_everywhere(notebook: Notebook, place: int) -> None:
    notebook["cells"][:] = [each for cell in notebook["cells"] for each in (_new("", id(cell) % 9999), cell)]


@_habit
def the_whole_notebook_twice(notebook: Notebook, place: int) -> None:
    again = copy.deepcopy(notebook["cells"])
    for number, cell in enumerate(again):
        cell["id"] = f"again-{number}"
    notebook["cells"] += again


@_habit
def an_output_of_every_kind(notebook: Notebook, place: int) -> None:
    cell = notebook["cells"][place]
    cell["execution_count"] = 999
    cell["outputs"] = [
        {"output_type": "stream", "name": "stderr", "text": ["a\n"]},
        {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo=", "text/html": "<b>x"}, "metadata": {}},
        {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mE"]},
    ]


def _as(change: Callable[[str], bytes]) -> Callable[[Notebook], bytes]:
    return lambda notebook: change(json.dumps(notebook, ensure_ascii=False, indent=1))


SAVED: dict[str, tuple[str, Callable[[Notebook], bytes]]] = {
    "a mark of byte order": ("{}.ipynb", _as(lambda text: b"\xef\xbb\xbf" + text.encode())),
    "line ends of Windows": ("{}.ipynb", _as(lambda text: text.replace("\n", "\r\n").encode())),
    "a blank and a number in the name": ("{} lesson (1).ipynb", _as(str.encode)),
    "another script in the name": ("{} Übung 一 задание.ipynb", _as(str.encode)),
    "a copy by name": ("{}-Copy1.ipynb", _as(str.encode)),
    "all in capitals": ("{}.IPYNB", _as(str.encode)),
    "blanks around": ("{}.ipynb", _as(lambda text: f"\n\n {text}\n\n".encode())),
    "nothing but ascii": ("{}.ipynb", lambda notebook: json.dumps(notebook).encode()),
    "sixteen bits a letter": ("{}.ipynb", _as(lambda text: text.encode("utf-16"))),
    "a NaN in an output": (
        "{}.ipynb",
        _as(lambda text: text.replace('"metadata"', '"x": NaN, "metadata"', 1).encode()),
    ),
}
"""The name of a file, with {} for its student, and its bytes."""
