"""What setup.cfg cannot say: the fields that a release fills, and a description whose links work on a package index."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup

# A release fills these; until then they are left out. `make build` fails for a released version without them.
AUTHOR = ""
AUTHOR_EMAIL = ""
URL = ""  # of the repository, without a slash at the end: files are at URL/blob/vVERSION/

HERE = Path(__file__).parent
(version,) = re.findall(r'^__version__ = "(.+)"$', (HERE / "stompy/__init__.py").read_text(encoding="utf-8"), re.M)
files = f"{URL}/blob/v{version}"


def description() -> str:
    """Return the README with links to the files of this version, or without those links while there is no URL."""
    link = rf"[\1]({files}/\2)" if URL else r"\1"
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\[([^]]+)\]\((?!https?:|#)([^)]+)\)", link, readme)


urls = {"Source": URL, "Documentation": f"{files}/docs/index.md", "Changelog": f"{files}/CHANGELOG.md"}
setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    author=AUTHOR or None,
    author_email=AUTHOR_EMAIL or None,
    project_urls=urls if URL else {},
)
