"""A real JupyterLab and a real Chromium."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import pytest

from labkit.widgets.explorer import Explorer
from tests.browser.figure_pages import PAGE, Open
from tests.lasting_port import lasting_port

ERROR = "application/vnd.jupyter.error"
ROOT = Path(__file__).parents[2]
TOKEN = "of-this-test-only"


@dataclass
class Lab:
    """A JupyterLab on a folder of its own, and the page that looks at it."""

    url: str
    folder: Path
    page: Any
    requests: list[str] = field(default_factory=list)

    def open(self, name: str, cells: list[Any] | nbformat.NotebookNode) -> None:
        """Write a notebook into the folder and open it in the page, its kernel idle."""
        notebook = cells
        if isinstance(cells, list):
            kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
            notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernelspec})
        nbformat.write(notebook, self.folder / name)
        # A workspace of its own: JupyterLab opens again what was open in the one it knows.
        self.page.goto(f"{self.url}/lab/workspaces/{Path(name).stem}/tree/{name}")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self._wait_for_kernel(name)

    def _wait_for_kernel(self, name: str) -> None:
        """Wait until the notebook's kernel is idle and the page has joined it; before that, "Run All" asks for one."""
        until = time.monotonic() + 180
        while time.monotonic() < until:
            sessions = {session["path"]: session["kernel"] for session in self._sessions()}
            kernel = sessions.get(name, {})
            if kernel.get("execution_state") == "idle" and kernel.get("connections"):
                self.page.wait_for_selector("#jp-main-statusbar >> text=/\\| Idle/")
                return
            self.page.wait_for_timeout(100)
        raise RuntimeError(f"no kernel for {name}: {sessions}")

    def run_all(self, timeout_s: float) -> None:
        """Run every cell and wait until the last one is done.

        Args:
            timeout_s: What is plenty where nothing else runs; a loaded machine gets four times as long.
        """
        self.page.click("li.lm-MenuBar-item:has-text('Run') >> nth=0")
        self.page.click("li.lm-Menu-item[data-command='runmenu:run-all']")
        prompts = "[...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(p => p.textContent)"
        try:
            self.page.wait_for_function(f"() => {prompts}.some(text => /[*0-9]/.test(text))")
            self.page.wait_for_function(f"() => !{prompts}.some(text => text.includes('*'))", timeout=timeout_s * 4000)
        except Exception:
            self.screenshot("not-finished")
            raise

    def saved(self, name: str) -> nbformat.NotebookNode:
        """Save from the page and return the notebook as it then lies on disk: what the page had in every cell."""
        before = (self.folder / name).stat().st_mtime_ns
        self.page.keyboard.press("Control+s")
        until = time.monotonic() + 120
        while time.monotonic() < until:
            self.page.wait_for_timeout(50)
            if (self.folder / name).stat().st_mtime_ns != before:
                with contextlib.suppress(nbformat.reader.NotJSONError):  # half of it is written
                    return nbformat.read(self.folder / name, as_version=4)
        raise RuntimeError(f"JupyterLab did not save {name}")

    def end_kernel(self, name: str) -> None:
        """End the notebook's kernel, as "Shut Down Kernel" does."""
        (session,) = [each for each in self._sessions() if each["path"] == name]
        self._end(session)

    def end_kernels(self) -> None:
        """End every kernel; those of all lessons together would fill this machine's memory."""
        for session in self._sessions():
            self._end(session)

    def _sessions(self) -> list[Any]:
        with urllib.request.urlopen(f"{self.url}/api/sessions?token={TOKEN}", timeout=300) as answer:
            sessions: list[Any] = json.load(answer)
        return sessions

    def _end(self, session: Any) -> None:
        address = f"{self.url}/api/sessions/{session['id']}?token={TOKEN}"
        urllib.request.urlopen(urllib.request.Request(address, method="DELETE"), timeout=300).close()

    def errors(self) -> list[str]:
        """Return the text of every error output in view; JupyterLab keeps only cells near the view in the page."""
        return [each.inner_text() for each in self.page.query_selector_all(f"[data-mime-type='{ERROR}']")]

    def screenshot(self, name: str) -> None:
        """Save what the page shows where LABKIT_SCREENSHOTS names a folder, for people to look at."""
        folder = os.environ.get("LABKIT_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"))


@contextlib.contextmanager
def running_lab(folder: Path, state: Path, python: str = sys.executable) -> Iterator[str]:
    """Start a JupyterLab as `make lab` starts it and give its address; end it, with its kernels, afterwards.

    Args:
        folder: What it shows.
        state: Where it keeps what is its own.
        python: The Python whose environment it is installed in.
    """
    port = lasting_port()  # JupyterLab opens it seconds later
    command = [python, "-m", "jupyterlab", "--no-browser", f"--port={port}", f"--ServerApp.root_dir={folder}"]
    command += [f"--IdentityProvider.token={TOKEN}", "--ServerApp.port_retries=0", "--ip=127.0.0.1"]
    if os.name == "posix" and os.getuid() == 0:
        command.append("--allow-root")
    environment = {**os.environ, "JUPYTER_CONFIG_DIR": str(state / "config"), "JUPYTER_DATA_DIR": str(state / "data")}
    environment |= {"JUPYTER_CONFIG_PATH": str(ROOT / ".jupyter")}
    environment |= {"JUPYTER_RUNTIME_DIR": str(state / "runtime"), "IPYTHONDIR": str(state / "ipython")}
    log = state / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_it_answers(f"{url}/api?token={TOKEN}", process, log)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A JupyterLab of these tests."""
    folder = tmp_path_factory.mktemp("notebooks")
    with running_lab(folder, tmp_path_factory.mktemp("jupyter")) as url:
        yield url, folder


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 180
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=300):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"JupyterLab does not answer at {url}; it said:\n{log.read_text()}")


@pytest.fixture(scope="session")
def lab_context(browser: Any, server: tuple[str, Path]) -> Iterator[Any]:
    """The context of all pages on the JupyterLab: its programs are fetched and compiled once."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    page.goto(f"{server[0]}/api/status?token={TOKEN}")  # leaves the cookie; `open` loads JupyterLab itself
    page.close()
    yield context
    with contextlib.suppress(Exception):  # a browser that died in between has taken it along
        context.close()


@pytest.fixture
def lab(lab_context: Any, server: tuple[str, Path]) -> Iterator[Lab]:
    """A page of its own on the JupyterLab; every address the page asked for is in ``lab.requests``."""
    url, folder = server
    page = lab_context.new_page()
    lab = Lab(url, folder, page)

    def note(request: Any) -> None:
        lab.requests.append(request.url)

    lab_context.on("request", note)
    page.on("websocket", lambda socket: lab.requests.append(socket.url))
    yield lab
    page.close()
    lab_context.remove_listener("request", note)
    lab.end_kernels()


@pytest.fixture
def open_timeline(browser: Any) -> Iterator[Open]:
    """Return a function that opens a file with a timeline, in a context of its own, and waits for the picture."""
    contexts = []

    def open_timeline(path: Path, **options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.goto(path.as_uri())
        page.wait_for_selector("[data-painted]")
        return page

    yield open_timeline
    for context in contexts:
        context.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens figures in a page; every address asked for and every error is kept."""
    contexts = []

    def show(*figures: Explorer, width: int = 1000, theme: str = "light", **options: Any) -> Any:
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(PAGE.format(theme=theme, body="".join(figure.to_html() for figure in figures)))
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.asked, page.failed = [], []
        context.on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: page.failed.append(str(error)))
        page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_selector(".labkit-figure[data-live] svg[role=img]", state="attached")
        return page

    yield show
    for context in contexts:
        context.close()
