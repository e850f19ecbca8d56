"""How far apart colours look: CAM02-UCS distances, also as colour-blind readers see them.

Sources: CIE 159:2004 (CIECAM02), average surround, adapting luminance 64/pi/5 cd/m2, background Y 20; Luo, Cui, Li 2006
(CAM02-UCS); Machado, Oliveira, Fernandes 2009, severity 1.0 (protan, deutan, tritan).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

VISIONS = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
_TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
_CAT02 = np.array([[0.7328, 0.4296, -0.1624], [-0.7036, 1.6975, 0.0061], [0.0030, 0.0136, 0.9834]])
_HPE = np.array([[0.38971, 0.68898, -0.07868], [-0.22981, 1.18340, 0.04641], [0.0, 0.0, 1.0]])


def linear(colour: str) -> np.ndarray:
    """Return linear sRGB of "#rrggbb"."""
    value = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Return WCAG's contrast ratio, 1 to 21."""
    first, second = sorted(float(linear(colour) @ _TO_XYZ[1]) for colour in (one, other))
    return (second + 0.05) / (first + 0.05)


def _ucs(rgb: np.ndarray) -> np.ndarray:
    xyz = 100 * _TO_XYZ @ np.clip(rgb, 0, 1)
    white = 100 * _TO_XYZ.sum(1)
    la = 64 / np.pi / 5
    k = 1 / (5 * la + 1)
    fl = 0.2 * k**4 * 5 * la + 0.1 * (1 - k**4) ** 2 * (5 * la) ** (1 / 3)
    n = 20 / white[1]
    nbb, z = 0.725 * n**-0.2, 1.48 + np.sqrt(n)
    adapted = 1 - np.exp((-la - 42) / 92) / 3.6
    gain = adapted * white[1] / (_CAT02 @ white) + 1 - adapted

    def response(value: np.ndarray) -> np.ndarray:
        cones = _HPE @ np.linalg.inv(_CAT02) @ (gain * (_CAT02 @ value))
        power = (fl * np.abs(cones) / 100) ** 0.42
        return np.sign(cones) * 400 * power / (power + 27.13) + 0.1

    def achromatic(cones: np.ndarray) -> float:
        return float((2 * cones[0] + cones[1] + cones[2] / 20 - 0.305) * nbb)

    r, g, b = cones = response(xyz)
    lightness = 100 * (achromatic(cones) / achromatic(response(white))) ** (0.69 * z)
    a, c = r - 12 * g / 11 + b / 11, (r + g - 2 * b) / 9
    hue = np.arctan2(c, a)
    eccentricity = (np.cos(hue + 2) + 3.8) / 4
    t = 50000 / 13 * nbb * eccentricity * np.hypot(a, c) / (r + g + 1.05 * b)
    chroma = t**0.9 * np.sqrt(max(lightness, 0) / 100) * (1.64 - 0.29**n) ** 0.73
    colourfulness = np.log(1 + 0.0228 * chroma * fl**0.25) / 0.0228
    return np.array(
        [1.7 * lightness / (1 + 0.007 * lightness), colourfulness * np.cos(hue), colourfulness * np.sin(hue)]
    )


def distance(one: str, other: str, vision: str) -> float:
    """Return the CAM02-UCS distance of two colours; 1 is about what can just be told apart side by side."""
    return float(np.linalg.norm(_ucs(VISIONS[vision] @ linear(one)) - _ucs(VISIONS[vision] @ linear(other))))


def least_distance(colours: list[str]) -> float:
    """Return the smallest distance between any two of the colours over all visions."""
    return min(distance(a, b, vision) for a, b in combinations(colours, 2) for vision in VISIONS)
