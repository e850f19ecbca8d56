"""Habits of honest learners of a third round: lines above and below an answer, and cells that changed their form."""

from __future__ import annotations

import copy

from grading.odd_habits import Habit, Notebook, _above, _below, _new, _text

ABOVE = {
    "a reload": "%load_ext autoreload\n%autoreload 2",
    "a backend": "%matplotlib widget",
    "pip in front": "!pip install -q -U torch 2>&1 | tail -1",
    "conda in front": "%conda install -y pytorch",
    "help": "torch.nn.Linear?",
    "more help": "dist.isend??",
    "help in front": "?dist.send",
    "a shell inside": "import sys\nif False:\n    from IPython import embed; embed()",
    "a debugger by import": "import pdb",
    "a debugger from IPython": "from IPython.core.debugger import set_trace",
    "limits of Python": "import sys\nsys.setrecursionlimit(10_000)",
    "another default dtype": "torch.set_default_dtype(torch.float32)",
    "a seed of torch": "torch.manual_seed(1234); torch.use_deterministic_algorithms(False)",
    "errors for warnings": "import warnings\nwarnings.filterwarnings('error')",
    "a log to a file": "import logging\nlogging.basicConfig(filename='my.log', level=logging.INFO, force=True)",
    "threads of both kinds": "torch.set_num_threads(1); torch.set_num_interop_threads",
    "paths of one's own": "import sys, os\nsys.path.append(os.path.join(os.getcwd(), 'src'))",
    "a mount of Colab": "try:\n    from google.colab import drive\n    drive.mount('/d')\nexcept ImportError: pass",
    "a form of Colab": '#@title My answer { display-mode: "form" }\nn_ranks = 4 #@param {type:"integer"}',
    "a picture's size": "import matplotlib.pyplot as plt\nplt.rcParams['figure.dpi'] = 120",
    "no gradients": "torch.set_grad_enabled(True)",
    "print options": "torch.set_printoptions(precision=3, sci_mode=False)",
    "German quotes in a comment": "# „hier“ wird ‚verdoppelt‘ … – fertig",
    "annotations": "from __future__ import annotations",
    "two imports a line": "import os, sys, math, random",
    "a walrus": "if (n := 3) > 2: pass",
    "a type alias": "from typing import Optional, TypeVar\nT = TypeVar('T')\nMaybe = Optional[int]",
    "a data class": "from dataclasses import dataclass\n@dataclass\nclass Note:\n    text: str = ''",
    "a lambda": "twice = lambda x: x * 2",
    "a suppressed output": "%%capture --no-stderr\n",
    "a timer": "%%time\n",
}
BELOW = {
    "display": "from IPython.display import display, Markdown\ndisplay(Markdown('**done**'))",
    "an await": "import asyncio\nawait asyncio.sleep(0)",
    "a line magic by call": "get_ipython().run_line_magic('time', '1 + 1')",
    "a try of one's own": "try:\n    print(undefined_name)\nexcept NameError as e:\n    print(e)",
    "a history": "%history -n 1-3",
    "who": "%who",
    "a widget": "try:\n    import ipywidgets as w\n    w.IntSlider()\nexcept Exception:\n    ...",
    "an assert with a message": "assert callable(print), f'{print!r}'",
    "a break point that is off": "import os\nos.environ['PYTHONBREAKPOINT'] = '0'\nbreakpoint()",
    "a reset": "%xdel nothing\n%reset_selective -f nothing",
    "a clean-up": "import gc; gc.collect()",
}
NEWS: dict[str, Habit] = {name: _above(text) for name, text in ABOVE.items()}
NEWS |= {name: _below(text) for name, text in BELOW.items()}


def _other(name: str, source: str, kind: str = "code") -> None:
    def habit(notebook: Notebook, place: int) -> None:
        cell = _new(source, place)
        if kind != "code":
            cell = {"id": f"k{place}", "cell_type": kind, "metadata": {}, "source": source}
        notebook["cells"].insert(place, cell)

    NEWS[name] = habit


_other("a cell of bash", "%%bash\nls -la\nexit 1")
_other("a cell of JavaScript", "%%javascript\nalert(1)")
_other("a cell of SQL", "%%sql\nselect 1")
_other("a cell of R", "%%R\nx <- 1:10")
_other("a cell of HTML", "%%html\n<b>mine</b>")
_other("a run of a script", "%run my_script.py")
_other("a raw cell", "def double(x): return 3 * x", "raw")


def _the_answer_in_two_cells_with_a_decorator(notebook: Notebook, place: int) -> None:
    source = _text(notebook["cells"][place])
    wraps = "@functools.wraps(f)\n    def g(*a, **k):\n        return f(*a, **k)"
    noted = f"import functools\ndef noted(f):\n    {wraps}\n    return g"
    notebook["cells"].insert(place, _new(noted, place))
    at = source.index("def ")
    notebook["cells"][place + 1]["source"] = source[:at] + "@noted\n" + source[at:]


def _a_stub_last(notebook: Notebook, place: int) -> None:
    stub = copy.deepcopy(notebook["cells"][place])
    name = _text(stub).split("def ")[1].split("(")[0]
    stub["id"], stub["source"] = "stub-copy", f"def {name}(x):\n    raise NotImplementedError\n"
    stub["metadata"] = {}
    notebook["cells"].append(stub)


def _ids_of_jupytext(notebook: Notebook, place: int) -> None:
    for cell in notebook["cells"]:
        cell.pop("id", None)
        cell["metadata"] = {}
    notebook["nbformat_minor"] = 4


def _marks_of_databricks(notebook: Notebook, place: int) -> None:
    for number, cell in enumerate(notebook["cells"]):
        cell["metadata"]["application/vnd.databricks.v1+cell"] = {"nuid": f"{number}", "cellMetadata": {}, "title": ""}


def _cells_in_reverse(notebook: Notebook, place: int) -> None:
    notebook["cells"].reverse()


NEWS |= {
    "a decorator in its own cell": _the_answer_in_two_cells_with_a_decorator, "a stub at the end": _a_stub_last,
    "ids lost": _ids_of_jupytext, "marks of Databricks": _marks_of_databricks, "in reverse": _cells_in_reverse,
}  # fmt: skip
