"""Wrong answers to prefetching_loader, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

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
    "joins a thread that waits in put",
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
changed("one more in the queue", "too far ahead", ("maxsize=depth", "maxsize=depth + 1"))
changed("reads all first", "all batches are read first", ("for batch in batches:", "for batch in list(batches):"))
changed(
    "reads all first, in the loop", "all batches are read first",
    ("    def fetch() -> None:", "    batches = list(batches)\n\n    def fetch() -> None:"),
)  # fmt: skip
changed("another error", "an error of its own", ("raise value", "raise RuntimeError(str(value)) from value"))
changed("does not wait for the thread", "the thread stays", ("        thread.join()\n", ""))
changed(
    "reads the first batch itself", "several threads read",
    ("    thread = threading", "    batches = iter(batches)\n    for first in batches:\n        break\n    else:\n        return\n    thread = threading"),
    ("    try:\n        while True:", "    try:\n        yield first\n        while True:"),
)  # fmt: skip
changed(
    "clears the queue for the error", "batches before the error are lost",
    (LAST, LAST.replace("            ready.put", "            while last[0] == 'error' and not ready.empty():\n                ready.get()\n            ready.put")),
)  # fmt: skip
WRONG.wrong("a thread for each batch", "several threads read", """
def prefetched(batches, depth=2):
    source, waiting = iter(batches), []

    def fetch(box):
        try:
            box.append(("batch", next(source)))
        except StopIteration:
            box.append(("end", None))
        except Exception as error:
            box.append(("error", error))

    def start():
        thread = threading.Thread(target=fetch, args=(box := [],), daemon=True)
        thread.start()
        waiting.append((thread, box))

    for _ in range(depth):
        start()
    while True:
        thread, box = waiting.pop(0)
        thread.join()
        kind, value = box[0]
        if kind == "error":
            raise value
        if kind == "end":
            return
        start()
        yield value
""")  # fmt: skip
WRONG.right("one ahead, put that looks round", """
def prefetched(batches, depth=2):
    ready, stop = queue.Queue(maxsize=1), threading.Event()

    def put(item):
        while not stop.is_set():
            try:
                return ready.put(item, timeout=0.02)
            except queue.Full:
                continue

    def fetch():
        try:
            for batch in batches:
                put((batch, None, False))
                if stop.is_set():
                    return
            put((None, None, True))
        except BaseException as error:
            put((None, error, True))

    thread = threading.Thread(target=fetch)
    thread.start()
    try:
        while True:
            batch, error, over = ready.get()
            if error is not None:
                raise error
            if over:
                return
            yield batch
    finally:
        stop.set()
        thread.join()
""")  # fmt: skip
changed(
    "a batch of None is the end", "a batch taken for the end",
    ('            if kind == "end":', '            if value is None:'),
)  # fmt: skip
changed("joins before it yields", "waits for the thread, which waits for the loop",
        ("    thread.start()\n", "    thread.start()\n    thread.join()\n"))  # fmt: skip
changed("yields the error", "the error is a batch",
        ("                raise value\n", "                yield value\n                return\n"))  # fmt: skip
changed("goes on while the thread is alive", "hangs at the end",
        ("        while True:\n", "        while thread.is_alive() or not ready.empty():\n"),
        ('        last: tuple[str, Any] = ("end", None)\n', "        last = None\n"),
        ("        if not stop.is_set():\n            ready", "        if last and not stop.is_set():\n            ready"),
        )  # fmt: skip
changed("puts its end into a queue that is left", "joins a thread that waits in put",
        ("                    return\n", "                    break\n"),
        ("        if not stop.is_set():\n            ready.put(last)\n", "        ready.put(last)\n"))  # fmt: skip
changed("takes while the thread is alive", "finally takes from an empty queue",
        ("        while not ready.empty():\n", "        while thread.is_alive():\n"))  # fmt: skip
