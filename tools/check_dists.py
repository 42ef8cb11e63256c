"""Check that a built wheel and sdist hold what the project holds, and nothing else, and what the wheel says of itself.

Usage::

    python tools/check_dists.py DIRECTORY

Run from the top of the repository: git says which files are the project's.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

PACKAGE = "stompy/"
GENERATED_BY_SDIST = frozenset({"PKG-INFO", "setup.cfg"})
FILLED_BY_A_RELEASE = {"Author": "AUTHOR", "Author-email": "AUTHOR_EMAIL", "Project-URL": "URL"}
"""Field of the metadata to its name in setup.py."""


def project_files() -> set[str]:
    """Return the files that git has or would take, relative to the top."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        check=True,
        capture_output=True,
        text=True,
    )
    return {name for name in listed.stdout.split("\0") if name and Path(name).is_file()}


def check_wheel(path: Path, files: set[str]) -> list[str]:
    """Return what is wrong with a wheel: it holds the package, whole, and its own metadata."""
    wanted = {name for name in files if name.startswith(PACKAGE)}
    with zipfile.ZipFile(path) as opened:
        held = {name for name in opened.namelist() if ".dist-info/" not in name}
    return _differences(path.name, held=held, allowed=wanted, wanted=wanted)


def check_sdist(path: Path, files: set[str]) -> list[str]:
    """Return what is wrong with an sdist: it holds files of the project, the package whole among them."""
    wanted = {name for name in files if name.startswith((PACKAGE, "tests/"))} | {"LICENSE", "README.md", "CHANGELOG.md"}
    with tarfile.open(path) as opened:
        names = {member.name.split("/", 1)[1] for member in opened.getmembers() if member.isfile()}
    held = {name for name in names - GENERATED_BY_SDIST if not name.startswith("stompy_client.egg-info/")}
    return _differences(path.name, held=held, allowed=files, wanted=wanted)


def metadata_of(wheel: Path) -> Message:
    """Return the metadata of a wheel; the payload is the description."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(opened.read(name).decode())


def check_metadata(metadata: Message) -> list[str]:
    """Return what must not be published: fields without a value, and links that a package index cannot follow."""
    empty = [f"the field {name} is empty" for name, value in metadata.items() if not value.strip(" ,")]
    links = re.findall(r"\]\((?!https?://|#)([^)]*)\)", str(metadata.get_payload()))
    return empty + [f"the description links to {link}, which a package index does not have" for link in links]


def missing_at_a_release(metadata: Message) -> list[str]:
    """Return the fields of setup.py that are still to be filled."""
    return [field for name, field in FILLED_BY_A_RELEASE.items() if name not in metadata]


def is_released(version: str, changelog: str) -> bool:
    """Return whether the changelog has a section for the version."""
    return f"\n## [{version}]" in changelog


def _differences(name: str, *, held: set[str], allowed: set[str], wanted: set[str]) -> list[str]:
    stray = [f"{name}: stray file {entry}" for entry in sorted(held - allowed)]
    return stray + [f"{name}: lacks {entry}" for entry in sorted(wanted - held)]


def main(arguments: list[str]) -> int:
    """Check the one wheel and the one sdist in the directory; return the exit status."""
    if len(arguments) != 1:
        print("usage: python tools/check_dists.py DIRECTORY", file=sys.stderr)
        return 2
    built = Path(arguments[0])
    wheels, sdists = sorted(built.glob("*.whl")), sorted(built.glob("*.tar.gz"))
    files = project_files()
    problems = [f"{built}: {len(wheels)} wheels, {len(sdists)} sdists"] if (len(wheels), len(sdists)) != (1, 1) else []
    for wheel in wheels:
        problems += check_wheel(wheel, files)
    for sdist in sdists:
        problems += check_sdist(sdist, files)
    for wheel in wheels:
        metadata = metadata_of(wheel)
        problems += check_metadata(metadata)
        if missing := missing_at_a_release(metadata):
            text = f"a release fills in setup.py: {', '.join(missing)}"
            if is_released(str(metadata["Version"]), Path("CHANGELOG.md").read_text(encoding="utf-8")):
                problems.append(text)
            else:
                print(text)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{wheels[0].name} and {sdists[0].name} hold the project's files and nothing else")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
