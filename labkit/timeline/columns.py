"""The columns of a timeline, and the type of the tables beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

COLUMNS: dict[str, Any] = {
    "rank": np.int32,
    "lane": np.int8,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "name": np.str_,
    "kind": np.str_,
    "bytes": np.int64,
    "peer": np.int32,
    "flow": np.int64,
}
Table = dict[str, "npt.NDArray[Any]"]
