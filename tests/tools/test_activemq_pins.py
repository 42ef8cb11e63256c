"""`.ci/activemq` takes no jar but those whose sums are in the repository."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

CI = Path(__file__).parents[2] / ".ci"
PINS = CI / "activemq.sha256"

MAVEN = """#!/bin/sh
for argument; do
    case "$argument" in -DoutputDirectory=*) folder="${argument#*=}" ;; esac
done
mkdir -p "$folder"
while read -r sum jar; do
    echo "not $jar" >"$folder/${jar#lib/}"
done <"$PINS"
"""
JAVA = """#!/bin/sh
echo 'openjdk version "21.0.1"' >&2
"""
NOBODY = "#!/bin/sh\nexit 1\n"


def test_every_jar_of_the_release_is_pinned_once() -> None:
    rows = PINS.read_text(encoding="ascii").splitlines()
    jars = [row.split("  ")[1] for row in rows]
    assert all(re.fullmatch(r"[0-9a-f]{64}  lib/[\w.-]+\.jar", row) for row in rows)
    assert jars == sorted(set(jars))
    (version,) = re.findall(r"^VERSION=(\S+)", (CI / "activemq").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"lib/activemq-broker-{version}.jar" in jars
    assert f"lib/activemq-stomp-{version}.jar" in jars


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine whose Maven brings other jars, and that can install nothing."""
    for name, program in {"mvn": MAVEN, "java": JAVA, "apt-get": NOBODY, "sudo": NOBODY, "dpkg": NOBODY}.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(program, encoding="utf-8")
        path.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    path_variable = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    return {**kept, "PATH": path_variable, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PINS": str(PINS)}


def test_a_changed_jar_ends_the_run_and_leaves_nothing(machine: dict[str, str]) -> None:
    done = subprocess.run([CI / "activemq"], env=machine, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "jars differ from those in" in done.stderr
    assert "Debian" not in done.stderr
    assert not list(Path(machine["XDG_CACHE_HOME"], "stompy").glob("*activemq-*"))
