"""Calls functions of labkit's JavaScript in a page of Chromium, which takes the modules as they are written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "labkit" / "widgets" / "js"
CLAIMS = Path(__file__).parent
ORIGIN = "http://labkit.test"

Evaluate = Callable[..., Any]
"""What the fixture `evaluate` is: evaluate("ring", "ringSteps(n)", n=4) knows the functions of all modules of ring/."""

_EVALUATE = """async ([paths, expression, given]) => {
  const inputs = JSON.parse(given);
  const known = { ...Object.assign({}, ...(await Promise.all(paths.map((path) => import(path))))), ...inputs };
  const found = await new Function(...Object.keys(known), `return (${expression});`)(...Object.values(known));
  return JSON.stringify(found ?? null);
}"""
_RUN = "async (path) => { await import(path); return (await import('/in_page/claims.js')).run(); }"


class Modules:
    """A page that is served the modules; its addresses lead nowhere else."""

    def __init__(self, browser: Any) -> None:
        self._context = browser.new_context()
        self._context.route(f"{ORIGIN}/**", self._serve)
        self._of_all = self._page()

    def _page(self) -> Any:
        page = self._context.new_page()
        page.goto(f"{ORIGIN}/")
        return page

    def _serve(self, route: Any) -> None:
        name = route.request.url.removeprefix(f"{ORIGIN}/")
        if not name:
            route.fulfill(body="<!doctype html><meta charset=utf-8>", content_type="text/html")
            return
        folder, _, path = name.partition("/")
        file = {"js": SOURCES, "in_page": CLAIMS, "vectors": ROOT / "tests" / "vectors"}[folder] / path
        kind = "application/json" if file.suffix == ".json" else "text/javascript"
        route.fulfill(body=file.read_text(encoding="utf-8"), content_type=f"{kind}; charset=utf-8")

    def evaluate(self, folder: str, expression: str, **inputs: Any) -> Any:
        """Return the value of an expression that knows the folder's functions and the inputs; one page serves all."""
        paths = sorted(f"/js/{folder}/{path.name}" for path in (SOURCES / folder).glob("*.js"))
        return json.loads(self._of_all.evaluate(_EVALUATE, [paths, expression, json.dumps(inputs)]))

    def run(self, name: str) -> dict[str, Any]:
        """Return what became of the claims of a file in this folder: how many passed, and what failed."""
        page = self._page()
        try:
            found: dict[str, Any] = page.evaluate(_RUN, f"/in_page/{name}")
            return found
        finally:
            page.close()
