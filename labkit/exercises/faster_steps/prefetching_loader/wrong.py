"""Wrong answers to prefetching_loader, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


PUT = 'ready.put(("batch", batch))'
LAST = "        if not stop.is_set():\n            ready.put(last)\n"
GET = "            kind, value = ready.get()\n"
changed(
    "no end",
    "hangs at the end",
    (LAST, '        if last[0] == "error":\n            ready.put(last)\n'),
)
changed(
    "the error stays in the thread",
    "the error is swallowed",
    ('last = ("error", trouble)', "pass"),
)
changed(
    "the thread dies",
    "hangs at the error",
    (
        '        except Exception as trouble:\n            last = ("error", trouble)\n',
        "        except ZeroDivisionError:\n            pass\n",
    ),
)
changed(
    "yields the end",
    "the end is a batch",
    (
        '            if kind == "end":\n                return\n            yield value\n',
        '            yield value\n            if kind == "end":\n                return\n',
    ),
)
changed(
    "no thread",
    "nothing is fetched ahead",
    ("    thread.start()\n", "    return (yield from batches)\n"),
)
changed("an endless queue", "too far ahead", ("queue.Queue(maxsize=depth)", "queue.Queue()"))
changed(
    "nothing in finally",
    "the thread stays",
    (
        "        stop.set()\n        while not ready.empty():\n            ready.get()\n        thread.join()\n",
        "        pass\n",
    ),
)
changed(
    "joins a thread that waits",
    "the thread stays",
    ("        while not ready.empty():\n            ready.get()\n", ""),
)
changed(
    "the last one is lost",
    "not all batches",
    (
        PUT,
        "pending.append(batch)\n                if len(pending) > 1:\n"
        '                    ready.put(("batch", pending.pop(0)))',
    ),
    ("        try:\n            for batch", "        pending = []\n        try:\n            for batch"),
)
changed(
    "raises as soon as the thread has failed", "batches before the error are lost",
    ("    stop = threading.Event()\n", "    stop, failed = threading.Event(), []\n"),
    ('last = ("error", trouble)', 'last = ("error", trouble)\n            failed.append(trouble)'),
    (GET, "            if failed:\n                raise failed[0]\n" + GET),
)  # fmt: skip
changed(
    "starts a thread that is not there", "an error of its own",
    ("    thread = threading.Thread(target=fetch, daemon=True)\n    thread.start()\n",
     "    thread.start()\n    thread = threading.Thread(target=fetch, daemon=True)\n"),
)  # fmt: skip
changed("no round of the loop", "not all batches", ("        while True:\n", "        while False:\n"))
