"""Wrong answers to memory_budget, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
changed = WRONG.changed


STATE = "return (1 + 1 + 2) * num_parameters * bytes_per_number"
STAGES = "return -(-(state_bytes(num_parameters) + activation_bytes) // device_bytes)"
changed("one average of Adam", "one number for Adam", (STATE, STATE.replace("+ 2", "+ 1")))
changed("parameters and one gradient", "gradients forgotten", (STATE, STATE.replace("1 + 1 + 2", "2")))
changed("parameters alone", "the parameters alone", (STATE, STATE.replace("1 + 1 + 2", "1")))
changed("half a stage", "part of a stage", (STAGES, STAGES.replace("-(-(", "((").replace("//", "/")))
changed("16 bytes whatever the type", "always four bytes", (STATE, "return 16 * num_parameters"))
changed("no activations", "activations forgotten", (STAGES, STAGES.replace(" + activation_bytes", "")))
changed("rounds down", "rounded down", (STAGES, STAGES.replace("-(-(", "((")))
changed("always one more", "one stage too many", (STAGES, STAGES.replace("-(-(", "((") + " + 1"))
changed("prints", "returns nothing",
        ("return num_parameters * bytes_per_number", "print(num_parameters * bytes_per_number)"))  # fmt: skip
