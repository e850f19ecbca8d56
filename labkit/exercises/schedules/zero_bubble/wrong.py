"""Wrong answers to zero_bubble, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


changed("no delay", "weights right after the input", ("record.microbatch >= stage", "record.microbatch >= 0"))
changed(
    "all weights at the end",
    "all weights at the end",
    ("record.microbatch >= stage", "record.microbatch > num_microbatches"),
)
changed(
    "delay of the other end",
    "put off by the wrong number",
    ("record.microbatch >= stage", "record.microbatch >= num_stages - 1 - stage"),
)
changed(
    "the last weights forgotten",
    "work left out",
    ("return order + [BackwardWeight(microbatch) for microbatch in range(weights, num_microbatches)]", "return order"),
)
changed("backward whole", "work that is not there", ("BackwardInput(record.microbatch)", "Backward(record.microbatch)"))
DELAY = "record.microbatch >= stage"
changed("1 everywhere", "put off by the wrong number", (DELAY, "record.microbatch >= 1"))
changed("one more than the stage", "put off too far", (DELAY, DELAY + " + 1"))
changed("P - 1 everywhere", "put off by the wrong number", (DELAY, "record.microbatch >= num_stages - 1"))
changed(
    "the weights of the same microbatch", "work twice", ("BackwardWeight(weights)", "BackwardWeight(record.microbatch)")
)
changed("GPipe's order", "not the order of 1F1B",
        ("for record in one_f_one_b(stage, num_stages, num_microbatches):",
         "for record in [kind(m) for kind in (Forward, Backward) for m in range(num_microbatches)]:"))  # fmt: skip
INPUT = "            order.append(BackwardInput(record.microbatch))\n"
WEIGHTS = """            if record.microbatch >= stage:
                order.append(BackwardWeight(weights))
                weights += 1
"""
changed("weights first", "weights before their input", (INPUT + WEIGHTS, WEIGHTS + INPUT))
REST = "range(weights, num_microbatches)]"
changed("d ahead in place of d behind", "weights before their input",
        (WEIGHTS, """            if record.microbatch + stage < num_microbatches:
                order.append(BackwardWeight(record.microbatch + stage))
"""), (REST, "range(stage)]"))  # fmt: skip
changed("weights after the next forward", "weights behind a forward",
        ("order, weights = [], 0", "order, weights, late = [], 0, False"),
        ("            order.append(record)\n", """            order.append(record)
            if late:
                order.append(BackwardWeight(weights))
                weights, late = weights + 1, False
"""),
        (WEIGHTS, WEIGHTS.replace("order.append(BackwardWeight(weights))", "late = True")
         .replace("                weights += 1\n", "")))  # fmt: skip
