"""The Dockerfile of the documentation: built without a registry, and run as process 1 of its container."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

import stompy
from stompy.broker import Broker
from tests.support.local_brokers import docker_missing
from tests.support.printed import TOP, blocks
from tests.worker.conftest import left, wait_until
from tools.broker_parts import PYTHON, CannotBeHad, make_root

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(600),
    pytest.mark.needs("activemq"),
    pytest.mark.xdist_group("activemq"),
]

BASE, IMAGE = "stompy-test/python:bookworm", "stompy-test/orders-worker"
OFFLINE = "ENV PIP_NO_INDEX=1 PIP_NO_BUILD_ISOLATION=0 PIP_BREAK_SYSTEM_PACKAGES=1"
"""What the image of the base has, so that pip takes Debian's packages; `0` turns the isolation off, as pip reads it."""
READY = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8080/ready', timeout=5).status)"

WORKER = """\
import time
import stompy

worker = stompy.Worker(timeouts=stompy.Timeouts(close=30))

@worker.task("/queue/orders")
def book(message, context):
    time.sleep(1)
    context.send("/queue/booked", message.body)
"""


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def host_address(image: str) -> str:
    """Return the address under which containers reach this machine.

    `docker network inspect bridge` has no gateway until the engine has been started for the second time.
    """
    container = docker("run", "-d", "--network", "bridge", "--entrypoint", "sleep", image, "60")
    try:
        return docker("inspect", "-f", "{{.NetworkSettings.Networks.bridge.Gateway}}", container)
    finally:
        docker("rm", "--force", container)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if reason := docker_missing():
        pytest.skip(reason)
    try:
        archive, _ = make_root(PYTHON, anew=False)
    except CannotBeHad as error:
        pytest.skip(str(error))
    docker("import", "-c", OFFLINE, str(archive), BASE)
    context = tmp_path_factory.mktemp("orders")
    shutil.copytree(TOP / "stompy", context / "stompy", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TOP / name, context)
    (block,) = blocks("docs/recipes/docker-compose.md", "dockerfile")
    (context / "Dockerfile").write_text(block.text)
    (context / "worker.py").write_text(WORKER)
    docker("build", "--network", "none", "--build-arg", f"BASE={BASE}", "-t", IMAGE, str(context))
    yield IMAGE
    docker("rmi", "--force", IMAGE)


@pytest.fixture
def broker(image: str) -> Iterator[Broker]:
    with Broker(host=host_address(image)) as broker:
        yield broker


def test_process_1_finishes_what_runs_at_sigterm(image: str, broker: Broker) -> None:
    with stompy.connect(broker.url) as conn:
        for number in range(20):
            conn.send("/queue/orders", str(number), confirm=True)
    container = docker("run", "-d", "-e", f"STOMPY_URL={broker.url}", image)
    try:
        wait_until(lambda: broker.depth("/queue/booked"), within=60)
        assert docker("exec", container, "python", "-c", READY) == "200"
        docker("stop", "--time", "60", container)
        assert docker("inspect", "-f", "{{.State.ExitCode}}", container) == "0", docker("logs", container)
    finally:
        docker("rm", "--force", container)
    booked = [message.text for message in broker.browse("/queue/booked")]
    waiting = [message.text for message in broker.browse("/queue/orders")]
    assert left(broker, "/queue/orders") == len(waiting)
    assert len(booked) >= 8
    assert sorted(booked + waiting, key=int) == [str(number) for number in range(20)]
