"""nbgrader's formgrader with a class that wrote answers: points by key press in a headless Chromium."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.other_graders import code, notebook, run_in

_NO_MATHJAX = """
window.MathJax = {Hub: {Config() {}, Queue() {}, Startup: {signal: {Interest(told) { told("End"); }}}}};
"""
"""MathJax comes from a server elsewhere, and the page waits for it: here it is there at once."""
_READY = """before => window.submission_id !== before && window.formgrader
    && formgrader.loaded && formgrader.grades.loaded && formgrader.comments.loaded"""
_TOKEN = "a-token-of-the-benchmark"


class Formgrader:
    """A course with one question, answered by a class that was graded and is to be read.

    Args:
        folder: Where it is made; must not exist.
        wrote: Each student's answer.
        python: The interpreter nbgrader is installed for.
    """

    def __init__(self, folder: Path, wrote: Mapping[str, str], python: str) -> None:
        self.folder, self._python = folder, python
        source = folder / "source" / "ps1"
        source.mkdir(parents=True)
        preprocessors = ("IgnorePattern", "LimitOutput", "SaveAutoGrades")
        kept = ", ".join(f"'nbgrader.preprocessors.{each}'" for each in preprocessors)  # nothing is to be executed
        settings = f"c = get_config()\nc.CourseDirectory.course_id = 'course'\nc.CourseDirectory.root = '{folder}'\n"
        settings += f"c.Autograde.autograde_preprocessors = [{kept}]\n"
        for name in ("nbgrader_config.py", "jupyter_server_config.py"):
            (folder / name).write_text(settings)
        asked = {"schema_version": 3, "task": False, "grade": True, "solution": True, "locked": False, "points": 3}
        cell = code("YOUR ANSWER HERE", "mean-in-words", nbgrader={**asked, "grade_id": "mean_in_words"})
        cell = {name: cell[name] for name in ("id", "metadata", "source")} | {"cell_type": "markdown"}
        (source / "p.ipynb").write_text(json.dumps(notebook([code("1 + 1", "given"), cell])))
        self._run("generate_assignment", "ps1")
        released = json.loads((folder / "release" / "ps1" / "p.ipynb").read_text())
        for student, text in wrote.items():
            released["cells"][1]["source"] = text
            path = folder / "submitted" / student / "ps1" / "p.ipynb"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(released))
        self._run("autograde", "ps1")

    def _run(self, *words: str) -> None:
        ended = run_in(self.folder, [self._python, "-m", "nbgrader", *words], 1200, [])
        if ended.returncode:
            raise RuntimeError(f"nbgrader {words[0]}: {ended.stdout[-400:]}{ended.stderr[-400:]}")

    @contextmanager
    def _served(self) -> Iterator[str]:
        words = ["-m", "jupyter_server", "--no-browser", "--port=0", f"--IdentityProvider.token={_TOKEN}"]
        words += ["--allow-root", f"--ServerApp.root_dir={self.folder}", "--ServerApp.port_retries=50"]
        runtime = self.folder / "runtime"
        data = Path(import_module("nbconvert").__file__ or "").parents[4] / "share" / "jupyter"  # its templates
        process = subprocess.Popen(
            [self._python, *words], cwd=self.folder, stdin=subprocess.DEVNULL, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=(self.folder / "server.log").open("w"),
            env=os.environ | {
                "JUPYTER_RUNTIME_DIR": str(runtime), "JUPYTER_CONFIG_DIR": str(self.folder), "JUPYTER_PATH": str(data),
            },
        )  # fmt: skip
        try:
            yield self._address(process, runtime)
        finally:
            process.terminate()
            process.wait(60)

    def _address(self, process: subprocess.Popen[bytes], runtime: Path) -> str:
        for _ in range(600):
            for path in runtime.glob("jpserver-*.json"):
                with suppress(OSError, ValueError):  # it is being written, or nobody answers yet
                    url = str(json.loads(path.read_text())["url"])
                    request = urllib.request.Request(f"{url}api", headers={"Authorization": f"token {_TOKEN}"})
                    urllib.request.urlopen(request, timeout=30).close()
                    return url
            if process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"the server did not start: {(self.folder / 'server.log').read_text()[-600:]}")

    def seconds(self, browser: Any, count: int) -> tuple[float, float]:
        """Return the seconds until the first answer can be given points, and the median from one to the next.

        Args:
            browser: Playwright's.
            count: How many answers are given points.
        """
        with self._served() as url:
            context = browser.new_context(extra_http_headers={"Authorization": f"token {_TOKEN}"})
            context.set_default_timeout(150_000)
            context.add_init_script(_NO_MATHJAX)
            context.route(lambda address: not address.startswith(url), lambda route: route.abort())
            page = context.new_page()
            listed = page.request.get(f"{url}formgrader/api/submitted_notebooks/ps1/p").json()
            first = min(each["id"] for each in listed)
            begin = time.perf_counter()
            page.goto(f"{url}formgrader/submissions/{first}/?index=0")
            page.wait_for_function(_READY)
            opened, between = time.perf_counter() - begin, []
            for _ in range(count):
                page.locator("input.score").first.focus()
                page.keyboard.type("2")
                before, begin = page.evaluate("submission_id"), time.perf_counter()
                page.keyboard.press("Control+.")
                page.wait_for_function(_READY, arg=before)
                between.append(time.perf_counter() - begin)
            given = page.request.get(f"{url}formgrader/api/submitted_notebooks/ps1/p").json()
            context.close()
        if sum(each["score"] == 2 for each in given) != count:
            raise RuntimeError(f"formgrader kept {sum(each['score'] == 2 for each in given)} of {count} points")
        return opened, median(between)
