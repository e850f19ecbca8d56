"""Firefox and WebKit, driven as a reader would: by wheel, pointer and keys.

Firefox speaks WebDriver BiDi by itself; WebKit has WebKitWebDriver, Debian's webkit2gtk-driver, and wants a display,
which xvfb makes. Both are spoken to as W3C's two standards say, so neither needs a package of Python's.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_WAIT_S = 30.0
_KEYS = {
    "Home": "\ue011",
    "End": "\ue010",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
}
_KEYS |= {"Enter": "\ue007", "Tab": "\ue004", "Escape": "\ue00c", "Control": "\ue009", "Shift": "\ue008"}
_CALL = "JSON.stringify(await ({function})(...{arguments}) ?? null)"
_MIDDLE = """(css, nth) => {
  const at = document.querySelectorAll(css)[nth];
  at.scrollIntoView({ block: "center", behavior: "instant" });
  const box = at.getBoundingClientRect();
  return [box.left, box.top, box.width, box.height];
}"""


class Engine(ABC):
    """A browser with one page.

    Attributes:
        name: Which one.
        version: Of it.
        theme: "light" or "dark", which pages are told.
    """

    name: str
    version: str
    theme: str

    @abstractmethod
    def goto(self, url: str) -> None:
        """Go to an address and wait until the page has loaded."""

    @abstractmethod
    def evaluate(self, function: str, *arguments: Any) -> Any:
        """Call a JavaScript function in the page and return what it gives, or what that promises."""

    @abstractmethod
    def perform(self, actions: list[dict[str, Any]]) -> None:
        """Do what WebDriver calls actions."""

    @abstractmethod
    def screenshot(self, path: Path) -> None:
        """Save what the window shows."""

    def wait(self, function: str, *arguments: Any, timeout_s: float = _WAIT_S) -> None:
        """Wait until a JavaScript function gives something true."""
        until = time.monotonic() + timeout_s
        while not self.evaluate(f"async (...all) => Boolean(await ({function})(...all))", *arguments):
            if time.monotonic() > until:
                raise TimeoutError(f"{self.name}: not in {timeout_s:g} s: {function}{arguments}")
            time.sleep(0.05)

    def box(self, css: str, nth: int = 0) -> tuple[float, float, float, float]:
        """Bring an element into view and return its left, top, width and height."""
        left, top, width, height = self.evaluate(_MIDDLE, css, nth)
        return left, top, width, height

    def press(self, *keys: str) -> None:
        """Press keys one after another; "Control+s" holds the first."""
        for key in keys:
            parts = [_KEYS.get(part, part) for part in (key.split("+") if len(key) > 1 else [key])]
            downs = [{"type": "keyDown", "value": part} for part in parts]
            ups = [{"type": "keyUp", "value": part} for part in reversed(parts)]
            self.perform([{"type": "key", "id": "keys", "actions": [*downs, *ups]}])

    def drag(self, places: Sequence[tuple[float, float]]) -> None:
        """Press the pointer at the first place, move it through the others, let it go at the last."""
        moves = [
            {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 20, "origin": "viewport"}
            for x, y in places
        ]
        down, up = ({"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp"))
        self._pointer([moves[0], down, *moves[1:], up])

    def hover(self, x: float, y: float) -> None:
        """Move the pointer to a place."""
        self._pointer([{"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0, "origin": "viewport"}])

    def click(self, css: str, nth: int = 0) -> None:
        """Click the middle of an element."""
        left, top, width, height = self.box(css, nth)
        self.drag([(left + width / 2, top + height / 2)])

    def wheel(self, x: float, y: float, down: int) -> None:
        """Turn the wheel over a place."""
        turn = {"type": "scroll", "x": round(x), "y": round(y), "deltaX": 0, "deltaY": down, "duration": 0}
        self.perform([{"type": "wheel", "id": "wheel", "actions": [{**turn, "origin": "viewport"}]}])

    def _pointer(self, actions: list[dict[str, Any]]) -> None:
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}}
        self.perform([{**mouse, "actions": actions}])


class Firefox(Engine):
    """A Firefox spoken to in WebDriver BiDi.

    Attributes:
        asked: Every address its pages asked for.
        failed: Every error of a page's script.
    """

    name = "firefox"

    def __init__(self, port: int, width: int, height: int) -> None:
        from websocket import create_connection

        until = time.monotonic() + _WAIT_S
        while True:
            try:
                self._socket = create_connection(
                    f"ws://127.0.0.1:{port}/session", timeout=_WAIT_S, suppress_origin=True
                )
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
        self._number = itertools.count(1)
        self.asked: list[str] = []
        self.failed: list[str] = []
        self.version = self._send("session.new", capabilities={})["capabilities"]["browserVersion"]
        self._page = self._send("browsingContext.getTree")["contexts"][0]["context"]
        self._send("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self._send("browsingContext.setViewport", context=self._page, viewport={"width": width, "height": height})

    def _send(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._number)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("type") == "event":
                self._note(answer["method"], answer["params"])
            elif answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"Firefox: {method}: {answer['error']}: {answer['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _note(self, event: str, params: dict[str, Any]) -> None:
        if event == "network.beforeRequestSent":
            self.asked.append(params["request"]["url"])
        elif params.get("level") == "error" and params.get("type") == "javascript":
            self.failed.append(str(params["text"]))

    def goto(self, url: str) -> None:
        """Go to an address and wait until the page has loaded."""
        self._send("browsingContext.navigate", context=self._page, url=url, wait="complete")

    def evaluate(self, function: str, *arguments: Any) -> Any:
        """Call a JavaScript function in the page and return what it gives, or what that promises."""
        called = f"(async () => {_CALL.format(function=function, arguments=json.dumps(arguments))})()"
        target = {"context": self._page}
        done = self._send("script.evaluate", expression=called, target=target, awaitPromise=True)
        if done["type"] == "exception":
            raise RuntimeError(f"{function}: {done['exceptionDetails']['text']}")
        return json.loads(done["result"]["value"])

    def perform(self, actions: list[dict[str, Any]]) -> None:
        """Do what WebDriver calls actions."""
        self._send("input.performActions", context=self._page, actions=actions)

    def screenshot(self, path: Path) -> None:
        """Save what the window shows."""
        path.write_bytes(base64.b64decode(self._send("browsingContext.captureScreenshot", context=self._page)["data"]))

    def close(self) -> None:
        """Say goodbye."""
        self._socket.close()


class WebKit(Engine):
    """WebKitGTK's own small browser, spoken to through WebKitWebDriver."""

    name = "webkit"

    def __init__(self, port: int, browser: str, arguments: list[str], width: int, height: int) -> None:
        self._server = f"http://127.0.0.1:{port}/session"
        options = {"webkitgtk:browserOptions": {"binary": browser, "args": ["--automation", *arguments]}}
        until = time.monotonic() + _WAIT_S
        while True:
            try:
                opened = self._call("", {"capabilities": {"alwaysMatch": options}})
                break
            except (ConnectionError, urllib.error.URLError):
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
        self._server += f"/{opened['sessionId']}"
        self.version = str(opened["capabilities"]["browserVersion"])
        self._call("/timeouts", {"script": 60_000, "pageLoad": 60_000})
        self._call("/window/rect", {"x": 0, "y": 0, "width": width, "height": height})

    def _call(self, path: str, body: dict[str, Any] | None = None, method: str = "POST") -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._server + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_WAIT_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"WebKit: {path}: {error.read().decode()[:2000]}") from None

    def goto(self, url: str) -> None:
        """Go to an address and wait until the page has loaded."""
        self._call("/url", {"url": url})

    def evaluate(self, function: str, *arguments: Any) -> Any:
        """Call a JavaScript function in the page and return what it gives, or what that promises."""
        call = _CALL.format(function=function, arguments=json.dumps(arguments))
        script = f"const done = arguments[0]; (async () => {call})().then(done, (e) => done('!' + e));"
        text = self._call("/execute/async", {"script": script, "args": []})
        if text.startswith("!"):
            raise RuntimeError(f"{function}: {text[1:]}")
        return json.loads(text)

    def perform(self, actions: list[dict[str, Any]]) -> None:
        """Do what WebDriver calls actions."""
        self._call("/actions", {"actions": actions})

    def screenshot(self, path: Path) -> None:
        """Save what the window shows."""
        path.write_bytes(base64.b64decode(self._call("/screenshot", method="GET")))

    def close(self) -> None:
        """Close the window."""
        with contextlib.suppress(RuntimeError, urllib.error.URLError):
            self._call("", method="DELETE")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def _ended(process: subprocess.Popen[Any]) -> Iterator[None]:
    """End a process, and those it started, afterwards."""
    try:
        yield
    finally:
        for ask in (15, 9):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, ask)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
                break


def _started(command: list[str], log: Path, **environment: str) -> subprocess.Popen[Any]:
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **environment},
        )


def firefox_path() -> str | None:
    """Return where Firefox is, None if it is not here."""
    return shutil.which("firefox-esr") or shutil.which("firefox")


@contextlib.contextmanager
def firefox(folder: Path, *, dark: bool = False, width: int = 1400, height: int = 1000) -> Iterator[Firefox]:
    """Start a Firefox without a window; what its pages save comes to lie in the folder's "saved"."""
    profile = folder / "profile"
    (folder / "saved").mkdir(parents=True, exist_ok=True)
    profile.mkdir(exist_ok=True)
    wanted = {
        "layout.css.prefers-color-scheme.content-override": 0 if dark else 1,
        "browser.download.folderList": 2,
        "browser.download.dir": str(folder / "saved"),
        "browser.download.always_ask_before_handling_new_types": False,
        "browser.shell.checkDefaultBrowser": False,
        "datareporting.policy.dataSubmissionEnabled": False,
    }
    lines = (f"user_pref({json.dumps(key)}, {json.dumps(value)});\n" for key, value in wanted.items())
    (profile / "user.js").write_text("".join(lines))
    port = _free_port()
    command = [firefox_path() or "firefox", "--headless", "--no-remote", "--profile", str(profile)]
    command += ["--remote-debugging-port", str(port), "about:blank"]
    process = _started(command, folder / "firefox.log", HOME=str(folder))
    with _ended(process):
        engine = Firefox(port, width, height)
        engine.theme = "dark" if dark else "light"
        yield engine
        engine.close()


def webkit_paths() -> tuple[str, str] | None:
    """Return where WebKitWebDriver and WebKitGTK's browser are, None if one of them or xvfb is not here."""
    driver = shutil.which("WebKitWebDriver")
    browsers = sorted(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))
    return (driver, str(browsers[-1])) if driver and browsers and shutil.which("Xvfb") else None


@contextlib.contextmanager
def webkit(folder: Path, *, dark: bool = False, width: int = 1400, height: int = 1000) -> Iterator[WebKit]:
    """Start WebKitGTK's browser on a display that nobody sees."""
    paths = webkit_paths()
    assert paths is not None
    driver, browser = paths
    folder.mkdir(parents=True, exist_ok=True)
    read, write = os.pipe()
    screen = ["Xvfb", "-displayfd", str(write), "-screen", "0", "1600x1200x24", "-nolisten", "tcp"]
    with (folder / "xvfb.log").open("wb") as log:
        display = subprocess.Popen(screen, pass_fds=[write], stderr=log, start_new_session=True)
    os.close(write)
    with _ended(display):
        with os.fdopen(read) as told:
            number = told.readline().strip()
        port = _free_port()
        where = {"DISPLAY": f":{number}", "HOME": str(folder)}
        # Its own sandbox asks for user namespaces, which a container may not have; the pages are ours.
        where |= {"WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1", "XDG_RUNTIME_DIR": str(folder)}
        process = _started([driver, f"--port={port}"], folder / "webkit.log", **where)
        with _ended(process):
            engine = WebKit(port, browser, ["--dark-mode"] if dark else [], width, height)
            engine.theme = "dark" if dark else "light"
            yield engine
            engine.close()
