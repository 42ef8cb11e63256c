"""A broker for tests: its settings, its certificates and its life; and the embedded broker with the same interface.

| thread | may block on |
|---|---|
| the embedded broker's own, of each session | the stream, and `_Gate` while the broker is paused |

`_Gate._changed` is a leaf lock; it is held over nothing that waits but its own condition.
"""

from __future__ import annotations

import contextlib
import types
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote

from stompy.arguments import check_options
from stompy.broker.broker import Broker
from stompy.broker.settings import BrokerLimits
from stompy.closable import Closable
from stompy.deadline import Budget, Deadline
from stompy.errors import ConcurrencyError, ConfigurationError
from stompy.forks import Owner
from stompy.locks import make_condition
from stompy.transport.tls.options import Tls
from stompy.world import shutil, tempfile

if TYPE_CHECKING:
    import trustme

    from stompy.transport.base import MessageTransport, Transport, TransportListener

_Broker = TypeVar("_Broker", bound="RunningBroker")


class BrokerUnavailableError(RuntimeError):
    """No such broker can be started here.

    Attributes:
        kind: of the broker.
        reasons: why each way of starting one was not taken, in the order of trying.
    """

    def __init__(self, kind: str, reasons: tuple[str, ...]) -> None:
        self.kind = kind
        self.reasons = reasons
        super().__init__(f"no {kind} broker: " + "; ".join(reasons))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The settings of a test's broker.

    Attributes:
        users: passcode by login; `None` accepts every client, also without a login. A passcode is in no `repr`.
        persistent: keep messages on disk, so that they outlive `kill` and `restart`. RabbitMQ always does.
        tls: listen with TLS too, with a certificate of an authority made for the purpose; see `url(tls=True)`.
        client_certificates: the TLS connectors want a certificate of the client, of the same authority.
        ws: listen for WebSocket too, as `url("ws")`; RabbitMQ and Artemis always do, Artemis on the port of STOMP. The
            embedded broker then has no other address.
        memory_limit: bytes of messages in memory, beyond which a broker holds its senders back.
        advisories: whether ActiveMQ sends its advisory messages.
        dead_letter_nonpersistent: whether ActiveMQ keeps also refused messages that are not persistent.
        configuration: more of the broker's own: elements within `<broker>` of activemq.xml or `<core>` of broker.xml,
            lines of rabbitmq.conf. An entry of the same name is replaced.
        environment: variables for the broker's process.
    """

    users: Mapping[str, str] | None = field(default=None, repr=False)
    persistent: bool = False
    tls: bool = False
    client_certificates: bool = False
    ws: bool = False
    memory_limit: int | None = None
    advisories: bool = True
    dead_letter_nonpersistent: bool = False
    configuration: str = field(default="", repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in self.names()}
        check_options(BrokerSettings, values, hidden=("users",))
        if self.client_certificates and not self.tls:
            raise ConfigurationError("client_certificates needs tls=True")
        if self.memory_limit is not None and self.memory_limit <= 0:
            raise ConfigurationError(f"memory_limit is a number of bytes above 0, not {self.memory_limit}")
        if self.users is not None:
            if not self.users or "" in self.users:
                raise ConfigurationError("users needs a login, which is not empty; leave users out to accept everybody")
            object.__setattr__(self, "users", types.MappingProxyType(dict(self.users)))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> BrokerSettings:
        """Make the settings from keyword arguments.

        Raises:
            ConfigurationError: an option is not known, or is invalid.
        """
        if unknown := sorted(options.keys() - cls.names()):
            known = ", ".join(sorted(cls.names()))
            raise ConfigurationError(f"no such option of a broker: {', '.join(unknown)} (there are {known})")
        return cls(**options)

    @classmethod
    def names(cls) -> frozenset[str]:
        """Return the names of the settings."""
        return frozenset(each.name for each in fields(cls))


def refuse(settings: BrokerSettings, title: str, *names: str) -> None:
    """Raise `ConfigurationError` if one of these settings, which `title` lacks, is not the default."""
    for each in fields(settings):
        if each.name in names and getattr(settings, each.name) != each.default:
            raise ConfigurationError(f"{title} has no setting {each.name!r}")


class Certificates(Closable):
    """An authority, a broker's certificate and a client's, all fresh; the files are there until `close`.

    Args:
        hosts: more names and addresses under which the broker is reached, beside the names of this machine.

    Attributes:
        ca_file: the authority's certificate (PEM), which a client trusts.
        client_cert: the client's certificate, PEM.
        client_key: its private key, PEM.
        broker_file: the broker's private key and certificate, PEM.

    Raises:
        ConfigurationError: the packages of the extra `testing` are not installed.
    """

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        try:
            import trustme
        except ImportError as error:
            raise ConfigurationError(f"TLS needs stompy-client[testing] to be installed: {error}") from error
        authority = trustme.CA()
        # Not a `TemporaryDirectory`, which a forked child would remove when it exits.
        self._folder = tempfile.mkdtemp(prefix="stompy-tls-")
        self._remove = weakref.finalize(self, _remove, self._folder, Owner("folder"))
        self.ca_file = self._write("ca.pem", authority.cert_pem)
        broker = authority.issue_cert(*dict.fromkeys(("localhost", "127.0.0.1", "::1", *hosts)))
        self.broker_file = self._write("broker.pem", broker.private_key_and_cert_chain_pem)
        client = authority.issue_cert("client@stompy.test", common_name="client")
        self.client_cert = self._write("client.pem", *client.cert_chain_pems)
        self.client_key = self._write("client.key", client.private_key_pem)

    def close(self) -> None:
        """Remove the files. Idempotent."""
        self._remove()

    def _write(self, name: str, *blobs: trustme.Blob) -> str:
        path = Path(self._folder, name)
        path.write_bytes(b"".join(blob.bytes() for blob in blobs))
        path.chmod(0o600)
        return str(path)


def _remove(folder: str, owner: Owner) -> None:
    if not owner.forked:
        shutil.rmtree(folder, ignore_errors=True)


class RunningBroker(Closable, ABC):
    """A broker for a test; it runs inside its `with` block, or from `start` to `close`.

    Not for two threads at once.

    Attributes:
        kind: such as `activemq`; see `start_broker`.
        settings: the settings that it runs with.
        flavour: where it comes from, such as `official` (an image) or `embedded`.
        server: the `server` header of its CONNECTED, such as `ActiveMQ/6.3.1`.
        certificates: the authority and the certificates, where there is TLS.
    """

    kind: str
    settings: BrokerSettings
    flavour: str
    server: str = ""
    certificates: Certificates | None = None

    @property
    def version(self) -> str:
        """Its version, from `server`, such as `6.3.1`."""
        return self.server.partition("/")[2].split(" ")[0]

    @property
    def login(self) -> str | None:
        """The login of its first user; `None` where none is needed."""
        return next(iter(self.settings.users or {}), None)

    @property
    def passcode(self) -> str | None:
        """The passcode of its first user; `None` where none is needed."""
        return next(iter((self.settings.users or {}).values()), None)

    @property
    def ca_file(self) -> str:
        """The path of the authority's certificate (PEM), for `connect(..., ca=...)` and the like.

        Raises:
            ConfigurationError: it was not asked for TLS.
        """
        if self.certificates is None:
            raise ConfigurationError(f"this {self.kind} has no TLS; ask for it with tls=True")
        return self.certificates.ca_file

    @property
    @abstractmethod
    def connectors(self) -> tuple[str, ...]:
        """The connectors that `url` takes: `stomp`, and depending on the broker `stomp+nio`, `stomp+ssl`, `ws`, ..."""

    def url(self, connector: str = "stomp", *, tls: bool = False, login: str | None = None) -> str:
        """Return an address for clients; the same after `restart`.

        Args:
            connector: one of `connectors`.
            tls: take the TLS sibling of `connector`; trust `ca_file` then.
            login: one of the users, whose login and passcode stand in the address; `None` takes the first one, if
                there are any, and `""` leaves them out. A passcode with a backslash needs `dialect="rabbitmq"` there.

        Raises:
            ConfigurationError: it has no such connector or user.
            NotConnectedError: it was not started yet.
        """
        name = connector
        if tls and name not in ("wss", "stomp+ssl", "stomp+nio+ssl"):
            name = "wss" if name == "ws" else f"{name}+ssl"
        if name not in self.connectors:
            has = ", ".join(self.connectors)
            raise ConfigurationError(f"this {self.kind} has no connector {name!r} (it has {has})")
        users = self.settings.users or {}
        login = self.login if login is None else login
        if login and login not in users:
            raise ConfigurationError(f"this broker has no user {login!r}")
        user_info = f"{quote(login, safe='')}:{quote(users[login], safe='')}@" if login else ""
        return self._address(name).replace("://", f"://{user_info}", 1)

    @abstractmethod
    def _address(self, connector: str) -> str:
        """Return the address of a connector, without a login.

        Raises:
            NotConnectedError: it was not started yet.
        """

    @abstractmethod
    def start(self) -> None:
        """Start it, again too, on the same ports; return once it has answered a CONNECT.

        Nothing happens if it runs.

        Raises:
            BrokerUnavailableError: it did not start; nothing of it is left.
        """

    @abstractmethod
    def close(self) -> None:
        """End it for good and remove its files; may be called again."""

    @abstractmethod
    def shut_down(self) -> None:
        """Let it end in good order; `start` brings it back with its data on disk."""

    @abstractmethod
    def kill(self) -> None:
        """End it as a crash would; `start` or `restart` brings it back with its data on disk."""

    @abstractmethod
    def pause(self) -> None:
        """Freeze it: connections stay open and nothing is answered, until `unpause`."""

    @abstractmethod
    def unpause(self) -> None:
        """Let it go on after `pause`."""

    def log(self) -> str:
        """Return its output so far; empty where it has none."""
        return ""

    def restart(self) -> None:
        """Shut it down in good order, unless it is down already, and start it again on the same ports.

        Raises:
            BrokerUnavailableError: it did not come back.
        """
        self.shut_down()
        self.start()

    def __enter__(self: _Broker) -> _Broker:
        self.start()
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.kind} {self.flavour} {self.server or 'not started'}>"


class EmbeddedBroker(RunningBroker):
    """The embedded broker, for the same tests as the real ones; it keeps its queues in memory over `restart`.

    Args:
        settings: the broker's settings; `memory_limit` is refused. With TLS it has no plain connector.
        options: more arguments of `stompy.broker.Broker`; with `unix` it listens on that socket and nowhere else. A
            wrong login is answered at once, unless `limits` are given.

    Raises:
        ConfigurationError: the setting is another broker's.
    """

    kind = flavour = "embedded"

    def __init__(self, settings: BrokerSettings, **options: Any) -> None:
        refuse(settings, "the embedded broker", "memory_limit", "configuration", "dead_letter_nonpersistent")
        self.settings = settings
        scheme = "stomp+unix" if options.get("unix") is not None else "ws" if settings.ws else "stomp"
        if settings.tls:
            scheme = "wss" if settings.ws else f"{scheme}+ssl"
            self.certificates = made = Certificates()
            ca = made.ca_file if settings.client_certificates else None
            options["tls"] = Tls(cert=made.broker_file, ca=ca)
        self._connector = scheme
        self._gate = _Gate()
        options.setdefault("limits", BrokerLimits(login_delay=0.0))
        users = None if settings.users is None else dict(settings.users)
        self.broker = _PausableBroker(self._gate, users=users, ws=settings.ws, **options)

    @property
    def connectors(self) -> tuple[str, ...]:
        """See `RunningBroker`."""
        return (self._connector,)

    def _address(self, connector: str) -> str:
        return self.broker.ws_url if self.settings.ws else self.broker.url

    def start(self) -> None:
        """See `RunningBroker`."""
        self.broker.start()
        self.server = self.broker.server

    def close(self) -> None:
        """See `RunningBroker`."""
        self.shut_down()
        if self.certificates is not None:
            self.certificates.close()

    def shut_down(self) -> None:
        """See `RunningBroker`."""
        self.unpause()
        self.broker.close()

    def kill(self) -> None:
        """See `RunningBroker`; bytes that were not yet written to a connection are lost."""
        with contextlib.suppress(ConcurrencyError):  # a forked child has none of them
            for connection in self.broker.connections():
                self.broker.kill(connection)
        self.shut_down()

    def pause(self) -> None:
        """See `RunningBroker`."""
        self._gate.close()

    def unpause(self) -> None:
        """See `RunningBroker`."""
        self._gate.open()


class _Gate:
    """The bytes that a paused broker receives and writes wait here."""

    def __init__(self) -> None:
        self._changed = make_condition("embedded broker", None)
        self._closed = False

    def open(self) -> None:
        with self._changed:
            self._closed = False
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True

    def wait(self) -> None:
        """Wait until it is open."""
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)


class _PausableTransport:
    """A transport whose bytes wait at a gate; all else is the transport's, see `stompy.transport.base.Transport`."""

    def __init__(self, transport: Transport, gate: _Gate) -> None:
        self._transport = transport
        self._gate = gate
        self._shut = False

    def __getattr__(self, name: str) -> Any:
        if name == "send_now":  # which must not wait
            raise AttributeError(name)
        return getattr(self._transport, name)

    def recv(self, deadline: Deadline | None = None) -> bytes:
        data = self._transport.recv(deadline)
        self._gate.wait()
        return b"" if self._shut else data

    def sendall(self, data: bytes, deadline: Budget) -> None:
        self._gate.wait()
        self._transport.sendall(data, deadline)

    def send_messages(self, messages: Sequence[bytes], deadline: Budget) -> None:
        self._gate.wait()
        cast("MessageTransport", self._transport).send_messages(messages, deadline)

    def shutdown(self) -> None:
        self._shut = True
        self._transport.shutdown()


class _PausableListener:
    """Accepts the connections of another listener, and gives them to a gate."""

    def __init__(self, listener: TransportListener, gate: _Gate) -> None:
        self.address = listener.address
        self.close = listener.close
        self._accept = listener.accept
        self._gate = gate

    def accept(self) -> Transport | None:
        transport = self._accept()
        return None if transport is None else cast("Transport", _PausableTransport(transport, self._gate))


class _PausableBroker(Broker):
    """The embedded broker, whose transports wait at a gate."""

    def __init__(self, gate: _Gate, **options: Any) -> None:
        super().__init__(**options)
        self._gate = gate

    def _listen(self) -> list[TransportListener]:
        return [_PausableListener(listener, self._gate) for listener in super()._listen()]
