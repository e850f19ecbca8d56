"""What a rank runs of parallel_vocabulary."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import in_group, my_group
from labkit.checks.values import tensor, text
from labkit.exercises.tensor_parallel.on_ranks import through


def drive(functions: Functions, inputs: Values) -> Values:
    """Look tokens up, or compute a loss, forward and backward; return the tokens afterwards, too.

    Inputs: function ("embed" or "cross_entropy"), part (this rank's rows of the embedding, or its logits), tokens (or
    targets), vocabulary, gradient (of the result), optional groups.
    """
    name, tokens = text(inputs, "function"), tensor(inputs, "tokens").clone()
    vocabulary, keywords = inputs["vocabulary"], in_group(my_group(inputs))

    def call(part: Tensor) -> Tensor:
        first = (tokens, part) if name == "embed" else (part, tokens)
        return cast(Tensor, functions[name](*first, vocabulary, **keywords))

    return {name: through(call, tensor(inputs, "part"), tensor(inputs, "gradient")), "tokens": tokens}
