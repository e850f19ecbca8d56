"""Wrong answers to step_plan, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


PLAN = """
def step_plan(sizes, input_bytes, output_bytes, model_bytes, gradient_bytes):
    plan = []
    for what, out, size_of in (
        ("inputs", True, lambda d: sizes[d] * input_bytes),
        ("model", True, lambda d: model_bytes),
        ("outputs", False, lambda d: sizes[d] * output_bytes),
        ("output gradients", True, lambda d: sizes[d] * output_bytes),
        ("model gradients", False, lambda d: gradient_bytes),
    ):
        for d in range(1, len(sizes)):
            plan.append(Move(what, 0, d, size_of(d)) if out else Move(what, d, 0, size_of(d)))
    return plan
"""


wrong_plan = WRONG.changing(PLAN)
wrong_plan("printed", "returns nothing", ("return plan", "print(len(plan))"))
wrong_plan("tuples", "no Moves", ("Move(what, 0, d, size_of(d))", "(what, 0, d, size_of(d))"))
wrong_plan("device 0 as well", "moves to itself", ("range(1, len(sizes))", "range(len(sizes))"))
wrong_plan(
    "forward only", "backward forgotten", ("return plan", 'return [m for m in plan if "gradients" not in m.what]')
)
wrong_plan(
    "no output gradients",
    "output gradients forgotten",
    ("return plan", 'return [m for m in plan if m.what != "output gradients"]'),
)
wrong_plan(
    "the model is there already",
    "the model is not copied",
    ("return plan", 'return [m for m in plan if m.what != "model"]'),
)
wrong_plan("all inputs to all", "the whole batch for everyone", ("sizes[d] * input_bytes", "sum(sizes) * input_bytes"))
wrong_plan("equal pieces", "equal pieces assumed", ("sizes[d]", "sum(sizes) // len(sizes)"))
wrong_plan("outputs go out", "the wrong way", ('"outputs", False', '"outputs", True'))
wrong_plan(
    "gradients of buffers", "gradients as large as the model", ("lambda d: gradient_bytes", "lambda d: model_bytes")
)
wrong_plan(
    "device by device",
    "another order",
    ("return plan", "return sorted(plan, key=lambda m: m.src + m.dst)"),
)
wrong_plan("one input for each device", "the bytes of one sample", ("sizes[d] * input_bytes", "input_bytes"))
wrong_plan("one output for each device", "the bytes of one sample", ("sizes[d] * output_bytes", "output_bytes"))
wrong_plan("sizes without device 0", "another device's samples", ("sizes[d]", "sizes[d - 1]"))
wrong_plan(
    "output gradients like inputs",
    "as large as the inputs",
    (
        '("output gradients", True, lambda d: sizes[d] * output_bytes',
        '("output gradients", True, lambda d: sizes[d] * input_bytes',
    ),
)
wrong_plan("the model first", "another order", ("return plan", 'return sorted(plan, key=lambda m: m.what != "model")'))
wrong_plan("the last device first", "another order", ("range(1, len(sizes))", "range(len(sizes) - 1, 0, -1)"))
wrong_plan("output gradients come in", "the wrong way", ('"output gradients", True', '"output gradients", False'))
wrong_plan("the model is what is trained", "buffers stay", ("lambda d: model_bytes", "lambda d: gradient_bytes"))
wrong_plan(
    "the inputs' gradients come back",
    "moves after the end",
    (
        "return plan",
        'return plan + [Move("input gradients", m.dst, 0, m.num_bytes) for m in plan if m.what == "inputs"]',
    ),
)
wrong_plan(
    "gradients of each sample",
    "model gradients of each sample",
    ("lambda d: gradient_bytes", "lambda d: sizes[d] * gradient_bytes"),
)
wrong_plan(
    "hands the model on",
    "handed on, device by device",
    ("Move(what, 0, d, size_of(d))", 'Move(what, d - 1 if what == "model" else 0, d, size_of(d))'),
)
wrong_plan(
    "one gradient for all",
    "one device's gradients alone",
    ("return plan", 'return [m for m in plan if m.what != "model gradients"] + plan[len(plan) - 1 :]'),
)
wrong_plan(
    "bytes of the batch",
    "the bytes of one sample",
    ("sizes[d] * ", "sizes[d] / sum(sizes) * "),
    ("size_of(d)", "int(size_of(d))"),
)
