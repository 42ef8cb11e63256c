"""What images of brokers are made of: file systems of Debian's packages, and archives from Maven."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stompy" / "images"
ARTEMIS = (
    "org.apache.artemis:apache-artemis:2.56.0:tar.gz:bin",
    "org.apache.activemq:apache-artemis:2.44.0:tar.gz:bin",
)
"""The newest available release, and one under its former name; the first that exists is used."""
ACTIVEMQ_WEB = ("6.2.4", "websocket-jetty-server")
ACTIVEMQ5_WEB = ("5.17.2", "websocket-server")
"""The newest WebSocket connector that Maven has for ActiveMQ 6, and that of Debian's ActiveMQ 5; and Jetty's part."""
MAVEN_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"


class CannotBeHad(RuntimeError):
    """A part is missing; the text says which and why."""


@dataclass(frozen=True)
class Root:
    """A file system made from packages of Debian.

    Attributes:
        name: of its file in the cache.
        suites: releases of Debian, of which the first that works is taken.
        packages: what it holds beside the least that there is.
    """

    name: str
    suites: tuple[str, ...]
    packages: tuple[str, ...]


JAVA = Root("java", ("bookworm",), ("default-jre-headless", "libactivemq-java", "libxstream-java", "libjettison-java"))
"""Used as the runtime of the brokers from Maven, and as a broker."""
RABBITMQ_3 = Root("rabbitmq3", ("bookworm",), ("rabbitmq-server",))
RABBITMQ_4 = Root("rabbitmq4", ("sid", "trixie"), ("rabbitmq-server",))
PYTHON = Root(
    "python",
    ("bookworm",),
    ("python3", "python3-pip", "python3-setuptools", "python3-wheel", "python3-tenacity", "python-is-python3"),
)
"""In the place of the official image of Python."""

_WEB_POM = """\
<project><modelVersion>4.0.0</modelVersion><packaging>pom</packaging>
<groupId>stompy</groupId><artifactId>activemq-web</artifactId><version>1</version>
<dependencyManagement><dependencies><dependency>
<groupId>org.apache.activemq</groupId><artifactId>activemq-parent</artifactId><version>{version}</version>
<type>pom</type><scope>import</scope></dependency></dependencies></dependencyManagement>
<dependencies><dependency><groupId>org.apache.activemq</groupId><artifactId>activemq-http</artifactId>
<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>
<dependency><groupId>org.eclipse.jetty.websocket</groupId><artifactId>{server}</artifactId>
<exclusions><exclusion><groupId>org.slf4j</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>
</dependencies></project>
"""

# The package lists of a frozen mirror have expired.
_APT_OPTIONS = ('Acquire::Check-Valid-Until "false"', 'Acquire::Retries "3"')
# Not the manual pages: the post-installation script of Java fails without their folder.
_DPKG_OPTIONS = ("path-exclude=/usr/share/doc/*", "path-exclude=/usr/share/locale/*")


def say(text: str) -> None:
    """Tell it on stderr."""
    print(f"broker-images: {text}", file=sys.stderr, flush=True)


def run(*command: str | Path, timeout: float = 300.0, text: str | None = None) -> str:
    """Run a command and return its stdout.

    Raises:
        CannotBeHad: it failed, or took longer than `timeout` seconds; with the end of what it wrote.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, input=text or "", capture_output=True, text=True, timeout=timeout, check=False)
    except FileNotFoundError:
        raise CannotBeHad(f"there is no '{words[0]}' here") from None
    except subprocess.TimeoutExpired:
        raise CannotBeHad(f"'{words[0]}' took longer than {timeout:g} s") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise CannotBeHad(f"'{shlex.join(words[:3])} ...' failed: " + " | ".join(said[-4:]))
    return done.stdout


def digest(*parts: object) -> str:
    """Return a short name for a recipe: other parts, another name."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def ensure(command: str, package: str) -> None:
    """Install a missing command with apt-get, as root or with sudo.

    Raises:
        CannotBeHad: that did not work.
    """
    if shutil.which(command):
        return
    say(f"installing {package}")
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    install = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq"]
    install += ["--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", package]
    try:
        run(*install)
    except CannotBeHad:  # a bare machine has no package lists, a stale one points at files that are gone
        run(*root, "apt-get", "update", "-qq")
        run(*install)


def mirror() -> str:
    """Return where this machine's apt takes Debian's own packages from.

    Raises:
        CannotBeHad: it has no source of them.
    """
    lines = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
    found = [line.split() for line in lines.splitlines()]
    for uri, release, component in (one for one in found if len(one) == 3):
        # Neither its security archive nor anybody else's: those lack the base system.
        if component == "main" and re.fullmatch(r"https?://.*/debian/?", uri) and "-" not in release:
            return uri
    raise CannotBeHad("apt has no source of Debian's own packages here (a Debian machine is needed)")


def make_root(root: Root, *, anew: bool) -> tuple[Path, str]:
    """Return the archive of a file system, and the suite that it is made of; from the cache, if it is there.

    Raises:
        CannotBeHad: no suite could be had.
    """
    reasons = []
    for suite in root.suites:
        path = CACHE / f"{root.name}-{suite}-{digest(root.packages, _APT_OPTIONS, _DPKG_OPTIONS)}.tar"
        if path.exists() and not anew:
            return path, suite
        began = time.monotonic()
        try:
            _bootstrap(root, suite, path)
        except CannotBeHad as error:
            reasons.append(f"{suite}: {error}")
            say(f"{root.name}: no {suite}: {error}")
            continue
        say(f"{root.name}: Debian {suite} with {', '.join(root.packages)} in {time.monotonic() - began:.0f} s")
        return path, suite
    raise CannotBeHad("; ".join(reasons))


def _bootstrap(root: Root, suite: str, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=".root-") as folder:
        made = Path(folder, "root.tar")
        options = [f"--aptopt={option}" for option in _APT_OPTIONS]
        options += [f"--dpkgopt={option}" for option in _DPKG_OPTIONS]
        for line in run("apt-config", "dump", "--format", '%f "%v"%n', "Acquire::http::Proxy").splitlines():
            options.append(f"--aptopt={line}")
        included = ",".join(root.packages)
        run("mmdebstrap", "--variant=minbase", f"--include={included}", *options, suite, made, mirror(), timeout=900)
        made.replace(path)


def get_activemq() -> Path:
    """Return a folder whose lib/ holds ActiveMQ Classic's newest release, as `.ci/activemq` puts it together."""
    home = Path(run(TOP / ".ci" / "activemq", timeout=600).strip().splitlines()[-1])
    if home.name.endswith("-debian"):
        raise CannotBeHad("Maven has no ActiveMQ 6 for this machine")
    return home


def get_activemq_web(version: str, server: str, *, anew: bool) -> Path:
    """Return a folder with the jars of ActiveMQ's WebSocket connector and of Jetty; they are none of the broker's own.

    Raises:
        CannotBeHad: Maven does not have them.
    """
    pom = _WEB_POM.format(version=version, server=server)
    home = CACHE / f"activemq-web-{version}-{digest(pom)}"
    if home.exists() and not anew:
        return home
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=".activemq-web-") as folder:
        Path(folder, "pom.xml").write_text(pom, encoding="utf-8")
        lib = Path(folder, "lib")
        options = ["-f", f"{folder}/pom.xml", "-DincludeScope=runtime", f"-DoutputDirectory={lib}"]
        run("mvn", "-q", "-B", "-C", f"{MAVEN_PLUGIN}:copy-dependencies", *options, timeout=600)
        shutil.rmtree(home, ignore_errors=True)
        lib.replace(home)
    return home


def get_artemis(*, anew: bool) -> Path:
    """Return the archive of Artemis's release.

    Raises:
        CannotBeHad: none of `ARTEMIS` is there.
    """
    reasons = []
    for coordinates in ARTEMIS:
        _, name, version, kind, classifier = coordinates.split(":")
        path = CACHE / f"{name}-{version}-{classifier}.{kind}"
        if path.exists() and not anew:
            return path
        try:
            with tempfile.TemporaryDirectory(dir=CACHE, prefix=".artemis-") as folder:
                options = [f"-Dartifact={coordinates}", f"-DoutputDirectory={folder}", "-Dmdep.useBaseVersion=true"]
                run("mvn", "-q", "-B", "-C", f"{MAVEN_PLUGIN}:copy", *options, timeout=600)
                Path(folder, path.name).replace(path)
            return path
        except (CannotBeHad, OSError) as error:
            reasons.append(f"{coordinates}: {error}")
    raise CannotBeHad("; ".join(reasons))
