"""Brokers in containers of the images that `tools/broker_images.py` builds, for machines without a registry.

As Ryuk cannot be pulled there, the containers of a run that was killed are removed by the next one.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import socket
import sys
import weakref
from pathlib import Path
from typing import Any

import stompy.testing.containers
from stompy.testing.brokers import BrokerSettings, BrokerUnavailableError
from stompy.testing.containers import FROM_VARIABLE, PULL_LIMIT_VARIABLE, SOURCES, ContainerBroker, chosen_sources
from stompy.testing.products import Product

_LOG = logging.getLogger(__name__)

IMAGES = {
    "activemq": "stompy-test/activemq:6",
    "activemq5": "stompy-test/activemq:5",
    "artemis": "stompy-test/artemis:2",
    "rabbitmq3": "stompy-test/rabbitmq:3",
    "rabbitmq4": "stompy-test/rabbitmq:4",
}
LABEL = "stompy.test"
OWNER_LABEL = "stompy.owner"
_PING_TIMEOUT = 10.0

_alive: weakref.WeakSet[LocalBroker] = weakref.WeakSet()


class LocalBroker(ContainerBroker):
    """A broker in a container of an image that was built here."""

    flavour = "local"

    def __init__(self, product: Product, settings: BrokerSettings) -> None:
        super().__init__(product, settings)
        self.image = self.image or IMAGES[product.kind]

    def start(self) -> None:
        """See `RunningBroker`."""
        if reason := docker_missing() or self._missing():
            raise BrokerUnavailableError(self.kind, (f"local: {reason}",))
        self._labels = {LABEL: "1", OWNER_LABEL: owner()}
        _alive.add(self)
        prepare()
        super().start()

    def _missing(self) -> str | None:
        import docker

        with contextlib.closing(docker.from_env()) as client:
            try:
                client.images.get(self.image)
            except docker.errors.DockerException as error:
                return f"no image {self.image} (tools/broker_images.py builds it): {error}"
        return None


SOURCES["local"] = LocalBroker


def for_programs() -> dict[str, str]:
    """Return the environment in which a program that calls `start_broker` uses the images that were built here."""
    if "local" not in chosen_sources():
        return {}
    images = {f"STOMPY_{kind.upper()}_IMAGE": image for kind, image in IMAGES.items()}
    return {FROM_VARIABLE: "official", PULL_LIMIT_VARIABLE: "0", "TESTCONTAINERS_RYUK_DISABLED": "true", **images}


@atexit.register
def _stop_all() -> None:
    """Remove the containers of a run that was broken off."""
    for broker in list(_alive):
        broker.close()


@functools.cache
def docker_missing() -> str | None:
    """Return why containers cannot be used here, or `None`; checked once in a process."""
    try:
        import docker
    except ImportError as error:
        return f"docker is not installed: {error}"
    try:
        _ping(docker.utils.parse_host(os.environ.get("DOCKER_HOST"), sys.platform == "win32"))
    except OSError as error:
        return f"docker cannot be reached: {error}"
    return stompy.testing.containers.docker_missing()


def _ping(host: str) -> None:
    """Connect to docker's Unix socket, if that is where it should be.

    Docker's own client leaves its socket to the garbage collector when no daemon answers, and the warning then falls
    upon the test that runs at that moment.

    Raises:
        OSError: no daemon answers.
    """
    scheme, _, path = host.partition("unix://")
    if scheme in ("", "http+"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_PING_TIMEOUT)
            probe.connect(path)


@functools.cache
def prepare() -> None:
    """Remove the containers of ended runs before this process starts its first, and let Ryuk be."""
    import docker
    from testcontainers.core.config import testcontainers_config

    testcontainers_config.ryuk_disabled = True
    with contextlib.closing(docker.from_env()) as client:
        _remove_leftovers(client)


def owner() -> str:
    """Name this process so that another can tell later whether it is still alive."""
    return f"{_machine()}:{os.getpid()}:{_started(os.getpid())}"


def _remove_leftovers(client: Any) -> None:
    """Remove the containers of ended processes of this machine; containers of other machines stay."""
    import docker

    # Other processes remove theirs at the same time: one may be gone between the list and its inspection.
    for container in client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True):
        machine, _, process = container.labels.get(OWNER_LABEL, "").partition(":")
        pid, _, started = process.partition(":")
        if machine == _machine() and pid.isdigit() and _started(int(pid)) != started:
            _LOG.info("removing %s, left by a process that is no more", container.name)
            with contextlib.suppress(docker.errors.DockerException):
                container.remove(force=True, v=True)


def _machine() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; empty if there is none."""
    with contextlib.suppress(OSError, IndexError):
        # The second field is the program's name in parentheses, and may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    return ""


if __name__ == "__main__" and os.environ.get(FROM_VARIABLE) == "local":
    print(*(f"{name}={value}" for name, value in for_programs().items()))
