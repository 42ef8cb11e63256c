"""Dialing a WebSocket and accepting one: what is refused, by whom and in which words."""

from __future__ import annotations

import contextlib
import pickle
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stompy.deadline import Deadline
from stompy.errors import (
    ConfigurationError,
    ConnectError,
    ConnectionLostError,
    ConnectTimeoutError,
    SendTimeoutError,
    StompTimeoutError,
    TlsError,
    WebSocketRefusedError,
)
from stompy.transport.sockets import SocketTransport
from stompy.transport.tcp import TcpDialer, TcpListener
from stompy.transport.websocket.endpoints import AcceptedTransport, WebSocketDialer, WebSocketListener
from stompy.transport.websocket.frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    Decoder,
    close_payload,
    encode,
    parse_close,
)
from stompy.transport.websocket.handshake import END, MAX_HEAD, HandshakePolicy, WebSocketOptions, request_head
from stompy.transport.websocket.transport import WebSocketTransport
from tests.transport.conftest import Calling, ample

KEY = b"the sample nonce"
MASK = b"mask"
SECRET = "s3cr3t"


def dialer_to(server: socket.socket, headers: Any = None) -> WebSocketDialer:
    return WebSocketDialer(
        TcpDialer(*server.getsockname()),
        host="test",
        target=f"/ws?token={SECRET}",
        subprotocols=["v12.stomp"],
        options=WebSocketOptions(headers=headers),
    )


def read_head(peer: socket.socket) -> bytes:
    data = b""
    while END not in data:
        data += peer.recv(4096)
    return data


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (
            b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\n\r\nnot you\n",
            WebSocketRefusedError,
            "403 Forbidden: not you",
        ),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", ConnectError, "503"),
        (b"HTTP/1.1 429 Too Many Requests\r\n\r\n", ConnectError, "429"),
        (b"HTTP/1.1 200 OK\r\n\r\n", ConnectError, "200 OK"),
        (b"\x15\x03\x01\x00\x02\x02\x46", TlsError, "write wss:// instead of ws://"),
        (b"ERROR\nmessage:what\n\n\0", ConnectError, "speaks STOMP on this port, not WebSocket"),
        (b"", ConnectError, "closed the connection instead of answering"),
        (b"HTTP/1.1 1", ConnectError, "sent half an answer"),
        (b"HTTP/1.1 101 A\r\nX: " + b"x" * 2 * MAX_HEAD, ConnectError, "too long a head"),
    ],
)
def test_a_server_that_does_not_open_a_websocket(
    raw_server: socket.socket, calling: Calling, answer: bytes, kind: type[ConnectError], message: str
) -> None:
    dialing = calling(lambda: dialer_to(raw_server).dial(ample()))
    peer, _ = raw_server.accept()
    with peer:
        read_head(peer)
        peer.sendall(answer)
        with contextlib.suppress(OSError):  # the client may have closed the connection by then
            peer.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectError, match=message) as failed:
            dialing.result()
    assert type(failed.value) is kind
    assert failed.value.safe_to_retry is (kind is not WebSocketRefusedError)
    assert SECRET not in str(failed.value)


def test_a_server_that_does_not_answer(raw_server: socket.socket) -> None:
    with pytest.raises(ConnectTimeoutError, match="does it speak HTTP on this port"):
        dialer_to(raw_server).dial(Deadline(0.05))


def test_headers_are_asked_for_at_each_connect(raw_server: socket.socket, calling: Calling) -> None:
    tokens = iter(["first", "second"])
    dialer = dialer_to(raw_server, lambda: {"Authorization": f"Bearer {next(tokens)}", "Origin": "https://a"})
    for token in (b"first", b"second"):
        dialing = calling(lambda: dialer.dial(ample()))
        peer, _ = raw_server.accept()
        with peer:
            head = read_head(peer)
        assert b"Authorization: Bearer " + token + b"\r\nOrigin: https://a\r\n" in head
        with pytest.raises(ConnectError):
            dialing.result()


def test_headers_are_not_shown_and_survive_a_pickle() -> None:
    options = WebSocketOptions(headers={"Cookie": SECRET})
    assert SECRET not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


def refusing() -> dict[str, str]:
    raise ValueError(SECRET)


@pytest.mark.parametrize(
    ("headers", "kind", "message"),
    [
        (refusing, ConnectError, "the function for the WebSocket's headers raised ValueError"),
        (lambda: {"Cookie": "a\r\nb"}, ConfigurationError, "Cookie has a character that cannot be sent"),
        (lambda: 1, ConfigurationError, "not int"),
    ],
)
def test_a_function_for_headers_that_fails(
    raw_server: socket.socket, headers: Callable[[], Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as failed:
        dialer_to(raw_server, headers).dial(ample())
    assert failed.value.__context__ is None


@pytest.mark.parametrize("headers", [{"Host": "x"}, {"Cookie": 1}, {"a b": "c"}, "Cookie: x"])
def test_headers_that_cannot_be_sent(headers: Any) -> None:
    with pytest.raises(ConfigurationError):
        WebSocketOptions(headers=headers)


# The accepting side.


@pytest.fixture
def listener() -> Iterator[WebSocketListener]:
    policy = HandshakePolicy(subprotocols=["v12.stomp", "v11.stomp"], origins=["http://good"])
    listening = WebSocketListener(TcpListener(), policy)
    yield listening
    listening.close()


@pytest.fixture
def client(listener: WebSocketListener) -> Iterator[socket.socket]:
    assert isinstance(listener.address, tuple)
    with socket.create_connection(listener.address, timeout=20) as sock:
        yield sock


def everything(sock: socket.socket) -> bytes:
    data = b""
    while part := sock.recv(65_536):
        data += part
    return data


@pytest.mark.parametrize(
    ("request_bytes", "status", "message"),
    [
        (request_head("/", "h", KEY, headers={"Origin": "http://evil"}), 403, "the origin 'http://evil' is not among"),
        (request_head("/", "h", KEY, subprotocols=["mqtt"]), 400, "no subprotocol in common"),
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", 426, "connect by WebSocket"),
        (b"GET " + b"x" * (MAX_HEAD + 1), 431, "longer than"),
    ],
)
def test_a_handshake_that_is_refused(
    listener: WebSocketListener, client: socket.socket, request_bytes: bytes, status: int, message: str
) -> None:
    accepted = listener.accept()
    assert accepted is not None
    client.sendall(request_bytes)
    with pytest.raises(ConnectionLostError, match=message):
        accepted.do_handshake(ample())
    with pytest.raises(ConnectionLostError, match="not done"):
        accepted.sendall(b"late", ample())
    client.shutdown(socket.SHUT_WR)
    assert accepted.recv(ample()) == b""
    accepted.close()
    answer = everything(client)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert message.encode() in answer


def test_the_first_bytes_decide(listener: WebSocketListener, client: socket.socket) -> None:
    accepted = listener.accept()
    assert accepted is not None
    for byte in b"G\nET":
        client.sendall(bytes([byte]))
    received = b""
    while len(received) < 4:
        received += accepted.recv(ample())
    assert received == b"G\nET"
    accepted.sendall(b"answer", ample())
    assert client.recv(100) == b"answer"
    accepted.close()


def test_a_client_that_is_silent_is_no_websocket(listener: WebSocketListener, client: socket.socket) -> None:
    accepted = listener.accept()
    assert accepted is not None
    with pytest.raises(StompTimeoutError):
        accepted.recv(Deadline(0))
    accepted.sendall(b"too late", Deadline(0))
    assert client.recv(100) == b"too late"
    accepted.close()


@pytest.fixture
def opened(listener: WebSocketListener, client: socket.socket) -> Iterator[tuple[Any, socket.socket]]:
    """An accepted WebSocket, and the bare socket of its client."""
    accepted = listener.accept()
    assert accepted is not None
    head = request_head("/any", "h", KEY, subprotocols=["v11.stomp"], headers={"Origin": "http://good"})
    client.sendall(head + encode(TEXT, b"early", MASK))
    assert accepted.recv(ample()) == b"early"
    assert accepted.subprotocol == "v11.stomp"
    read_head(client)
    yield accepted, client
    accepted.close()


def frames_from(sock: socket.socket, count: int) -> list[tuple[int, bytes, bool]]:
    decoder = Decoder(masks=False)
    pieces: list[tuple[int, bytes, bool]] = []
    while len(pieces) < count:
        pieces += decoder.receive(sock.recv(65_536))
    return pieces


def test_a_server_answers_in_the_kind_of_message_that_its_client_sends(opened: tuple[Any, socket.socket]) -> None:
    accepted, client = opened
    accepted.sendall("é".encode(), ample())
    accepted.sendall(b"\xff", ample())  # no text
    client.sendall(encode(BINARY, b"now binary", MASK))
    assert accepted.recv(ample()) == b"now binary"
    accepted.sendall(b"a", ample())
    assert [(opcode, payload) for opcode, payload, _ in frames_from(client, 3)] == [
        (TEXT, "é".encode()),
        (BINARY, b"\xff"),
        (BINARY, b"a"),
    ]


def test_pings_are_answered_while_nobody_writes(opened: tuple[Any, socket.socket]) -> None:
    accepted, client = opened
    client.sendall(
        encode(PING, b"1", MASK) + encode(PING, b"2", MASK) + encode(PONG, b"", MASK) + encode(TEXT, b"x", MASK)
    )
    assert accepted.recv(ample()) == b"x"
    assert frames_from(client, 2) == [(PONG, b"1", True), (PONG, b"2", True)]


def test_pings_alone_do_not_stretch_the_deadline(opened: tuple[Any, socket.socket]) -> None:
    accepted, client = opened
    client.sendall(encode(PING, b"", MASK))
    with pytest.raises(StompTimeoutError):
        accepted.recv(Deadline(0.05))


@pytest.mark.parametrize(("frame", "code"), [(b"\x81\x00", 1002), (encode(TEXT, b"\xff", MASK), 1007)])
def test_a_violation_ends_in_a_named_error_and_a_close_frame(
    opened: tuple[Any, socket.socket], frame: bytes, code: int
) -> None:
    accepted, client = opened
    client.sendall(encode(TEXT, b"good", MASK) + frame)
    assert accepted.recv(ample()) == b"good"
    with pytest.raises(ConnectionLostError, match="the WebSocket peer sent"):
        accepted.recv(ample())
    [(opcode, payload, _)] = frames_from(client, 1)
    assert (opcode, parse_close(payload)[0]) == (CLOSE, code)
    client.shutdown(socket.SHUT_WR)
    assert accepted.recv(ample()) == b""


@pytest.mark.parametrize("code", [1000, 1001, 3000])
def test_a_close_frame_is_the_end_and_is_answered(opened: tuple[Any, socket.socket], code: int) -> None:
    accepted, client = opened
    client.sendall(encode(CLOSE, close_payload(code, "because"), MASK))
    if code == 3000:
        with pytest.raises(ConnectionLostError, match="closed the WebSocket with 3000: because"):
            accepted.recv(ample())
    assert accepted.recv(ample()) == b""
    accepted.sendall(b"last", ample())
    accepted.shutdown_write()
    assert [opcode for opcode, _, _ in frames_from(client, 2)] == [TEXT, CLOSE]
    with pytest.raises(ConnectionLostError, match="was shut down"):
        accepted.sendall(b"later", ample())


@pytest.mark.parametrize("code", [1000, 3000])
def test_what_arrived_with_a_close_frame_is_read_before_it(opened: tuple[Any, socket.socket], code: int) -> None:
    accepted, client = opened
    client.sendall(encode(TEXT, b"last", MASK) + encode(CLOSE, close_payload(code), MASK))
    assert accepted.recv(ample()) == b"last"
    with pytest.raises(ConnectionLostError) if code == 3000 else contextlib.nullcontext():
        assert accepted.recv(ample()) == b""


def test_a_close_frame_without_a_code_is_a_normal_end(opened: tuple[Any, socket.socket]) -> None:
    accepted, client = opened
    client.sendall(encode(CLOSE, b"", MASK))
    assert accepted.recv(ample()) == b""
    accepted.close()
    assert frames_from(client, 1) == [(CLOSE, b"", True)]


def test_several_messages_leave_together(raw_server: socket.socket) -> None:
    underlying = TcpDialer(*raw_server.getsockname()).dial(ample())
    peer, _ = raw_server.accept()
    transport = WebSocketTransport(underlying, client=True)
    with peer:
        transport.send_messages([b"one", b"two"], ample())
        transport.close()
        pieces = Decoder(masks=True).receive(everything(peer))
    assert pieces == [(BINARY, b"one", True), (BINARY, b"two", True), (CLOSE, close_payload(1000), True)]


def test_a_long_message_that_is_late_is_completed_before_the_next(
    opened: tuple[Any, socket.socket], calling: Calling
) -> None:
    accepted, client = opened
    body = bytes(range(256)) * 2**16
    client.sendall(encode(BINARY, b"x", MASK) + encode(PING, b"between", MASK))
    assert accepted.recv(ample()) == b"x"
    with pytest.raises(SendTimeoutError) as late:
        accepted.sendall(body, Deadline(0.0))
    assert late.value.outcome == "unknown"
    client.sendall(encode(PING, b"after", MASK) + encode(BINARY, b"y", MASK))
    assert accepted.recv(ample()) == b"y"
    rest = calling(lambda: accepted.sendall(b"next", ample()))
    received = b""
    decoder, pongs = Decoder(masks=False), []
    while len(received) < len(body) + 4:
        for opcode, payload, _ in decoder.receive(client.recv(65_536)):
            if opcode == PONG:
                pongs.append(payload)
            else:
                received += payload
    rest.result()
    assert (received[: len(body)] == body, received[len(body) :]) == (True, b"next")
    assert pongs == [b"between", b"after"]


def test_nothing_follows_a_long_message_that_was_interrupted(opened: tuple[Any, socket.socket]) -> None:
    accepted, client = opened
    client.sendall(encode(BINARY, b"x", MASK))
    assert accepted.recv(ample()) == b"x"

    def interrupted(number: int, _: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupted)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            accepted.sendall(bytes(2**25), ample())  # more than what fits in between
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(ConnectionLostError, match="was shut down"):
        accepted.sendall(b"next", ample())


def test_a_writer_ends_although_a_closing_server_does_not_read(raw_server: socket.socket, calling: Calling) -> None:
    transport = WebSocketTransport(TcpDialer(*raw_server.getsockname()).dial(ample()), client=True)
    peer, _ = raw_server.accept()
    with peer:
        with pytest.raises(SendTimeoutError):
            transport.sendall(bytes(1 << 25), Deadline(0))
        writing = calling(lambda: transport.sendall(b"x", ample()))
        writing.until_blocked()
        peer.sendall(encode(CLOSE, close_payload(1000)))
        assert transport.recv(ample()) == b""
        closing = calling(transport.close)
        with pytest.raises(ConnectionLostError, match="was shut down"):
            writing.result()
        closing.result()


OWN_OR_NOT = [
    ("localhost:61614", "http://localhost:61614", True),
    ("127.0.0.1:61614", "http://127.0.0.1:61614", True),
    ("[::1]:61614", "http://[::1]:61614", True),
    ("LOCALHOST:61614", "https://LOCALHOST:61614", True),
    ("localhost:61614", "http://localhost:61615", False),
    ("localhost:61614", "http://localhost", False),
    ("localhost:61614", "http://127.0.0.1:61614", False),
    ("127.0.0.1:61614", "http://127.0.0.1:61614.evil.example", False),
    ("evil.example:61614", "http://evil.example:61614", False),
    ("127.0.0.1.evil.example", "http://127.0.0.1.evil.example", False),
    ("192.168.0.7:61614", "http://192.168.0.7:61614", False),
    ("localhost:61614", "null", False),
]
"""Host, Origin, and whether that is a client of this machine that names the broker's own address."""


APART = "localhost, 127.0.0.1 and [::1] are different origins"


@pytest.mark.parametrize(
    ("origins", "host", "origin", "hint"),
    [
        (["http://localhost:3000"], "h", "http://127.0.0.1:3000", "; 'http://localhost:3000' is accepted: " + APART),
        (["http://127.0.0.1:3000"], "h", "http://[::1]:3000", "; 'http://127.0.0.1:3000' is accepted: " + APART),
        ([], "127.0.0.1:61614", "http://localhost:61614", "; 'http://127.0.0.1:61614' is accepted: " + APART),
        (["http://localhost:3000"], "h", "http://127.0.0.1:3001", ""),
        (["http://localhost:3000"], "h", "http://127.0.0.1.evil.example:3000", ""),
        (["http://localhost:3000"], "h", "null", ""),
    ],
)
def test_the_log_says_where_an_origin_differs_by_the_name_of_this_machine_alone(
    origins: list[str], host: str, origin: str, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        transport = AcceptedTransport(
            SocketTransport(ours, peer="peer"), HandshakePolicy(subprotocols=[], origins=origins)
        )
        theirs.sendall(request_head("/", host, KEY, headers={"Origin": origin}))
        with pytest.raises(ConnectionLostError, match="is not among"):
            transport.do_handshake(ample())
        (warned,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert warned.endswith(
            f"the origin '{origin}' is not among the broker's origins (option origins, --origin){hint}"
        )
        transport.close()


@pytest.mark.parametrize(("host", "origin", "accepted"), OWN_OR_NOT)
def test_the_origin_of_the_broker_itself_is_accepted_on_a_loopback_address(
    listener: WebSocketListener,
    client: socket.socket,
    host: str,
    origin: str,
    accepted: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport = listener.accept()
    assert transport is not None
    client.sendall(request_head("/", host, KEY, headers={"Origin": origin}))
    refused = contextlib.nullcontext() if accepted else pytest.raises(ConnectionLostError)
    with refused:
        transport.do_handshake(ample())
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [origin in text and "--origin" in text for text in warned] == [True] * (not accepted)
    transport.close()
