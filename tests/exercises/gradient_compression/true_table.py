"""Wrong answers to true_table, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
changed = WRONG.changed


GAIN = "return min(load_s, compute_s) / (load_s + compute_s)"
SPEEDUP = "return 1 / (1 - product_share + product_share / factor)"
VERDICT = 'verdict = "less" if row.value < low else "more" if row.value > high else "holds"'
changed("load over all", "the share of loading", (GAIN, "return load_s / (load_s + compute_s)"))
changed("over compute", "gain over compute", (GAIN, "return min(load_s, compute_s) / compute_s"))
changed(
    "how many times",
    "times as fast, not the share",
    (GAIN, "return (load_s + compute_s) / max(load_s, compute_s)"),
)
changed(
    "products alone",
    "what is not a product is forgotten",
    (SPEEDUP, "return factor / product_share if product_share else 1.0"),
)
changed(
    "a mean of speeds",
    "speed-ups are averaged",
    (SPEEDUP, "return 1 - product_share + product_share * factor"),
)
changed(
    "the time left",
    "the time, not the speed",
    (SPEEDUP, "return 1 - product_share + product_share / factor"),
)
changed(
    "open ends",
    "the ends do not belong",
    (VERDICT, VERDICT.replace("< low", "<= low").replace("> high", ">= high")),
)
changed(
    "swapped",
    "less and more the wrong way round",
    (VERDICT, VERDICT.replace("< low", "> high", 1).replace('> high else "holds"', '< low else "holds"')),
)
changed(
    "claims as they come",
    "claims without rows are left out",
    ('    table = {claim: {"holds": [], "less": [], "more": []} for claim in promised}\n', "    table = {}\n"),
    (
        "        table[row.claim][verdict]",
        '        table.setdefault(row.claim, {"holds": [], "less": [], "more": []})[verdict]',
    ),
)
changed(
    "lists as they come",
    "empty lists are left out",
    ('{"holds": [], "less": [], "more": []} for claim', "{} for claim"),
    ("[verdict].append", ".setdefault(verdict, []).append"),
)
changed(
    "over the longer",
    "the shorter over the longer",
    (GAIN, "return min(load_s, compute_s) / max(load_s, compute_s)"),
)
changed(
    "times f",
    "products become slower",
    (SPEEDUP, "return 1 / (1 - product_share + product_share * factor)"),
)
changed(
    "one dict for all claims",
    "one list for all",
    (
        '{claim: {"holds": [], "less": [], "more": []} for claim in promised}',
        'dict.fromkeys(promised, {"holds": [], "less": [], "more": []})',
    ),
)
changed("rows for places", "rows instead of places", (".append(row.where)", ".append(row)"))
changed(
    "sorted rows",
    "another order",
    ("for row in rows:", "for row in sorted(rows, key=lambda row: row.value):"),
)
