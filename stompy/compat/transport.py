"""The transport: listeners, and a link of stompy that carries the frames.

A transport can be started again when its session has ended. Lock (a leaf): the condition guards `connected` and the
current session.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any

import stompy.compat.log as log
import stompy.compat.waiting as waiting
from stompy.compat import exception as exception
from stompy.compat.callbacks import Callbacks
from stompy.compat.constants import CMD_DISCONNECT, HDR_CONTENT_LENGTH
from stompy.compat.dialing import HostDialer, tcp_options
from stompy.compat.exception import ConnectFailedException, NotConnectedException, translated
from stompy.compat.session import Session
from stompy.compat.utils import *  # noqa: F403 - programs import them from here
from stompy.compat.utils import (
    Frame,
    clean_headers,
    default_create_thread,
    encode,
    header_pairs,
    is_eol_default,
    is_localhost,
)
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, StompError
from stompy.frames.encoder import Encoded
from stompy.locks import SafeEvent, make_condition
from stompy.protocol.heartbeat import DEFAULT_TOLERANCE
from stompy.transport.address import host_port
from stompy.transport.base import Dialer
from stompy.transport.base import Transport as Stream
from stompy.world import random

HostAndPort = tuple[str, int]

_HANDOVER = 5.0
"""Seconds that a new session waits for the listeners of the one before."""


class BaseTransport(Callbacks):
    """Listeners, and frames to and from them.

    Args:
        auto_decode: whether bodies are text.
        encoding: of that text.
        is_eol_fc: ignored.

    Raises:
        LookupError: there is no such encoding.
    """

    def __init__(
        self, auto_decode: bool = True, encoding: str = "utf-8", is_eol_fc: Callable[[bytes], bool] = is_eol_default
    ) -> None:
        super().__init__()
        codecs.lookup(encoding)
        self.running = False
        self.connected = False
        self.connection_error = False
        self.vhost: str | None = None
        self.create_thread_fc: Callable[[Callable[[], None]], Any] = default_create_thread
        self.io_thread: Any = None
        self.heartbeat_tolerance = DEFAULT_TOLERANCE
        self.encoding = encoding if auto_decode else None
        """Of the bodies that arrive; `None` leaves them as bytes."""
        self._encoding = encoding
        self._receipts: dict[str, str] = {}
        self._changed = make_condition("compat")
        self._session: Session | None = None
        self._stopped = SafeEvent()

    def override_threading(self, create_thread_fc: Callable[[Callable[[], None]], Any]) -> None:
        """Set the function that starts a thread for the callbacks of a session."""
        self.create_thread_fc = create_thread_fc

    # State.

    def is_connected(self) -> bool:
        """Return whether a session is open."""
        session = self._session
        return self.connected and session is not None and session.link.alive

    def set_connected(self, connected: bool) -> None:
        """Note whether a session is open."""
        with self._changed:
            self.connected = connected
            self._changed.notify_all()

    @property
    def last_heard(self) -> float | None:
        """The time, by `time.monotonic`, of the last bytes of the current session; `None` before the first."""
        session = self._session
        return None if session is None else session.link.timer.last_heard

    def session_changed(self, session: Session, *, connected: bool) -> None:
        """Note a change of a session; never blocks."""
        with self._changed:
            if session is self._session:
                self.connected = connected
                self.connection_error = session.refusal is not None
                self.running = connected or session.link.alive
                self._changed.notify_all()

    def set_receipt(self, receipt_id: str, value: str | None) -> None:
        """Note what a receipt is for; `None` forgets it."""
        if value:
            self._receipts[str(receipt_id)] = value
        else:
            self._receipts.pop(str(receipt_id), None)

    def take_receipt(self, receipt_id: str | None) -> str | None:
        """Return what a receipt is for, and forget it."""
        return self._receipts.pop(str(receipt_id), None)

    def wait_for_connection(self, timeout: float | None = None) -> None:
        """Wait until the broker has accepted the session.

        Args:
            timeout: seconds; `None` uses `stompy.compat.waiting.limit`.

        Raises:
            ConnectFailedException: it refused, closed the connection, or did not answer in time.
        """
        seconds = waiting.limit if timeout is None else timeout
        session = self._session

        def decided() -> bool:
            return self.connected or session is None or not session.link.alive or session is not self._session

        with self._changed:
            in_time = self._changed.wait_for(decided, seconds)
        if self.connected:
            return
        if not in_time:
            reason = f"the broker did not answer CONNECT within {seconds:g} s"
        elif session is None:
            reason = "the connection was never started"
        else:
            reason = f"the broker refused the connection: {session.refusal}" if session.refusal else _why(session)
        self.disconnect_socket()
        raise ConnectFailedException(reason)

    # Opening and closing.

    def start(self) -> None:
        """Open the network connection.

        Raises:
            ConnectFailedException: no host could be reached.
        """
        before = self._session
        if before is not None:
            if before.link.alive:
                return
            if not before.is_current():
                before.done.wait(_HANDOVER)
            before.link.close()
        self.running = True
        self._stopped = SafeEvent()
        self.attempt_connection()
        self.notify("connecting")

    def attempt_connection(self) -> None:
        """Open the network connection; overridden."""

    def _open(self, stream: Stream, host_and_port: HostAndPort) -> None:
        session = Session(self, stream, host_port(*host_and_port))
        with self._changed:
            self._session, self.current_host_and_port = session, host_and_port
            self.connected = self.connection_error = False
        try:
            self.io_thread = session.start()
        except StompError as error:
            session.link.discard()
            raise translated(error) from error
        log.info("established connection to host %s, port %s", *host_and_port)

    def stop(self) -> None:
        """Wait until the session has ended and its listeners know; after the limit, close it."""
        session = self._session
        if session is not None and not session.is_current() and not session.done.wait(waiting.limit):
            log.warning("the session did not end within %g s, and was closed", waiting.limit)
            session.link.close()

    def disconnect_socket(self) -> None:
        """Close the network connection, without DISCONNECT; `on_disconnected` follows. Never blocks."""
        self.running = False
        self._stopped.set()
        if self._session is not None:
            self.session_changed(self._session, connected=False)
            self._session.link.close()

    def cleanup(self) -> None:
        """Close the network connection."""
        self.disconnect_socket()

    # Writing.

    def transmit(self, frame: Frame) -> None:
        """Call `on_send` of the listeners, encode a frame and write it.

        Raises:
            NotConnectedException: there is no session.
            StompException: the frame cannot be encoded.
        """
        for _, listener in sorted(self.listeners.items()):
            on_send = getattr(listener, "on_send", None)
            if on_send:
                on_send(frame)
        session = self._session
        if session is None:
            raise NotConnectedException("there is no connection: call connect() first")
        if log.isEnabledFor(log.DEBUG):
            log.debug("sending frame: %r, headers=%.800r", frame.cmd, clean_headers(frame.headers))
        body = encode(frame.body, self._encoding) if frame.body else b""
        try:
            data = session.protocol.encode(
                frame.cmd or "",
                header_pairs(frame.headers),
                body,
                content_length=HDR_CONTENT_LENGTH in frame.headers,
            )
            if frame.cmd == CMD_DISCONNECT:
                session.disconnect(data)
            else:
                session.link.writer.write(data)
        except StompError as error:
            raise translated(error) from error

    def send(self, encoded_frame: Encoded) -> None:
        """Write bytes.

        Raises:
            NotConnectedException: there is no session.
        """
        if self._session is None:
            raise NotConnectedException("there is no connection: call connect() first")
        try:
            self._session.link.writer.write(encoded_frame)
        except StompError as error:
            raise translated(error) from error


def _why(session: Session) -> str:
    reason = session.end_reason or session.link.end_reason
    return f"before the broker accepted the session: {reason}" if reason else "the connection was closed"


class Transport(BaseTransport):
    """A transport over TCP or TLS.

    Args:
        host_and_ports: hosts to try in turn; by default `localhost:61613`.
        prefer_localhost: whether to try this machine first.
        try_loopback_connect: whether to try 127.0.0.1 if a host is this machine.
        reconnect_sleep_initial: seconds before the second attempt.
        reconnect_sleep_increase: by which part the pause grows with each attempt.
        reconnect_sleep_jitter: by which part at most a random pause is longer.
        reconnect_sleep_max: the longest pause.
        reconnect_attempts_max: attempts, each with one host; -1 for no limit.
        timeout: seconds for an attempt.
        keepalive: `("linux", idle, interval, probes)` or `("mac", interval)`; otherwise with stompy's defaults.
        vhost: the `host` header.
        auto_decode: whether bodies are text.
        encoding: of that text.
        recv_bytes: ignored.
        is_eol_fc: ignored.
        bind_host_port: the local address.
    """

    def __init__(
        self,
        host_and_ports: list[HostAndPort] | None = None,
        prefer_localhost: bool = True,
        try_loopback_connect: bool = True,
        reconnect_sleep_initial: float = 0.1,
        reconnect_sleep_increase: float = 0.5,
        reconnect_sleep_jitter: float = 0.1,
        reconnect_sleep_max: float = 60.0,
        reconnect_attempts_max: int = 3,
        timeout: float | None = None,
        keepalive: Any = None,
        vhost: str | None = None,
        auto_decode: bool = True,
        encoding: str = "utf-8",
        recv_bytes: int = 16384,
        is_eol_fc: Callable[[bytes], bool] = is_eol_default,
        bind_host_port: HostAndPort | None = None,
    ) -> None:
        super().__init__(auto_decode, encoding, is_eol_fc)
        hosts = [(host, port) for host, port in host_and_ports or [("localhost", 61613)]]
        if prefer_localhost:
            hosts.sort(key=is_localhost)
        local = [("127.0.0.1", port) for host, port in hosts if is_localhost((host, port)) == 1]
        known = {host for host, _ in hosts}
        extra = local if try_loopback_connect and known.isdisjoint(("127.0.0.1", "localhost")) else []
        # Programs look at this one by its mangled name.
        self.__host_and_ports = [*extra, *hosts]
        self.vhost = vhost
        self.bind_host_port = bind_host_port
        self._pauses = (reconnect_sleep_initial, reconnect_sleep_increase, reconnect_sleep_jitter, reconnect_sleep_max)
        self._attempts = reconnect_attempts_max
        self._timeout = timeout
        self._keepalive = keepalive
        self._ssl: dict[HostAndPort, dict[str, Any]] = {}

    @property
    def hosts(self) -> list[HostAndPort]:
        """The hosts in the order in which they are tried."""
        return list(self.__host_and_ports)

    def attempt_connection(self) -> None:
        """Try the hosts in turn, with pauses after each round.

        Raises:
            ConnectFailedException: none could be reached.
        """
        pause, increase, jitter, longest = self._pauses
        tried, failure = 0, None
        while self.running and (tried < self._attempts or self._attempts == -1):
            if tried:
                self._stopped.wait(min(pause, longest) * (1 + random.random() * jitter))  # noqa: S311
                pause *= 1 + increase
            for host_and_port in self.__host_and_ports:
                tried += 1
                try:
                    stream = self._dialer(host_and_port).dial(Deadline(self._timeout or waiting.limit))
                except ConfigurationError as error:
                    raise ConnectFailedException(str(error)) from error
                except (StompError, OSError) as error:
                    failure = error
                    log.warning("could not connect to host %s, port %s: %s", *host_and_port, error)
                else:
                    self._open(stream, host_and_port)
                    return
        self.running = False
        raise ConnectFailedException(str(failure or "no attempt was made")) from failure

    def _dialer(self, host_and_port: HostAndPort) -> Dialer:
        return self._host_dialer(host_and_port)

    def _host_dialer(self, host_and_port: HostAndPort) -> HostDialer:
        options = tcp_options(self._keepalive, self.bind_host_port)
        return HostDialer(host_and_port, options, self.get_ssl(host_and_port))

    def set_ssl(
        self,
        for_hosts: Any = (),
        key_file: str | None = None,
        cert_file: str | None = None,
        ca_certs: str | None = None,
        cert_validator: Callable[[Any, str], tuple[bool, str]] | None = None,
        ssl_version: Any = None,
        password: Any = None,
        verify: bool = True,
    ) -> None:
        """Use TLS for some hosts, with their certificates verified.

        Args:
            for_hosts: tuples of host and port.
            key_file: the private key of `cert_file`, if that has none.
            cert_file: our own certificate.
            ca_certs: trusted authorities instead of the system's.
            cert_validator: called with the broker's certificate and the host; returns whether it is accepted, and why
                not.
            ssl_version: ignored, except that `ssl.PROTOCOL_TLSv1_2` forbids TLS 1.3.
            password: of the key.
            verify: whether to verify the certificate.
        """
        for host_and_port in for_hosts:
            self._ssl[host_and_port] = {
                "key_file": key_file,
                "cert_file": cert_file,
                "ca_certs": ca_certs,
                "cert_validator": cert_validator,
                "ssl_version": ssl_version,
                "password": password,
                "verify": verify,
            }

    def get_ssl(self, host_and_port: HostAndPort | None = None) -> dict[str, Any] | None:
        """Return the TLS settings of a host, by default the current one."""
        return self._ssl.get(host_and_port or self.current_host_and_port or ("", 0))
