"""Nothing that a caller passes adds a header, a frame or a NUL to what goes out; so it is on the broker's side.

What went out is read by the reference decoder, which shares nothing with the encoder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stompy
from stompy.broker import Broker
from stompy.connection.message import received
from stompy.connection.subscriptions import ActiveSubscription
from stompy.deadline import Budget, Deadline
from stompy.frames.frame import Headers
from stompy.frames.grammar import Version
from stompy.protocol.client import ClientProtocol
from tests.hostile.script import WITHIN
from tests.support.memory import MemoryDialer, MemoryListener
from tests.support.memory_broker import broker_over
from tests.support.rawclient import RawClient
from tests.support.reference import Decoded, Reference

VERSIONS = ("1.0", "1.1", "1.2")

# Texts that would do harm: line ends, separators, escapes, NUL, the words of the protocol, and what looks like them.
_pieces = st.sampled_from(
    ["\n", "\r", "\r\n", "\0", ":", "\\", "\\n", "\\c", "\\r", "\\0", "\n\n\0SEND\n", "x:y", "receipt", "admin", " ",
     "\t", "\u0085", "\u2028", "\ufeff", "\x7f", "\x1b[2J", "é", "𝄞", "\ud800", "a", "content-length:0", "passcode"]
)  # fmt: skip
texts = st.lists(_pieces, max_size=5).map("".join) | st.text(max_size=8)
maps = st.dictionaries(texts, texts, max_size=3)
bodies = st.binary(max_size=20) | texts


class Taps:
    """A connection whose bytes are kept."""

    def __init__(self, conn: stompy.Connection, version: str) -> None:
        self.conn = conn
        self.version = version
        self._link = conn._links.link
        self._kept: list[bytes] = []
        self._usual = self._link.transport.sendall
        self._link.transport.sendall = self._keep  # type: ignore[method-assign]

    def _keep(self, data: bytes, deadline: Budget) -> None:
        self._kept.append(bytes(data))

    def frames(self) -> list[Decoded]:
        """Return the frames that went out since the last time."""
        data = b"".join(self._kept)
        self._kept.clear()
        frames, refusal = Reference(self.version).decode(data)
        assert refusal is None, (refusal, data)
        assert data.count(b"\0") >= len(frames)
        return frames

    def close(self) -> None:
        self._link.transport.sendall = self._usual  # type: ignore[method-assign]
        self.conn._closing.abandon()
        self.conn.close(timeout=WITHIN)


@pytest.fixture(params=VERSIONS, scope="module")
def taps(request: pytest.FixtureRequest) -> Iterator[Taps]:
    with Broker(heartbeat=(0, 0)) as broker:
        conn = stompy.connect(
            broker.url, versions=request.param, heartbeat=(0, 0), timeouts=stompy.Timeouts(receipt=0.001)
        )
        tapped = Taps(conn, request.param)
        yield tapped
        tapped.close()


def said(taps: Taps, act: Callable[[], object], *commands: str) -> list[Decoded]:
    """Do something, which may be refused; return the frames that went out, whose commands are among the expected."""
    with contextlib.suppress(
        stompy.LocalProtocolError, stompy.ConfigurationError, stompy.ReceiptTimeoutError, stompy.AckError
    ):
        act()
    frames = taps.frames()
    assert [command for command, _, _ in frames if command not in commands] == []
    assert len(frames) <= len(commands)
    return frames


def check_headers(frame: Decoded, expected: dict[str, str], allowed: set[str]) -> None:
    """Assert that a frame has the headers that were asked for and no others."""
    pairs = frame[1]
    names = [name for name, _ in pairs]
    assert len(set(names)) == len(names), pairs
    for name, value in pairs:
        if name in expected:
            assert value == expected[name], (name, value, expected[name])
        else:
            assert name in allowed, (name, pairs)


COMMON = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)


def as_read(taps: Taps, value: str) -> str:
    return value.strip(" ") if taps.version == "1.0" else value


def read_back(taps: Taps, headers: dict[str, str]) -> dict[str, str]:
    return {name: as_read(taps, value) for name, value in headers.items()}


@COMMON
@given(destination=texts, body=bodies, headers=maps, content_type=st.none() | texts, receipt=st.booleans())
def test_a_send_is_one_frame_with_the_headers_it_was_given(
    taps: Taps, destination: str, body: bytes | str, headers: dict[str, str], content_type: str | None, receipt: bool
) -> None:
    frames = said(
        taps,
        lambda: (taps.conn.send_async if receipt else taps.conn.send)(
            destination, body, headers=headers, content_type=content_type
        ),
        "SEND",
    )
    for frame in frames:
        wanted = read_back(taps, {"destination": destination, **headers})
        if content_type is not None:
            wanted["content-type"] = as_read(taps, content_type)
        given_type = frame[1][1][1] if len(frame[1]) > 1 else ""
        if content_type is not None and given_type.startswith(content_type):
            wanted.pop("content-type")  # its charset may have been added
        check_headers(frame, wanted, {"content-type", "content-length", "receipt"})
        if isinstance(body, bytes):
            assert frame[2] == body


@COMMON
@given(destination=texts, identity=texts, headers=maps, ack=texts | st.just("client"))
def test_subscribing_is_one_frame_each_with_the_headers_it_was_given(
    taps: Taps, destination: str, identity: str, headers: dict[str, str], ack: Any
) -> None:
    frames = said(
        taps,
        lambda: taps.conn.subscribe(destination, id=identity, ack=ack, headers=headers),
        "SUBSCRIBE",
        "UNSUBSCRIBE",
    )
    for frame in frames:
        wanted = read_back(taps, {**headers, "destination": destination, "id": identity, "ack": ack})
        check_headers(frame, wanted, {"receipt"})


@COMMON
@given(destination=texts, body=bodies, headers=maps)
def test_a_transaction_is_its_own_frames(
    taps: Taps, destination: str, body: bytes | str, headers: dict[str, str]
) -> None:
    def act() -> None:
        with taps.conn.transaction() as transaction:
            transaction.send(destination, body, headers=headers)

    frames = said(taps, act, "BEGIN", "SEND", "BEGIN", "ABORT", "ABORT")  # nobody confirms, so that it is aborted
    for frame in frames:
        wanted = read_back(taps, {**headers, "destination": destination}) if frame[0] == "SEND" else {}
        check_headers(frame, wanted, {"transaction", "receipt", "content-type", "content-length"})


@COMMON
@given(token=texts, subscription=texts, nack=st.booleans())
def test_an_ack_names_what_the_broker_sent_and_nothing_more(
    taps: Taps, token: str, subscription: str, nack: bool
) -> None:
    conn = taps.conn
    source = ActiveSubscription(conn._subscriptions, id="1", destination="/q", ack="client-individual")
    headers = Headers({"ack": token, "message-id": token, "subscription": subscription})
    message = received(source.delivery_on(conn._links.link, conn._acker), headers, b"")
    for out in said(taps, message.nack if nack else message.ack, "ACK", "NACK"):
        values = {"id": token, "message-id": token, "subscription": subscription}
        check_headers(out, read_back(taps, values), set())


@COMMON
@given(login=texts, passcode=texts, host=texts, headers=maps)
@pytest.mark.parametrize("version", VERSIONS)
def test_connect_is_one_frame_with_the_headers_it_was_given(
    version: str, login: str, passcode: str, host: str, headers: dict[str, str]
) -> None:
    client = ClientProtocol(versions=(Version(version),))
    try:
        data = client.connect(host=host, login=login, passcode=passcode, headers=headers)
    except stompy.LocalProtocolError:
        return
    ((command, pairs, body),), refusal = Reference("handshake").decode(data)
    assert (command, body, refusal) == ("CONNECT", b"", None)
    own = {"accept-version": version, "host": host, "login": login, "passcode": passcode}
    assert dict(pairs) == {**own, **headers}
    assert len(pairs) == len(own) + len(headers)


# The broker's side


class Pair:
    """A sender and a receiver at one broker, each in a version of its own."""

    def __init__(self, sending: str, receiving: str) -> None:
        listener = MemoryListener()
        self._broker = broker_over(listener, heartbeat=(0, 0)).start()
        self._dialer = MemoryDialer(listener)
        self.sending, self.receiving = sending, receiving

    def client(self, version: str) -> RawClient:
        client = RawClient(self._dialer.dial(Deadline(WITHIN)), version)
        client.connect()
        return client

    def close(self) -> None:
        self._broker.close()


@pytest.fixture(scope="module", params=[(one, other) for one in VERSIONS for other in VERSIONS], ids="-".join)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(*request.param)
    yield made
    made.close()


def everything(client: RawClient, version: str) -> list[Decoded]:
    """Return all that the broker says to the end of the stream, by the reference decoder."""
    client.half_close()
    data = b"".join(iter(lambda: client.transport.recv(Deadline(WITHIN)), b""))
    frames, refusal = Reference(version).decode(data)
    assert refusal is None, (refusal, data)
    return frames


@settings(COMMON, max_examples=40)
@given(destination=texts, headers=maps, identity=texts, receipt=texts, body=st.binary(max_size=20))
def test_what_a_client_says_adds_nothing_to_what_another_is_told(
    pair: Pair, destination: str, headers: dict[str, str], identity: str, receipt: str, body: bytes
) -> None:
    destination = "/topic/" + destination
    with pair.client(pair.receiving) as receiver, pair.client(pair.sending) as sender:
        try:
            subscribe = receiver.encoded("SUBSCRIBE", {"destination": destination, "id": identity, "receipt": "s"})
            send = sender.encoded("SEND", {**headers, "destination": destination, "receipt": receipt}, body)
        except stompy.LocalProtocolError:
            return  # such a client cannot say so
        receiver.raw(subscribe)
        assert receiver.frame().command in ("RECEIPT", "ERROR")
        sender.raw(send)
        answers = everything(sender, pair.sending)
        assert len(answers) == 1
        assert answers[0][0] in ("RECEIPT", "ERROR")
        if answers[0][0] == "RECEIPT":
            assert len(answers[0][1]) == 1
        for command, pairs, received in everything(receiver, pair.receiving):
            assert command in ("MESSAGE", "ERROR")
            names = [name for name, _ in pairs]
            assert len(names) == len(set(names)), pairs
            if command == "MESSAGE":
                assert received == body
                own = {"destination", "subscription", "message-id", "content-length"}
                if "," in destination:  # a composite destination
                    own.add("original-destination")
                assert set(names) <= own | set(headers), (names, headers)
