"""How `make docs` builds the site: Sphinx with MyST, every page from this repository, nothing from the network."""

from __future__ import annotations

import os
import sys
from html import escape
from pathlib import Path
from typing import Any

import latex2mathml.converter
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import first_page  # noqa: E402
import gpu_pages  # noqa: E402
import lesson_pages  # noqa: E402
import made_pages  # noqa: E402

from labkit.lessons.played import write_played  # noqa: E402

project = "labkit"
copyright = "the labkit authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "made/lesson_map.md", "made/door.md", "made/played.md", "gpu_reports/README.md"]
html_theme = "furo"
html_title = "labkit"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
# One typeface and one accent, those of the pictures.
_FONTS = {"font-stack": 'system-ui, -apple-system, "Segoe UI", sans-serif'}
html_theme_options = {
    "light_css_variables": _FONTS | {"color-brand-primary": "#0072b2", "color-brand-content": "#0069a6"},
    "dark_css_variables": _FONTS | {"color-brand-primary": "#56b4e9", "color-brand-content": "#7cc4ee"},
}
html_favicon = "site/icon.svg"
html_baseurl = os.environ.get("LABKIT_SITE", "")  # where the site will stand, for the addresses in its previews
html_show_sphinx = False
templates_path: list[str] = []
smartquotes = False

nb_execution_mode = "off"
# Scripts of outputs: the explorers draw themselves; requirejs and the widget manager would come from the network.
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["mystnb.unknown_mime_type", "myst.header"]
html_math_renderer = "mathml"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False


def _inline_math(writer: HTML5Translator, node: nodes.math) -> None:
    writer.body.append(latex2mathml.converter.convert(node.astext()))
    raise nodes.SkipNode


def _block_math(writer: HTML5Translator, node: nodes.math_block) -> None:
    writer.body.append(latex2mathml.converter.convert(node.astext(), display="block"))
    raise nodes.SkipNode


def _with_pictures(app: Sphinx, error: Exception | None) -> None:
    """Write what pages show in frames or lead to, each a page of its own, and the picture for links."""
    if error is None and app.builder.format == "html":
        first_page.write_preview(Path(app.outdir) / "_static" / "preview.png")
        first_page.write_timelines(Path(app.outdir) / "made" / "timelines")
        lesson_pages.write_timelines(Path(app.outdir) / "made")
        lesson_pages.write_notebooks(Path(app.outdir) / "made" / "notebooks")
        gpu_pages.write(Path(app.outdir) / "made" / "gpu")
        # A class's site (labkit release) is built with the tag: its questions are worth points.
        write_played(HERE.parent, Path(app.outdir) / "made" / "played", judged=not app.tags.has("class"))


def _with_preview(
    app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Say what a page is to whoever shows a link to it."""
    told = {"og:type": "website", "og:site_name": "labkit", "og:title": context.get("title", "labkit")}
    told["og:description"] = "Learn distributed training by building it: notebooks, real ranks, timelines, grading."
    if html_baseurl:
        told["og:image"] = f"{html_baseurl.rstrip('/')}/_static/preview.png"
    tags = "".join(f'<meta property="{key}" content="{escape(value)}" />\n' for key, value in told.items())
    context["metatags"] = context.get("metatags", "") + tags


def setup(app: Sphinx) -> None:
    """Write the pages that are made from code, and draw formulas as MathML, which browsers know without a script."""
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))
    app.connect("builder-inited", lambda _: made_pages.write(HERE / "made"))
    app.connect("build-finished", _with_pictures)
    app.connect("html-page-context", _with_preview)
