"""Timelines in frames: a page of its own for each, and the frame in which a page of the site shows it."""

from __future__ import annotations

from html import escape
from pathlib import Path

# A page in a frame says how high it is, and site.js gives the frame that height and says whether the site is dark;
# this works from a disk, too.
_SPEAKS_WITH_THE_SITE = """<style>
/* Where an event's details will stand, until one is chosen; without it the place is an empty band. */
.labkit-detail:empty::before { content: "Rest the pointer on a bar, or click it, to read what it is."; opacity: .7; }
@media (max-width: 340px) { .labkit-numbers :is(th, td):nth-child(n + 3) { display: none; } }
</style>
<script>
const bottom = () => Math.ceil(document.body.getBoundingClientRect().bottom);
const tell = () => parent.postMessage({ labkitHeight: bottom() + 12 }, "*");
new ResizeObserver(tell).observe(document.body);
addEventListener("load", tell); // the observer sleeps in a frame that is out of sight
addEventListener("message", ({ data }) => {
  if (data?.labkitScheme) {
    document.documentElement.style.colorScheme = data.labkitScheme;
    document.body.className = data.labkitScheme; // what a timeline watches
  }
  if (data === "labkitHeight" || data?.labkitScheme) tell();
});
</script>
"""

# A first visit meets the picture and its title, in rows twice as high, and no tools.
_POSTER = """<style>
.labkit-timeline :is(.labkit-tiles, .labkit-main, .labkit-legend [data-mark="idle"]) { display: none; }
.labkit-detail:empty::before { opacity: 1; }
body { margin: 0; }
.labkit-timeline .labkit-detail { min-height: 1.4em; margin-bottom: 0; }
</style>
<script>
addEventListener("load", () => {
  const { labkit } = document.querySelector(".labkit-timeline");
  labkit.state.tall = 1.4;
  labkit.resize();
});
</script>
"""


def write_page(path: Path, html: str, is_poster: bool = False) -> None:
    """Write a timeline's page so that it can stand in a frame; a poster has the title and the picture alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html + _SPEAKS_WITH_THE_SITE + (_POSTER if is_poster else ""), encoding="utf-8")


def frame(page: str, title: str, height: int, run: str = "") -> str:
    """Return the frame as HTML.

    Args:
        page: The timeline's page, as seen from the one with the frame.
        title: What is in it, for those who listen to the page.
        height: Pixels, until the page says its own.
        run: What a switch on the page calls it; "" where there is none.
    """
    called = f' data-run="{run}"' if run else ""
    return (
        f'<iframe class="labkit-page"{called} src="{page}" title="{escape(title)}" loading="lazy" '
        f'style="height: {height}px"></iframe>'
    )
