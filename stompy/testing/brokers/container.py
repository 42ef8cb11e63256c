"""A broker in a container of docker."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from typing import TYPE_CHECKING, Any

from stompy.forks import Owner
from stompy.testing.brokers import images
from stompy.testing.brokers.certificates import Certificates
from stompy.testing.brokers.running import BrokerSettings, NetworkBroker
from stompy.world import random, socket

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

    from stompy.testing.brokers.running import Product, Recipe

_STOP_TIMEOUT = 20
_ATTEMPTS = 5
_FREEZE_AGAIN = 0.5
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
"""Below what the kernel gives to clients, so that nobody takes the port while the broker is down."""

_alive: weakref.WeakSet[ContainerBroker] = weakref.WeakSet()


class ContainerBroker(NetworkBroker):
    """A broker in a container, on ports of this machine that stay the same.

    The container is removed by `stop`, at the end of the process, or, where that was killed, by the next one.

    Args:
        product: the broker in the container.
        settings: the broker's settings.
        image: from which.
        flavour: of the image, `official` or `local`.

    Attributes:
        container: testcontainers' own, once started; for anything beyond this class.
    """

    def __init__(self, product: Product, settings: BrokerSettings, *, image: str, flavour: str = "local") -> None:
        super().__init__(product, settings)
        self.image = image
        self.flavour = flavour
        self.container: DockerContainer | None = None
        self._down = False
        self._paused = False
        self._owner = Owner("broker")

    def start(self) -> None:
        """See `RunningBroker`."""
        if self.container is not None and not self._down:
            return
        try:
            if self.container is None:
                self._make()
                hosts = self._hosts()
            else:
                self._docker().start()
                hosts = (self.host,)  # the address does not change
            self._down = False
            self._await_ready(hosts)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """See `RunningBroker`."""
        if self._owner.forked:
            return
        container, self.container = self.container, None
        _alive.discard(self)
        if container is not None:
            self._remove(container)
        if self._certificates is not None:
            self._certificates.close()
            self._certificates = None

    def shut_down(self) -> None:
        """See `RunningBroker`."""
        if self.container is not None and not self._down:
            self.unpause()
            self._docker().stop(timeout=_STOP_TIMEOUT)
            self._down = True

    def kill(self) -> None:
        """See `RunningBroker`."""
        if self.container is not None and not self._down:
            # The signal reaches it frozen or not; a frozen one is resumed at the same time, too late to answer anybody.
            self._docker().kill()
            self._paused = False
            self._down = True

    def pause(self) -> None:
        """See `RunningBroker`."""
        if not self._paused:
            _freeze(self._docker())
            self._paused = True

    def unpause(self) -> None:
        """See `RunningBroker`."""
        if self._paused:
            self._docker().unpause()
            self._paused = False

    def log(self) -> str:
        """See `RunningBroker`."""
        if self.container is None:
            return ""
        return b"".join(self.container.get_logs()).decode(errors="replace")

    def _docker(self) -> Any:
        self._owner.check()
        assert self.container is not None, "the broker was not started"
        return self.container.get_wrapped_container()

    def _make(self) -> None:
        images.prepare()
        if self.settings.tls:
            self._certificates = Certificates(hosts=(images.docker_host(),))
        recipe = self.product.in_container(self.settings, self._certificates)
        for attempt in range(_ATTEMPTS):
            container = self._compose(recipe)
            try:
                container.start()
            except Exception as error:  # testcontainers lets those of docker through
                self._remove(container)
                if attempt + 1 < _ATTEMPTS and "already allocated" in str(error):
                    continue  # somebody else was quicker
                raise self._unavailable(f"{self.image} cannot be started: {error}") from error
            self.container = container
            _alive.add(self)
            return

    def _compose(self, recipe: Recipe) -> DockerContainer:
        from testcontainers.core.container import DockerContainer

        container = DockerContainer(self.image)
        container.with_kwargs(
            labels={images.LABEL: "1", images.OWNER_LABEL: images.owner()},
            **({"hostname": recipe.hostname} if recipe.hostname else {}),
        )
        local = self._is_local(container)
        for port in set(recipe.ports.values()):
            container.with_bind_ports(port, free_port() if local else None)
        for name, value in recipe.environment.items():
            container.with_env(name, value)
        for path, content in recipe.files.items():
            container.with_copy_into_container(content, path)
        return container

    def _remove(self, container: DockerContainer) -> None:
        with contextlib.suppress(Exception):  # it is gone, or docker is; the next process looks again
            container.stop(force=True, delete_volume=True)

    def _hosts(self) -> tuple[str, ...]:
        """Return under which names the ports may be reached: depends on where docker runs, and where we do."""
        assert self.container is not None
        reported = self.container.get_container_host_ip()
        own = ("127.0.0.1",) if self._is_local(self.container) else ()
        return tuple(dict.fromkeys((*own, reported)))

    @staticmethod
    def _is_local(container: DockerContainer) -> bool:
        return str(container.get_docker_client().client.api.base_url).startswith("http+")

    def _find_ports(self) -> dict[str, int]:
        container = self._docker()
        container.reload()
        mapped = container.attrs["NetworkSettings"]["Ports"] or {}
        recipe = self.product.in_container(self.settings, None)
        found = {name: mapped.get(f"{port}/tcp") for name, port in recipe.ports.items()}
        return {name: int(bindings[0]["HostPort"]) for name, bindings in found.items() if bindings}

    def _check_alive(self) -> None:
        container = self._docker()
        container.reload()
        if container.status in ("exited", "dead"):
            raise self._unavailable(f"it ended with status {container.attrs['State']['ExitCode']} while starting")


def _freeze(container: Any) -> None:
    """Pause a container; on a busy machine the kernel does not always manage to freeze it at once."""
    import docker.errors
    import tenacity

    tenacity.Retrying(
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        wait=tenacity.wait_fixed(_FREEZE_AGAIN),
        retry=tenacity.retry_if_exception_type(docker.errors.APIError),
        reraise=True,
    )(container.pause)


@atexit.register
def _stop_all() -> None:
    """Remove the containers of a run that was broken off."""
    for broker in list(_alive):
        broker.stop()


def free_port() -> int:
    """Return a free port of this machine, outside the range of the kernel's ephemeral ports."""
    while True:
        port = random.randint(_FIRST_PORT, _LAST_PORT)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock, contextlib.suppress(OSError):
            sock.bind(("0.0.0.0", port))
            return port
