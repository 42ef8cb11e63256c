#!/usr/bin/env python3
"""Builds images of real brokers on this machine, out of Debian's packages and Maven's, for tests in containers.

    tools/broker_images.py [--anew] [KIND ...]

No image is pulled and none is needed to begin with. KIND is `activemq` (the newest 6.x), `activemq5` (Debian's),
`artemis`, `rabbitmq3` or `rabbitmq4`; all of them by default. What was built is found again by the next run; what it
was built from is kept under `~/.cache/stompy/images`. `--anew` forgets both.

The last thing on stdout is a JSON array, one object for each kind: `kind`, `image` and `tag` (the same image under its
stable name and under its version), `version`, `bytes`, `seconds`, `built` (false: it was there), or `error` with the
reason why it could not be had. The rest is on stderr. Exit status: 0 if all are there, 1 if one is not, 2 without
docker.

Needs docker and the right to use it; `mmdebstrap` and, for what comes from Maven, `mvn` are installed by apt-get where
they are missing. The packages come from where this machine's own apt takes them. Standard library only.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.broker_parts import (
    ACTIVEMQ5_WEB,
    ACTIVEMQ_WEB,
    CACHE,
    JAVA,
    RABBITMQ_3,
    RABBITMQ_4,
    CannotBeHad,
    digest,
    ensure,
    get_activemq,
    get_activemq_web,
    get_artemis,
    make_root,
    run,
    say,
)

RECIPE_LABEL = "stompy.recipe"
JAVA_BASE = "stompy-test/debian-java:bookworm"

# Without a shell in between, so that SIGTERM reaches the broker.
_ACTIVEMQ_RUN = """\
#!/bin/sh
exec java -Xmx${ACTIVEMQ_HEAP:-512m} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData \\
    --add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.util=ALL-UNNAMED \\
    -Djava.security.egd=file:/dev/urandom -Dactivemq.home=/opt/apache-activemq -Dactivemq.base=/opt/apache-activemq \\
    -Dactivemq.conf=/opt/apache-activemq/conf -Dactivemq.data=/opt/apache-activemq/data \\
    -cp '/opt/apache-activemq/conf:/opt/apache-activemq/lib/*' \\
    org.apache.activemq.console.command.ShellCommand "$@"
"""

_ACTIVEMQ_LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5p %c{1} - %m%n%throwable
"""

_ACTIVEMQ = """\
COPY web /opt/apache-activemq/lib
COPY broker /usr/local/bin/broker
COPY log4j2.properties /opt/apache-activemq/conf/
RUN chmod 755 /usr/local/bin/broker
EXPOSE 61613
ENTRYPOINT ["/usr/local/bin/broker"]
CMD ["start", "xbean:file:/opt/apache-activemq/conf/activemq.xml"]
"""

# Debian's jars are in one folder with all others; these are what the broker takes.
_DEBIAN_JARS = (
    "activemq-{broker,client,console,jaas,kahadb-store,openwire-legacy,protobuf,spring,stomp} activeio-core "
    "commons-logging commons-pool2 geronimo-{annotation-1.3,j2ee-management-1.1,jta-1.2}-spec geronimo-jms_1.1_spec "
    "hawtbuf hawtbuf-proto jackson-{annotations,core,databind} jasypt jettison slf4j-{api,jdk14} "
    "spring{3,}-{aop,beans,context,core,expression} xbean-spring xpp3 xstream"
)
_LINK_JARS = (
    f"mkdir -p /opt/apache-activemq/lib; cd /usr/share/java; for name in {_DEBIAN_JARS}; do "
    '[ ! -e "$name.jar" ] || ln -s "/usr/share/java/$name.jar" /opt/apache-activemq/lib/; done'
)

_ARTEMIS_RUN = """\
#!/bin/sh
# As in the image of the project itself, what a test puts into etc-override takes the place of the instance's own files.
set -e
cd /var/lib/artemis-instance
[ ! -d etc-override ] || cp -R etc-override/. etc/
exec ./bin/artemis "$@"
"""

# The console and its server are left out: nobody looks at them here, and they make the start slower.
_ARTEMIS = """\
ADD artemis.tar.gz /opt/
COPY broker /usr/local/bin/broker
RUN chmod 755 /usr/local/bin/broker \\
 && mv /opt/apache-artemis-* /opt/activemq-artemis \\
 && rm -rf /opt/activemq-artemis/web /opt/activemq-artemis/examples \\
 && /opt/activemq-artemis/bin/artemis create --silent --user artemis --password artemis --allow-anonymous \\
    --nio --no-autotune --no-web --java-options "-XX:TieredStopAtLevel=1 -XX:-UsePerfData" \\
    /var/lib/artemis-instance
EXPOSE 61613
ENTRYPOINT ["/usr/local/bin/broker"]
CMD ["run"]
"""

# Not the script of /usr/sbin: it stands before the broker and does not pass SIGTERM on.
_RABBITMQ = (
    "USER rabbitmq",
    "ENV HOME=/var/lib/rabbitmq LANG=C.UTF-8 RABBITMQ_NODENAME=rabbit@localhost RABBITMQ_LOGS=-",
    "EXPOSE 61613",
    'ENTRYPOINT ["/usr/lib/rabbitmq/bin/rabbitmq-server"]',
)


@dataclass(frozen=True)
class Outcome:
    """What became of one kind; see the module."""

    kind: str
    image: str
    tag: str = ""
    version: str = ""
    bytes: int = 0
    seconds: float = 0.0
    built: bool = False
    error: str = ""


class Builder:
    """Makes the images; each of its methods does one kind and returns the image's digest of ingredients.

    Args:
        ingredients: what was fetched ahead, by name; a failure shows where it is needed.
        anew: whether to build what is there already.
    """

    def __init__(self, ingredients: dict[str, Future[object]], *, anew: bool) -> None:
        self._ingredients = ingredients
        self._anew = anew
        self._base_checked = ""

    def build(self, kind: str) -> Outcome:
        """Build one kind, unless it is there, and name it by its version."""
        began = time.monotonic()
        image = IMAGES[kind]
        try:
            built = MAKERS[kind](self, image)
            version = _version(image, kind)
            tag = f"{image.rpartition(':')[0]}:{version}"
            run("docker", "tag", image, tag)
            size = int(run("docker", "image", "inspect", "--format", "{{.Size}}", image))
        except CannotBeHad as error:
            say(f"{kind}: cannot be had: {error}")
            return Outcome(kind, image, seconds=round(time.monotonic() - began, 1), error=str(error))
        seconds = round(time.monotonic() - began, 1)
        say(f"{kind}: {tag} ({size / 1e6:.0f} MB) {'made' if built else 'was there'}, {seconds:g} s")
        return Outcome(kind, image, tag, version, size, seconds, built)

    def activemq(self, image: str) -> bool:
        """ActiveMQ Classic's newest release on Debian's Java, and the newest WebSocket connector."""
        home, web = self._path("activemq"), self._path("activemq-web")
        files = {"lib": home / "lib", "web": web}
        return self._layer(image, "COPY lib /opt/apache-activemq/lib\n" + _ACTIVEMQ, files, home.name + web.name)

    def activemq5(self, image: str) -> bool:
        """Debian's ActiveMQ, and its WebSocket connector, which Debian leaves out."""
        web = self._path("activemq5-web")
        return self._layer(image, f"RUN bash -c {shlex.quote(_LINK_JARS)}\n{_ACTIVEMQ}", {"web": web}, web.name)

    def artemis(self, image: str) -> bool:
        """Artemis on Debian's Java."""
        archive = self._path("artemis")
        files: dict[str, Path | str] = {"artemis.tar.gz": archive, "broker": _ARTEMIS_RUN}
        return self._layer(image, _ARTEMIS, files, archive.name)

    def rabbitmq3(self, image: str) -> bool:
        """Debian bookworm's RabbitMQ."""
        return self._import(image, "rabbitmq3", _RABBITMQ)

    def rabbitmq4(self, image: str) -> bool:
        """A newer Debian's RabbitMQ."""
        return self._import(image, "rabbitmq4", _RABBITMQ)

    def _path(self, name: str) -> Path:
        found = self._ingredients[name].result()
        assert isinstance(found, Path)
        return found

    def _import(self, image: str, name: str, changes: Sequence[str]) -> bool:
        found = self._ingredients[name].result()
        assert isinstance(found, tuple)
        path, suite = found
        recipe = digest(path.name, changes)
        if self._is_there(image, recipe):
            return False
        lines = (*changes, f"LABEL {RECIPE_LABEL}={recipe} stompy.suite={suite}")
        run("docker", "import", *(word for line in lines for word in ("-c", line)), path, image)
        return True

    def _layer(self, image: str, steps: str, files: dict[str, Path | str] | dict[str, Path], source: str) -> bool:
        base_built = False if self._base_checked else self._import(JAVA_BASE, "java", ())
        self._base_checked = run("docker", "image", "inspect", "--format", "{{.Id}}", JAVA_BASE).strip()
        contents: dict[str, Path | str] = {
            "broker": _ACTIVEMQ_RUN,
            "log4j2.properties": _ACTIVEMQ_LOGGING,
            **files,
        }
        texts = {name: text for name, text in contents.items() if isinstance(text, str)}
        recipe = digest(self._base_checked, steps, texts, source)
        if not base_built and self._is_there(image, recipe):
            return False
        with tempfile.TemporaryDirectory(prefix="stompy-image-") as folder:
            for name, content in contents.items():
                _place(content, Path(folder, name))
            dockerfile = f"FROM {JAVA_BASE}\n{steps}LABEL {RECIPE_LABEL}={recipe}\n"
            Path(folder, "Dockerfile").write_text(dockerfile, encoding="utf-8")
            run("docker", "build", "--force-rm", "--no-cache", "--network", "none", "-t", image, folder)
        return True

    def _is_there(self, image: str, recipe: str) -> bool:
        if self._anew:
            return False
        try:
            label = run(
                "docker", "image", "inspect", "--format", f'{{{{index .Config.Labels "{RECIPE_LABEL}"}}}}', image
            )
        except CannotBeHad:
            return False
        return label.strip() == recipe


def _place(content: Path | str, target: Path) -> None:
    if isinstance(content, str):
        target.write_text(content, encoding="utf-8")
    elif content.is_dir():
        shutil.copytree(content, target)
    else:
        shutil.copyfile(content, target)


_VERSION_COMMANDS: dict[str, tuple[str, ...]] = {
    "activemq": ("/usr/local/bin/broker", "--version"),
    "artemis": ("/opt/activemq-artemis/bin/artemis", "version"),
    "rabbitmq": ("/usr/sbin/rabbitmqctl", "version"),
}


def _version(image: str, kind: str) -> str:
    """Ask the broker in an image, which also shows that its Java or Erlang runs."""
    program, argument = _VERSION_COMMANDS[kind.rstrip("0123456789")]
    said = run("docker", "run", "--rm", "--network", "none", "--entrypoint", program, image, argument, timeout=120)
    found = re.search(r"\b\d+\.\d+\.\d+", said)
    if found is None:
        raise CannotBeHad(f"'{program} {argument}' in {image} tells no version: {said.strip()!r}")
    return found.group()


IMAGES = {
    "activemq": "stompy-test/activemq:6",
    "activemq5": "stompy-test/activemq:5",
    "artemis": "stompy-test/artemis:2",
    "rabbitmq3": "stompy-test/rabbitmq:3",
    "rabbitmq4": "stompy-test/rabbitmq:4",
}
"""The stable name of each kind's image."""

MAKERS: dict[str, Callable[[Builder, str], bool]] = {
    "activemq": Builder.activemq,
    "activemq5": Builder.activemq5,
    "artemis": Builder.artemis,
    "rabbitmq3": Builder.rabbitmq3,
    "rabbitmq4": Builder.rabbitmq4,
}

NEEDS = {
    "activemq": ("java", "activemq", "activemq-web"),
    "activemq5": ("java", "activemq5-web"),
    "artemis": ("java", "artemis"),
    "rabbitmq3": ("rabbitmq3",),
    "rabbitmq4": ("rabbitmq4",),
}
"""The ingredients of each kind."""


def build_all(kinds: Sequence[str], *, anew: bool) -> list[Outcome]:
    """Build the images of `kinds`; what cannot be had is in the outcomes."""
    fetchers: dict[str, Callable[[], object]] = {
        "java": lambda: make_root(JAVA, anew=anew),
        "rabbitmq3": lambda: make_root(RABBITMQ_3, anew=anew),
        "rabbitmq4": lambda: make_root(RABBITMQ_4, anew=anew),
        "activemq": get_activemq,
        "activemq-web": lambda: get_activemq_web(*ACTIVEMQ_WEB, anew=anew),
        "activemq5-web": lambda: get_activemq_web(*ACTIVEMQ5_WEB, anew=anew),
        "artemis": lambda: get_artemis(anew=anew),
    }
    needed = [name for name in fetchers if any(name in NEEDS[kind] for kind in kinds)]
    for command, package in (("mmdebstrap", "mmdebstrap"), ("mvn", "maven")):
        try:
            ensure(command, package)
        except CannotBeHad as error:  # what is in the cache can be had all the same
            say(f"{package}: {error}")
    with ThreadPoolExecutor(max_workers=2) as pool:
        builder = Builder({name: pool.submit(fetchers[name]) for name in needed}, anew=anew)
        return [builder.build(kind) for kind in kinds]


def main(argv: Sequence[str] | None = None) -> int:
    """Build what the command line asks for, and print the summary."""
    parser = argparse.ArgumentParser(description="Builds images of real brokers, without a registry of containers.")
    parser.add_argument("--anew", action="store_true", help="build also what is there, from fresh packages")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(IMAGES)} (default: all)")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.kinds) - IMAGES.keys():
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    kinds = [kind for kind in IMAGES if kind in (arguments.kinds or IMAGES)]
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        run("docker", "info", "--format", "{{.ServerVersion}}", timeout=30)
    except CannotBeHad as error:
        say(f"docker cannot be used: {error}")
        return 2
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once: the second one finds what the first one made
        for left in CACHE.glob(".*-*"):  # by a run that was killed
            shutil.rmtree(left, ignore_errors=True)
        outcomes = build_all(kinds, anew=arguments.anew)
    print(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    return 1 if any(outcome.error for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
