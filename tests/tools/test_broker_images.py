"""The builder of the brokers' images; programs of the test stand in for docker, apt, Maven and mmdebstrap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_brokers import IMAGES

TOP = Path(__file__).parents[2]
SCRIPT = TOP / "tools/broker_images.py"

# Remembers what was imported, built and tagged as files, so that the next run finds it.
DOCKER = """
state = base / "docker"
state.mkdir(exist_ok=True)
def file(image):
    return state / image.replace("/", "_").replace(":", "+")
if argv[0] == "info":
    if (base / "no-docker").exists():
        sys.exit("Cannot connect to the Docker daemon")
    print("20.10")
elif argv[0] == "import":
    labels = [word for word in argv if word.startswith("LABEL ")]
    file(argv[-1]).write_text(labels[-1].split()[1].partition("=")[2])
elif argv[0] == "build":
    dockerfile = pathlib.Path(argv[-1], "Dockerfile").read_text()
    file(argv[argv.index("-t") + 1]).write_text(dockerfile.rpartition("stompy.recipe=")[2].strip())
    print(sorted(path.name for path in pathlib.Path(argv[-1]).rglob("*")), file=log)
elif argv[0] == "tag":
    file(argv[2]).write_text(file(argv[1]).read_text())
elif argv[:2] == ["image", "inspect"]:
    if not file(argv[-1]).exists():
        sys.exit("No such image")
    form = argv[argv.index("--format") + 1]
    print("123000000" if "Size" in form else "sha256:1" if ".Id" in form else file(argv[-1]).read_text())
elif argv[0] == "run":
    print({"activemq": "ActiveMQ 6.3.1", "artemis": "Apache Artemis 2.56.0", "rabbitmq": "4.3.6"}[
        argv[-2].partition("/")[2].partition(":")[0]])
"""

MMDEBSTRAP = """
suite, target, mirror = argv[-3:]
if suite in (base / "broken").read_text().split():
    sys.exit(f"E: {suite} is broken")
pathlib.Path(target).write_text(mirror)
"""

MVN = """
artifact = next((word for word in argv if word.startswith("-Dartifact=")), None)
folder = next(word for word in argv if word.startswith("-DoutputDirectory=")).partition("=")[2]
if artifact is None:
    pom = pathlib.Path(argv[argv.index("-f") + 1]).read_text()
    pathlib.Path(folder).mkdir()
    for name in ("activemq-http", "websocket-server", "websocket-jetty-server"):
        if f"<artifactId>{name}</artifactId>" in pom:
            pathlib.Path(folder, f"{name}.jar").write_text("jar")
    sys.exit()
_, name, version, kind, classifier = artifact.split(":")
if version in (base / "broken").read_text().split():
    sys.exit(f"[ERROR] no {name} {version}")
pathlib.Path(folder, f"{name}-{version}-{classifier}.{kind}").write_text("archive")
"""

APT_GET = """
print("http://security.example/debian-security bookworm-security main")
print("http://other.example/debian extra contrib")
print("http://mirror.example/debian/ bookworm main")
"""

APT_CONFIG = """print('Acquire::http::Proxy "http://proxy.example:3128"')"""

PROGRAMS = {
    "docker": DOCKER,
    "mmdebstrap": MMDEBSTRAP,
    "mvn": MVN,
    "apt-get": APT_GET,
    "apt-config": APT_CONFIG,
}


@dataclass
class Machine:
    """A machine with nothing but the programs above."""

    base: Path

    def build(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-IS", str(self.base / "tools" / SCRIPT.name), *arguments],
            env={"PATH": f"{self.base / 'bin'}:/usr/bin:/bin", "HOME": str(self.base), "BASE": str(self.base)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def outcomes(self, *arguments: str) -> dict[str, dict[str, Any]]:
        return {one["kind"]: one for one in json.loads(self.build(*arguments).stdout)}

    def calls(self, program: str) -> list[list[str]]:
        """Return how a program was called since the last time that this was asked."""
        log = self.base / "log"
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith('["')]
        return [line[1:] for line in lines if line[0] == program]

    def forget_calls(self) -> None:
        (self.base / "log").write_text("")

    def break_(self, *what: str) -> None:
        (self.base / "broken").write_text(" ".join(what))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "bin").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / ".ci").mkdir()
    for script in (SCRIPT, SCRIPT.with_name("broker_parts.py")):
        (tmp_path / "tools" / script.name).write_bytes(script.read_bytes())
    (tmp_path / "broken").write_text("")
    (tmp_path / "log").write_text("")
    for name, body in PROGRAMS.items():
        add_program(tmp_path / "bin" / name, name, body)
    home = tmp_path / "activemq-6.3.1"
    (home / "lib").mkdir(parents=True)
    (home / "lib" / "activemq-stomp-6.3.1.jar").touch()
    add_program(tmp_path / ".ci" / "activemq", "activemq", f"print({str(home)!r})")
    return Machine(tmp_path)


def add_program(path: Path, name: str, body: str) -> None:
    head = f"#!{sys.executable} -IS\nimport json, os, pathlib, sys\nargv = sys.argv[1:]\n"
    head += "base = pathlib.Path(os.environ['BASE'])\nlog = (base / 'log').open('a')\n"
    head += f"print(json.dumps([{name!r}, *argv]), file=log)\n"
    path.write_text(head + body)
    path.chmod(0o755)


def test_all_kinds_are_built_and_named_by_their_versions(machine: Machine) -> None:
    built = machine.build()
    assert built.returncode == 0, built.stderr
    outcomes = {one["kind"]: one for one in json.loads(built.stdout)}
    assert {kind: one["image"] for kind, one in outcomes.items()} == IMAGES
    assert outcomes["artemis"]["tag"] == "stompy-test/artemis:2.56.0"
    assert all(one["built"] and one["bytes"] == 123000000 and not one["error"] for one in outcomes.values())


def test_the_second_run_finds_the_first_ones_work(machine: Machine) -> None:
    machine.build()
    machine.forget_calls()
    assert not any(one["built"] for one in machine.outcomes().values())
    assert machine.calls("mmdebstrap") == machine.calls("mvn") == []
    assert not any(call[0] in ("import", "build") for call in machine.calls("docker"))


def test_what_was_fetched_outlives_the_images(machine: Machine) -> None:
    machine.build()
    machine.forget_calls()
    for image in (machine.base / "docker").iterdir():
        image.unlink()
    assert all(one["built"] for one in machine.outcomes().values())
    assert machine.calls("mmdebstrap") == machine.calls("mvn") == []


def test_everything_is_fetched_and_built_anew_if_wanted(machine: Machine) -> None:
    machine.build()
    machine.forget_calls()
    assert all(one["built"] for one in machine.outcomes("--anew").values())
    assert len(machine.calls("mmdebstrap")) == 3
    assert len(machine.calls("mvn")) == 3


@pytest.mark.parametrize(
    ("kind", "server"), [("activemq", "websocket-jetty-server"), ("activemq5", "websocket-server")]
)
def test_activemq_comes_with_its_websocket_connector(machine: Machine, kind: str, server: str) -> None:
    assert not machine.outcomes(kind)[kind]["error"]
    log = (machine.base / "log").read_text()
    assert "'activemq-http.jar'" in log
    assert f"'{server}.jar'" in log


def test_what_a_killed_run_left_half_done_is_removed(machine: Machine) -> None:
    left = machine.base / ".cache/stompy/images/.root-x1"
    left.mkdir(parents=True)
    machine.build("rabbitmq3")
    assert not left.exists()


def test_only_what_is_asked_for_is_fetched(machine: Machine) -> None:
    assert list(machine.outcomes("rabbitmq3")) == ["rabbitmq3"]
    assert [call[-3] for call in machine.calls("mmdebstrap")] == ["bookworm"]
    assert machine.calls("mvn") == machine.calls("activemq") == []


def test_packages_come_from_the_machines_own_mirror_and_through_its_proxy(machine: Machine) -> None:
    machine.build("rabbitmq3")
    (call,) = machine.calls("mmdebstrap")
    assert call[-1] == "http://mirror.example/debian/"
    assert '--aptopt=Acquire::http::Proxy "http://proxy.example:3128"' in call


def test_an_older_suite_takes_the_place_of_one_that_is_broken(machine: Machine) -> None:
    machine.break_("sid")
    assert not machine.outcomes("rabbitmq4")["rabbitmq4"]["error"]
    assert [call[-3] for call in machine.calls("mmdebstrap")] == ["sid", "trixie"]


def test_the_former_name_takes_the_place_of_a_release_that_is_not_there(machine: Machine) -> None:
    machine.break_("2.56.0")
    assert not machine.outcomes("artemis")["artemis"]["error"]
    assert [call[-3].split(":")[0] for call in machine.calls("mvn")] == [
        "-Dartifact=org.apache.artemis",
        "-Dartifact=org.apache.activemq",
    ]


def test_what_cannot_be_had_is_told_and_the_rest_is_built(machine: Machine) -> None:
    machine.break_("sid", "trixie", "2.56.0", "2.44.0")
    built = machine.build()
    outcomes = {one["kind"]: one for one in json.loads(built.stdout)}
    assert built.returncode == 1
    assert [kind for kind, one in outcomes.items() if one["error"]] == ["artemis", "rabbitmq4"]
    assert "sid: 'mmdebstrap" in outcomes["rabbitmq4"]["error"]
    assert "trixie: 'mmdebstrap" in outcomes["rabbitmq4"]["error"]
    assert "no apache-artemis 2.44.0" in outcomes["artemis"]["error"]


def test_an_older_activemq_is_not_taken_for_the_newest(machine: Machine) -> None:
    add_program(machine.base / ".ci" / "activemq", "activemq", "print('/home/activemq-5.17.2-debian')")
    assert "no ActiveMQ 6" in machine.outcomes("activemq")["activemq"]["error"]


def test_without_docker_there_is_nothing_to_do(machine: Machine) -> None:
    (machine.base / "no-docker").touch()
    built = machine.build()
    assert (built.returncode, built.stdout) == (2, "")
    assert "docker cannot be used" in built.stderr


def test_a_kind_that_is_not_known_is_refused(machine: Machine) -> None:
    built = machine.build("kafka")
    assert built.returncode == 2
    assert "no such kind: kafka" in built.stderr


def test_the_script_can_be_called_by_its_name() -> None:
    assert os.access(SCRIPT, os.X_OK)
