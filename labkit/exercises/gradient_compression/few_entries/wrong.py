"""Wrong answers to few_entries, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


PLACES = "places = flat.abs().topk(num_kept(self.ratio, flat.numel())).indices"
TOPK = "return Packet((flat[places], places.to(torch.int32)), gradient.shape, gradient.dtype)"
changed("the post", "signs lost", ("Packet((flat[places],", "Packet((flat.abs()[places],"))
changed("largest entries", "largest instead of largest magnitude", ("flat.abs().topk", "flat.topk"))
changed("int64 places", "places of eight bytes", ("places.to(torch.int32)", "places"))
changed(
    "one too many",
    "another number of entries",
    ("topk(num_kept(self.ratio, flat.numel()))", "topk(num_kept(self.ratio, flat.numel()) + 1)"),
)
changed("draws the same again", "the same places in every call", ("        self.num_calls += 1\n", ""))
changed(
    "seeds of its own",
    "the seed is not used",
    ("torch.tensor([self.seed + self.num_calls])", "torch.randint(0, 10**6, (1,))"),
)
changed(
    "a count for a seed",
    "every seed draws the same",
    ("[self.seed + self.num_calls]", "[self.num_calls]"),
)
changed(
    "unbiased",
    "scaled up",
    (
        "Packet((flat[self.places(seed, flat.numel())], seed)",
        "Packet((flat[self.places(seed, flat.numel())] / self.ratio, seed)",
    ),
)
changed(
    "places travel too",
    "places travel",
    (
        "Packet((flat[self.places(seed, flat.numel())], seed)",
        "Packet((flat[self.places(seed, flat.numel())], seed, self.places(seed, flat.numel()))",
    ),
    ("        values, seed = packet.parts\n", "        values, seed, _ = packet.parts\n"),
)
changed(
    "the generator is kept",
    "decompress uses what compress left behind",
    ("        self.num_calls += 1\n", "        self.num_calls += 1\n        self.last = seed\n"),
    ("flat[self.places(seed, flat.numel())] = values", "flat[self.places(self.last, flat.numel())] = values"),
)
LOT = "return torch.randperm(num_entries, generator=generator)[: num_kept(self.ratio, num_entries)]"
changed(
    "rounds the number kept",
    "another number of entries",
    ("topk(num_kept(self.ratio, flat.numel()))", "topk(max(1, round(self.ratio * flat.numel())))"),
)
changed(
    "zeros travel",
    "zeros travel",
    (TOPK, "return Packet((torch.zeros_like(flat).index_put((places,), flat[places]),), gradient.shape, flat.dtype)"),
    ("        values, places = packet.parts\n", "        return packet.parts[0].view(packet.shape)\n"),
)
changed(
    "always float32",
    "dtype lost",
    (
        "torch.zeros(packet.shape.numel(), dtype=packet.dtype, device=values.device)",
        "torch.zeros(packet.shape.numel())",
    ),
    ("flat[places.long()] = values", "flat[places.long()] = values.float()"),
)
changed(
    "draws with replacement",
    "a place drawn twice",
    (LOT, "return torch.randint(num_entries, (num_kept(self.ratio, num_entries),), generator=generator)"),
)
changed(
    "sets torch's own generator",
    "the global generator is disturbed",
    ("torch.Generator().manual_seed(", "torch.manual_seed("),
)
changed(
    "unpacks from its own counter",
    "values in other places",
    ("flat[self.places(seed, flat.numel())] = values", "flat[self.places(self.seed + 1, flat.numel())] = values"),
)
changed(
    "keeps none of a few",
    "another number of entries",
    ("num_kept(self.ratio, flat.numel())", "int(self.ratio * flat.numel())"),
)
changed("magnitudes in place", "gradient changed", ("flat.abs().topk", "flat.abs_().topk"))
changed("views the gradient flat", "taken for contiguous", ("gradient.flatten()", "gradient.view(-1)"))
changed("stays flat", "shape lost", ("return flat.view(packet.shape)", "return flat"))
changed("ends without it", "nothing returned", ("return flat.view(packet.shape)", "flat.view(packet.shape)"))
changed("a tuple for a packet", "no packet", (TOPK, "return flat[places], places.to(torch.int32)"))
changed(
    "counts to one", "the same places in every call", ("        self.num_calls += 1\n", "        self.num_calls = 1\n")
)
changed(
    "packs the places first",
    "places for values",
    ("(flat[places], places.to(torch.int32))", "(places.to(torch.int32), flat[places])"),
)
changed(
    "keeps by a threshold",
    "all that are as large are kept",
    (
        PLACES,
        "least = flat.abs().topk(num_kept(self.ratio, flat.numel())).values[-1]\n"
        "        places = (flat.abs() >= least).nonzero().flatten()",
    ),
)
changed(
    "the largest of each row",
    "the largest of each row",
    (
        PLACES,
        "rows = gradient.reshape(-1, gradient.shape[-1])\n"
        "        columns = rows.abs().topk(num_kept(self.ratio, rows.shape[1]), -1).indices\n"
        "        places = (columns + rows.shape[1] * torch.arange(len(rows))[:, None]).flatten()",
    ),
)
changed(
    "places first on both sides",
    "parts in another order",
    ("(flat[places], places.to(torch.int32))", "(places.to(torch.int32), flat[places])"),
    ("values, places = packet.parts", "places, values = packet.parts"),
)
changed(
    "the seed first on both sides",
    "parts in another order",
    ("Packet((flat[self.places(seed, flat.numel())], seed)", "Packet((seed, flat[self.places(seed, flat.numel())])"),
    ("values, seed = packet.parts", "seed, values = packet.parts"),
)
changed("a coin for each entry", "another number of entries",
        (LOT, "return (torch.rand(num_entries, generator=generator) < self.ratio).nonzero().flatten()"))  # fmt: skip
changed(
    "a block of neighbours",
    "neighbours in place of lots",
    (
        LOT,
        "count = num_kept(self.ratio, num_entries)\n"
        "        return torch.arange(count) + torch.randint(num_entries - count + 1, (1,), generator=generator)",
    ),
)
SEED = "        seed = torch.tensor([self.seed + self.num_calls])\n"
changed(
    "counts from 1",
    "another seed than seed + n",
    (SEED + "        self.num_calls += 1\n", "        self.num_calls += 1\n" + SEED),
)
changed(
    "seeds far apart", "another seed than seed + n", ("self.seed + self.num_calls", "1000 * self.seed + self.num_calls")
)
changed(
    "a counter for each shape",
    "another seed than seed + n",
    ("self.num_calls = ratio, seed, 0", "self.num_calls = ratio, seed, {}"),
    ("self.seed + self.num_calls", "self.seed + self.num_calls.get(gradient.shape, 0)"),
    ("self.num_calls += 1", "self.num_calls[gradient.shape] = self.num_calls.get(gradient.shape, 0) + 1"),
)
changed("a seed of 32 bits", "a seed of another kind", ("+ self.num_calls])", "+ self.num_calls], dtype=torch.int32)"))
changed(
    "the mean elsewhere",
    "not 0 elsewhere",
    (
        "torch.zeros(packet.shape.numel(), dtype=packet.dtype, device=values.device)\n        flat[places.long()]",
        "torch.full((packet.shape.numel(),), float(values.mean()), dtype=packet.dtype)\n        flat[places.long()]",
    ),
)
changed(
    "the share that is left out",
    "another number of entries",
    ("num_kept(self.ratio, flat", "num_kept(1 - self.ratio, flat"),
)
changed(
    "the smallest",
    "not the largest",
    ("topk(num_kept(self.ratio, flat.numel()))", "topk(num_kept(self.ratio, flat.numel()), largest=False)"),
)
changed(
    "one generator that goes on",
    "another seed than seed + n",
    ("ratio, seed, 0", "ratio, seed, torch.Generator().manual_seed(seed)"),
    ("        seed = torch.tensor([self.seed + self.num_calls])\n        self.num_calls += 1\n", ""),
    (
        "Packet((flat[self.places(seed, flat.numel())], seed)",
        "Packet((flat[torch.randperm(flat.numel(), generator=self.num_calls)[: num_kept(self.ratio, flat.numel())]], "
        "torch.tensor([self.seed]))",
    ),
)
changed(
    "a counter in the class",
    "one counter for all",
    ("self.ratio, self.seed, self.num_calls = ratio, seed, 0", "self.ratio, self.seed = ratio, seed"),
    ("    addable = True\n\n    def", "    addable = True\n    num_calls = 0\n\n    def"),
    ("self.num_calls += 1", "RandomK.num_calls += 1"),
)
changed(
    "counts what it unpacks",
    "decompress counts, too",
    ("        values, seed = packet.parts\n", "        values, seed = packet.parts\n        self.num_calls += 1\n"),
)
changed(
    "forks torch's own generator",
    "the global generator is disturbed",
    (
        "        generator = torch.Generator().manual_seed(int(seed))\n        " + LOT,
        "        with torch.random.fork_rng():\n            torch.manual_seed(int(seed))\n"
        "            return torch.randperm(num_entries)[: num_kept(self.ratio, num_entries)]",
    ),
)
changed(
    "sends places for the seed",
    "places where the seed belongs",
    ("flat.numel())], seed), gradient", "flat.numel())], self.places(seed, flat.numel())), gradient"),
)
changed("values in float32", "values of another dtype", ("Packet((flat[places],", "Packet((flat[places].float(),"))
changed(
    "takes the places in rows for flat ones",
    "the largest of each row",
    (
        PLACES,
        "count = min(gradient.shape[-1], num_kept(self.ratio, flat.numel()))\n"
        "        places = gradient.abs().topk(count).indices.flatten()",
    ),
)
