"""Wrong answers to count_bytes, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


_RING_BYTES = "\ndef ring_bytes(num_bytes, world_size):\n    return 2 * (world_size - 1) / world_size * num_bytes\n"
_ROOT_BYTES = "\ndef root_bytes(num_bytes, world_size):\n    return 2 * (world_size - 1) * num_bytes\n"
for _name, _mistake, _formula in (
    ("received only", "one direction only", "(world_size - 1) * num_bytes"),
    ("rank 0 sends to itself", "rank 0 counted as its own peer", "2 * world_size * num_bytes"),
    ("no return", "returns nothing", None),
):
    _body = f"return {_formula}" if _formula else "print(2 * (world_size - 1) * num_bytes)"
    wrong(f"root: {_name}", _mistake, f"def root_bytes(num_bytes, world_size):\n    {_body}\n{_RING_BYTES}")
for _name, _mistake, _formula in (
    ("reduce-scatter only", "one half of the ring only", "(world_size - 1) / world_size * num_bytes"),
    ("whole tensors", "whole tensor at each step", "2 * (world_size - 1) * num_bytes"),
    ("N steps", "N steps", "2 * num_bytes"),
    ("floor division", "rounded down", "2 * (world_size - 1) * (num_bytes // world_size)"),
):
    _body = f"def ring_bytes(num_bytes, world_size):\n    return {_formula}\n"
    wrong(f"ring: {_name}", _mistake, _body + _ROOT_BYTES)
wrong(
    "ring: both ways",
    "sent and received added up",
    "def ring_bytes(num_bytes, world_size):\n    return 4 * (world_size - 1) / world_size * num_bytes\n" + _ROOT_BYTES,
)
wrong(
    "swapped",
    "the two functions swapped",
    "def root_bytes(num_bytes, world_size):\n    return 2 * (world_size - 1) / world_size * num_bytes\n\n\n"
    "def ring_bytes(num_bytes, world_size):\n    return 2 * (world_size - 1) * num_bytes\n",
)
WRONG.changed(
    "root: one other rank",
    "the messages of one rank alone",
    ("return 2 * (world_size - 1) * num_bytes", "return 2 * num_bytes"),
)
WRONG.changed(
    "ring: the limit for many ranks",
    "N steps",
    ("return 2 * (world_size - 1) / world_size * num_bytes", "return 2.0 * num_bytes"),
)
WRONG.changed(
    "root: everybody to everybody",
    "the messages of all ranks",
    ("return 2 * (world_size - 1) * num_bytes", "return world_size * (world_size - 1) * num_bytes"),
)
WRONG.changed(
    "one message at least",
    "one rank sends to nobody",
    ("return 2 * (world_size - 1) * num_bytes", "return 2 * max(1, world_size - 1) * num_bytes"),
)
