"""Docker: whether it can be used, which image to take, and the containers that earlier runs left.

Nothing of docker's or testcontainers' is imported before it is needed.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stompy.deadline import Deadline
from stompy.world import os, socket

if TYPE_CHECKING:
    from stompy.testing.brokers.running import Product

_LOG = logging.getLogger("stompy.testing")

LABEL = "stompy.test"
OWNER_LABEL = "stompy.owner"

PULL_LIMIT_VARIABLE = "STOMPY_PULL_TIMEOUT"
"""Seconds that a pull may take; 0 never pulls."""

_PULL_LIMIT = 300.0
_DOCKER_TIMEOUT = 30
_PING_TIMEOUT = 10.0


class NoImage(Exception):
    """No image is available; the error message says why."""


@functools.lru_cache(maxsize=1)
def docker_missing() -> str | None:
    """Return why containers cannot be used here, or `None`; checked once in a process."""
    try:
        import docker
        import testcontainers.core.container  # noqa: F401
    except ImportError as error:
        return f"stompy-client[testing] is not installed: {error}"
    try:
        _ping(docker.utils.parse_host(os.environ.get("DOCKER_HOST"), sys.platform == "win32"))
        with contextlib.closing(docker.from_env(timeout=10)) as client:
            client.ping()
    except Exception as error:  # docker, requests and the socket have each their own
        return f"docker cannot be reached: {error}"
    return None


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


@functools.lru_cache(maxsize=1)
def prepare() -> None:
    """Remove the containers of ended runs before this process starts its first, and disable Ryuk if necessary."""
    import docker
    from testcontainers.core.config import testcontainers_config

    with contextlib.closing(docker.from_env(timeout=_DOCKER_TIMEOUT)) as client:
        _remove_leftovers(client)
        if not testcontainers_config.ryuk_disabled:
            try:
                _obtain(client, testcontainers_config.ryuk_image)
            except NoImage as error:
                # Without it every start would fail. Labels, and the end of the process, take its place.
                _LOG.info("testcontainers' Ryuk is not used: %s", error)
                testcontainers_config.ryuk_disabled = True


def official_image(product: Product) -> str:
    """Return an image of the project itself, pulled if need be.

    Raises:
        NoImage: there is none here, and none can be pulled.
    """
    return _first(product.official_images)


def local_image(product: Product) -> str:
    """Return the image that `tools/broker_images.py` builds.

    Raises:
        NoImage: it was not built.
    """
    import docker

    with contextlib.closing(docker.from_env(timeout=_DOCKER_TIMEOUT)) as client:
        try:
            client.images.get(product.local_image)
        except docker.errors.DockerException as error:
            raise NoImage(f"no image {product.local_image} (tools/broker_images.py builds it): {error}") from error
    return product.local_image


def named_image(name: str) -> str:
    """Return the image of that name, pulled if need be.

    Raises:
        NoImage: it is not here and cannot be pulled.
    """
    return _first((name,))


@functools.cache
def _first(names: tuple[str, ...]) -> str:
    import docker

    reasons = []
    with contextlib.closing(docker.from_env(timeout=_DOCKER_TIMEOUT)) as client:
        for name in names:
            with contextlib.suppress(docker.errors.DockerException):
                client.images.get(name)
                return name
        for name in names:
            try:
                _obtain(client, name)
            except NoImage as error:
                reasons.append(str(error))
            else:
                return name
    raise NoImage("; ".join(reasons))


def _obtain(client: Any, name: str) -> None:
    """Have an image here; at most for the time that a pull may take.

    Raises:
        NoImage: it could not be pulled.
    """
    import docker

    with contextlib.suppress(docker.errors.DockerException):
        client.images.get(name)
        return
    limit = float(os.environ.get(PULL_LIMIT_VARIABLE, _PULL_LIMIT))
    if limit <= 0:
        raise NoImage(f"no image {name}, and {PULL_LIMIT_VARIABLE} forbids to pull")
    deadline = Deadline(limit)
    try:
        for progress in client.api.pull(name, stream=True, decode=True):
            if "error" in progress:
                raise NoImage(f"no image {name}: {progress['error']}")
            if deadline.expired:
                raise NoImage(f"no image {name}: not pulled within {limit:g} s")
    except NoImage:
        raise
    except Exception as error:  # docker, requests and the socket have each their own
        raise NoImage(f"no image {name}: {error}") from error


def docker_host() -> str:
    """Return under which name the ports of containers are reached, as far as that is known before one runs."""
    from testcontainers.core.docker_client import DockerClient

    with contextlib.closing(DockerClient().client) as client:
        url = str(client.api.base_url)
    return "localhost" if url.startswith("http+") else urlsplit(url).hostname or "localhost"


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
