from __future__ import annotations

import re

from sphinx.application import Sphinx

import stompy
from stompy.errors import StompError

project = "stompy"
author = "the stompy authors"
copyright = f"{author}, Apache License 2.0"
release = version = stompy.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"stompy {release}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

napoleon_numpy_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# The aliases of annotations are told by their names, as the source has them.
autodoc_type_aliases = {"Outcome": "Outcome"}


def leave_errors_to_their_page(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Skip the errors that the door shows as well, so that each class is described, and linked to, once."""
    is_error = isinstance(obj, type) and issubclass(obj, StompError)
    return True if is_error and app.env.docname == "reference/api" else None


def write_code_as_code(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Turn `code` into ``code``, which our docstrings, read in editors as well, do not bother the reader with.

    Runs before napoleon, which else takes what stands before a colon in a property's `stomp://...` for its type.
    """
    lines[:] = [re.sub(r"(?<![`:])`([^`]+)`(?!`)", r"``\1``", line) for line in lines]


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", write_code_as_code, priority=400)
    app.connect("autodoc-skip-member", leave_errors_to_their_page)
