"""What tests do with a figure that lives in a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Open = Callable[..., Any]
"""What the fixture `show` is: it opens figures in a page."""

PAGE = "<!doctype html><meta charset=utf-8><style>:root{{color-scheme:{theme}}}</style><body>{body}"
ILLEGAL = [["F0", "F1", "B0", "B1"], ["F0", "B1", "F1", "B0"]]


def number(page: Any, label: str) -> str:
    """Return the number that a figure shows under this label."""
    return str(page.text_content(f'[data-number="{label}"]'))


def open_more(page: Any) -> None:
    """Show a timeline's seldom wanted controls, where they are hidden; `page` may be a part of one."""
    for closed in page.locator(".labkit-main > button[aria-expanded=false]").all():
        closed.click()


def set_slider(page: Any, key: str, position: float) -> None:
    """Move a slider as its reader would; of words, press the one at this position."""
    script = """(control, to) => {
      if (control.dataset.choice) return control.click();
      control.value = to;
      control.dispatchEvent(new Event('input', { bubbles: true }));
    }"""
    page.eval_on_selector(f'input[data-key="{key}"], [data-choice="{key}"][data-at="{position:g}"]', script, position)


def drag(page: Any, operation: str, pixels: float) -> None:
    """Drag an operation of the first schedule, as "1:B0", to the right or, below 0, to the left."""
    take(page, f'[data-op="{operation}"] >> nth=0', pixels)
    page.mouse.up()


def take(page: Any, selector: str, pixels: float) -> None:
    """Take a mark along to the right or, below 0, to the left, and hold it there."""
    box = page.locator(selector).bounding_box()
    middle, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(middle, y)
    page.mouse.down()
    page.mouse.move(middle + pixels / 2, y)
    page.mouse.move(middle + pixels, y)
