"""Wrong answers to sparse_rows, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


changed("in the order of the answers", "rows in the order of the servers",
        ("        rows[home == number] = answer\n", "        pass\n"), ("return rows[where]", "return torch.cat(list(answers.values()))[where]"))  # fmt: skip
changed("different keys only", "rows of the different keys only", ("return rows[where]", "return rows"))
changed("assigns", "one gradient in place of the sum",
        ("sums = gradients.new_zeros(len(different), gradients.shape[1]).index_add_(0, where, gradients)",
         "sums = gradients.new_zeros(len(different), gradients.shape[1])\n    sums[where] = gradients"))  # fmt: skip
changed("sends all keys", "keys sent more than once",
        ("wanted, where = torch.unique(keys, return_inverse=True)", "wanted, where = keys, torch.arange(len(keys))"))  # fmt: skip
changed("calls everybody", "servers called for nothing",
        ("        for number, server in enumerate(servers)\n        if (home == number).any()\n    ]", "        for number, server in enumerate(servers)\n    ]"))  # fmt: skip
changed("waits each time", "one server after the other",
        ("server.rpc_async().pull(wanted[home == number])", "server.rpc_sync().pull(wanted[home == number])"),
        ("call.wait() for number, call", "call for number, call"))  # fmt: skip
changed("pushes one after the other", "one server after the other",
        ("server.rpc_async().push(different", "server.rpc_sync().push(different"),
        ("    for call in calls:\n        call.wait()\n", ""))  # fmt: skip
changed("a call for each key", "a call for every key",
        ("server.rpc_async().push(different[home == number], sums[home == number])\n", "server.rpc_async().push(key, total)\n"),
        ("        for number, server in enumerate(servers)\n        if (home == number).any()\n    ]",
         "        for number, server in enumerate(servers)\n        for key, total in zip(different[home == number].split(1), sums[home == number].split(1))\n    ]"))  # fmt: skip

changed("gradients before keys", "keys and gradients swapped",
        ("push(different[home == number], sums[home == number])", "push(sums[home == number], different[home == number])"))  # fmt: skip
changed("pushes and goes", "does not wait", ("    for call in calls:\n        call.wait()\n", ""))
changed(
    "waits for the last",
    "does not wait",
    ("    for call in calls:\n        call.wait()\n", "    calls[-1].wait()\n"),
)
changed("sums in float32", "sums in another type", ("gradients.new_zeros(", "torch.zeros("))
changed("pushes everything to everybody", "asks everybody for everything",
        ("push(different[home == number], sums[home == number])", "push(different, sums)"))  # fmt: skip
changed("gradients as they came", "gradients lost", ("sums[home == number])", "gradients[place(keys) == number])"))
changed(
    "counts servers from 1", "gradients lost",
    ("sums[home == number])\n        for number, server in enumerate(servers)",
     "sums[home == number])\n        for number, server in enumerate(servers, 1)"),
)  # fmt: skip
changed("places the last answer", "rows of some servers alone",
        ("        rows[home == number] = answer\n", "        pass\n    rows[home == number] = answer\n"))  # fmt: skip
changed("returns no rows", "wrong type", ("    return rows[where]\n", ""))
changed("places nothing", "no row of any server", ("        rows[home == number] = answer\n", "        pass\n"))
changed("compares with the answers", "no row of any server", ("rows[home == number] =", "rows[home == answers] ="))
changed("rows in float32", "rows in another type", ("first.new_empty(", "torch.empty("))
changed(
    "all keys to each server",
    "asks everybody for everything",
    ("pull(wanted[home == number])", "pull(wanted)"),
    ("rows[home == number] = answer", "rows[home == number] = answer[home == number]"),
)
changed(
    "servers by the key's remainder",
    "asks everybody for everything",
    ("home = place(wanted)", "home = wanted % len(servers)"),
)
changed(
    "pushes the mean",
    "the mean of a key's gradients",
    (
        "    home = place(different)\n    calls = [",
        "    sums = sums / torch.bincount(where).unsqueeze(1)\n    home = place(different)\n    calls = [",
    ),
)
changed("pulls each key by itself", "a call for every key", ("        number: server.rpc_async().pull(wanted[home == number])\n        for number, server in enumerate(servers)\n        if (home == number).any()\n", "        key: servers[int(number)].rpc_async().pull(key.view(1))\n        for key, number in zip(wanted, home)\n"),
        ("    for number, answer in answers.items():\n        rows[home == number] = answer\n", "    for key, answer in answers.items():\n        rows[wanted == key] = answer\n"))  # fmt: skip
changed("starts each when the last has answered", "one server after the other", ("    calls = [\n        server.rpc_async().push(different[home == number], sums[home == number])\n        for number, server in enumerate(servers)\n        if (home == number).any()\n    ]\n    for call in calls:\n        call.wait()\n",
        "    for number, server in enumerate(servers):\n        if (home == number).any():\n            server.rpc_async().push(different[home == number], sums[home == number]).wait()\n"))  # fmt: skip
changed(
    "room like the gradients",
    "as many sums as positions",
    ("gradients.new_zeros(len(different), gradients.shape[1])", "torch.zeros_like(gradients)"),
)
