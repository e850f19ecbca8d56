"""An audit as a page to hand on: one file, nothing loaded from elsewhere."""

from __future__ import annotations

from html import escape

from labkit.auditing.auditing import Audit
from labkit.auditing.catalogue import RULES
from labkit.auditing.finding import Finding

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin: 0 0 .4rem }
article { border-left: 4px solid #767676; padding: .2rem 1rem; margin: 1.5rem 0 }
article.wrong { border-color: #b3261e } article.suspected { border-color: #8a5a00 }
.where { color: #555 } code { background: #f2f2f2; padding: 0 .2rem } dt { font-weight: 600 } dd { margin: 0 0 .6rem }
@media (prefers-color-scheme: dark) {
  body { background: #161616; color: #eee } .where { color: #bbb } code { background: #2b2b2b }
}
"""


def page(audit: Audit) -> str:
    """Return the page."""
    found = "".join(_article(one) for one in audit.findings) or "<p>Nothing found.</p>"
    held = "".join(f"<dt><code>{escape(name)}</code></dt><dd>{escape(RULES[name].holds)}</dd>" for name in audit.held)
    unseen = "".join(
        f"<dt><code>{escape(name)}</code></dt><dd>{escape(reason)}</dd>" for name, reason in audit.not_looked_at.items()
    )
    title = f"{audit.name}: {len(audit.findings)} findings"
    notes = "".join(f"<p>{escape(note)}</p>" for note in audit.notes)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><p>{audit.num_steps} training steps on {audit.world_size} virtual ranks.</p>{notes}"
        f"{found}<h2>Looked at in these steps, and held</h2><dl>{held}</dl>"
        f"<h2>Not looked at</h2><dl>{unseen}</dl></body></html>\n"
    )


def _article(one: Finding) -> str:
    rule = RULES[one.rule]
    places = [f"rank {one.rank}"] if one.rank >= 0 else []
    places += [f"step {one.step}"] if one.step >= 0 else []
    places += [one.tensor] if one.tensor else []
    places += [one.where] if one.source else []
    return (
        f'<article class="{one.severity}"><h2>{one.severity}: {escape(one.rule)}</h2>'
        f'<p class="where">{escape(", ".join(places))}</p><p>{escape(one.text)}</p>'
        f"<p>{escape(rule.why)}</p><p><strong>Do:</strong> {escape(one.advice)}</p>"
        f"<p>Lesson {rule.lesson}.</p></article>"
    )
