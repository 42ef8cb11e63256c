"""The connections."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from typing import Any

from stompy.compat.listener import Publisher, WaitingListener
from stompy.compat.protocol import *  # noqa: F403 - programs import them from here
from stompy.compat.protocol import Headers, Protocol10, Protocol11, Protocol12
from stompy.compat.transport import *  # noqa: F403 - programs import them from here
from stompy.compat.transport import HostAndPort, Transport
from stompy.compat.utils import get_uuid
from stompy.secret import Secret, without_traceback


class BaseConnection(Publisher):
    """The parts of all connections.

    Args:
        transport: of the connection.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def __enter__(self: Any) -> Any:
        self.disconnect_receipt_id = get_uuid()
        self.disconnect_listener = WaitingListener(self.disconnect_receipt_id)
        self.set_listener("ZZZZZ-disconnect-listener", self.disconnect_listener)
        return self

    def __exit__(self: Any, exc_type: object, exc_val: object, exc_tb: object) -> None:
        self.disconnect(self.disconnect_receipt_id)

    def disconnect(self, receipt: str | None = None, headers: Headers | None = None, **keyword_headers: Any) -> None:
        """Do nothing; overridden."""

    def set_listener(self, name: str, listener: Any) -> None:
        """Set a listener; listeners are called in the order of their names.

        Raises:
            TypeError: a method of it takes the arguments of an old release of stomp.py.
        """
        self.transport.set_listener(name, listener)

    def remove_listener(self, name: str) -> None:
        """Remove a listener."""
        self.transport.remove_listener(name)

    def get_listener(self, name: str) -> Any:
        """Return a listener, or `None`."""
        return self.transport.get_listener(name)

    def is_connected(self) -> bool:
        """Return whether a session is open."""
        return self.transport.is_connected()

    def set_receipt(self, receipt_id: str, value: str | None) -> None:
        """Note the purpose of a receipt."""
        self.transport.set_receipt(receipt_id, value)

    def set_ssl(self, *args: Any, **kwargs: Any) -> None:
        """Use TLS for some hosts; see `Transport.set_ssl`."""
        self.transport.set_ssl(*args, **kwargs)

    def get_ssl(self, host_and_port: HostAndPort | None = None) -> dict[str, Any] | None:
        """Return the TLS settings of a host, by default the current one."""
        return self.transport.get_ssl(host_and_port)


class _Connection(BaseConnection):
    """Connecting and disconnecting, for all versions."""

    _protocol: type[Protocol10 | Protocol11]

    def _initialize(self, transport: type[Transport], given: inspect.BoundArguments) -> None:
        """Initialize the connection and its protocol, each with the arguments that it takes."""

        def taken_by(function: Any) -> dict[str, Any]:
            names = inspect.signature(function).parameters.keys() - {"self"}
            return {name: value for name, value in given.arguments.items() if name in names}

        made = transport(**taken_by(transport.__init__))
        BaseConnection.__init__(self, made)
        protocol: Any = self._protocol.__init__
        protocol(self, made, **taken_by(protocol))
        _set_old_ssl(made, given.arguments.get("old", {}))

    def connect(self, *args: Any, **kwargs: Any) -> None:
        """Open the network connection and send CONNECT or STOMP; the arguments are those of the protocol's `connect`.

        Raises:
            ConnectFailedException: no host could be reached; with `wait`, also if the broker did not answer CONNECTED.
        """
        # From here on, no local variable shows a passcode in a traceback.
        given, args, kwargs = Secret((args, kwargs)), (), {}
        self.transport.start()
        without_traceback(lambda: self._protocol.connect(self, *given.reveal()[0], **given.reveal()[1]))  # type: ignore[arg-type]

    def disconnect(self, receipt: str | None = None, headers: Headers | None = None, **keyword_headers: Any) -> None:
        """Send DISCONNECT; with a `receipt`, also wait for the end of the session."""
        self._protocol.disconnect(self, receipt, headers, **keyword_headers)  # type: ignore[arg-type]
        if receipt is not None:
            self.transport.stop()


_OLD_SSL = ("ssl_key_file", "ssl_cert_file", "ssl_ca_certs", "ssl_cert_validator", "ssl_version")


def _set_old_ssl(transport: Transport, old: dict[str, Any]) -> None:
    """Take the arguments of releases before 8 for TLS."""
    unknown = old.keys() - {"use_ssl", *_OLD_SSL}
    if unknown:
        raise TypeError(f"there is no argument {min(unknown)!r} of a connection")
    if not old:
        return
    options = {name.removeprefix("ssl_"): old[name] for name in _OLD_SSL if old.get(name) is not None}
    options = {"ssl_version" if name == "version" else name: value for name, value in options.items()}
    shown = "".join(f", {name}=..." for name in options)
    warnings.warn(
        f"{min(old)}= is of stomp.py before 8: call connection.set_ssl([(host, port)]{shown}), which verifies",
        DeprecationWarning,
        stacklevel=4,
    )
    if old.get("use_ssl"):
        transport.set_ssl(transport.hosts, **options)


ARGUMENTS = (
    "host_and_ports", "prefer_localhost", "try_loopback_connect", "reconnect_sleep_initial",
    "reconnect_sleep_increase", "reconnect_sleep_jitter", "reconnect_sleep_max", "reconnect_attempts_max", "timeout",
    "heartbeats", "keepalive", "vhost", "auto_decode", "encoding", "auto_content_length", "heart_beat_receive_scale",
    "bind_host_port",
)  # fmt: skip
"""The arguments of connections, in the order of stomp.py."""

_NOT_OF_1_0 = ("heartbeats", "vhost", "heart_beat_receive_scale")


def signature(transport: type[Transport], arguments: Iterable[str]) -> inspect.Signature:
    """Return the signature of a connection's `__init__`.

    Args:
        transport: of the connection; the defaults are its own and those of `Protocol11`.
        arguments: in the order of stomp.py; an argument that neither takes is ignored.
    """
    known: dict[str, inspect.Parameter] = {}
    for part in (Protocol11, transport):
        known.update(inspect.signature(part.__init__).parameters)
    plain, rest = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_KEYWORD
    taken = [known.get(name) or inspect.Parameter(name, plain, default=None) for name in arguments]
    return inspect.Signature([known["self"], *taken, inspect.Parameter("old", rest)])


_SIGNATURE = signature(Transport, ARGUMENTS)
_SIGNATURE10 = signature(Transport, [name for name in ARGUMENTS if name not in _NOT_OF_1_0])


class StompConnection10(_Connection, Protocol10):
    """A STOMP 1.0 connection; the arguments are those of `Transport`."""

    _protocol = Protocol10

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._initialize(Transport, _SIGNATURE10.bind(self, *args, **kwargs))

    __init__.__signature__ = _SIGNATURE10  # type: ignore[attr-defined]


class StompConnection11(_Connection, Protocol11):
    """A STOMP 1.1 connection; the arguments are those of `Transport` and `Protocol11`."""

    _protocol = Protocol11

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._initialize(Transport, _SIGNATURE.bind(self, *args, **kwargs))

    __init__.__signature__ = _SIGNATURE  # type: ignore[attr-defined]


class StompConnection12(_Connection, Protocol12):
    """A STOMP 1.2 connection; the arguments are those of `Transport` and `Protocol11`."""

    _protocol = Protocol12

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._initialize(Transport, _SIGNATURE.bind(self, *args, **kwargs))

    __init__.__signature__ = _SIGNATURE  # type: ignore[attr-defined]

    @staticmethod
    def is_eol(c: bytes) -> bool:
        """Return whether `c` is a line end."""
        return c in (b"\n", b"\r\n")
