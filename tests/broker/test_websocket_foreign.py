"""WebSocket with foreign libraries: as clients of the embedded broker, and as a server of stompy's client."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import websocket
from websocket import ABNF
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect as foreign_connect
from websockets.sync.server import Server, ServerConnection, serve

import stompy
from stompy.broker import Broker
from stompy.frames.grammar import Version, grammar_of
from stompy.frames.parser import Parser
from tests.support.peer import WITHIN, until
from tests.support.seed import chance

SUBPROTOCOLS: dict[str, Any] = {"1.0": "v10.stomp", "1.1": "v11.stomp", "1.2": "v12.stomp"}
SUBSCRIBE = "SUBSCRIBE\nid:1\ndestination:/queue/a\n\n\0"
SEND = "SEND\ndestination:/queue/a\ncontent-length:4\n\na\0é\0"
END = b"\n\na\0\xc3\xa9\0"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(ws=True) as running:
        yield running


def greeting(version: str) -> str:
    return f"CONNECT\naccept-version:{version}\nhost:h\n\n\0"


# Clients.


@pytest.mark.parametrize(
    ("like", "ending"), [(None, ""), ("activemq", ""), ("activemq5", ""), ("artemis", "\n"), ("rabbitmq", "\n")]
)
def test_frames_end_as_those_of_the_broker_that_it_stands_in_for(like: Any, ending: str) -> None:
    with (
        Broker(ws=True, like=like) as broker,
        foreign_connect(broker.ws_url, subprotocols=[SUBPROTOCOLS["1.2"]]) as client,
    ):
        client.send("CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        client.send(SUBSCRIBE + "SEND\ndestination:/queue/a\n\nx\0")
        assert [str(client.recv()).partition("\0")[1:] for _ in range(2)] == [("\0", ending)] * 2


@pytest.mark.parametrize("version", SUBPROTOCOLS)
def test_a_client_made_with_websockets(broker: Broker, version: str) -> None:
    with foreign_connect(broker.ws_url, subprotocols=[SUBPROTOCOLS[version]]) as client:
        assert client.subprotocol == SUBPROTOCOLS[version]
        hello = greeting(version)
        client.send([hello[:9], hello[9:]])  # in fragments
        assert f"\nversion:{version}\n" in str(client.recv())
        assert client.ping().wait(WITHIN)
        client.send(SUBSCRIBE + SEND[:5])
        client.send(SEND[5:])
        received = client.recv()
        assert isinstance(received, str)
        assert received.encode().endswith(END)
        sent = SEND.encode()
        client.send([sent[:-3], sent[-3:]])  # within a character
        received = client.recv()
        assert isinstance(received, bytes)
        assert received.endswith(END)
        client.close(4000, "enough")
    assert client.close_code == 4000
    until(lambda: not broker.stats().sessions)


@pytest.mark.parametrize("version", SUBPROTOCOLS)
def test_a_client_made_with_websocket_client(broker: Broker, version: str) -> None:
    client = websocket.create_connection(
        broker.ws_url, subprotocols=[SUBPROTOCOLS[version]], suppress_origin=True, timeout=WITHIN
    )
    try:
        assert client.getsubprotocol() == SUBPROTOCOLS[version]
        hello = greeting(version)
        client.send_frame(ABNF.create_frame(hello[:9], ABNF.OPCODE_TEXT, fin=0))
        client.send_frame(ABNF.create_frame(hello[9:], ABNF.OPCODE_CONT))
        assert f"\nversion:{version}\n" in str(client.recv())
        client.ping("x")
        assert client.recv_data(control_frame=True) == (ABNF.OPCODE_PONG, b"x")
        client.send(SUBSCRIBE + SEND[:5])
        client.send(SEND[5:])
        opcode, data = client.recv_data()
        assert (opcode, data.endswith(END)) == (ABNF.OPCODE_TEXT, True)
        client.send_binary(SEND.encode())
        opcode, data = client.recv_data()
        assert (opcode, data.endswith(END)) == (ABNF.OPCODE_BINARY, True)
        client.send_close(4000, b"enough")
        assert client.recv_data(control_frame=True) == (ABNF.OPCODE_CLOSE, (4000).to_bytes(2, "big"))
    finally:
        # close() leaves the socket open after a Close frame of the server.
        client.shutdown()  # type: ignore[no-untyped-call]
    until(lambda: not broker.stats().sessions)


def test_the_broker_chooses_the_newest_of_the_subprotocols(broker: Broker) -> None:
    with foreign_connect(broker.ws_url, subprotocols=[SUBPROTOCOLS[each] for each in ("1.0", "1.2", "1.1")]) as client:
        assert client.subprotocol == "v12.stomp"


def test_the_broker_closes_normally_after_disconnect(broker: Broker) -> None:
    with foreign_connect(broker.ws_url) as client:
        client.send(greeting("1.2") + "DISCONNECT\nreceipt:1\n\n\0")
        received = "".join(str(message) for message in client)
    assert "RECEIPT" in received
    assert client.close_code == 1000


def test_a_client_that_breaks_the_protocol_gets_the_code(broker: Broker) -> None:
    with foreign_connect(broker.ws_url) as client:
        client.send(b"\xff", text=True)
        with pytest.raises(ConnectionClosedError, match=r"1007.*not UTF-8"):
            client.recv()


def one_frame(message: str | bytes) -> tuple[str, str]:
    """Return the command and the body of the one frame that a message is."""
    text = message if isinstance(message, str) else message.decode()
    (frame,) = Parser(grammar_of(Version.V1_2)).feed(text.encode())
    assert text.rstrip("\n").endswith("\0")
    return frame.command, frame.body.decode()


@pytest.mark.parametrize("like", [None, "rabbitmq"])
def test_each_frame_of_the_broker_is_one_message(like: Any) -> None:
    draw = chance("frames of the broker", like)
    bodies = []
    for number in range(120):
        size = draw.choice([0, 1, 125, 126, 4_000, 65_400, 65_536, 87_300, 262_144, 400_000])
        character = draw.choice("aä€")
        bodies.append(f"{number}:{character * ((size + draw.randrange(3)) // len(character.encode()))}")
    with Broker(ws=True, like=like) as broker, foreign_connect(broker.ws_url, max_size=None) as peer:
        peer.send("CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        assert one_frame(peer.recv(WITHIN))[0] == "CONNECTED"
        peer.send("SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\nprefetch-count:1000\n\n\0")
        frames = [
            f"SEND\ndestination:/queue/a\ncontent-length:{len(body.encode())}\nreceipt:{number}\n\n{body}\0"
            for number, body in enumerate(bodies)
        ]
        sending = threading.Thread(target=lambda: peer.send("".join(frames)))
        sending.start()
        received = [one_frame(peer.recv(WITHIN)) for _ in range(2 * len(bodies))]
        sending.join()
        peer.send("NACK\nid:none\nreceipt:n\n\n\0")
        while one_frame(peer.recv(WITHIN))[0] != "ERROR":
            pass
    assert [command for command, _ in received].count("RECEIPT") == len(bodies)
    assert [body for command, body in received if command == "MESSAGE"] == bodies


def test_a_heartbeat_of_the_broker_is_a_message_of_its_own(broker: Broker) -> None:
    with foreign_connect(broker.ws_url) as peer:
        peer.send("CONNECT\naccept-version:1.2\nhost:/\nheart-beat:0,1\n\n\0" + SUBSCRIBE)
        one_frame(peer.recv(WITHIN))
        while peer.recv(WITHIN) != "\n":
            pass
        for _ in range(50):
            peer.send(SEND)
        messages = 0
        while messages < 50:
            if (message := peer.recv(WITHIN)) not in ("\n", b"\n"):
                one_frame(message)
                messages += 1


def test_a_client_that_sends_no_frame_is_told_so(broker: Broker) -> None:
    with foreign_connect(broker.ws_url) as client:
        client.send("HELLO\n\n\0")
        assert "unknown command" in str(client.recv())


# A server.

BODIES = [
    "text é\0",
    "binary é\0",
    "fragments é\0",
    "binary fragments é\0",
    "two messages é\0",
    "together é\0",
    "x" * 1_048_576,
]


def deliver(peer: ServerConnection, subscription: str) -> None:
    """Send a message for each of the bodies, each in another way."""
    messages = [
        f"MESSAGE\nsubscription:{subscription}\nmessage-id:{number}\ndestination:/queue/a\n"
        f"content-length:{len(body.encode())}\n\n{body}\0"
        for number, body in enumerate(BODIES)
    ]
    text, binary, fragments, binary_fragments, divided, together, large = messages
    peer.send(text)
    peer.send(binary.encode())
    peer.send([fragments[:7], fragments[7:-4], fragments[-4:]])
    inside = binary_fragments.encode()
    peer.send([inside[:7], inside[7:-3], b"", inside[-3:]])  # within a character
    peer.send(divided[:9])
    peer.ping()
    peer.send(divided[9:].encode())
    peer.send(together + "\n" + large)


class Foreign:
    """A server made with websockets that answers CONNECT, SUBSCRIBE and every receipt."""

    def __init__(self) -> None:
        self.codes: queue.Queue[int | None] = queue.Queue()
        """The status codes with which its WebSockets were closed."""
        supported = list(SUBPROTOCOLS.values())
        self.server: Server = serve(self._serve, "127.0.0.1", 0, subprotocols=supported)
        self.url = f"ws://127.0.0.1:{self.server.socket.getsockname()[1]}/ws?x=y"

    def _serve(self, peer: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosedError):  # by a code that is no normal one
            self._converse(peer)
        self.codes.put(peer.close_code)

    def _converse(self, peer: ServerConnection) -> None:
        for message in peer:  # each is one frame
            assert isinstance(message, str)  # as all that the client sends here is UTF-8
            if message == "\n":
                continue
            assert message.endswith("\0")
            head, _, body = message.partition("\n\n")
            command, *lines = head.split("\n")
            headers = dict(line.split(":", 1) for line in lines)
            if command in ("CONNECT", "STOMP"):
                version = next(version for version, name in SUBPROTOCOLS.items() if name == peer.subprotocol)
                peer.send(f"CONNECTED\nversion:{version}\nserver:foreign/1\n\n\0")
            if "receipt" in headers:
                assert peer.ping().wait(WITHIN)
                peer.send(f"RECEIPT\nreceipt-id:{headers['receipt']}\n\n\0")
            if command == "SUBSCRIBE":
                deliver(peer, headers["id"])
            if headers.get("destination") == "/queue/end":
                peer.close(int(body.rstrip("\0")), "enough")


@pytest.fixture
def foreign() -> Iterator[Foreign]:
    made = Foreign()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()


@pytest.mark.parametrize("version", SUBPROTOCOLS)
def test_a_server_made_with_websockets(foreign: Foreign, version: str) -> None:
    with stompy.connect(foreign.url, versions=version) as connection:
        assert connection.version == version
        subscription = connection.subscribe("/queue/a")
        assert [subscription.receive(timeout=WITHIN).text for _ in BODIES] == BODIES
        with connection.batch():
            for body in (b"", b"x" * 200_000, b"\n"):
                connection.send("/queue/a", body)
        for _ in range(3):
            connection.send("/queue/a", b"x" * 100_000, confirm=True)
    assert foreign.codes.get(timeout=WITHIN) == 1000


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (1000, "closed the connection"),
        (1001, "closed the connection"),
        (1011, r"closed the WebSocket with 1011 \(internal error\): enough"),
        (4001, "closed the WebSocket with 4001: enough"),
    ],
)
def test_the_code_and_the_reason_of_a_close_are_reported(foreign: Foreign, code: int, error: str) -> None:
    with stompy.connect(foreign.url) as connection:
        connection.send("/queue/end", str(code))
        until(lambda: not connection.connected)
        with pytest.raises(stompy.ConnectionLostError, match=error):
            connection.send("/queue/a", b"")
    assert foreign.codes.get(timeout=WITHIN) == code
