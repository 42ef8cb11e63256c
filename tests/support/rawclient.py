"""A client that says exactly what a test wants, right or wrong: frames built by hand over any transport."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from stompy.deadline import Deadline
from stompy.errors import ConnectionLostError, StompTimeoutError
from stompy.frames.encoder import encode
from stompy.frames.grammar import grammar_of, handshake_grammar, parse_version
from stompy.frames.parser import Parser

if TYPE_CHECKING:
    from stompy.frames.frame import Frame
    from stompy.transport.base import Transport

WITHIN = 20.0
"""Seconds after which a test that waits for a frame has failed."""

_NOBODY = "/topic/nobody-listens"


class RawClient:
    """Speaks frames, without a thread and without rules.

    Args:
        transport: to the broker.
        version: what to ask for, and whose grammar to use.
    """

    def __init__(self, transport: Transport, version: str = "1.2") -> None:
        self.transport = transport
        self.version = version
        self._grammar = grammar_of(parse_version(version))
        self._parser = Parser(handshake_grammar(), single=True)
        self._frames: list[Frame] = []
        self._numbers = itertools.count(1)

    # Out

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.transport.sendall(data, Deadline(WITHIN))

    def say(self, command: str, headers: Mapping[str, str] | Iterable[tuple[str, str]] = (), body: bytes = b"") -> None:
        """Send a frame."""
        self.raw(self.encoded(command, headers, body))

    def encoded(
        self, command: str, headers: Mapping[str, str] | Iterable[tuple[str, str]] = (), body: bytes = b""
    ) -> bytes:
        """Return the bytes of a frame."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        return encode(command, pairs, body, grammar=self._grammar)

    def connect(self, **headers: str) -> Frame:
        """Send CONNECT, expect CONNECTED; in header names `_` stands for `-`."""
        fields = {} if self.version == "1.0" else {"accept-version": self.version, "host": "test"}
        fields.update({name.replace("_", "-"): value for name, value in headers.items()})
        self.raw(encode("CONNECT", fields.items(), grammar=handshake_grammar()))
        return self.connected()

    def connected(self) -> Frame:
        """Expect CONNECTED, and read by the version asked for from then on."""
        frame = self.expect("CONNECTED")
        self._parser.switch(self._grammar)
        self._frames += self._parser.feed(b"")
        return frame

    def expect_another_handshake(self) -> None:
        """Read on by the rules of a handshake, as after an ERROR that left the connection up."""
        self._parser.switch(handshake_grammar())

    def subscribe(self, destination: str, ack: str = "auto", *, id: str = "1", **headers: str) -> None:
        """Subscribe and wait for the RECEIPT; in header names `_` stands for `-`."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        self.sure("SUBSCRIBE", {"destination": destination, "id": id, "ack": ack, **more})

    def send(self, destination: str, *bodies: str | bytes, **headers: str) -> None:
        """Send messages and wait until the broker has them all; in header names in lower case `_` stands for `-`."""
        more = {name.replace("_", "-") if name.islower() else name: value for name, value in headers.items()}
        for body in bodies:
            data = body.encode() if isinstance(body, str) else body
            self.say("SEND", {"destination": destination, **more}, data)
        self.sync()

    def sure(
        self, command: str, headers: Mapping[str, str] | Iterable[tuple[str, str]] = (), body: bytes = b""
    ) -> list[Frame]:
        """Send a frame with a receipt; return the frames that came before its RECEIPT."""
        receipt = f"sure-{next(self._numbers)}"
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        self.say(command, [*pairs, ("receipt", receipt)], body)
        before: list[Frame] = []
        while True:
            frame = self.frame()
            if frame.command == "RECEIPT" and frame.headers["receipt-id"] == receipt:
                self._frames = before + self._frames
                return before
            before.append(frame)

    def sync(self) -> list[Frame]:
        """Wait until the broker has processed everything; return what it had sent by then, which stays to be read."""
        return self.sure("SEND", {"destination": _NOBODY})

    def settle(self, message: Frame, command: str = "ACK", **headers: str) -> None:
        """Acknowledge (or refuse) a message as the version wants it; does not wait."""
        if self.version == "1.2":
            fields = {"id": message.headers["ack"]}
        else:
            fields = {"message-id": message.headers["message-id"]}
            if self.version == "1.1":
                fields["subscription"] = message.headers["subscription"]
        self.say(command, {**fields, **headers})

    def ack(self, message: Frame, **headers: str) -> None:
        """Acknowledge, and wait until that has taken effect."""
        self.settle(message, **headers)
        self.sync()

    def nack(self, message: Frame, **headers: str) -> None:
        """Refuse, and wait until that has taken effect."""
        self.settle(message, "NACK", **headers)
        self.sync()

    # In

    def frame(self) -> Frame:
        """Return the next frame."""
        deadline = Deadline(WITHIN)
        while not self._frames:
            data = self.transport.recv(deadline)
            assert data, "the stream ended where a frame was expected"
            self._frames += self._parser.feed(data)
            assert self._parser.error is None, self._parser.error
        return self._frames.pop(0)

    def expect(self, command: str) -> Frame:
        """Return the next frame, which must be a `command`."""
        frame = self.frame()
        assert frame.command == command, f"{frame} {frame.body!r}"
        return frame

    def messages(self, count: int) -> list[Frame]:
        """Return the next frames, which must be MESSAGEs."""
        return [self.expect("MESSAGE") for _ in range(count)]

    def bodies(self, count: int) -> list[str]:
        """Return the bodies of the next frames, which must be MESSAGEs."""
        return [frame.body.decode() for frame in self.messages(count)]

    def idle(self) -> bool:
        """Whether the broker has nothing for this client, all that was said before being processed."""
        return not self.sync()

    def error(self) -> Frame:
        """Return the next frame, which must be an ERROR, and the last words."""
        frame = self.expect("ERROR")
        assert self.rest() == []
        return frame

    def rest(self) -> list[Frame]:
        """Return every frame up to the end of the stream."""
        deadline = Deadline(WITHIN)
        while True:
            try:
                data = self.transport.recv(deadline)
            except ConnectionLostError:
                break
            if not data:
                break
            self._frames += self._parser.feed(data)
        frames, self._frames = self._frames, []
        return frames

    def until(self, holds: Callable[[Frame], bool], *, within: float = WITHIN) -> tuple[list[Frame], bool]:
        """Return the frames up to the first that `holds`, and whether that came before the end of what is readable.

        Raises:
            StompTimeoutError: neither came in time; what came before stays to be read.
        """
        deadline = Deadline(within)
        seen: list[Frame] = []
        while True:
            while self._frames:
                seen.append(self._frames.pop(0))
                if holds(seen[-1]):
                    return seen, True
            try:
                data = self.transport.recv(deadline)
            except ConnectionLostError:
                data = b""
            except StompTimeoutError:
                self._frames = seen
                raise
            if not data:
                return seen, False
            self._frames += self._parser.feed(data)
            if self._parser.error is not None:  # some brokers end with what is no frame
                return seen + self._frames, False

    def ask(self, data: bytes, holds: Callable[[Frame], bool], *, within: float = WITHIN) -> tuple[list[Frame], bool]:
        """Send bytes to a broker that may be gone, and read on as `until` does."""
        with contextlib.suppress(ConnectionLostError):
            self.raw(data)
        return self.until(holds, within=within)

    @property
    def pending(self) -> bool:
        """Whether there are received frames that the test has not taken."""
        return bool(self._frames)

    def recv(self, seconds: float) -> bytes:
        """Return what comes next as it is; nothing if nothing comes within `seconds` or the stream ends."""
        try:
            return self.transport.recv(Deadline(seconds))
        except StompTimeoutError:
            return b""

    # The end

    def half_close(self) -> None:
        """End the outgoing direction."""
        self.transport.shutdown_write()

    def close(self) -> None:
        """Drop the connection without DISCONNECT."""
        self.transport.close()

    def disconnect(self) -> None:
        """Say DISCONNECT, wait for its RECEIPT and the end of the stream."""
        self.sure("DISCONNECT")
        self.rest()
        self.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
