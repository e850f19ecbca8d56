"""A still as it looks on a page's ground."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from labkit.widgets.canvas import SHARP
from labkit.widgets.static_timeline import WIDTH

GROUNDS = {"light": "#ffffff", "dark": "#111111"}


def opacity_of(png: bytes) -> np.ndarray:
    """Return how opaque each pixel is, 0 to 255, shape (height, width)."""
    return _by_page(np.asarray(Image.open(io.BytesIO(png)).convert("RGBA").getchannel("A")))


def on_ground(png: bytes, ground: str = "light") -> np.ndarray:
    """Return the pixels as they are seen, shape (height, width, 3)."""
    image = Image.open(io.BytesIO(png)).convert("RGBA")
    page = Image.new("RGB", image.size, GROUNDS[ground])
    page.paste(image, mask=image.getchannel("A"))
    return _by_page(np.asarray(page))


def _by_page(pixels: np.ndarray) -> np.ndarray:
    """Return the first of a sharp timeline's pixels for each that it takes on the page; of another still, all."""
    return pixels[::SHARP, ::SHARP] if pixels.shape[1] == SHARP * WIDTH else pixels
