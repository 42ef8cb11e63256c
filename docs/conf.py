from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import download_reference
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject

import stompy

project = "stompy"
author = "the stompy authors"
copyright = f"{author}, Apache License 2.0"
release = version = stompy.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"stompy {release}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_copy_source = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b5cad",
        "color-brand-content": "#0b5cad",
        "color-brand-soft": "#e4f0fb",
    },
    "dark_css_variables": {
        "color-brand-primary": "#6cb6ff",
        "color-brand-content": "#6cb6ff",
        "color-brand-soft": "#12304d",
        "dg-good": "#12402a",
        "dg-good-line": "#3fb27f",
        "dg-bad": "#4a1f1b",
        "dg-bad-line": "#e07a6f",
    },
}

myst_enable_extensions = ["colon_fence", "deflist", "attrs_block"]
myst_heading_anchors = 3

napoleon_numpy_docstring = False
napoleon_use_ivar = True
maximum_signature_line_length = 88
python_display_short_literal_types = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Aliases keep their names in signatures.
autodoc_type_aliases = {"Outcome": "Outcome", "Body": "Body"}


HIDDEN_COLON = "\ue000"


def write_code_as_code(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Turn `code` into ``code``: docstrings are read in editors too, and use single backticks.

    Runs before napoleon, which takes what is before the first colon of a property's docstring for its type: the colon
    is hidden from it.
    """
    lines[:] = [re.sub(r"(?<![`:])`([^`]+)`(?!`)", r"``\1``", line) for line in lines]
    if what in ("property", "attribute") and lines:
        lines[0] = lines[0].replace(":", HIDDEN_COLON)


def show_colons(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Bring the hidden colons back, after napoleon."""
    lines[:] = [line.replace(HIDDEN_COLON, ":") for line in lines]


TOP = Path(__file__).parent.parent


@cache
def files_of_tests() -> dict[str, str]:
    """Return the file of each test, as a path from here."""
    found = {}
    for path in sorted((TOP / "tests").rglob("test_*.py")):
        for name in re.findall(r"^ *def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            found[name] = f"/../{path.relative_to(TOP).as_posix()}"
    return found


def link_tests(app: Sphinx, page: nodes.document) -> None:
    """Make each `test_name` on the pages that compare and promise a link to the test's file."""
    if app.env.docname not in ("why", "reference/known-failures"):
        return
    for literal in list(page.findall(nodes.literal)):
        if file := files_of_tests().get(literal.astext()):
            link = download_reference("", "", reftarget=file, refdoc=app.env.docname, reftitle=literal.astext())
            literal.replace_self(link)
            link += nodes.literal("", "test" if app.env.docname == "why" else literal.astext())


for field in PyObject.doc_field_types:
    if field.name == "variable":
        field.label = "Attributes"


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", link_tests, priority=100)
    app.connect("autodoc-process-docstring", write_code_as_code, priority=400)
    app.connect("autodoc-process-docstring", show_colons, priority=600)
