"""What a rank runs of hybrid_shards."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import my_group
from labkit.checks.values import listed, tensors
from labkit.exercises.sharded_training.on_ranks import asker, cutter, goes_back, squares_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Cut tensors into a node's shards, gather them inside it, scatter gradients over all nodes (hybrid_shards).

    Inputs: tensors (the same on all ranks), shards (of what the node holds), targets (what is filled with that),
    gradients, nodes (lists of ranks, equally long), optional marks.
    Between the beginning of each transfer and its end stands a mark on the wire; with marks, it
    asks for a number, which is returned.
    """
    cut = cutter()
    ask = asker(inputs, cut)
    nodes = listed(inputs, "nodes")
    node = my_group(inputs, "nodes")
    across = my_group({"groups": [list(each) for each in zip(*nodes, strict=True)]})
    whole = tensors(inputs, "tensors")
    cuts = [functions["node_shard_of"](each, node) for each in whole]
    theirs = {each.untyped_storage().data_ptr() for each in whole}
    copied = all(each.untyped_storage().data_ptr() not in theirs for each in cuts)
    targets = tensors(inputs, "targets")
    memory = [each.untyped_storage().data_ptr() for each in targets]
    used = squares_of(targets)
    cut()
    finish = functions["start_node_gather"](tensors(inputs, "shards"), targets, node)
    first = ask()
    finish()
    cut()
    collect = functions["start_hybrid_scatter"](tensors(inputs, "gradients"), node, across)
    second = ask()
    means = collect()
    cut()
    return {
        "shards": cuts, "copied": copied, "targets": [each.detach() for each in targets], "unseen": goes_back(used),
        "means": list(means), "heard": [first, second],
        "kept_memory": memory == [each.untyped_storage().data_ptr() for each in targets],
    }  # fmt: skip
