"""Methods of tensors that stand in for operators that view: they view the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from labkit.torch_port.operators import quick

_aten: Any = torch.ops.aten
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "detach.default": (),
    "expand.default": ([4, 2, -1],),
    "permute.default": ([1, 0],),
    "select.int": (-1, 2),
    "split.Tensor": (4, -1),
    "split_with_sizes.default": ([1, 5], 1),
    "squeeze.dim": (0,),
    "t.default": (),
    "transpose.int": (0, -1),
    "unbind.int": (1,),
    "unsqueeze.default": (1,),
    "view.default": ([3, -1],),
    "_unsafe_view.default": ([-1],),
}


def _told(out: Any) -> list[tuple[Any, ...]]:
    views = out if isinstance(out, list | tuple) else [out]
    return [
        (one.shape, one.stride(), one.storage_offset(), one.dtype, one.untyped_storage()._cdata, one.requires_grad)
        for one in views
    ]


@pytest.mark.in_turn
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", _ARGUMENTS)
def test_a_quick_method_views_what_its_operator_views(name: str, device: str) -> None:
    packet, overload = name.split(".")
    operator = getattr(getattr(_aten, packet), overload)
    method = quick(operator)
    assert method is not None
    tensor = torch.empty(2, 6, device=device)
    assert _told(method(tensor, *_ARGUMENTS[name])) == _told(operator(tensor, *_ARGUMENTS[name]))


def test_an_operator_that_computes_has_no_quick_method() -> None:
    assert quick(_aten.add.Tensor) is None and quick(_aten.view.dtype) is None
