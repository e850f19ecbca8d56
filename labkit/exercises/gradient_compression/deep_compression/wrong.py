"""Wrong answers to deep_compression, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

CLIP = "clipped = gradient * min(1.0, limit / max(float(gradient.norm()), 1e-30))"
VELOCITY = "velocity = self.momentum * self.velocities.get(key, 0) + clipped"
RESIDUAL = "residual = self.residuals.get(key, 0) + velocity"
SHARE = "share = max(self.ratio, 0.25 ** (1 + calls // self.warmup)) if self.warmup else self.ratio"
changed("does not clip", "not clipped", (CLIP, "clipped = gradient.clone()"))
changed("clips to the whole norm", "clipped as if alone", (" / self.num_ranks**0.5", ""))
changed(
    "clips the velocity",
    "clipped after the momentum",
    (CLIP, "clipped = gradient"),
    (VELOCITY, VELOCITY + "\n        velocity = velocity * min(1.0, limit / max(float(velocity.norm()), 1e-30))"),
)
changed("momentum only", "no residual", (RESIDUAL, "residual = velocity.clone()"))
changed("residual only", "no momentum", (VELOCITY, "velocity = clipped.clone()"))
changed("velocity goes on", "momentum of what was sent", ("velocity.view(-1)[places] = 0", "pass"))
changed("residual goes on", "what was sent stays", ("residual.view(-1)[places] = 0", "pass"))
changed("starts with the ratio", "no warm-up", (SHARE, "share = self.ratio"))
changed(
    "counts every call",
    "warm-up counts all keys",
    ("calls = self.calls.get(key, 0)", "calls = sum(self.calls.values())"),
)
changed("one key", "one state for all keys", ("calls = self.calls.get(key, 0)", "key, calls = 0, self.calls.get(0, 0)"))
changed("halves", "another share", ("0.25 ** (1 +", "0.5 ** (1 +"))
changed("clips in place", "gradient changed", (CLIP, CLIP.replace("gradient * min", "gradient.mul_(min") + ")"))
changed("hands the parts out", "no packet", ("        return packet\n", "        return packet.parts\n"))
UNPACKED = "self.compressor.decompress(packet)"
changed("ends without it", "nothing returned", (f"return {UNPACKED}", UNPACKED))
changed(
    "views a residual with gaps flat", "taken for contiguous",
    ("velocity, residual = velocity.contiguous(), residual.contiguous()", "pass"),
)  # fmt: skip
changed(
    "places of eight bytes", "too many bytes",
    ("        return packet\n", "        return replace(packet, parts=(packet.parts[0], places))\n"),
)  # fmt: skip
changed("scales every gradient", "every gradient is scaled", (CLIP, CLIP.replace("min(1.0, ", "(")))
changed("clips entries", "each entry is clipped", (CLIP, "clipped = gradient.clamp(-limit, limit)"))
changed("over N", "clipped by the number of ranks", ("self.num_ranks**0.5", "self.num_ranks"))
changed(
    "Nesterov", "Nesterov's momentum", (RESIDUAL, RESIDUAL.replace("velocity", "clipped + self.momentum * velocity"))
)
changed(
    "a running mean",
    "the gradient is dampened",
    (VELOCITY, VELOCITY.replace("+ clipped", "+ (1 - self.momentum) * clipped")),
)
changed("counts from 1", "warm-up counts from one", (SHARE, SHARE.replace("calls //", "(calls + 1) //")))
changed("clears the whole velocity", "no momentum", ("velocity.view(-1)[places] = 0", "velocity.zero_()"))
changed("clears the whole residual", "no residual", ("residual.view(-1)[places] = 0", "residual.zero_()"))
changed("the velocity's largest", "no residual", ("TopK(share).compress(residual)", "TopK(share).compress(velocity)"))
changed("momentum after the residual", "no momentum", (RESIDUAL, RESIDUAL.replace("velocity", "clipped")))
changed("one stage of warm-up", "another share", ("0.25 ** (1 + calls // self.warmup)", "0.25 * (calls < self.warmup)"))
changed("never more than the ratio", "no warm-up", ("max(self.ratio,", "min(self.ratio,"))
changed(
    "clips the residual", "the residual is clipped",
    (CLIP, "clipped = gradient.clone()"),
    (RESIDUAL, RESIDUAL + "\n        residual = residual * min(1.0, limit / max(float(residual.norm()), 1e-30))"),
)  # fmt: skip
changed(
    "begins with all",
    "warm-up begins with everything",
    (SHARE, SHARE.replace("(1 + calls // self.warmup)", "(calls // self.warmup)")),
)
changed(
    "a smaller share than the ratio", "the share sinks below the ratio", (SHARE, SHARE.replace("max(self.ratio, ", "("))
)
changed(
    "warms up always",
    "warm-up where there is none",
    (SHARE, "share = max(self.ratio, 0.25 ** (1 + calls // max(1, self.warmup)))"),
)
changed(
    "divides by no warm-up",
    "warm-up where there is none",
    (SHARE, SHARE.replace(" if self.warmup else self.ratio", "")),
)
changed(
    "the largest entry for a norm",
    "clipped by another norm",
    (CLIP, CLIP.replace("gradient.norm()", "gradient.abs().max()")),
)
changed(
    "the sum for a norm",
    "clipped by the sum of magnitudes",
    (CLIP, CLIP.replace("gradient.norm()", "gradient.abs().sum()")),
)
changed(
    "both begin as one",
    "velocity and residual are one tensor",
    (
        VELOCITY,
        "velocity = self.velocities[key].mul_(self.momentum).add_(clipped) if key in self.velocities else clipped",
    ),
    (RESIDUAL, "residual = self.residuals[key].add_(velocity) if key in self.residuals else velocity"),
)
GAPS = "velocity, residual = velocity.contiguous(), residual.contiguous()"
changed(
    "clears a copy",
    "a copy is cleared",
    (GAPS, "pass"),
    ("velocity.view(-1)", "velocity.reshape(-1)"),
    ("residual.view(-1)", "residual.reshape(-1)"),
)
changed(
    "momentum on the residual", "the residual fades", (RESIDUAL, RESIDUAL.replace("= self", "= self.momentum * self"))
)
changed("the remainder for a stage", "warm-up by the remainder", (SHARE, SHARE.replace("calls //", "calls %")))
