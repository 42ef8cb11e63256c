"""What holds for any bytes towards the whole client and the whole broker, each over a socket pair.

The first stream of an input choose the setting; the rest is what the other end says::

    byte 0   version (modulo 3), whether the handshake is done properly first, and limits: usual or tight ones
    byte 1    size of the writes: 0 whole, else so many bytes each
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from dataclasses import asdict
from unittest import mock

import stompy
from stompy.broker import BrokerLimits
from stompy.connection.config import Config, addresses_of, versions_of
from stompy.connection.connection import Connection
from stompy.connection.listeners import DisconnectedEvent, Listener
from stompy.connection.message import Message
from stompy.connection.subscription import Subscription
from stompy.connection.subscriptions import ActiveSubscription
from stompy.deadline import Deadline
from stompy.errors import ConnectError, StompError
from stompy.frames.frame import Frame
from stompy.frames.grammar import DEFAULT_LIMITS, FrameLimits
from stompy.transport.sockets import SocketTransport
from tests.fuzz import target
from tests.support.codec import cut
from tests.support.memory_broker import broker_over
from tests.support.reference import PROFILES, Reference

VERSIONS = ("1.0", "1.1", "1.2")
TIGHT = FrameLimits(max_headers=4, max_header_line=40, max_header_block=120, max_body=30, max_first_body=20)
WITHIN = 20.0
"""Seconds after which something hangs."""
PREFIX = 2


class _Faults(logging.Handler):
    """Keeps what the package logs as its own fault."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(logging.Formatter().format(record))


@contextlib.contextmanager
def faultless() -> Iterator[None]:
    """Assert that no fault of our own is logged and no thread is left."""
    handler = _Faults()
    logger = logging.getLogger("stompy")
    before = set(threading.enumerate())
    logger.addHandler(handler)
    try:
        yield
        for thread in set(threading.enumerate()) - before:
            thread.join(WITHIN)
            assert not thread.is_alive(), thread.name
    finally:
        logger.removeHandler(handler)
    assert not handler.records, handler.records


def transports() -> tuple[SocketTransport, SocketTransport]:
    """Return the two ends of a socket pair."""
    ours, theirs = socket.socketpair()
    return SocketTransport(ours, peer="ours"), SocketTransport(theirs, peer="theirs")


class _Handed:
    """Dials what it was given."""

    address = "peer:1"
    host = "peer"

    def __init__(self, transport: SocketTransport) -> None:
        self._transport = transport

    def dial(self, deadline: Deadline) -> SocketTransport:
        return self._transport


class _Hearing(Listener):
    """Reads everything it is given, as user code does."""

    def __init__(self) -> None:
        self.ends = 0

    def on_message(self, message: Message) -> None:
        look_at(message)

    def on_receipt(self, frame: Frame) -> None:
        repr(frame)

    def on_error(self, frame: Frame) -> None:
        repr(frame)

    def on_disconnected(self, event: DisconnectedEvent) -> None:
        assert event.reason is None or isinstance(event.reason, StompError), event
        self.ends += 1


def look_at(message: Message) -> None:
    """Use a message in every way; only errors of ours may come of it."""
    repr(message)
    _ = (message.headers.pairs, message.destination, message.message_id, message.redelivered)
    with contextlib.suppress(StompError):
        assert isinstance(message.text, str)
    with contextlib.suppress(StompError):
        message.json()
    with contextlib.suppress(StompError):
        message.ack()


def check_client(data: bytes) -> None:
    """Assert that a client bears whatever its broker says, ends with an error of ours, and leaves nothing behind."""
    if len(data) < PREFIX:
        return
    version = VERSIONS[data[0] % 3]
    properly = data[0] // 3 % 2 == 0
    with faultless():
        ours, theirs = transports()
        try:
            if properly:
                theirs.sendall(_connected(version), Deadline(WITHIN))
            _converse(ours, theirs, version, _limits(data[0]), data, properly=properly)
        finally:
            theirs.close()


def _limits(byte: int) -> FrameLimits:
    return TIGHT if byte // 6 % 2 else DEFAULT_LIMITS


def _connected(version: str) -> bytes:
    return b"CONNECTED\n\n\0" if version == "1.0" else f"CONNECTED\nversion:{version}\n\n\0".encode()


def _say(transport: SocketTransport, data: bytes) -> None:
    stream = data[PREFIX:]
    # Not in too many parts: before the other end reads, each takes a place in the kernel's short queue.
    for part in cut(stream, max(data[1] or len(stream), len(stream) // 100, 1)):
        transport.sendall(part, Deadline(WITHIN))


def _converse(
    ours: SocketTransport, theirs: SocketTransport, version: str, limits: FrameLimits, data: bytes, *, properly: bool
) -> None:
    hearing = _Hearing()
    config = Config(
        addresses=addresses_of("stomp://peer"),
        versions=versions_of(version),
        heartbeat=(0, 0),
        timeouts=stompy.Timeouts(connect=WITHIN),
        limits=stompy.Limits(**asdict(limits)),
        name="fuzz",
    )
    conn = Connection(config, [hearing])
    if not properly:
        _say(theirs, data)
        theirs.shutdown_write()
    try:
        with mock.patch("stompy.connection.link_manager.dialer_of", return_value=_Handed(ours)):
            conn._open()
    except ConnectError:
        if properly:
            raise
        return
    table = conn._subscriptions
    handled = ActiveSubscription(table, id="1", destination="/queue/a", ack="client", handler=look_at)
    taken = ActiveSubscription(table, id="2", destination="/queue/b", ack="auto")
    for subscription in (handled, taken):
        with contextlib.suppress(StompError):
            table.add(subscription, timeout=0, announce=False)
    if properly:
        with contextlib.suppress(StompError):
            _say(theirs, data)
        theirs.shutdown_write()
    with contextlib.suppress(StompError):
        for message in Subscription(taken):
            look_at(message)
    assert conn._links.link.ended.wait(WITHIN)
    conn.close(timeout=WITHIN)
    assert hearing.ends == 1


class _OneByOne:
    """A listener that is handed its dialers."""

    address = "pair"

    def __init__(self) -> None:
        self._waiting: list[SocketTransport] = []
        self._closed = False
        self._changed = threading.Condition()

    def accept(self) -> SocketTransport | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return self._waiting.pop(0) if self._waiting else None

    def dial(self) -> SocketTransport:
        ours, theirs = transports()
        with self._changed:
            self._waiting.append(theirs)
            self._changed.notify()
        return ours

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()


def check_broker(data: bytes) -> None:
    """Assert that a broker bears whatever a client says, answers by the rules, and goes on serving another one."""
    if len(data) < PREFIX:
        return
    version = VERSIONS[data[0] % 3]
    properly = data[0] // 3 % 2 == 0
    listener = _OneByOne()
    broker = broker_over(
        listener,
        limits=BrokerLimits(**asdict(_limits(data[0])), connect_timeout=WITHIN, linger=WITHIN, max_queues=8),
        heartbeat=(0, 0),
    )
    with faultless(), broker:
        stranger, friend = listener.dial(), listener.dial()
        try:
            _check_conversation(stranger, version, data, properly=properly)
            _check_service(friend)
        finally:
            stranger.close()
            friend.close()


def _check_conversation(stranger: SocketTransport, version: str, data: bytes, *, properly: bool) -> None:
    if properly:
        hello = "CONNECT\nhost:h\n\n\0" if version == "1.0" else f"CONNECT\naccept-version:{version}\nhost:h\n\n\0"
        stranger.sendall(hello.encode(), Deadline(WITHIN))
    with contextlib.suppress(StompError):  # who was refused may find the stream ended
        _say(stranger, data)
    stranger.shutdown_write()
    answer = b"".join(iter(lambda: stranger.recv(Deadline(WITHIN)), b""))
    commands = spoken(answer)
    assert commands.count("CONNECTED") <= 1
    assert "CONNECTED" not in commands[1:]
    assert "ERROR" not in commands[:-1], commands


def spoken(answer: bytes) -> list[str]:
    """Return the commands of what a broker said, all of it read by the version it names."""
    if not answer.strip(b"\n"):
        return []
    first, rest = answer[: answer.index(b"\0") + 1], answer[answer.index(b"\0") + 1 :]
    frames, refusal = Reference("handshake").decode(first if first.startswith(b"CONNECTED") else answer)
    assert refusal is None, (refusal, answer)
    if first.startswith(b"CONNECTED"):
        version = dict(frames[0][1])["version"]
        more, refusal = Reference(version).decode(rest)
        assert refusal is None, (refusal, rest)
        frames += more
    return [command for command, _, _ in frames]


def _check_service(friend: SocketTransport) -> None:
    friend.sendall(
        b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
        b"SUBSCRIBE\nid:f\ndestination:/topic/f\n\n\0SEND\ndestination:/topic/f\nreceipt:r\n\nhello\0",
        Deadline(WITHIN),
    )
    answer, deadline = b"", Deadline(WITHIN)
    while answer.count(b"\0") < 3:
        data = friend.recv(deadline)
        assert data, answer
        answer += data
    assert sorted(spoken(answer)) == ["CONNECTED", "MESSAGE", "RECEIPT"]


def seeds() -> Iterator[bytes]:
    """Return an input for every case of the codec, and some conversations."""
    for name, stream in target.seeds():
        profile = name.rpartition("-")[2]
        version = profile if profile in VERSIONS else "1.2"
        assert profile in PROFILES or profile == "draft"
        first = VERSIONS.index(version) + 3 * (profile == "handshake")
        yield bytes((first, 0)) + stream[target.PREFIX :]
        yield bytes((first + 6, 7)) + stream[target.PREFIX :]
    for stream in CONVERSATIONS:
        for first in range(12):
            yield bytes((first, 0)) + stream


CONVERSATIONS = (
    b"MESSAGE\ndestination:/queue/a\nmessage-id:1\nsubscription:1\nack:x\n\nhello\0\n\nRECEIPT\nreceipt-id:r\n\n\0",
    b'MESSAGE\ndestination:/queue/b\nmessage-id:1\nsubscription:2\ncontent-type:application/json\n\n{"a":1}\0ERROR\n\n\0',
    b"MESSAGE\ndestination:x\nmessage-id:1\nsubscription:none\ncontent-type:text/plain;charset=nil\n\n\xff\0",
    b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\n\n\0SEND\ndestination:/queue/a\nreceipt:r\n\nhello\0\n\n"
    b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:/queue/a\ntransaction:t\n\nx\0COMMIT\ntransaction:t\n\n\0",
    b"SUBSCRIBE\nid:1\ndestination:/topic/a\n\n\0SEND\ndestination:/topic/a\nk:a\\nb\n\nx\0UNSUBSCRIBE\nid:1\n\n\0"
    b"DISCONNECT\nreceipt:bye\n\n\0",
    b"CONNECT\naccept-version:1.0,1.1,1.2\nhost:h\nlogin:u\npasscode:p\nheart-beat:1,1\n\n\0SEND\ndestination:q\n\n\0",
    b"CONNECTED\nversion:1.2\nheart-beat:1,1\nserver:x/1\n\n\0\n\n\nERROR\nmessage:no\n\nbody\0",
    b"CONNECTED\nversion:1.1\n\n\0CONNECTED\nversion:1.1\n\n\0",
    b"ERROR\nmessage:no\nversion:9.9\n\nno common version\0",
)
