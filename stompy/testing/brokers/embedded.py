"""The embedded broker, with the interface of the real ones.

| thread | may block on |
|---|---|
| the broker's own, of each session | the stream, and `_Freezer` while the broker is paused |

`_Freezer._changed` is a leaf lock; it is held over nothing that waits but its own condition.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from stompy.broker.broker import Broker
from stompy.broker.settings import BrokerLimits
from stompy.deadline import Budget, Deadline, deadline_of
from stompy.errors import ConfigurationError, ConnectionLostError, SendTimeoutError, StompTimeoutError
from stompy.locks import make_condition
from stompy.testing.brokers.certificates import Certificates
from stompy.testing.brokers.running import BrokerSettings, RunningBroker, tls_sibling, user_info
from stompy.transport.tls.options import Tls

if TYPE_CHECKING:
    from stompy.transport.base import Listener, MessageTransport, Transport


class EmbeddedBroker(RunningBroker):
    """The embedded broker, for the same tests as the real ones; it keeps its queues in memory over `restart`.

    Args:
        settings: the broker's settings; `memory_limit` is refused. With TLS it has no plain connector.
        options: more arguments of `stompy.broker.Broker`; with `unix` it listens on that socket and nowhere else. A
            wrong login is answered at once, unless `limits` are given.

    Raises:
        ConfigurationError: the setting is another broker's.
    """

    kind = "embedded"
    flavour = "embedded"

    def __init__(self, settings: BrokerSettings, **options: Any) -> None:
        wanted = {"memory_limit": None, "configuration": "", "dead_letter_nonpersistent": False}
        for name, value in wanted.items():
            if getattr(settings, name) != value:
                raise ConfigurationError(f"the embedded broker has no setting {name!r}")
        self.settings = settings
        self.freezer = Freezer()
        options.setdefault("limits", BrokerLimits(login_delay=0.0))
        users = None if settings.users is None else dict(settings.users)
        options["ws"] = settings.ws
        self._connector = "stomp+unix" if options.get("unix") is not None else "ws" if settings.ws else "stomp"
        self._certificates: Certificates | None = None
        if settings.tls:
            self._connector, self._certificates = tls_sibling(self._connector), Certificates()
            ca = self._certificates.ca_file if settings.client_certificates else None
            options["tls"] = Tls(cert=self._certificates.broker_file, ca=ca)
        self.broker = _FreezableBroker(self.freezer, users=users, **options)
        self._runs = False

    @property
    def connectors(self) -> tuple[str, ...]:
        """See `RunningBroker`."""
        return (self._connector,)

    @property
    def certificates(self) -> Certificates | None:
        """See `RunningBroker`."""
        return self._certificates

    def url(self, connector: str = "stomp", *, tls: bool = False, login: str | None = None) -> str:
        """See `RunningBroker`."""
        name = tls_sibling(connector) if tls else connector
        if name != self._connector:
            raise ConfigurationError(f"this embedded broker has no connector {name!r} (it has {self._connector})")
        url = self.broker.ws_url if name in ("ws", "wss") else self.broker.url
        return url.replace("://", "://" + user_info(self.settings, login), 1)

    def start(self) -> None:
        """See `RunningBroker`."""
        self.broker.start()
        self.server = self.broker.server
        self._runs = True

    def stop(self) -> None:
        """See `RunningBroker`."""
        self.shut_down()
        if self._certificates is not None:
            self._certificates.close()

    def shut_down(self) -> None:
        """See `RunningBroker`."""
        if self._runs:
            self._runs = False
            self.freezer.thaw()
            self.broker.close()

    def kill(self) -> None:
        """See `RunningBroker`; bytes that were not yet written to a connection are lost."""
        if self._runs:
            self._runs = False
            self.freezer.end_all()
            self.freezer.thaw()
            self.broker.close()

    def pause(self) -> None:
        """See `RunningBroker`."""
        self.freezer.freeze()

    def unpause(self) -> None:
        """See `RunningBroker`."""
        self.freezer.thaw()

    def log(self) -> str:
        """Return an empty text, as it logs to `stompy.broker`."""
        return ""


class Freezer:
    """Suspends and resumes reading and writing of its transports; from any thread."""

    def __init__(self) -> None:
        self._changed = make_condition("embedded broker", None)
        self._frozen = False
        self._transports: weakref.WeakSet[FreezableTransport] = weakref.WeakSet()

    def freeze(self) -> None:
        """Suspend all transports."""
        self._set(frozen=True)

    def thaw(self) -> None:
        """Resume all transports."""
        self._set(frozen=False)

    def add(self, transport: FreezableTransport) -> None:
        """Add a transport."""
        with self._changed:
            self._transports.add(transport)

    def end_all(self) -> None:
        """Shut down every transport."""
        with self._changed:
            transports = list(self._transports)
        for transport in transports:
            transport.shutdown()

    def wake(self) -> None:
        """Make waiting threads check again whether they should end."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, over: Callable[[], bool], deadline: Deadline | None) -> bool:
        """Wait until nothing is frozen, or `over()`; return whether that came before the deadline."""
        with self._changed:
            remaining = None if deadline is None else deadline.remaining()
            return self._changed.wait_for(lambda: not self._frozen or over(), remaining)

    def _set(self, *, frozen: bool) -> None:
        with self._changed:
            self._frozen = frozen
            self._changed.notify_all()


class FreezableTransport:
    """A transport that is suspended while its freezer is frozen; see `stompy.transport.base.Transport`.

    Args:
        transport: moves the bytes; owned by this object from here on.
        freezer: which one it obeys.
    """

    def __init__(self, transport: Transport, freezer: Freezer) -> None:
        self._transport = transport
        self._freezer = freezer
        self._received = b""  # read, and held back by the freezer
        self._shut = False
        freezer.add(self)

    @property
    def peer(self) -> str:
        """The other end."""
        return self._transport.peer

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol of the transport below."""
        return getattr(self._transport, "subprotocol", None)

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Return the next bytes; they wait here while frozen."""
        if not self._received:
            self._received = self._transport.recv(deadline)
        if not self._freezer.wait(self._is_shut, deadline):
            raise StompTimeoutError(f"no bytes from {self.peer} in time")
        data, self._received = self._received, b""
        return b"" if self._shut else data

    def sendall(self, data: bytes, deadline: Budget) -> None:
        """Write `data`, after waiting while frozen."""
        deadline = deadline_of(deadline)
        self._wait_to_send(deadline)
        self._transport.sendall(data, deadline)

    @property
    def keeps_messages(self) -> bool:
        """Whether the transport below keeps messages apart, or may."""
        return bool(getattr(self._transport, "keeps_messages", False))

    def send_messages(self, messages: Sequence[bytes], deadline: Budget) -> None:
        """Write messages, after waiting while frozen."""
        self._wait_to_send(deadline_of(deadline))
        cast("MessageTransport", self._transport).send_messages(messages, deadline)

    def _wait_to_send(self, deadline: Deadline) -> None:
        if not self._freezer.wait(self._is_shut, deadline):
            raise SendTimeoutError(
                f"{self.peer} did not accept the bytes in time: the broker is paused", outcome="not-sent"
            )
        if self._shut:
            raise ConnectionLostError(f"connection to {self.peer} was shut down", outcome="not-sent")

    def shutdown(self) -> None:
        """End both directions, and wake waiting threads."""
        self._shut = True
        self._transport.shutdown()
        self._freezer.wake()

    def shutdown_write(self) -> None:
        """End the outgoing direction."""
        self._transport.shutdown_write()

    def close(self) -> None:
        """Shut down and release the resources of the operating system."""
        self._shut = True
        self._transport.close()
        self._freezer.wake()

    def _is_shut(self) -> bool:
        return self._shut

    def __repr__(self) -> str:
        return f"<FreezableTransport of {self._transport!r}>"


class _FreezableListener:
    """Accepts the connections of another listener, and adds them to a freezer."""

    def __init__(self, listener: Listener, freezer: Freezer) -> None:
        self._listener = listener
        self._freezer = freezer

    @property
    def address(self) -> tuple[str, int] | str:
        return self._listener.address

    def accept(self) -> Transport | None:
        transport = self._listener.accept()
        return None if transport is None else FreezableTransport(transport, self._freezer)

    def close(self) -> None:
        self._listener.close()


class _FreezableBroker(Broker):
    """The embedded broker, on a listener that can be frozen each time that it listens."""

    def __init__(self, freezer: Freezer, **options: Any) -> None:
        super().__init__(**options)
        self._freezer = freezer

    def _listen(self) -> list[Listener]:
        return [_FreezableListener(listener, self._freezer) for listener in super()._listen()]
