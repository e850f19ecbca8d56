"""How `make docs` builds the site: Sphinx with MyST, every page from this repository, nothing from the network."""

from __future__ import annotations

import sys
from pathlib import Path

import latex2mathml.converter
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import made_pages  # noqa: E402

project = "labkit"
copyright = "the labkit authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "labkit"
html_static_path: list[str] = []
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


def setup(app: Sphinx) -> None:
    """Write the pages that are made from code, and draw formulas as MathML, which browsers know without a script."""
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))
    app.connect("builder-inited", lambda _: made_pages.write(HERE / "made"))
