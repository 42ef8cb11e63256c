"""From dialing to CONNECTED, and every way in which that fails."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from stompy.deadline import Budget, Deadline
from stompy.errors import (
    ConnectError,
    ConnectionLostError,
    ConnectRefusedError,
    ConnectTimeoutError,
    FrameTooLargeError,
    LocalProtocolError,
    RemoteProtocolError,
    TlsError,
    VersionMismatchError,
)
from stompy.frames.grammar import Version
from stompy.link.handshake import OpenedSession, open_session
from stompy.link.settings import Credentials, Limits, LinkSettings
from stompy.protocol.heartbeat import Heartbeats
from stompy.secret import Secret
from tests.support.memory import MemoryTransport, memory_pair
from tests.support.peer import WITHIN, PairDialer, Peer, wire
from tests.transport.conftest import Calling
from tests.transport.conftest import calling as calling

Ends = tuple[MemoryTransport, MemoryTransport]


@pytest.fixture
def ends() -> Ends:
    return memory_pair()


NOBODY = Credentials()
FRED = Credentials("fred", Secret("sesame"))


def opened(
    ends: Ends, answer: bytes, *, seconds: float = WITHIN, who: Credentials = NOBODY, **settings: Any
) -> OpenedSession:
    """Shake hands with a broker that answers before it is asked."""
    ends[1].sendall(answer, Deadline(WITHIN))
    chosen = LinkSettings(**{"heartbeat": (0, 0), **settings})
    return open_session(PairDialer(ends[0]), chosen, Deadline(seconds), who)


def is_dropped(ends: Ends) -> bool:
    """Whether the client let go of the stream."""
    try:
        ends[1].sendall(b"x", Deadline(0))
    except ConnectionLostError:
        return True
    return False


CONNECTED = wire("CONNECTED", {"version": "1.2", "server": "peer/1", "session": "s-7", "heart-beat": "200,400"})


# It works


@pytest.mark.requirement("CON-01", "CON-06", "CON-07", "CON-08", "CON-09", "CON-10", "CON-13", "CON-14", "HBT-02")
def test_connect_is_the_first_frame_and_says_what_it_should(ends: Ends) -> None:
    opened(ends, CONNECTED, heartbeat=(0.3, 0.1), who=FRED)
    frame = Peer(ends[1]).take_connect()
    assert frame.headers.pairs == (
        ("accept-version", "1.0,1.1,1.2"),
        ("host", "peer"),
        ("login", "fred"),
        ("passcode", "sesame"),
        ("heart-beat", "300,100"),
    )


@pytest.mark.requirement("CON-10", "CON-13", "HBT-01")
def test_connect_says_no_more_than_it_was_told(ends: Ends) -> None:
    opened(ends, CONNECTED, vhost="/", headers={"client-id": "c"})
    frame = Peer(ends[1]).take_connect()
    assert dict(frame.headers) == {"accept-version": "1.0,1.1,1.2", "host": "/", "client-id": "c"}


@pytest.mark.requirement("CON-20", "HBT-03", "HBT-05", "HBT-06")
def test_connected_gives_the_session(ends: Ends) -> None:
    session = opened(ends, CONNECTED, heartbeat=(0.3, 0.1))
    assert session.protocol.version is Version.V1_2
    assert (session.protocol.server, session.protocol.session) == ("peer/1", "s-7")
    assert session.protocol.heartbeats == Heartbeats(send=0.4, receive=0.2)
    assert session.connected.command == "CONNECTED"
    assert session.early == []
    assert session.address == "peer:61613"


@pytest.mark.requirement("CON-20")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_broker_chooses_the_version(ends: Ends, version: str) -> None:
    assert str(opened(ends, wire("CONNECTED", {"version": version})).protocol.version) == version


@pytest.mark.requirement("CON-22", "HBT-13")
def test_connected_without_a_version_is_of_a_1_0_broker(ends: Ends) -> None:
    session = opened(ends, wire("CONNECTED", {"session": "s", "heart-beat": "100,100"}))
    assert session.protocol.version is Version.V1_0
    assert session.protocol.heartbeats == Heartbeats()


@pytest.mark.parametrize("cut", range(0, len(CONNECTED), 7))
def test_connected_may_come_in_pieces(ends: Ends, cut: int, calling: Calling) -> None:
    dialing = calling(lambda: open_session(PairDialer(ends[0]), LinkSettings(heartbeat=(0, 0)), Deadline(WITHIN)))
    ends[1].sendall(CONNECTED[:cut], Deadline(WITHIN))
    ends[1].sendall(CONNECTED[cut:], Deadline(WITHIN))
    assert dialing.result().protocol.version is Version.V1_2


@pytest.mark.parametrize("between", [b"", b"\n", b"\r\n", b"\n\r\n\n"])
def test_frames_in_the_same_read_behind_connected_are_kept(ends: Ends, between: bytes) -> None:
    message = wire("MESSAGE", {"destination": "/q", "message-id": "1", "subscription": "1", "odd": "a\\rb"}, b"x")
    receipt = wire("RECEIPT", {"receipt-id": "r"})
    session = opened(ends, CONNECTED + between + message + between + receipt)
    assert [frame.command for frame in session.early] == ["MESSAGE", "RECEIPT"]
    assert session.early[0].headers["odd"] == "a\rb"  # read by the version agreed on


def test_an_offence_behind_connected_does_not_undo_the_session(ends: Ends) -> None:
    session = opened(ends, CONNECTED + b"NONSENSE\n\n\0")
    assert session.connected.command == "CONNECTED"
    assert isinstance(session.protocol.error, RemoteProtocolError)


def test_an_error_in_the_same_read_behind_connected_is_kept(ends: Ends) -> None:
    session = opened(ends, CONNECTED + wire("ERROR", {"message": "going down"}))
    assert [frame.headers["message"] for frame in session.early] == ["going down"]


# It does not


ACTIVEMQ = (
    b"ERROR\ncontent-type:text/plain\nmessage:User name [admin] or password is invalid.\n\n"
    b"java.lang.SecurityException: User name [admin] or password is invalid.\n\tat org.apache...\n\0\n"
)
RABBITMQ = (
    b"ERROR\nmessage:Bad CONNECT\ncontent-type:text/plain\nversion:1.0,1.1,1.2\ncontent-length:32\n\n"
    b"Access refused for user 'guest'\n\0\n"
)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ACTIVEMQ, "User name [admin] or password is invalid."),
        (RABBITMQ, "Bad CONNECT: Access refused for user 'guest'"),
        (wire("ERROR", {"message": "access refused"}), "access refused"),
        (wire("ERROR", {}, b"go away\n"), "go away"),
        (wire("ERROR"), "ERROR without an error message"),
    ],
    ids=["activemq", "rabbitmq", "message", "body", "nothing"],
)
def test_a_refusal_has_the_brokers_error_message(ends: Ends, answer: bytes, words: str) -> None:
    with pytest.raises(ConnectRefusedError) as caught:
        opened(ends, answer, who=Credentials("guest", Secret("wrong-secret")))
    assert words in str(caught.value)
    assert "peer:61613" in str(caught.value)
    assert "wrong-secret" not in str(caught.value)
    assert caught.value.frame.command == "ERROR"
    assert not caught.value.safe_to_retry
    assert is_dropped(ends)


@pytest.mark.parametrize("then", ["more", "end"])
def test_the_words_of_a_refusal_come_through_whatever_follows(ends: Ends, then: str) -> None:
    ends[1].sendall(ACTIVEMQ + (b"junk\0" if then == "more" else b""), Deadline(WITHIN))
    if then == "end":
        ends[1].shutdown_write()
    with pytest.raises(ConnectRefusedError, match="invalid"):
        open_session(PairDialer(ends[0]), LinkSettings(heartbeat=(0, 0)), Deadline(WITHIN))


@pytest.mark.parametrize(
    ("answer", "supported"),
    [
        (wire("ERROR", {"version": "1.0,1.1", "message": "Supported are 1.0 1.1"}), ("1.0", "1.1")),
        (wire("ERROR", {"version": "1.1, 2.0", "message": "Version mismatch"}), ("1.1", "2.0")),
        (wire("CONNECTED", {"session": "s"}), ("1.0",)),
    ],
)
def test_no_common_version_lists_what_either_side_has(ends: Ends, answer: bytes, supported: tuple[str, ...]) -> None:
    with pytest.raises(VersionMismatchError) as caught:
        opened(ends, answer, versions=(Version.V1_2,))
    assert caught.value.offered == ("1.2",)
    assert caught.value.supported == supported
    assert all(version in str(caught.value) for version in supported)
    assert "peer:61613" in str(caught.value)
    assert is_dropped(ends)


def test_a_silent_broker_costs_no_more_than_the_deadline(ends: Ends) -> None:
    with pytest.raises(ConnectTimeoutError, match=r"peer:61613: .* in time"):
        opened(ends, b"", seconds=0.05)
    assert is_dropped(ends)


def test_a_broker_that_stops_in_the_middle_of_connected_costs_no_more(ends: Ends) -> None:
    with pytest.raises(ConnectTimeoutError):
        opened(ends, CONNECTED[:20], seconds=0.05)
    assert is_dropped(ends)


def test_a_broker_that_only_beats_costs_no_more(ends: Ends) -> None:
    with pytest.raises(ConnectTimeoutError):
        opened(ends, b"\n\r\n\n", seconds=0.05)


def test_a_peer_that_reads_nothing_costs_no_more(calling: Calling) -> None:
    ours, theirs = memory_pair(capacity=16)
    with pytest.raises(ConnectTimeoutError):
        open_session(PairDialer(ours), LinkSettings(heartbeat=(0, 0)), Deadline(0.05))
    assert is_dropped((ours, theirs))


@pytest.mark.parametrize("said", [b"", b"CONNEC", b"\n"])
def test_a_stream_that_ends_before_connected_is_named(ends: Ends, said: bytes) -> None:
    ends[1].sendall(said, Deadline(WITHIN))
    ends[1].shutdown_write()
    with pytest.raises(ConnectError, match="peer:61613: the broker closed the connection before CONNECTED"):
        open_session(PairDialer(ends[0]), LinkSettings(heartbeat=(0, 0)), Deadline(WITHIN))
    assert is_dropped(ends)


def test_a_stream_that_breaks_before_connected_is_a_connect_error(ends: Ends) -> None:
    ends[1].shutdown()
    with pytest.raises(ConnectError, match="before CONNECTED"):
        open_session(PairDialer(ends[0]), LinkSettings(heartbeat=(0, 0)), Deadline(WITHIN))


@pytest.mark.requirement("SRV-01", "BNF-12")
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nbad\0",
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"AMQP\x00\x00\x09\x01",
        wire("MESSAGE", {"destination": "/q", "message-id": "1", "subscription": "1"}),
        wire("RECEIPT", {"receipt-id": "1"}),
        wire("CONNECT", {"accept-version": "1.2", "host": "h"}),
        wire("CONNECTED", {"version": "1.3"}),
        wire("CONNECTED", {"version": "1.2", "heart-beat": "soon"}),
        wire("CONNECTED", {"version": "1.2"}, b"a body"),
    ],
)
def test_an_answer_that_is_no_connected_is_refused_at_once(ends: Ends, answer: bytes) -> None:
    with pytest.raises(ConnectError, match=r"peer:61613: (before CONNECTED|the peer speaks (HTTP|AMQP))") as caught:
        opened(ends, answer)
    assert not isinstance(caught.value, ConnectTimeoutError)
    assert "speaks" in str(caught.value) or isinstance(caught.value.__cause__, RemoteProtocolError)
    assert is_dropped(ends)


@pytest.mark.requirement("LIM-03")
def test_an_endless_connected_is_cut_off(ends: Ends) -> None:
    with pytest.raises(ConnectError) as caught:
        opened(ends, b"CONNECTED\n" + b"x" * 200, limits=Limits(max_header_line=100))
    assert isinstance(caught.value.__cause__, FrameTooLargeError)
    assert is_dropped(ends)


@pytest.mark.parametrize(
    ("who", "settings"),
    [
        (Credentials("a\nb"), {}),
        (Credentials(None, Secret("a\0b")), {}),
        (Credentials(), {"vhost": "a\r"}),
        (Credentials(), {"headers": {"receipt": "1"}}),
        (Credentials("y"), {"headers": {"login": "x"}}),
        (Credentials(), {"headers": {"a\nb": "c"}}),
    ],
)
def test_what_connect_cannot_say_is_refused_before_anything_is_dialed(
    who: Credentials, settings: dict[str, Any]
) -> None:
    dialer = PairDialer()
    with pytest.raises(LocalProtocolError) as caught:
        open_session(dialer, LinkSettings(**settings), Deadline(WITHIN), who)
    assert dialer.dialed == 0
    assert "a\\x00b" not in str(caught.value)


def test_an_interrupted_handshake_lets_the_stream_go(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(MemoryTransport, "recv", interrupt)
    with pytest.raises(KeyboardInterrupt):
        open_session(PairDialer(ends[0]), LinkSettings(heartbeat=(0, 0)), Deadline(WITHIN))
    assert is_dropped(ends)


def test_the_passcode_is_in_no_log(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        opened(ends, CONNECTED, who=FRED)
    assert "CONNECT to peer:61613" in caplog.text
    assert "sesame" not in caplog.text


def test_an_alert_of_tls_is_known_as_that(ends: Ends) -> None:
    with pytest.raises(TlsError, match=r"write stomp\+ssl://") as caught:
        opened(ends, b"\x15\x03\x03\x00\x02\x02\x46")
    assert caught.value.reason == "needs-tls"


class RefusedWhileAsking(MemoryTransport):
    """A stream whose other end has given its answer and gone before CONNECT could be sent."""

    def sendall(self, data: bytes, deadline: Budget) -> None:
        raise ConnectionLostError("connection to peer lost: the peer accepts no more bytes", outcome="not-sent")


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"ERROR\nmessage:too many\n\n\0", ConnectRefusedError, "too many"),
        (b"", ConnectError, "takes no more bytes|closed the connection"),
        (b"\x15\x03\x03\x00\x02\x02\x46", TlsError, "speaks TLS"),
    ],
)
def test_the_reason_of_a_broker_that_does_not_even_take_connect_is_read(
    answer: bytes, kind: type[ConnectError], words: str, ends: Ends
) -> None:
    ours = RefusedWhileAsking(incoming=ends[0]._incoming, outgoing=ends[0]._outgoing, peer="peer")
    ends[1].sendall(answer, Deadline(WITHIN))
    ends[1].shutdown_write()
    with pytest.raises(kind, match=words):
        open_session(PairDialer(ours), LinkSettings(heartbeat=(0, 0)), Deadline(WITHIN))
