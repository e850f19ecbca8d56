"""Wrong answers to shares_by_speed, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


SHARES = """
def shares_by_speed(num_samples, speeds):
    shares = [num_samples * speed // sum(speeds) for speed in speeds]
    rest = num_samples - sum(shares)
    {rest}
    return shares
"""


def wrong_shares(name: str, mistake: str, rest: str, more: str = "") -> None:
    wrong(name, mistake, SHARES.format(rest=rest) + more)


RIGHT_REST = """remainders = [num_samples * speed % sum(speeds) for speed in speeds]
    for device in sorted(range(len(speeds)), key=lambda d: -remainders[d])[:rest]:
        shares[device] += 1"""
wrong_shares(
    "equal",
    "speeds ignored",
    "shares = [len(piece) for piece in torch.arange(num_samples).tensor_split(len(speeds))]",
)
wrong_shares("rounded down", "rest forgotten", "pass")
wrong_shares(
    "rounded", "each rounded by itself", "shares = [round(num_samples * speed / sum(speeds)) for speed in speeds]"
)
wrong_shares("the rest to the last", "the rest to one device", "shares[-1] += rest")
wrong_shares("from the first on", "the rest in order", "for d in range(rest): shares[d] += 1")
wrong_shares(
    "the fastest first",
    "the rest to the fastest",
    "for d in sorted(range(len(speeds)), key=lambda d: -speeds[d])[:rest]: shares[d] += 1",
)
wrong_shares(
    "sorted the other way",
    "the last of equals first",
    """order = sorted(range(len(speeds)), key=lambda d: (num_samples * speeds[d] % sum(speeds), d))
    for d in order[len(order) - rest :]: shares[d] += 1""",
)
wrong_shares(
    "the mean of the times",
    "the mean time",
    RIGHT_REST,
    "\n\ndef slowest_seconds(shares, speeds):\n    return sum(shares) / sum(speeds)\n",
)
wrong_shares(
    "the largest share by the least speed",
    "the largest share by the least speed",
    RIGHT_REST,
    "\n\ndef slowest_seconds(shares, speeds):\n    return max(shares) / min(speeds)\n",
)
for exact in ("num_samples * speed / sum(speeds)", "speed / sum(speeds) * num_samples"):
    wrong_shares(
        f"by the fractions of {exact}",
        "remainders as fractions",
        f"""exact = [{exact} for speed in speeds]
    for d in sorted(range(len(speeds)), key=lambda d: exact[d] - int(exact[d]), reverse=True)[:rest]: shares[d] += 1""",
    )
WRONG.changed("prints", "returns nothing", ("    return shares", "    print(shares)"))
wrong_shares(
    "all the rest to the largest remainder",
    "the rest to one device",
    """remainders = [num_samples * speed % sum(speeds) for speed in speeds]
    shares[remainders.index(max(remainders))] += rest""",
)
wrong_shares("the smallest first", "the smallest remainders first", RIGHT_REST.replace("-remainders", "remainders"))
wrong_shares(
    "all rounded up",
    "each rounded by itself",
    "shares = [-(-num_samples * speed // sum(speeds)) for speed in speeds]",
)
wrong_shares(
    "nobody stays idle",
    "one sample at least",
    "shares = [max(1, share) for share in shares]\n    rest = max(0, num_samples - sum(shares))\n    " + RIGHT_REST,
)
for what, seconds in {
    "the largest share's time": "(lambda d: shares[d] / speeds[d])(shares.index(max(shares)))",
    "the slowest device's time": "(lambda d: shares[d] / speeds[d])(speeds.index(min(speeds)))",
    "the last in the list": "shares[-1] / speeds[-1]",
}.items():
    wrong_shares(
        what,
        "one device's time taken for the last",
        RIGHT_REST,
        f"\n\ndef slowest_seconds(shares, speeds):\n    return {seconds}\n",
    )
WRONG.changed(
    "more samples for who needs longer",
    "speeds taken for times",
    (
        "    exact = [",
        "    product = math.prod(speeds)\n    speeds = [product // speed for speed in speeds]\n    exact = [",
    ),
    ("def shares_by_speed", "import math\n\n\ndef shares_by_speed"),
)
WRONG.changed("samples times speed", "speeds taken for times", ("max(share / speed", "max(share * speed"))
wrong_shares(
    "rounds the places",
    "places rounded",
    "places = [num_samples * sum(speeds[:n]) // sum(speeds) for n in range(len(speeds) + 1)]\n"
    "    shares = [end - begin for begin, end in zip(places, places[1:])]",
)
wrong_shares(
    "to who is done first",
    "each sample to who is done first",
    "shares = [0] * len(speeds)\n"
    "    for _ in range(num_samples):\n"
    "        shares[min(range(len(speeds)), key=lambda d: (shares[d] + 1) / speeds[d])] += 1",
)
wrong_shares(
    "allots by divisors",
    "Webster's rule",
    "shares = [0] * len(speeds)\n"
    "    for _ in range(num_samples):\n"
    "        shares[max(range(len(speeds)), key=lambda d: speeds[d] / (2 * shares[d] + 1))] += 1",
)
wrong_shares(
    "the last gets what is left",
    "the last gets what is left",
    "shares = [round(num_samples * speed / sum(speeds)) for speed in speeds[:-1]]\n"
    "    shares.append(num_samples - sum(shares))",
)
wrong_shares(
    "divides first",
    "divided before it is multiplied",
    "shares = [num_samples // sum(speeds) * speed for speed in speeds]\n"
    "    for device in range(num_samples - sum(shares)):\n"
    "        shares[device % len(speeds)] += 1",
)
