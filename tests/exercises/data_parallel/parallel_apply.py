"""Wrong answers to parallel_apply, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
wrong = WRONG.wrong


APPLY = """
def parallel_apply(replicas, inputs):
    outputs, errors = [None] * len(replicas), {{}}
    enabled = torch.is_grad_enabled()

    def apply(number):
        arguments, keywords = inputs[number]
        {body}

    threads = [threading.Thread(target=apply, args=(number,)) for number in range(len(replicas))]
    {run}
    {end}
    return outputs
"""
BODY = """try:
            with torch.set_grad_enabled(enabled):
                outputs[number] = replicas[number](*arguments, **keywords)
        except Exception as error:
            errors[number] = error"""
RUN = """for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()"""
END = """if errors:
        number = min(errors)
        errors[number].add_note(f"in replica {number}")
        raise errors[number]"""


def wrong_apply(name: str, mistake: str, body: str = BODY, run: str = RUN, end: str = END) -> None:
    wrong(name, mistake, APPLY.format(body=body, run=run, end=end))


wrong(
    "a plain loop",
    "one after another",
    """
def parallel_apply(replicas, inputs):
    return [replica(*arguments, **keywords) for replica, (arguments, keywords) in zip(replicas, inputs)]
""",
)
wrong_apply(
    "start and join together",
    "one after another",
    run="""for thread in threads:
        thread.start()
        thread.join()""",
)
wrong_apply("no join", "not joined", run="for thread in threads:\n        thread.start()")
wrong_apply("returned by the thread", "results lost", BODY.replace("outputs[number] =", "return"))
wrong_apply(
    "append",
    "in the order of their end",
    BODY.replace("outputs[number] = ", "output = ").replace(
        "keywords)", "keywords)\n                outputs.append(output)"
    ),
    run="outputs.clear()\n    " + RUN,
)
wrong_apply("positional only", "keywords dropped", BODY.replace(", **keywords", ""))
wrong_apply(
    "gradients as a thread has them",
    "gradients not as outside",
    BODY.replace("with torch.set_grad_enabled(enabled):", "with contextmanager(lambda: iter([None]))():"),
)
wrong_apply(
    "errors are dropped",
    "an exception swallowed",
    BODY.replace("errors[number] = error", "pass"),
)
wrong_apply(
    "of the one who failed first", "another replica's exception", end=END.replace("min(errors)", "next(iter(errors))")
)
wrong_apply(
    "a RuntimeError with the text",
    "another type",
    end=END.replace("raise errors[number]", 'raise RuntimeError(f"in replica {number}: {errors[number]}")'),
)
wrong_apply("as it was", "which replica", end=END.replace('errors[number].add_note(f"in replica {number}")', "pass"))
wrong_apply(
    "one of the same type made anew",
    "the line is lost",
    end="""if errors:
        number = min(errors)
        error = copy.copy(errors[number]).with_traceback(None) if type(errors[number]) is ValueError else errors[number]
        error.add_note(f"in replica {number}")
        raise error""",
)
wrong_apply(
    "at the first join that finds an error",
    "raised before the others ended",
    run="""for thread in threads:
        thread.start()
    while not errors and any(thread.is_alive() for thread in threads):
        time.sleep(0.001)
    if errors:
        number = min(errors)
        errors[number].add_note(f"in replica {number}")
        raise errors[number]""",
)
