from __future__ import annotations

import stompy

project = "stompy"
author = "the stompy authors"
copyright = f"{author}, Apache License 2.0"  # noqa: A001
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
