"""The transport: listeners, and a link of stompy that carries the frames.

A transport can be started again when its session has ended. Lock (a leaf): the condition guards `connected` and the
current session.

| thread | does here | may block on |
|---|---|---|
| the link's reader and heartbeat thread | notes changes of the state, queues calls of listeners | nothing |
| `stompy-compat-<number>-dispatcher`, or one that `override_threading` makes | calls listeners | user code |
"""

from __future__ import annotations

import codecs
import inspect
import itertools
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import stompy.compat.log as log
import stompy.compat.waiting as waiting
from stompy.compat import exception as exception
from stompy.compat.exception import ConnectFailedException, NotConnectedException, translated
from stompy.compat.listener import ConnectionListener, Publisher
from stompy.compat.utils import *  # noqa: F403 - programs import them from here
from stompy.compat.utils import (
    HEARTBEAT_FRAME,
    Frame,
    ReceivedMessage,
    clean_headers,
    default_create_thread,
    encode,
    header_pairs,
    is_eol_default,
    is_localhost,
    length,
)
from stompy.connection.routing import Dispatcher
from stompy.deadline import Deadline
from stompy.dialects.brokers import dialect_of, leniency_of
from stompy.errors import ConfigurationError, HeartbeatTimeoutError, StompError, TlsError
from stompy.forks import Owner, forks, when_forked
from stompy.frames.encoder import Encoded
from stompy.frames.frame import Frame as WireFrame
from stompy.frames.heads import Row, Run, frames_of
from stompy.link.link import Link, RawLink
from stompy.link.settings import LinkSettings, Timeouts
from stompy.locks import SafeEvent, make_condition
from stompy.protocol.client import error_message
from stompy.protocol.heartbeat import DEFAULT_TOLERANCE
from stompy.protocol.unchecked import UncheckedClient
from stompy.transport.address import host_port
from stompy.transport.base import Dialer
from stompy.transport.base import Transport as Stream
from stompy.transport.tcp import TcpDialer, TcpOptions, TcpTransport
from stompy.world import random, socket, threading

if TYPE_CHECKING:
    from stompy.transport.tls.transport import TlsTransport

HostAndPort = tuple[str, int]

_HANDOVER = 5.0
"""Seconds that a new session waits for the listeners of the one before."""

_numbers = itertools.count(1)

_NO_ARGUMENT = frozenset(("disconnected", "disconnecting", "heartbeat", "heartbeat_timeout"))
_OLD_ARGUMENTS = frozenset(("connected", "before_message", "message", "receipt", "error", "receiver_loop_completed"))
"""Events whose methods took headers and body before stomp.py 7."""
_EVENTS = tuple(name.removeprefix("on_") for name in vars(ConnectionListener) if name.startswith("on_"))


class BaseTransport(Publisher):
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
        codecs.lookup(encoding)
        self.listeners: dict[str, Any] = {}
        self.current_host_and_port: HostAndPort | None = None
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

    # Listeners, called in the order of their names.

    def set_listener(self, name: str, listener: Any) -> None:
        """Set a named listener.

        Raises:
            TypeError: a method of it takes arguments that no release of stomp.py has.
        """
        assert listener is not None
        old = [event for event in _EVENTS if _takes_old_arguments(listener, event)]
        if old:
            warnings.warn(
                f"{type(listener).__name__}.on_{old[0]} takes headers and body, as before stomp.py 7: write "
                f"def on_{old[0]}(self, frame), with headers, body = frame.headers, frame.body",
                DeprecationWarning,
                stacklevel=3,
            )
            listener = _OldListener(listener, old)
        self.listeners[name] = listener

    def remove_listener(self, name: str) -> None:
        """Remove a listener."""
        del self.listeners[name]

    def get_listener(self, name: str) -> Any:
        """Return a listener, or `None`."""
        listener = self.listeners.get(name)
        return listener.listener if isinstance(listener, _OldListener) else listener

    def process_frame(self, f: Frame, frame_str: bytes | None) -> None:
        """Call the listeners with a frame that has arrived."""
        if f.cmd == "MESSAGE":
            listeners = sorted(self.listeners.items())
            self._call(listeners, "on_before_message", f)
            self._call(listeners, "on_message", f)
        elif (event := str(f.cmd).lower()) in ("connected", "message", "receipt", "error", "heartbeat"):
            self.notify(event, f)
        else:
            log.warning("unknown response frame type: '%.200s' (frame length was %d)", event, length(frame_str))

    def notify(self, frame_type: str, frame: Frame | None = None) -> None:
        """Call the listeners; their exceptions are logged, and `SystemExit` also ends the session."""
        argument = self.current_host_and_port if frame_type == "connecting" else frame
        arguments = () if frame_type in _NO_ARGUMENT else (argument,)
        self._call(sorted(self.listeners.items()), f"on_{frame_type}", *arguments)

    def _call(self, listeners: list[tuple[str, Any]], name: str, *arguments: Any) -> None:
        before = forks()
        # The methods are looked up at each event, as programs replace them, and listeners may be mocks.
        for _, listener in listeners:
            try:
                callback = getattr(listener, name, None)
                if callback:
                    callback(*arguments)
            except (SystemExit, Exception) as error:
                if forks() != before:
                    raise  # in a child that the listener has forked
                if isinstance(error, SystemExit):
                    log.info("%s exited: the session ends", name)
                    self.disconnect_socket()
                else:
                    log.error("%s of a listener raised", name, exc_info=True)

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
        """Note the purpose of a receipt; `None` forgets it."""
        if value:
            self._receipts[str(receipt_id)] = value
        else:
            self._receipts.pop(str(receipt_id), None)

    def take_receipt(self, receipt_id: str | None) -> str | None:
        """Return the purpose of a receipt, and forget it."""
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
                content_length="content-length" in frame.headers,
            )
            # After DISCONNECT, the session ends with its receipt, or when the broker closes the connection.
            ending = session.link.expect_end if frame.cmd == "DISCONNECT" else None
            session.link.writer.write(data, on_written=ending)
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


class _OldListener:
    """A listener some of whose methods take headers and body."""

    def __init__(self, listener: Any, events: list[str]) -> None:
        self.listener = listener
        self._old = frozenset(f"on_{event}" for event in events)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.listener, name)
        return partial(self._call, method) if name in self._old else method

    def _call(self, method: Callable[[Any, Any], Any], frame: Frame | None) -> None:
        changed = method(*(None, None) if frame is None else (frame.headers, frame.body))
        # Of those methods on_before_message alone returned something: headers and body for the next ones.
        if frame is not None and isinstance(changed, tuple) and len(changed) == 2:
            frame.headers, frame.body = changed


def _takes_old_arguments(listener: Any, event: str) -> bool:
    method = getattr(listener, f"on_{event}", None)
    expected = 0 if event in _NO_ARGUMENT else 1
    if method is None or _takes(method, expected):
        return False
    if event in _OLD_ARGUMENTS and _takes(method, 2):
        return True
    names = "headers, body = frame.headers, frame.body" if event != "connecting" else "one tuple (host, port)"
    what = f"takes one argument, the frame: def on_{event}(self, frame), with {names}"
    name = f"{type(listener).__name__}.on_{event}"
    raise TypeError(f"{name} {what if expected else 'takes no argument'}, since stomp.py 7")


def _takes(method: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(method).bind(*[None] * count)
    except ValueError:
        return True  # built in
    except TypeError:
        return False
    return True


class Session:
    """A link and its dispatcher; the owner of the link.

    Args:
        transport: whose listeners are called.
        stream: open.
        address: of the broker, for error messages.
    """

    def __init__(self, transport: BaseTransport, stream: Stream, address: str) -> None:
        self._transport = transport
        self._name = f"compat-{next(_numbers)}"
        self.protocol = UncheckedClient(leniency_for=leniency_of)
        settings = LinkSettings(timeouts=Timeouts(heartbeat_tolerance=transport.heartbeat_tolerance))
        self.link = RawLink(stream, self.protocol, settings, self, name=self._name, address=address)
        self.refusal: str | None = None
        """The error message of the broker, if it refused the session."""
        self.end_reason: StompError | None = None
        self.done = SafeEvent()
        """Set after the last call of a listener."""
        self._dispatcher = Dispatcher(f"stompy-{self._name}-dispatcher")
        self._ident = 0
        self._owner = Owner("connection", "connect again after a fork")
        when_forked(self)

    def after_fork(self) -> None:
        """End this copy in a forked child, without touching the parent's session."""
        self.link.after_fork(self._owner.error())
        self.done.set()

    def start(self) -> Any:
        """Start the threads, and return that of the listeners, as far as it is known."""
        create = self._transport.create_thread_fc
        self.call_soon(self._note_thread)
        thread = None
        if create is default_create_thread:
            self._dispatcher.start()
        else:
            thread = create(self._dispatcher.run)
        self.link.start()
        return thread

    def _note_thread(self) -> None:
        self._ident = threading.get_ident()

    def is_current(self) -> bool:
        """Return whether the caller is a listener of this session."""
        return threading.get_ident() == self._ident

    # Called by the link.

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a function on the dispatcher."""
        self._dispatcher.put(function)

    def messages(self, link: Link, rows: Sequence[Row]) -> None:
        """Queue messages."""
        size = sum([len(body) + (len(head) if isinstance(head, bytes) else head.size) for head, _, body in rows])
        link.flow.added(len(rows), size)
        self.call_soon(partial(self._deliver, link, rows, size))

    def _deliver(self, link: Link, rows: Sequence[Row], size: int) -> None:
        grammar, process, encoding = link.protocol.grammar, self._transport.process_frame, self._transport.encoding
        try:
            for head, _, body in rows:
                shown = body if encoding is None else body.decode(encoding, "replace")
                process(ReceivedMessage(head, grammar, shown), body)
        finally:
            link.flow.removed(len(rows), size)

    def receipts(self, link: Link, frames: WireFrame | Run) -> None:
        """Queue receipts; that of DISCONNECT ends the session."""
        for frame in frames_of([frames]):
            size = frame.headers.size
            link.flow.added(1, size)
            self._queue(frame)
            self.call_soon(partial(link.flow.removed, 1, size))
            if self._transport.take_receipt(frame.headers.get("receipt-id")) == "DISCONNECT":
                self._transport.session_changed(self, connected=False)
                link.close()

    def control(self, link: RawLink, frame: WireFrame) -> None:
        """Note that the broker accepted or refused the session, and queue the frame."""
        self._queue(frame)
        if frame.command == "CONNECTED":
            idle = dialect_of(link.protocol.server).drops_idle
            if idle is not None and not self.protocol.offers_heartbeats:
                log.warning("%s drops clients that are idle for %g s: set heartbeats=(ms, ms)", link.address, idle)
            self._transport.session_changed(self, connected=True)
        elif frame.command == "ERROR" and not self.protocol.negotiated:
            self.refusal = error_message(frame)
            self._transport.session_changed(self, connected=False)
            link.fail_by_error(frame)

    def _queue(self, frame: WireFrame) -> None:
        encoding = self._transport.encoding
        body = frame.body if encoding is None else frame.body.decode(encoding, "replace")
        received = Frame(frame.command, dict(frame.headers), body)
        self.call_soon(partial(self._transport.process_frame, received, frame.body))

    def heartbeat(self, *, sent: bool) -> None:
        """Queue the calls for a heartbeat."""
        if sent:
            self.call_soon(partial(self._transport.notify, "send", Frame(None, {}, None)))
        else:
            self.call_soon(partial(self._transport.process_frame, HEARTBEAT_FRAME, b"\n"))

    def stalled(self, link: Link, seconds: float) -> None:
        """Called when the listeners are slow, of which stomp.py says nothing."""

    def ended(self, link: Link, reason: StompError | None) -> None:
        """Queue the calls for the end of the session."""
        if reason is not None:
            log.warning("the session with %s ended: %s", link.address, reason)
        self.end_reason = reason
        self._transport.session_changed(self, connected=False)
        events = ["disconnected", "receiver_loop_completed"]
        if isinstance(reason, HeartbeatTimeoutError):
            events.append("heartbeat_timeout")
        calls = [partial(self._transport.notify, event) for event in events]
        self._dispatcher.stop([*calls, self.done.set])


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
        settings = {name: value for name, value in locals().items() if name not in ("self", "for_hosts")}
        self._ssl |= dict.fromkeys(for_hosts, settings)

    def get_ssl(self, host_and_port: HostAndPort | None = None) -> dict[str, Any] | None:
        """Return the TLS settings of a host, by default the current one."""
        return self._ssl.get(host_and_port or self.current_host_and_port or ("", 0))


def tcp_options(keepalive: Any, bind_host_port: tuple[str, int] | None) -> TcpOptions:
    """Return the options for `keepalive`, `True` or a tuple of the system and its values, and a local address."""
    options: dict[str, Any] = {}
    if isinstance(keepalive, tuple):
        # ("linux", idle, interval, probes) or ("mac", interval)
        names = ("idle", "interval", "probes") if keepalive[0] != "mac" else ("interval",)
        values = zip(names, keepalive[1:], strict=False)
        options = {f"keepalive_{name}": value for name, value in values if value is not None}
    if bind_host_port:
        options["source"] = socket.gethostbyname(bind_host_port[0])
        options["source_port"] = bind_host_port[1]
    return TcpOptions(**options)


class HostDialer:
    """Connects to a host, over TLS if there are settings for it.

    Args:
        host_and_port: of the broker.
        options: of TCP.
        ssl_params: as `set_ssl` stores them.
    """

    def __init__(self, host_and_port: tuple[str, int], options: TcpOptions, ssl_params: dict[str, Any] | None) -> None:
        self._tcp = TcpDialer(host_and_port[0], int(host_and_port[1]), options=options)
        self._ssl_params = ssl_params

    @property
    def address(self) -> str:
        """The host and the port."""
        return self._tcp.address

    @property
    def host(self) -> str:
        """The host as given."""
        return self._tcp.host

    def dial(self, deadline: Deadline) -> TcpTransport | TlsTransport:
        """Return an open connection.

        Raises:
            ConfigurationError: a setting cannot be used.
            ConnectError: the host cannot be reached, or its certificate was rejected.
        """
        if self._ssl_params is None:
            return self._tcp.dial(deadline)
        # Imported late, as `ssl` is slow to import.
        from stompy.transport.tls.transport import TlsDialer

        transport = TlsDialer(self._tcp, _context(self._ssl_params)).dial(deadline)
        validator = self._ssl_params["cert_validator"]
        if validator is not None:
            ok, reason = validator(transport.tls.getpeercert(), self.host)
            if not ok:
                transport.close()
                message = f"the certificate was rejected by cert_validator: {reason}"
                raise TlsError(message, reason="untrusted", address=self.address)
        return transport


def _context(params: dict[str, Any]) -> Any:
    from stompy.transport.tls.context import client_context
    from stompy.transport.tls.options import Tls

    ssl = sys.modules[__name__].ssl  # or what a program has put in its place
    verify, cert = params["verify"], params["cert_file"]
    tls = Tls(
        ca=(params["ca_certs"] or None) if verify else None,
        cert=cert or None,
        key=(params["key_file"] or None) if cert else None,
        password=params["password"],
        insecure_skip_verification=not verify,
    )
    context = client_context(tls, make=ssl.create_default_context)
    if params["ssl_version"] == getattr(ssl, "PROTOCOL_TLSv1_2", None):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def __getattr__(name: str) -> Any:
    """Return `ssl` and the constant of it that stomp.py has here; imported late, as it is slow to import."""
    if name not in ("ssl", "DEFAULT_SSL_VERSION"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import ssl

    return ssl if name == "ssl" else ssl.PROTOCOL_TLS_CLIENT
