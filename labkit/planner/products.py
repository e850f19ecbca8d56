"""What a layer's products take where a device's rates are known by size."""

from __future__ import annotations

import math

from labkit.planner.layout import Layout
from labkit.planner.model import Model
from labkit.product_rates import ProductRates


def layer_products(model: Model, layout: Layout, rates: ProductRates, tokens: float) -> float:
    """Return the seconds of a layer's projections, forward and backward, of so many tokens of a rank."""
    keys = model.hidden * model.kv_heads // model.heads
    into = [(model.hidden, model.hidden + 2 * keys), (model.hidden, (2 if model.gated else 1) * model.intermediate)]
    out_of = [(model.hidden, model.hidden), (model.intermediate, model.hidden)]
    sizes = [(float(rows), columns / layout.tensor) for rows, columns in into]
    sizes += [(rows / layout.tensor, columns) for rows, columns in out_of]
    return math.fsum(_linear(tokens, *size, rates) for size in sizes)


def head_products(model: Model, layout: Layout, rates: ProductRates, tokens: float) -> float:
    """Return the seconds of the head's products, forward and backward."""
    return _linear(tokens, model.hidden, model.vocabulary / layout.tensor, rates)


def _linear(tokens: float, rows: float, columns: float, rates: ProductRates) -> float:
    """Return the seconds of a linear layer: outputs, gradients of inputs, gradients of weights."""
    flops = 2 * tokens * rows * columns
    passes = ((tokens * columns, rows), (tokens * rows, columns), (rows * columns, tokens))
    return math.fsum(flops / rates.flops_per_second(round(sums), length) for sums, length in passes)
