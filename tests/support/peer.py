"""A scripted broker: the other end of a stream, which expects and answers frames as a test tells it.

What the client sends goes through `stompy.protocol.server`, so that a client that breaks the protocol fails the test.
What the peer says is written by hand, so that it may break whatever it likes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stompy.deadline import Deadline
from stompy.dialects.brokers import GENERIC
from stompy.dialects.dialect import Dialect
from stompy.errors import ConnectionLostError, StompTimeoutError
from stompy.frames.encoder import encode
from stompy.frames.frame import Frame, headers_from_head
from stompy.frames.grammar import Version, grammar_of, handshake_grammar, parse_version
from stompy.frames.heads import frames_of
from stompy.link.handshake import open_session
from stompy.link.link import Link
from stompy.link.settings import LinkSettings
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.server import ServerProtocol
from tests.support.stacks import gave_up

if TYPE_CHECKING:
    from stompy.errors import StompError
    from stompy.frames.heads import Row, Run
    from stompy.transport.base import Transport

WITHIN = 20.0
"""Seconds after which a test that waits for something has failed."""

Fields = Mapping[str, str] | Iterable[tuple[str, str]]


def until(holds: Callable[[], object], what: str = "", *, within: float = WITHIN) -> None:
    """Wait until `holds()` is true."""
    give_up = time.monotonic() + within
    while not holds():
        if time.monotonic() > give_up:
            gave_up(f"did not come about in time: {what or holds}")
        time.sleep(0.001)


def wire(command: str, headers: Fields = (), body: bytes = b"") -> bytes:
    """Return the bytes of a frame as given: nothing is escaped, added or checked."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    head = "".join(f"{name}:{value}\n" for name, value in pairs)
    return f"{command}\n{head}\n".encode() + body + b"\0"


class Peer:
    """The broker's end of one stream; one thread at a time.

    Args:
        transport: the stream.
        version: the one version it speaks, and the grammar of what it says.
        heartbeat: what it can send and wants to receive, in seconds.
        server: what it calls itself.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        version: str = "1.2",
        heartbeat: tuple[float, float] = (0.0, 0.0),
        server: str | None = "peer/1",
    ) -> None:
        self.transport = transport
        self.version = parse_version(version)
        self._offer = HeartbeatOffer.from_seconds(*heartbeat)
        self._server = server
        self._grammar = grammar_of(self.version)
        self._protocol = ServerProtocol(versions=(self.version,), heartbeat=self._offer, server=server)
        self._frames: list[Frame] = []
        self._numbers = 0
        self.beats = 0
        """Bytes received while no frame was incomplete, without line ends after frames."""

    # Out

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.transport.sendall(data, Deadline(WITHIN))

    def say(self, command: str, headers: Fields = (), body: bytes = b"") -> None:
        """Send a frame in the grammar of the version, whether or not it may come now."""
        self.raw(self.encoded(command, headers, body))

    def encoded(self, command: str, headers: Fields = (), body: bytes = b"") -> bytes:
        """Return the bytes of a frame."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        return encode(command, pairs, body, grammar=self._grammar)

    def connected_frame(self, headers: Mapping[str, str] | None = None) -> bytes:
        """Return a CONNECTED frame; `headers` are further ones."""
        fields = {"version": self.version.value} if self.version is not Version.V1_0 else {}
        if self._server is not None:
            fields["server"] = self._server
        if self.version.has_heartbeats:
            fields["heart-beat"] = str(self._offer)
        fields.update(headers or {})
        return encode("CONNECTED", fields.items(), grammar=handshake_grammar())

    def message(
        self,
        body: bytes | str = b"",
        *,
        subscription: str | None = "1",
        destination: str = "/queue/a",
        ack: str | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> bytes:
        """Return a MESSAGE frame with a unique id."""
        self._numbers += 1
        fields = {"destination": destination, "message-id": id or f"m{self._numbers}"}
        if subscription is not None:
            fields["subscription"] = subscription
        if ack is not None:
            fields["ack"] = ack
        fields.update(headers or {})
        return self.encoded("MESSAGE", fields, body.encode() if isinstance(body, str) else body)

    def deliver(self, *bodies: bytes | str, **options: Any) -> None:
        """Send MESSAGE frames in one write; options as `message`."""
        self.raw(b"".join(self.message(body, **options) for body in bodies))

    def receipt(self, frame: Frame | str) -> None:
        """Confirm a frame, or a receipt by its id."""
        name = frame if isinstance(frame, str) else frame.headers["receipt"]
        self.say("RECEIPT", {"receipt-id": name})

    def error(self, message: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Send ERROR."""
        self.say("ERROR", {"message": message, **(headers or {})}, body)

    # In

    def take_connect(self) -> Frame:
        """Expect CONNECT; whatever was said to it already counts as the answer."""
        frame = self.expect("CONNECT")
        self._protocol.connected("s-1")
        return frame

    def greet(self, headers: Mapping[str, str] | None = None) -> Frame:
        """Expect CONNECT and answer it."""
        frame = self.take_connect()
        self.raw(self.connected_frame(headers))
        return frame

    def frame(self, deadline: Deadline | None = None) -> Frame:
        """Return the client's next frame.

        Raises:
            StompTimeoutError: none came in time.
        """
        deadline = deadline or Deadline(WITHIN)
        while not self._frames:
            data = self.transport.recv(deadline)
            assert data, "the client ended its stream where a frame was expected"
            if not data.strip(b"\r\n") and not self._protocol.parser.pending:
                self.beats += len(data)
            self._frames += self._protocol.receive(data)
            assert self._protocol.error is None, self._protocol.error
        return self._frames.pop(0)

    def expect(self, command: str) -> Frame:
        """Return the client's next frame, which must be a `command`."""
        frame = self.frame()
        assert frame.command == command, f"{frame} {frame.body!r}"
        return frame

    def expect_and_confirm(self, command: str) -> Frame:
        """Return the client's next frame, which must be a `command`, and send its receipt."""
        frame = self.expect(command)
        self.receipt(frame)
        return frame

    def until_commit(self) -> list[Frame]:
        """Confirm what the client sends until its COMMIT comes, which is not confirmed; return those frames."""
        frames = [self.frame()]
        while frames[-1].command != "COMMIT":
            if "receipt" in frames[-1].headers:
                self.receipt(frames[-1])
            frames.append(self.frame())
        return frames

    def await_beats(self, count: int) -> None:
        """Wait for so many further heartbeats; other frames that come meanwhile are kept."""
        wanted = self.beats + count
        kept: list[Frame] = []
        while self.beats < wanted:
            with contextlib.suppress(StompTimeoutError):
                kept.append(self.frame(Deadline(0.05)))
        self._frames = kept + self._frames

    def quiet(self) -> bool:
        """Whether the client has sent no frame that was not taken, as far as one can see now."""
        with contextlib.suppress(StompTimeoutError):
            self._frames.insert(0, self.frame(Deadline(0)))
        return not self._frames

    def rest(self) -> list[Frame]:
        """Return the frames up to the end of the client's stream."""
        deadline = Deadline(WITHIN)
        with contextlib.suppress(ConnectionLostError):
            while data := self.transport.recv(deadline):
                self._frames += self._protocol.receive(data)
                assert self._protocol.error is None, self._protocol.error
        frames, self._frames = self._frames, []
        return frames

    def expect_disconnect(self) -> list[Frame]:
        """Expect DISCONNECT, confirm it, and read to the end; return what came before it."""
        before = []
        while (frame := self.frame()).command != "DISCONNECT":
            before.append(frame)
        self.receipt(frame)
        assert self.rest() == []
        self.close()
        return before

    # The end

    def hang_up(self) -> None:
        """End the outgoing direction: the client reads the end of the stream."""
        self.transport.shutdown_write()

    def close(self) -> None:
        """Drop the stream."""
        self.transport.close()


class Served(threading.Thread):
    """A peer with its own thread: it confirms frames that request a receipt, and stores all frames.

    Args:
        peer: has greeted.
        on: called with each frame before it is confirmed; returns `True` to keep the receipt back.
    """

    def __init__(self, peer: Peer, on: Callable[[Frame], object] | None = None) -> None:
        super().__init__(name="test-peer", daemon=True)
        self.peer = peer
        self.frames: list[Frame] = []
        self.failure: BaseException | None = None
        self._on = on

    def run(self) -> None:
        try:
            self._serve()
        except (ConnectionLostError, AssertionError) as error:
            self.failure = error

    def _serve(self) -> None:
        while True:
            frame = self.peer.frame(Deadline(None))
            self.frames.append(frame)
            withheld = self._on is not None and self._on(frame)
            if "receipt" in frame.headers and not withheld:
                self.peer.receipt(frame)
            if frame.command == "DISCONNECT":
                self.peer.rest()
                self.peer.close()
                return

    def commands(self) -> list[str]:
        """Return the commands that came."""
        return [frame.command for frame in self.frames]

    def close(self) -> None:
        """End the stream and the thread."""
        self.peer.transport.shutdown()
        self.join(WITHIN)
        assert not self.is_alive()


class PairDialer:
    """Hands out ready-made transports.

    Args:
        transports: what each dial gives, in order.
        address: for messages.
    """

    def __init__(self, *transports: Transport, address: str = "peer:61613", host: str = "peer") -> None:
        self._transports = list(transports)
        self.address = address
        self.host = host
        self.dialed = 0

    def dial(self, deadline: Deadline) -> Transport:
        self.dialed += 1
        return self._transports.pop(0)


class RecordingOwner:
    """A link's owner that records its callbacks; `call_soon` runs callbacks immediately, in the calling thread."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.runs: list[list[Frame]] = []
        self.receipt_ids: list[str] = []
        self.reason: StompError | None = None
        self.times_ended = 0
        self.stalls = 0
        self.over = threading.Event()
        self.on_messages: Callable[[Link, Sequence[Frame]], None] | None = None
        self.threads: set[str] = set()

    def messages(self, link: Link, rows: Sequence[Row]) -> None:
        self.threads.add(threading.current_thread().name)
        grammar = link.protocol.grammar
        frames = [
            Frame("MESSAGE", headers_from_head(head, grammar, "MESSAGE") if isinstance(head, bytes) else head, body)
            for head, _, body in rows
        ]
        self.runs.append(frames)
        self.frames += frames
        if self.on_messages is not None:
            self.on_messages(link, frames)

    def receipts(self, link: Link, frames: Frame | Run) -> None:
        self.receipt_ids += [frame.headers["receipt-id"] for frame in frames_of([frames])]

    def stalled(self, link: Link, seconds: float) -> None:
        self.stalls += 1

    def ended(self, link: Link, reason: StompError | None) -> None:
        self.reason = reason
        self.times_ended += 1
        self.over.set()

    def call_soon(self, function: Callable[[], None]) -> None:
        function()

    @property
    def bodies(self) -> list[bytes]:
        """Bodies of the messages so far."""
        return [frame.body for frame in self.frames]

    def await_messages(self, count: int) -> None:
        """Wait until so many have come."""
        until(lambda: len(self.frames) >= count, f"{count} messages")

    def await_end(self) -> StompError | None:
        """Wait for the end of the link and return its reason."""
        assert self.over.wait(WITHIN), "the link did not end"
        return self.reason


class Linked:
    """A link and the scripted broker at its other end."""

    def __init__(self, link: Link, peer: Peer, owner: RecordingOwner) -> None:
        self.link = link
        self.peer = peer
        self.owner = owner

    def close(self) -> None:
        """End both; nothing of the link is left."""
        self.link.close()
        self.peer.close()
        assert self.link.join(Deadline(WITHIN))


def link_over(
    ours: Transport,
    theirs: Transport,
    *,
    version: str = "1.2",
    heartbeat: tuple[float, float] = (0.0, 0.0),
    peer_heartbeat: tuple[float, float] | None = None,
    behind_connected: bytes = b"",
    owner: RecordingOwner | None = None,
    start: bool = True,
    dialect: Dialect = GENERIC,
    **settings: Any,
) -> Linked:
    """Return a link to a scripted broker that has sent CONNECTED.

    Args:
        ours: the client's end; it must be able to hold the handshake without a reader.
        theirs: the broker's end.
        version: the version of the session.
        heartbeat: what the client offers, in seconds.
        peer_heartbeat: what the broker answers; `None` mirrors the client's.
        behind_connected: bytes in the same write as CONNECTED.
        owner: gets the messages and the end.
        start: whether to start its threads.
        dialect: of the link.
        settings: as `LinkSettings`.
    """
    send, receive = heartbeat
    peer = Peer(theirs, version=version, heartbeat=peer_heartbeat or (receive, send))
    peer.raw(peer.connected_frame() + behind_connected)
    chosen = LinkSettings(heartbeat=heartbeat, **settings)
    opened = open_session(PairDialer(ours), chosen, Deadline(WITHIN))
    peer.take_connect()
    owner = owner or RecordingOwner()
    link = Link(opened, chosen, owner, name="test-1", dialect=dialect)
    if start:
        link.start()
    return Linked(link, peer, owner)
