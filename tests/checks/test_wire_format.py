"""Values cross the trust line as data; whatever else arrives is refused in words."""

from __future__ import annotations

import json
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labkit.checks.wire_format import Limits, WireFormatError, decode, encode

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool)


@pytest.mark.in_turn
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_tensors_come_back_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.randint(0, 2, shape).to(dtype)
    back = decode(encode({"tensor": tensor}))["tensor"]
    assert isinstance(back, torch.Tensor)
    assert back.dtype == dtype
    assert torch.equal(back, tensor)


def test_a_view_comes_back_as_what_it_shows() -> None:
    base = torch.arange(12).view(3, 4)
    back = decode(encode({"a": base.t(), "b": base[:, 1]}))
    assert torch.equal(back["a"], base.t())  # type: ignore[arg-type]
    assert torch.equal(back["b"], base[:, 1])  # type: ignore[arg-type]


SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=30)
KEYS = st.text(max_size=8).filter(lambda key: not key.startswith("$"))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@pytest.mark.in_turn
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_plain_values_come_back_equal(values: dict[str, object]) -> None:
    deep = Limits(max_depth=20)
    assert repr(decode(encode(values), deep)) == repr(values)  # type: ignore[arg-type]  # repr: nan equals nan


def test_infinities_and_nan_travel() -> None:
    back = decode(encode({"values": [math.inf, -math.inf, math.nan]}))["values"]
    assert repr(back) == "[inf, -inf, nan]"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"LKV1",
        b"x" * 200,
        pickle.dumps({"a": 1}),
        encode({"a": torch.ones(9)})[:-1],
        encode({"a": torch.ones(9)}) + b"more",
        b"LKV1" + (1 << 30).to_bytes(4, "little") + b"{}",
        b"LKV1" + (2).to_bytes(4, "little") + b"{}" + (1 << 40).to_bytes(8, "little"),
    ],
)
def test_bytes_that_are_no_values_are_refused(data: bytes) -> None:
    with pytest.raises(WireFormatError):
        decode(data)


@given(st.binary(max_size=300))
def test_no_bytes_whatever_raise_anything_else(tail: bytes) -> None:
    good = encode({"a": torch.ones(3), "b": [1, "x"]})
    for data in (tail, b"LKV1" + tail, good[: len(tail)] + tail):
        try:
            decode(data)
        except WireFormatError:
            pass


def _with_json(text: str) -> bytes:
    good = encode({})
    return b"LKV1" + len(text.encode()).to_bytes(4, "little") + text.encode() + good[8 + 2 :]


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100 + "]" * 100, "values must be a dict"),
        ('{"a":' * 30 + "1" + "}" * 30, "deeper than 8"),
        (json.dumps({"a": "x" * 30_000}), "30000 characters"),
        ('{"a": NaN}', "NaN stands bare"),
        ('{"a": {"$tensor": 5}}', "is not there"),
        ('{"a": {"$tensor": "0"}}', "is not there"),
        ('{"a": ' + "9" * 40 + "}", "does not fit in 64 bits"),
        ("[]", "values must be a dict"),
    ],
)
def test_json_beyond_the_limits_is_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(WireFormatError, match=why):
        decode(_with_json(text))


def test_more_bytes_or_tensors_than_allowed_are_refused() -> None:
    data = encode({"a": [torch.ones(2) for _ in range(5)]})
    with pytest.raises(WireFormatError, match="at most 4 tensors"):
        decode(data, Limits(max_tensors=4))
    with pytest.raises(WireFormatError, match="the limit is 10"):
        decode(data, Limits(max_bytes=10))


def test_a_result_that_is_no_value_is_named_with_its_place() -> None:
    with pytest.raises(WireFormatError, match=r"result\.outputs\[1\] is of type object"):
        encode({"outputs": [1, object()]})  # type: ignore[list-item]
