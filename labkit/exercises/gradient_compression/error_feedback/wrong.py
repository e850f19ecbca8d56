"""Wrong answers to error_feedback, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


CORRECTED = "corrected = gradient + self.residuals[key] if key in self.residuals else gradient.clone()"
KEPT = "self.residuals[key] = corrected - self.compressor.decompress(packet)"
changed("compresses the gradient alone", "no memory", (CORRECTED, "corrected = gradient.clone()"))
changed(
    "gradient minus sent",
    "the old residual is forgotten",
    (KEPT, KEPT.replace("= corrected", "= gradient")),
)
changed(
    "the other way round",
    "the residual has the wrong sign",
    (KEPT, "self.residuals[key] = self.compressor.decompress(packet) - corrected"),
)
changed(
    "one residual",
    "one residual for all keys",
    ("self.residuals[key]", "self.residuals[0]"),
    ("if key in", "if 0 in"),
    (
        "        return packet\n        # END",
        "        self.residuals[key] = self.residuals[0]\n        return packet\n        # END",
    ),
)
changed(
    "in place",
    "gradient changed",
    (CORRECTED, "corrected = gradient.add_(self.residuals.get(key, 0))"),
)
changed(
    "keeps what was sent",
    "the residual is what was sent",
    (KEPT, "self.residuals[key] = self.compressor.decompress(packet)"),
)
changed("keeps everything", "the residual is all there was", (KEPT, "self.residuals[key] = corrected"))
changed(
    "adds to the old one",
    "residuals pile up",
    (KEPT, "self.residuals[key] = self.residuals.get(key, 0) + corrected - self.compressor.decompress(packet)"),
)
changed(
    "keeps it elsewhere",
    "no residual under the key",
    ("self.residuals[key]", "self.residuals[(key, 1)]"),
    ("if key in", "if (key, 1) in"),
)
changed(
    "compresses twice",
    "compresses twice",
    (KEPT, KEPT.replace("decompress(packet)", "decompress(self.compressor.compress(corrected))")),
)
changed(
    "unpacks the residual too",
    "decompress adds the residual",
    (
        "return self.compressor.decompress(packet)",
        "return self.compressor.decompress(packet) + [*self.residuals.values()][-1]",
    ),
)
changed("rounds itself", "made for one compressor", (KEPT, "self.residuals[key] = corrected - corrected.round()"))
changed("looks into the packet", "made for one compressor", (KEPT, "self.residuals[key] = corrected - packet.parts[0]"))
changed(
    "knows values and places",
    "made for one compressor",
    (
        KEPT,
        "self.residuals[key] = corrected - (packet.parts[0] if self.compressor.addable else packet.parts[1])",
    ),
)
changed("hands the parts out", "no packet", ("        return packet\n", "        return packet.parts\n"))
UNPACKED = "self.compressor.decompress(packet)"
changed("ends without it", "nothing returned", (f"return {UNPACKED}", UNPACKED))
changed("the residual alone", "only the residual is sent", (CORRECTED, CORRECTED.replace("gradient + ", "")))
changed("adds what was sent", "what was sent is added", (KEPT, KEPT.replace(" - ", " + ")))
changed(
    "keeps the residual it had",
    "the residual stays as it was",
    (KEPT, "self.residuals[key] = corrected - gradient"),
)
changed(
    "gradient times residual", "only the residual is sent", (CORRECTED, CORRECTED.replace("gradient + ", "gradient * "))
)
changed(
    "nothing left where anything was sent",
    "0 where anything was sent",
    (KEPT, f"self.residuals[key] = torch.where({UNPACKED} != 0, 0.0, corrected)"),
)
changed(
    "what the gradient's own packet leaves out",
    "of another packet",
    (KEPT, "self.residuals[key] = gradient - self.compressor.decompress(self.compressor.compress(gradient))"),
)
changed(
    "keeps it in decompress",
    "no residual under the key",
    (KEPT, "self.pending = (key, corrected)"),
    (
        f"        return {UNPACKED}",
        f"        key, corrected = self.pending\n        {KEPT}\n        return {UNPACKED}",
    ),
)
changed(
    "in float32",
    "a residual of another shape or dtype",
    (KEPT, f"self.residuals[key] = (corrected - {UNPACKED}).float()"),
)
changed(
    "a residual for each shape",
    "one residual for all keys",
    ("self.residuals[key]", "self.residuals[gradient.shape]"),
    ("if key in", "if gradient.shape in"),
    (
        "        return packet\n        # END",
        "        self.residuals[key] = self.residuals[gradient.shape]\n        return packet\n        # END",
    ),
)
changed(
    "adds the residual after",
    "no memory",
    (CORRECTED, "corrected = gradient.clone()"),
    (KEPT, f"self.residuals[key] = self.residuals.get(key, 0) + corrected - {UNPACKED}"),
)
changed(
    "a step late",
    "the residual stays as it was",
    (KEPT, f"self.residuals[key] = self.late.get(key, 0 * gradient)\n        self.late[key] = corrected - {UNPACKED}"),
    ("        self.compressor = compressor\n", "        self.compressor, self.late = compressor, {}\n"),
)
changed(
    "takes what was sent from the gradient",
    "the gradient itself, with no residual yet",
    ("else gradient.clone()", "else gradient"),
    (KEPT, f"corrected -= {UNPACKED}\n        self.residuals[key] = corrected"),
)
changed(
    "clears the places that top-k sends",
    "parts taken for values and places",
    (KEPT, "corrected.view(-1)[packet.parts[1].long()] = 0\n        self.residuals[key] = corrected"),
)
changed(
    "a flat residual",
    "a residual of another shape or dtype",
    (CORRECTED, CORRECTED.replace("self.residuals[key] if", "self.residuals[key].view_as(gradient) if")),
    (KEPT, f"self.residuals[key] = (corrected - {UNPACKED}).flatten()"),
)
changed(
    "forgets the other keys",
    "residuals of other keys are lost",
    (KEPT, f"self.residuals = {{key: corrected - {UNPACKED}}}"),
)
changed(
    "one tensor for all steps",
    "the packet is changed in place",
    (
        CORRECTED,
        "corrected = self.residuals.setdefault(key, torch.zeros_like(gradient))\n        corrected += gradient",
    ),
    (KEPT, f"corrected -= {UNPACKED}"),
)
changed(
    "remembers under keys that are true", "no memory", ("if key in self.residuals", "if key and key in self.residuals")
)
changed(
    "room of torch.zeros",
    "a residual of another shape or dtype",
    (KEPT, f"self.residuals[key] = torch.zeros(gradient.shape).copy_(corrected - {UNPACKED})"),
)
