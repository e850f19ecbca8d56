"""The README of a student release: how to begin on any system, and the commands a student has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from labkit.grading.handout.runtime_lock import CPU_BUILDS, pinned
from labkit.grading.handout.wheels import WHEELS
from labkit.lessons import manifest

_README = r"""# Distributed training, built by hand

LESSONS
PAGES
## Begin

You need Python 3.11, 3.12, 3.13 or 3.14, 4 GB of memory and 3 GB of disk, and no GPU. The first start downloads some
500 MB (on Linux several GB, unless you follow the first note below), so do it at home.

**Linux and macOS**, in a terminal, in this folder:

```
python3 -m venv .venv
source .venv/bin/activate
python -m pip install -r requirements.lock
python -m pip install --no-deps --no-build-isolation -e .
labkit lab
```

**Windows**, in PowerShell, in this folder:

```
py -m venv .venv
.venv\Scripts\Activate.ps1
python -m pip install -r requirements.lock
python -m pip install --no-deps --no-build-isolation -e .
labkit lab
```

If PowerShell refuses the second line: `Set-ExecutionPolicy -Scope Process RemoteSigned`, then again. Ranks start more
slowly on Windows and macOS than on Linux, and nobody has tried every lesson there. If something does not work, use WSL2
(Windows) or a container.

* **Linux without an NVIDIA GPU:** run `python -m pip install --index-url CPU_BUILDS TORCH` before the third line.
  PyTorch then takes 200 MB instead of several GB.
* **From a USB stick:** with the folder `WHEELS` here, the third line is
  `python -m pip install --no-index --find-links WHEELS -r requirements.lock`. It needs no network.
* **With make** (Linux, macOS): `make lab` does all of it. **With conda:** `conda env create -f environment.yml`, then
  `conda activate labkit` and `labkit lab`.

Next time: activate the environment (the second line), then `labkit lab`.

## Work

Each exercise is a cell that you write. `labkit.check("EXERCISE", EXERCISE)` tries your function and says what is wrong.
Stuck? `labkit.hint("EXERCISE")` gives a nudge, then the idea, then almost the line.

| in a terminal | what it does |
|---|---|
| `labkit doctor` | says what your machine lacks; for your instructor: `labkit doctor --json > NAME.json` |
| `labkit reset EXERCISE` | starts one exercise over; your notebook as it was goes into `notebooks/kept/` |
| `labkit catch-up LESSON` | gets you ready for a lesson before you have finished the last; what you wrote stays |
| `labkit catch-up LESSON --pack FILE` | also fills in answers your instructor handed out; they may earn less |
EXPORT
In class, your instructor may show a link. In any notebook:

```python
labkit.join_class("http://ADDRESS/c/CODE", "a nickname")   # from now on your progress is on the class board
labkit.i_need_help()                                       # somebody comes; labkit.i_am_done() when you are
labkit.leave_class()
```

The board gets your nickname, the exercise, whether it passed and which known mistake it was, your guesses, and the plan
of a design. No code leaves your machine.

## Hand in

Save, and hand in the `.ipynb` file. Your exercises and answers are graded, with other inputs and other numbers of ranks
than you see. A function, constant or import of your own in another cell counts where an exercise uses it.
"""
_EXPORT = "| `labkit export {lesson}` | writes your notebook's functions as a script for `torchrun` |\n"
_PAGES = "Open [pages/index.html](pages/index.html) in a browser: slides, glossary, reference. It needs no network."


def students_readme(notebooks: Sequence[Path], lock: str, pages: bool) -> str:
    """Return the README of a release.

    Args:
        notebooks: Of its lessons.
        lock: Its requirements.lock.
        pages: Whether it brings slides, glossary and site as pages.
    """
    manifests = [manifest.read(path) for path in notebooks]
    code = (each.provides[0] for one in manifests for each in one.exercises if each.provides == (each.id,))
    scripts = [path.name[:2] for path in notebooks if '"export"' in path.read_text(encoding="utf-8")]
    words = {
        "EXPORT": _EXPORT.format(lesson=scripts[0]) if scripts else "",
        "LESSONS": "\n".join(
            f"* [{one.title}](notebooks/{path.name})" for one, path in zip(manifests, notebooks, strict=True)
        ),
        "PAGES": f"\n{_PAGES}\n" if pages else "",
        "EXERCISE": next(code, "ring_sum"),
        "LESSON": notebooks[-1].name[:2],
        "CPU_BUILDS": CPU_BUILDS,
        "TORCH": pinned(lock, "torch"),
        "WHEELS": WHEELS,
    }
    text = _README
    for name, value in words.items():
        text = text.replace(name, value)
    return text
