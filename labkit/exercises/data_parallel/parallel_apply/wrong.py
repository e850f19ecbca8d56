"""Wrong answers to parallel_apply, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


APPLY = """
def parallel_apply(replicas, inputs):
    outputs, errors = [None] * len(replicas), {{}}
    enabled = torch.is_grad_enabled()

    def apply(number):
        batch = inputs[number]
        {body}

    threads = [threading.Thread(target=apply, args=(number,)) for number in range(len(replicas))]
    {run}
    {end}
    return outputs
"""
BODY = """try:
            with torch.set_grad_enabled(enabled):
                outputs[number] = replicas[number](**batch)
        except Exception as error:
            errors[number] = error"""
RUN = """for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()"""
END = """if errors:
        raise errors[min(errors)]"""


def wrong_apply(name: str, mistake: str, body: str = BODY, run: str = RUN, end: str = END) -> None:
    wrong(name, mistake, APPLY.format(body=body, run=run, end=end))


wrong(
    "a plain loop",
    "one after another",
    """
def parallel_apply(replicas, inputs):
    return [replica(**batch) for replica, batch in zip(replicas, inputs)]
""",
)
wrong_apply(
    "start and join together",
    "one after another",
    run="""for thread in threads:
        thread.start()
        thread.join()""",
)
WRONG.changed(
    "a result before the next begins",
    "one after another",
    ("pool.submit(call, *pair)", "pool.submit(call, *pair).result()"),
    ("[future.result() for future in futures]", "futures"),
)
wrong_apply("no join", "not joined", run="for thread in threads:\n        thread.start()")
wrong_apply("returned by the thread", "results lost", BODY.replace("outputs[number] =", "return"))
wrong_apply(
    "append",
    "in the order of their end",
    BODY.replace("outputs[number] = ", "output = ").replace(
        "**batch)", "**batch)\n                outputs.append(output)"
    ),
    run="outputs.clear()\n    " + RUN,
)
wrong_apply("the first tensor only", "keywords dropped", BODY.replace("**batch", 'x=batch["x"]'))
wrong_apply(
    "gradients as a thread has them",
    "gradients not as outside",
    BODY.replace("with torch.set_grad_enabled(enabled):", "if True:"),
)
WRONG.changed(
    "asked in the thread",
    "gradients not as outside",
    ("torch.set_grad_enabled(with_gradients)", "torch.set_grad_enabled(torch.is_grad_enabled())"),
)
wrong_apply("errors are dropped", "an exception swallowed", BODY.replace("errors[number] = error", "pass"))
wrong_apply(
    "of the one who failed first", "another replica's exception", end=END.replace("min(errors)", "next(iter(errors))")
)
wrong_apply(
    "a RuntimeError with the text",
    "another type",
    end=END.replace("raise errors[min(errors)]", "raise RuntimeError(str(errors[min(errors)]))"),
)
wrong_apply(
    "one of the same type made anew",
    "the line is lost",
    end="""if errors:
        error = errors[min(errors)]
        raise copy.copy(error).with_traceback(None) if type(error) is ValueError else error""",
)
wrong_apply(
    "at the first join that finds an error",
    "raised before the others ended",
    run="""for thread in threads:
        thread.start()
    while not errors and any(thread.is_alive() for thread in threads):
        time.sleep(0.001)
    if errors:
        raise errors[min(errors)]""",
)
WRONG.changed(
    "asked in order, and the pool left alone",
    "raised before the others ended",
    (
        "with ThreadPoolExecutor(len(replicas)) as pool:\n        futures",
        "pool = ThreadPoolExecutor(len(replicas))\n    futures",
    ),
)
WRONG.changed(
    "recorded in the thread and cut off afterwards",
    "gradients not as outside",
    (
        "        with torch.set_grad_enabled(with_gradients):\n            return replica(**batch)",
        "        with torch.enable_grad():\n            out = replica(**batch)\n"
        "        return out if with_gradients else out.detach()",
    ),
)
WRONG.changed("two workers", "too few at the same time", ("ThreadPoolExecutor(len(replicas))", "ThreadPoolExecutor(2)"))
WRONG.changed(
    "as many workers as a pool has by default",
    "too few at the same time",
    ("ThreadPoolExecutor(len(replicas))", "ThreadPoolExecutor()"),
)
WRONG.changed(
    "the first where it is called, after the others",
    "too few at the same time",
    (
        "futures = [pool.submit(call, *pair) for pair in zip(replicas, inputs, strict=True)]",
        "futures = [pool.submit(call, *pair) for pair in zip(replicas[1:], inputs[1:], strict=True)]",
    ),
    ("return [future.result()", "return [call(replicas[0], inputs[0])] + [future.result()"),
)
WRONG.changed(
    "errors are returned",
    "an exception swallowed",
    ("[future.result() for", "[future.exception() or future.result() for"),
)
WRONG.changed(
    "gradients on in all threads",
    "gradients not as outside",
    ("torch.set_grad_enabled(with_gradients)", "torch.enable_grad()"),
)
WRONG.right(
    "asks for results inside the block",
    """
def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def call(pair):
        with torch.set_grad_enabled(enabled):
            return pair[0](**pair[1])

    with ThreadPoolExecutor(len(replicas)) as pool:
        return list(pool.map(call, zip(replicas, inputs)))
""",
)

LOOP = """
def parallel_apply(replicas, inputs):
    enabled, outputs, errors, threads = torch.is_grad_enabled(), {}, {}, []
    for number in range(len(replicas)):

        def work():
            try:
                with torch.set_grad_enabled(enabled):
                    outputs[number] = replicas[number](**inputs[number])
            except Exception as error:
                errors[number] = error

        threads.append(threading.Thread(target=work))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return [outputs.get(number) for number in range(len(replicas))]
"""
wrong("looks the number up when it runs", "one replica in all threads", LOOP)
NUMBERED = LOOP.replace("def work():", "def work(number=number):")
WRONG.right("binds the number at once", NUMBERED)
wrong(
    "keeps results by replica",
    "results kept by function",
    NUMBERED.replace("outputs[number]", "outputs[replicas[number]]").replace(
        "outputs.get(number) for number in range(len(replicas))", "outputs[replica] for replica in replicas"
    ),
)
wrong("calls forward", "forward called by name", NUMBERED.replace("replicas[number](**", "replicas[number].forward(**"))
wrong(
    "calls replica 0 itself",
    "raised before the others ended",
    NUMBERED.replace("in range(len(replicas)):", "in range(1, len(replicas)):").replace(
        "thread.start()\n", "thread.start()\n    outputs[0] = replicas[0](**inputs[0])\n"
    ),
)
wrong(
    "one place for the error",
    "another replica's exception",
    NUMBERED.replace("errors[number] = error", "errors[0] = error"),
)
WRONG.changed(
    "what map returns",
    "no list",
    (
        "    return [future.result() for future in futures]",
        "    return (future.result() for future in futures)",
    ),
)
