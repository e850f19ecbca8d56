"""Wrong answers to bucket_design, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()

LOOP = """
def bucket_design(num_bytes, ready_us, start_us, bytes_per_us):
    plan, bucket, held = [], [], 0
    for index in {order}:
        if held + num_bytes[index] > {limit} {and_holds}:
            plan.append(bucket)
            bucket, held = {fresh}, 0
        bucket.append({what})
        held += num_bytes[index]
    return plan {rest}
"""
RIGHT = {
    "order": "sorted(range(len(ready_us)), key=lambda i: (ready_us[i], -i))",
    "limit": "2**20",
    "and_holds": "and bucket",
    "fresh": "[]",
    "what": "index",
    "rest": "+ [bucket]",
}


def wrong(name: str, mistake: str, **changes: str) -> None:
    WRONG.wrong(name, mistake, LOOP.format(**{**RIGHT, **changes}))


wrong("the last bucket is forgotten", "a parameter is lost", rest="")
wrong("buckets are never emptied", "a parameter twice", fresh="list(bucket)")
wrong("bytes instead of indices", "no such parameter", what="num_bytes[index]")
wrong("a large parameter leaves an empty bucket", "an empty bucket", and_holds="", limit="1000")
wrong("the first layer first", "the first bucket waits for everything", order="range(len(ready_us))")
wrong("one flat list", "no plan", rest="and [i for b in plan for i in b]")
