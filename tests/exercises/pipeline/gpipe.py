"""Wrong answers to gpipe, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
changed = WRONG.changed


changed("backward in reverse order", "backward from the last to the first",
        ("    for microbatch in range(num_microbatches):\n        schedule += backward_of",
         "    for microbatch in reversed(range(num_microbatches)):\n        schedule += backward_of"))  # fmt: skip
changed("forward and backward in turns", "one forward, one backward",
        ("    for microbatch in range(num_microbatches):\n        schedule += backward_of", "        schedule += backward_of"))  # fmt: skip  # noqa: E501
changed("microbatches from 1", "microbatches counted from 1",
        ("range(num_microbatches)", "range(1, num_microbatches + 1)"))  # fmt: skip
changed("the first stage receives", "the first stage has nobody before it",
        ("[Recv(stage - 1, microbatch)] if stage > 0 else []", "[Recv(stage - 1, microbatch)]"))  # fmt: skip
changed("the last stage receives a gradient", "the last stage has nobody behind it",
        ("[RecvGrad(stage + 1, microbatch)] if stage < num_stages - 1 else []", "[RecvGrad(stage + 1, microbatch)]"))  # fmt: skip  # noqa: E501
changed("gradients come from the stage before", "gradients go the wrong way",
        ("RecvGrad(stage + 1", "RecvGrad(stage - 1"))  # fmt: skip
changed("no gradients are sent", "no messages", ("([SendGrad(stage - 1, microbatch)] if stage > 0 else [])", "[]"))
changed(
    "no backward",
    "only forward",
    ("        schedule += backward_of(stage, num_stages, microbatch)\n", "        pass\n"),
)
changed("lists in a list", "lists in the list",
        ("schedule += forward_of(stage, num_stages, microbatch)", "schedule.append(forward_of(stage, num_stages, microbatch))"))  # fmt: skip  # noqa: E501
changed("returns nothing", "returns nothing", ("    return schedule\n", "    print(schedule)\n"))
