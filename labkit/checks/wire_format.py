"""Values as bytes: a JSON tree with the tensors beside it in safetensors. Reading it runs no code.

Layout: ``LKV1``, the length of the JSON text (4 bytes, little-endian), the JSON text, the safetensors blob.
A tensor stands in the JSON as ``{"$tensor": k}``, a float that JSON lacks as ``{"$float": "nan" | "inf" | "-inf"}``.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from labkit.checks.case import Value, Values
from labkit.errors import LabkitError

_MAGIC = b"LKV1"
_DTYPES = {
    "BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "I32": 4, "I64": 8, "F16": 2, "BF16": 2, "F32": 4, "F64": 8,
}  # fmt: skip
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class WireFormatError(LabkitError, ValueError):
    """These bytes are not values, or are more than the limits allow; the message says which."""


@dataclass(frozen=True)
class Limits:
    """What decode accepts: total bytes, tensors, JSON bytes, nesting, items in all, characters of a string."""

    max_bytes: int = 64 << 20
    max_tensors: int = 4096
    max_json_bytes: int = 4 << 20
    max_depth: int = 8
    max_items: int = 200_000
    max_string: int = 20_000


def encode(values: Values) -> bytes:
    """Return `values` as bytes.

    Raises:
        WireFormatError: If something in it is not a Value; the message says where and what it is.
    """
    tensors: dict[str, torch.Tensor] = {}
    tree = _pack(dict(values), "result", tensors)
    text = json.dumps(tree, separators=(",", ":"), allow_nan=False).encode()
    return _MAGIC + len(text).to_bytes(4, "little") + text + save(tensors)


def _pack(value: object, where: str, tensors: dict[str, torch.Tensor]) -> object:
    if isinstance(value, torch.Tensor):
        tensors[str(len(tensors))] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"$tensor": len(tensors) - 1}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_pack(item, f"{where}[{index}]", tensors) for index, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _pack(item, f"{where}.{key}", tensors) for key, item in value.items()}
    raise WireFormatError(
        f"{where} is of type {type(value).__name__}; only tensors, numbers, strings, None, lists and dicts of these "
        "can be returned"
    )


def decode(data: bytes, limits: Limits | None = None) -> dict[str, Value]:
    """Return the values in `data`; sizes, types and shapes are checked before anything is read.

    Raises:
        WireFormatError: If the bytes are malformed or go over a limit.
    """
    limits = limits or Limits()
    if len(data) > limits.max_bytes:
        raise WireFormatError(f"the values take {len(data)} bytes; the limit is {limits.max_bytes}")
    if len(data) < 8 or data[:4] != _MAGIC:
        raise WireFormatError("these bytes do not begin the way values do")
    text_bytes = int.from_bytes(data[4:8], "little")
    if text_bytes > limits.max_json_bytes or 8 + text_bytes > len(data):
        raise WireFormatError(f"the JSON part claims {text_bytes} of {len(data)} bytes")
    try:
        tree = json.loads(data[8 : 8 + text_bytes].decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise WireFormatError(f"the JSON part cannot be read: {error}") from None
    blob = data[8 + text_bytes :]
    _check_tensor_header(blob, limits)
    try:
        tensors = load(blob)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise WireFormatError(f"the tensors cannot be read: {error}") from None
    for name, tensor in tensors.items():
        if tensor.dtype == torch.bool and tensor.numel() and int(tensor.view(torch.uint8).max()) > 1:
            raise WireFormatError(f"the bool tensor {name[:40]!r} holds a byte that is neither 0 nor 1")
    if not isinstance(tree, dict):
        raise WireFormatError(f"values must be a dict, and this is a {type(tree).__name__}")
    value = _Unpacker(tensors, limits).unpack(tree, 0)
    assert isinstance(value, dict)
    return value


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} stands bare in the JSON")


def _check_tensor_header(blob: bytes, limits: Limits) -> None:
    size = int.from_bytes(blob[:8], "little")
    if len(blob) < 8 or size > limits.max_json_bytes or 8 + size > len(blob):
        raise WireFormatError(f"the tensor header claims {size} of {len(blob)} bytes")
    try:
        header = json.loads(blob[8 : 8 + size].decode())
    except (ValueError, RecursionError) as error:
        raise WireFormatError(f"the tensor header cannot be read: {error}") from None
    if not isinstance(header, dict) or len(header) > limits.max_tensors:
        raise WireFormatError(f"the tensor header must be a dict of at most {limits.max_tensors} tensors")
    for name, entry in header.items():
        if name != "__metadata__":
            _check_tensor_entry(name, entry, len(blob) - 8 - size)


def _check_tensor_entry(name: str, entry: Any, blob_bytes: int) -> None:
    if not isinstance(entry, dict) or entry.get("dtype") not in _DTYPES:
        raise WireFormatError(f"tensor {name[:40]!r} needs one of the dtypes {', '.join(_DTYPES)}")
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    if not (isinstance(shape, list) and len(shape) <= 16 and all(type(n) is int and 0 <= n < 1 << 40 for n in shape)):
        raise WireFormatError(f"tensor {name[:40]!r} has a shape that is not a list of whole numbers")
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(n) is int for n in offsets)):
        raise WireFormatError(f"tensor {name[:40]!r} has no valid offsets")
    if math.prod(max(1, n) for n in shape) > 1 << 40:
        raise WireFormatError(f"tensor {name[:40]!r} has an impossible shape")
    start, end = offsets
    if not 0 <= start <= end <= blob_bytes or end - start != math.prod(shape) * _DTYPES[entry["dtype"]]:
        raise WireFormatError(f"tensor {name[:40]!r} of shape {shape} does not fit its {end - start} bytes")


class _Unpacker:
    """Walks the JSON tree, counting."""

    def __init__(self, tensors: dict[str, torch.Tensor], limits: Limits) -> None:
        self._tensors = tensors
        self._limits = limits
        self._items = 0

    def unpack(self, node: object, depth: int) -> Value:
        self._items += 1
        if depth > self._limits.max_depth or self._items > self._limits.max_items:
            raise WireFormatError(
                f"the values are nested deeper than {self._limits.max_depth} or hold more than "
                f"{self._limits.max_items} items"
            )
        if isinstance(node, list):
            return [self.unpack(item, depth + 1) for item in node]
        if isinstance(node, dict):
            if "$tensor" in node or "$float" in node:
                return self._leaf(node)
            return {self._text(key): self.unpack(item, depth + 1) for key, item in node.items()}
        if isinstance(node, str):
            return self._text(node)
        if isinstance(node, int) and not isinstance(node, bool) and not -(1 << 63) <= node < 1 << 63:
            raise WireFormatError("an integer does not fit in 64 bits")
        assert node is None or isinstance(node, bool | int | float)
        return node

    def _text(self, text: str) -> str:
        if len(text) > self._limits.max_string:
            raise WireFormatError(f"a string has {len(text)} characters; the limit is {self._limits.max_string}")
        return text

    def _leaf(self, node: dict[str, object]) -> Value:
        if len(node) == 1 and node.get("$float") in _FLOATS:
            return _FLOATS[str(node["$float"])]
        name = node.get("$tensor")
        if len(node) == 1 and type(name) is int and str(name) in self._tensors:
            return self._tensors[str(name)]
        raise WireFormatError(f"a reference names a tensor or float that is not there: {str(node)[:80]}")
