"""Primary and backup: the exercise, and how learners get it wrong. Its cases and what is found are in replicas.py."""

from __future__ import annotations

from labkit.checks.declared import Mistake, declared
from labkit.exercises.keys_rows_failures.replicas import (
    dying_case,
    expected,
    find,
    replica_case,
    safely_case,
    structure,
)
from labkit.exercises.keys_rows_failures.replicated_server.driver import drive

EXERCISE = declared(
    id="replicated_server",
    functions=("Replica", "push_safely"),
    given=("Server", "Update", "Remote"),
    driver=drive,
    oracle=expected,
    structure=structure,
    looks=(find,),
    visible=(
        replica_case("no backup", 111, "w0.0 w1.0 w0.1", with_backup=False),
        replica_case(
            "no backup, pushed again, and in another order", 112, "w0.0 w0.0 w1.5 w1.4 w1.5", with_backup=False
        ),
        replica_case("with a backup that answers later", 113, "w0.0 w1.0 a1 w0.1 a0 a2", with_backup=True),
        replica_case(
            "with a backup, pushed again before it has answered", 114, "w0.0 w0.0 a0 a1 w0.0 a2", with_backup=True
        ),
        replica_case("a backup that fails", 115, "w0.0 f0 w1.0 a1", with_backup=True),
        safely_case("push_safely", 116, [["answer", "answer"], ["fail", "answer"], ["raise", "fail", "answer"]]),
        safely_case("push_safely, and nobody answers", 117, [["fail", "raise"]]),
        dying_case("the primary dies, over RPC", 118, 3, 8, 0.011),
    ),
    distributed=False,
    hints=(
        "Go through one push and let the primary die after each of its lines. After which line may the worker be told "
        "that all is well?",
        "A set of (worker, number) says what has been applied; only new ones are. The push to the backup goes out "
        "every time, and what push returns is that call's future, turned into the version by then(). push_safely: "
        "wait inside try, go on to the next replica on RuntimeError.",
        "return self.backup.push(worker, number, gradient).then(lambda answer: (answer.value(), version)[1]): value() "
        "raises if the backup failed, and then so does this future.",
    ),
    mistakes=(
        Mistake("nothing is pushed to the backup", "The gradients were not pushed to the backup."),
        Mistake("a repeated gradient is not passed on",
                "A gradient that was pushed again did not go to the backup. Perhaps the backup never got it: pass it "
                "on every time, the backup knows what it has."),
        Mistake("acknowledged before the backup has it",
                "push is complete before the backup has answered. If the primary dies now, the gradient is lost and "
                "the worker believes it is safe."),
        Mistake("waits inside push",
                "push waits for the backup inside the call; return a future that follows the backup's: .then(...)."),
        Mistake("returns no Future", "push returns a Future, whether there is a backup or not."),
        Mistake("numbers without their workers",
                "Two workers have gradients of the same number: what has been applied is a pair, (worker, number)."),
        Mistake("the largest number only",
                "A gradient was skipped because its number is smaller than an earlier one. Calls may overtake each "
                "other: keep a set of the applied pairs, not the last number."),
        Mistake("the last number only",
                "A gradient that had been applied came again after another one, and was applied again. Each is "
                "compared with the last of its worker: keep a set of all applied pairs."),
        Mistake("applied when the backup has answered",
                "Apply the gradient when it arrives, and acknowledge it when the backup has it; yours waits with "
                "both."),
        Mistake("a new gradient is skipped",
                "A gradient that had not come before was not applied: ask for the same pair that you note, (worker, "
                "number) in this order."),
        Mistake("a repeated gradient counts twice",
                "The same worker and number came again, and was applied again. Keep a set of what has been applied."),
        Mistake("the backup's failure is hidden",
                "The backup failed, and push was acknowledged anyway: let answer.value() raise in the function that "
                "then() calls."),
        Mistake("does not wait for the answer",
                "Having a future is not having an answer: .wait() returns when one comes, and raises if none does. "
                "Wait inside try, and return only where nothing was raised."),
        Mistake("returns the answer", "Return the index in replicas of the one that answered, not its answer."),
        Mistake("stops at the first replica",
                "When a replica fails, the next one is asked: catch the RuntimeError around push and wait, both."),
        Mistake("asks everybody",
                "Replicas after the one that answered are pushed to as well. The first answer is enough."),
        Mistake("no error when nobody answers",
                "If no replica answers, raise a RuntimeError, no other error: the gradient was not acknowledged."),
        Mistake("another number for the retry",
                "What is pushed again carries the same worker and the same number, in this order, or a replica cannot "
                "know that it has this gradient already."),
        Mistake("without the lock",
                "Two pushes may come at the same time, each in a thread: look, apply and note under self.lock, all in "
                "one."),
        Mistake("nothing applied",
                "The weights are where they began: apply each gradient that has not come before, and raise the "
                "version by one."),
        Mistake("the backup's version",
                "The answer is the backup's. The future's value is this server's own version, as it was right after "
                "the call: keep it in a variable, and return it from the function that then() calls."),
        Mistake("the version of a later moment",
                "The answer is the version at the moment in which the backup answered. Keep the one right after this "
                "call in a variable, under the lock."),
        Mistake("a repeated push counts a version",
                "The version went up with a push that came before. A repeated push changes neither weights nor "
                "version: count where a new gradient is applied."),
        Mistake("not the primary first",
                "The replicas are asked in their order, and the first one, the primary, comes first."),
        Mistake("another number than the index", "Return the index in replicas, which counts from 0."),
        Mistake("version not counted", "The answer is the version: one up for each gradient that was applied."),
    ),
)  # fmt: skip
