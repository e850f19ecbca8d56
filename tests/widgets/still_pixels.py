"""A still as it looks on a page's ground."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

GROUNDS = {"light": "#ffffff", "dark": "#111111"}


def opacity_of(png: bytes) -> np.ndarray:
    """Return how opaque each pixel is, 0 to 255, shape (height, width)."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGBA").getchannel("A"))


def on_ground(png: bytes, ground: str = "light") -> np.ndarray:
    """Return the pixels as they are seen, shape (height, width, 3)."""
    image = Image.open(io.BytesIO(png)).convert("RGBA")
    page = Image.new("RGB", image.size, GROUNDS[ground])
    page.paste(image, mask=image.getchannel("A"))
    return np.asarray(page)
