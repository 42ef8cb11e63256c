"""The peer of a measured client: a raw STOMP server in a separate process, which parses as little as possible.

    python -m benchmarks.server [--prompt] [CERTIFICATE]     prints its port, and ends with its standard input

A client that begins with an HTTP request has a WebSocket, each message of which is one frame to it. The server answers
receipts and drops everything else, but for destinations that begin with /control/. A SUBSCRIBE to one is
remembered, and a SEND to one is an order: `give` sends MESSAGE frames to the subscriptions in turn (the body is JSON,
see `Feed`), `echo` sends one back, `hold` keeps receipts back until as many have come together as the body says. With
`--prompt` it reads what a client writes at once, else now and then.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import islice
from typing import Any

from stompy.transport.websocket.frames import BINARY, TEXT, Decoder, encode
from stompy.transport.websocket.handshake import accept_head, parse_request

READ = 1 << 18
UNHURRIED = 0.005
"""Seconds between reads of data that needs no immediate answer, so that writes of the client do not wake it."""
CHUNK = 10_000
"""Messages that are made once and sent again and again."""
CHUNK_BYTES = 1 << 23
_RECEIPT = re.compile(rb"^receipt:([^\r\n]*)", re.MULTILINE)
_CONNECTED = b"CONNECTED\nversion:1.2\nserver:ActiveMQ/6.1.0\nheart-beat:0,0\nsession:bench\n\n\0"


@dataclass(frozen=True)
class Feed:
    """Which messages a client gets.

    Attributes:
        body: bytes of each.
        headers: of each; at least the ten that ActiveMQ writes, two of them with escaped colons.
        crlf: lines end with CR LF.
        length: with a content-length.
        binary: the body has every byte, NUL too, and no content type.
        write: bytes of a write; 0 for as many as the socket takes.
        window: messages that the client may have unacknowledged; 0 for no limit.
        ws: each is a message of a WebSocket.
    """

    body: int = 256
    headers: int = 10
    crlf: bool = False
    length: bool = True
    binary: bool = False
    write: int = 0
    window: int = 0
    ws: bool = False

    def message(self, number: int, subscription: bytes) -> bytes:
        """Return the frame of the message of that number."""
        host = rb"ID\cbroker-40361-1700000000000"
        lines = [
            b"MESSAGE",
            b"expires:0",
            b"destination:/queue/bench",
            b"ack:%s-3\\c%d" % (host, number),
            b"subscription:%s" % subscription,
            b"priority:4",
            b"message-id:%s-5\\c1\\c-1\\c1\\c%d" % (host, number),
            b"timestamp:%d" % (1_700_000_000_000 + number),
            b"persistent:true",
            b"type:bench" if self.binary else b"content-type:text/plain",
            b"content-length:%d" % self.body if self.length else b"redelivered:false",
            *(b"extra-%d:value of header %d" % (extra, extra) for extra in range(10, self.headers)),
        ]
        data = bytes(range(256)) if self.binary else bytes(range(32, 127))
        body = (data * (self.body // len(data) + 1))[: self.body]
        end = b"\r\n" if self.crlf else b"\n"
        frame = end.join([*lines, b"", body]) + b"\0" + end
        return encode(BINARY, frame) if self.ws else frame

    def frames(self, subscriptions: Sequence[bytes]) -> Iterator[bytes]:
        """Yield frames without an end, to the subscriptions in turn."""
        number = 0
        while True:
            for subscription in subscriptions:
                number += 1
                yield self.message(number, subscription)


@lru_cache(maxsize=4)
def chunk(feed: Feed, subscriptions: tuple[bytes, ...], count: int) -> bytes:
    """Return the frames of so many messages."""
    return b"".join(islice(feed.frames(subscriptions), count))


class Window:
    """Counts how many messages may be sent until the client acknowledges some."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._enough = (size + 1) // 2
        self._changed = threading.Condition()

    def open(self, count: int) -> None:
        """Let so many more be sent."""
        with self._changed:
            self._free += count
            self._changed.notify()

    def take(self, wanted: int) -> int:
        """Wait until half of the window is free, and return how many of those wanted may be sent."""
        with self._changed:
            self._changed.wait_for(lambda: self._free >= self._enough)
            taken = min(self._free, wanted)
            self._free -= taken
            return taken


def give(
    transport: socket.socket, wanted: Mapping[str, Any], subscriptions: Sequence[bytes], window: Window | None
) -> None:
    """Send what a client has ordered."""
    feed = Feed(**{field.name: wanted[field.name] for field in fields(Feed) if field.name in wanted})
    at_once = max(1, min(CHUNK, CHUNK_BYTES // (feed.body + 300)))
    left = wanted["count"]
    if window is not None:
        one = chunk(feed, tuple(subscriptions), 1)
        while left:
            number = window.take(left)
            transport.sendall(one * number)
            left -= number
    while left:
        number = min(left, at_once)
        data = chunk(feed, tuple(subscriptions), number)
        step = feed.write or len(data)
        for start in range(0, len(data), step):
            transport.sendall(data[start : start + step])
        left -= number


class WebSocket:
    """A client's WebSocket, used as a socket; its handshake is done when it is made."""

    def __init__(self, transport: socket.socket) -> None:
        self._transport = transport
        request = parse_request(transport.recv(READ))
        transport.sendall(accept_head(request.key, "v12.stomp"))
        self._decoder = Decoder(masks=True)
        self.full = False
        """Whether the last `recv` got as many bytes as it asked for."""

    def recv(self, size: int) -> bytes:
        """Return what was received, `b""` at the end."""
        while not self._decoder.closed and (data := self._transport.recv(size)):
            self.full = len(data) == size
            if parts := [payload for opcode, payload, _ in self._decoder.receive(data) if opcode in (TEXT, BINARY)]:
                return b"".join(parts)
        return b""

    def sendall(self, data: bytes) -> None:
        """Send a message."""
        self._transport.sendall(encode(BINARY, data))

    def close(self) -> None:
        """Close the socket."""
        self._transport.close()


class Session:
    """One client's connection."""

    def __init__(self, transport: socket.socket, *, prompt: bool) -> None:
        self._prompt = prompt
        self._raw = transport  # what is given is framed already
        web = not isinstance(transport, ssl.SSLSocket) and transport.recv(1, socket.MSG_PEEK) == b"G"
        self._transport = WebSocket(transport) if web else transport
        self._subscriptions: list[bytes] = []
        self._held: list[bytes] = []
        self._hold = 0
        self._window: Window | None = None
        self._orders: dict[bytes, Callable[[bytes], None]] = {
            b"give": self._give,
            b"echo": lambda body: self._transport.sendall(Feed().message(1, self._subscriptions[0])),
            b"hold": self._set_hold,
        }

    def run(self) -> None:
        """Answer until the client has gone."""
        buffer = bytearray()
        try:
            while data := self._transport.recv(READ):
                start = len(buffer)
                buffer += data
                # The tail of a read is the head of the next.
                end = buffer.rfind(b"\0", start) + 1
                if end:
                    answered = self._answer(bytes(buffer[:end]))
                    del buffer[:end]
                    full = self._transport.full if isinstance(self._transport, WebSocket) else len(data) == READ
                    if not (answered or full or self._prompt or isinstance(self._transport, ssl.SSLSocket)):
                        time.sleep(UNHURRIED)
        except OSError:
            pass  # clients end without DISCONNECT
        finally:
            self._transport.close()

    def _answer(self, frames: bytes) -> bool:
        """Answer frames, and return whether the client waits for more than receipts."""
        receipts = b"receipt:" in frames
        if self._window is not None:
            self._window.open(frames.count(b"ACK\n"))
        orders = b"/control/" in frames or b"CONNECT\n" in frames or b"STOMP\n" in frames
        for frame in frames.split(b"\0") if orders else ():
            self._obey(frame.lstrip(b"\r\n"))
        if receipts:  # after the orders, of which one may hold them back
            self._confirm(_RECEIPT.findall(frames))
        return orders or self._window is not None

    def _confirm(self, receipts: list[bytes]) -> None:
        self._held += receipts
        if len(self._held) >= self._hold:
            self._transport.sendall(b"".join([b"RECEIPT\nreceipt-id:%s\n\n\0" % receipt for receipt in self._held]))
            self._held.clear()

    def _obey(self, frame: bytes) -> None:
        head, _, body = frame.partition(b"\n\n")
        command, *lines = head.split(b"\n")
        headers = dict(line.split(b":", 1) for line in reversed(lines))
        if command in (b"CONNECT", b"STOMP"):
            self._transport.sendall(_CONNECTED)
        elif command == b"SUBSCRIBE":
            self._subscriptions.append(headers[b"id"])
        elif command == b"SEND" and headers[b"destination"].startswith(b"/control/"):
            self._orders[headers[b"destination"].rpartition(b"/")[2]](body)

    def _give(self, order: bytes) -> None:
        # In a separate thread, so that the acknowledgements of the client are read meanwhile.
        wanted = json.loads(order)
        if self._window is None and wanted.get("window"):
            self._window = Window(wanted["window"])
        arguments = (self._raw, wanted, list(self._subscriptions), self._window)
        threading.Thread(target=give, args=arguments, daemon=True).start()

    def _set_hold(self, body: bytes) -> None:
        self._hold = int(body)


def serve(listener: socket.socket, context: ssl.SSLContext | None, *, prompt: bool) -> None:
    """Answer each client in a separate thread."""
    while True:
        transport, _ = listener.accept()
        transport.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            transport = context.wrap_socket(transport, server_side=True)
        threading.Thread(
            target=lambda client: Session(client, prompt=prompt).run(), args=(transport,), daemon=True
        ).start()


def main(certificate: str | None = None, *, prompt: bool = False) -> None:
    """Listen until standard input ends."""
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        threading.Thread(target=serve, args=(listener, context), kwargs={"prompt": prompt}, daemon=True).start()
        print(listener.getsockname()[1], flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*(word for word in sys.argv[1:] if word != "--prompt"), prompt="--prompt" in sys.argv)
