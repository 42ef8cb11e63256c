"""Sends a sequence to a broker over raw sockets, and keeps all that comes back."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.comparison.steps import DROP, Sequence, Step

STACK = re.compile(r"^(\tat |\t?\.\.\. |Caused by: ).*\n?", re.MULTILINE)
"""Lines of a stack trace in Java, but for the first."""

_SYNC = "(sync)"
_LINE_END = re.compile(rb"\r?\n")
_ANSWER_WITHIN = 3.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How long silence must last, in seconds, to be taken for the end of an answer.

    Attributes:
        step: after each frame, once a later frame of the same client was confirmed.
        alone: after a frame of a client that is not connected, or not served any more.
        end: after the last frame.
    """

    step: float
    alone: float
    end: float


FAST, SLOW = Pace(0.004, 0.06, 0.04), Pace(0.05, 0.3, 0.4)


@dataclass(frozen=True, slots=True)
class Reply:
    """A frame as it was received: nothing is unescaped."""

    command: str
    headers: tuple[tuple[str, str], ...]
    body: str = ""

    def get(self, name: str) -> str | None:
        """Return the first header of that name."""
        return next((value for key, value in self.headers if key == name), None)


CLOSED = Reply("(closed)", ())
DEAF = Reply("(no answer)", ())


@dataclass
class Played:
    """What came back of a sequence.

    Attributes:
        token: what `{t}` stood for.
        replies: by client, each with the number of the step after which it came.
        times: by the number that was sent, what it stood for.
    """

    token: str
    replies: dict[int, list[tuple[int, Reply]]] = field(default_factory=dict)
    times: dict[str, str] = field(default_factory=dict)

    def dumped(self) -> dict[str, object]:
        """Return it as JSON has it, of Java's stack traces the first line alone."""
        replies = {
            str(client): [[step, each.command, list(each.headers), STACK.sub("", each.body)] for step, each in kept]
            for client, kept in self.replies.items()
        }
        return {"token": self.token, "replies": replies, "times": self.times}

    @classmethod
    def loaded(cls, kept: dict[str, Any]) -> Played:
        """Return what `dumped` returned."""
        replies = {
            int(client): [
                (step, Reply(command, tuple((name, value) for name, value in headers), body))
                for step, command, headers, body in each
            ]
            for client, each in kept["replies"].items()
        }
        return cls(kept["token"], replies, kept["times"])


class _Client:
    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=10.0)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""
        self.replies: list[Reply] = []
        self.messages: list[Reply] = []
        self.connected = self.closed = self.deaf = False
        self.syncs = 0
        self.confirmed = 0

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def receive(self) -> None:
        """Take what has arrived."""
        try:
            data = self.socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.closed = True
            self.replies.append(CLOSED)
        self.data += data
        while (found := _frame(self.data)) is not None:
            reply, self.data = found
            if reply.command == "RECEIPT" and (reply.get("receipt-id") or "").startswith(_SYNC):
                self.confirmed = int((reply.get("receipt-id") or "").removeprefix(_SYNC))
                continue
            self.connected = self.connected or reply.command == "CONNECTED"
            self.replies.append(reply)
            if reply.command == "MESSAGE":
                self.messages.append(reply)

    def close(self) -> None:
        self.socket.close()


def _frame(data: bytes) -> tuple[Reply, bytes] | None:
    """Return the first frame and what follows it, if there is a whole one."""
    data = data.lstrip(b"\r\n")
    head, separator, rest = data.partition(b"\n\n")
    if not separator:
        return None
    command, *lines = head.decode("utf-8", "backslashreplace").split("\n")
    headers = tuple((name, value) for name, _, value in (line.partition(":") for line in lines))
    length = next((value for name, value in headers if name == "content-length"), "")
    end = int(length) if length.isdigit() else rest.find(b"\0")
    if end < 0 or len(rest) <= end:
        return None
    return Reply(command, headers, rest[:end].decode("utf-8", "backslashreplace")), rest[end + 1 :]


class _Player:
    def __init__(self, address: tuple[str, int], pace: Pace, expected: Played | None) -> None:
        self.address, self.pace = address, pace
        self.expected = Counter(
            (client, step) for client, replies in (expected.replies.items() if expected else ()) for step, _ in replies
        )
        self.played = Played("c" + uuid.uuid4().hex[:11])
        self.clients: dict[int, _Client] = {}
        self.all: list[_Client] = []

    def play(self, sequence: Sequence) -> Played:
        try:
            for number, step in enumerate(sequence):
                self.step(number, step)
            self.settle(self.pace.end)
            self.keep(len(sequence))
        finally:
            for client in self.all:
                client.close()
        return self.played

    def step(self, number: int, step: Step) -> None:
        client = self.clients.get(step.client)
        if step.command == DROP:
            if client is not None:
                self.clients.pop(step.client).close()
                self.settle(self.pace.step * 3)
                self.keep(number)
            return
        if client is None or (client.closed and step.command in ("CONNECT", "STOMP")):
            client = self.clients[step.client] = _Client(self.address)
            self.all.append(client)
        if client.closed:
            return
        client.send(self.encoded(step, client))
        self.wait(client, lambda: len(client.replies) >= self.expected[step.client, number], 1.0)
        if step.command in ("CONNECT", "STOMP") and not client.connected:
            self.wait(client, lambda: len(client.replies) > 0)
        if client.connected and not client.deaf and step.command != "DISCONNECT":
            self.sync(client)
            self.settle(self.pace.step)
        elif step.command == "DISCONNECT":
            self.wait(client, lambda: False, within=self.pace.alone)
        else:
            self.settle(self.pace.alone)
        self.keep(number)

    def sync(self, client: _Client) -> None:
        client.syncs += 1
        wanted = client.syncs
        client.send(f"SEND\ndestination:/topic/comparison-sync\nreceipt:{_SYNC}{wanted}\n\n\0".encode())
        self.wait(client, lambda: client.confirmed >= wanted)
        if not client.closed and client.confirmed < wanted:
            client.deaf = True
            client.replies.append(DEAF)

    def wait(self, client: _Client, done: object, within: float = _ANSWER_WITHIN) -> None:
        until = time.monotonic() + within
        while not (client.closed or done()) and (left := until - time.monotonic()) > 0:  # type: ignore[operator]
            self.receive(left)

    def settle(self, silence: float) -> None:
        """Read until no client has received anything for so long."""
        until = time.monotonic() + _ANSWER_WITHIN
        while self.receive(silence) and time.monotonic() < until:
            pass

    def receive(self, within: float) -> bool:
        """Wait until something has arrived for any client, and take it; return whether it did."""
        waiting = {client.socket: client for client in self.clients.values() if not client.closed}
        if not waiting:
            return False
        ready, _, _ = select.select(list(waiting), [], [], within)
        for each in ready:
            waiting[each].receive()
        return bool(ready)

    def keep(self, number: int) -> None:
        for name, client in self.clients.items():
            self.played.replies.setdefault(name, []).extend((number, reply) for reply in client.replies)
            client.replies.clear()

    def encoded(self, step: Step, client: _Client) -> bytes:
        lines = [step.command, *(f"{name}:{self.filled(value, client)}" for name, value in step.headers)]
        if step.raw == "no colon":
            lines.append("no colon")
        end = "\r\n" if step.raw == "crlf" else "\n"
        return (end.join([*lines, "", ""]) + step.body + "\0").encode()

    def filled(self, value: str, client: _Client) -> str:
        def fill(found: re.Match[str]) -> str:
            what, number = found[1], int(found[2] or 0)
            if what == "t":
                return self.played.token
            if what == "now":
                text = str(round(time.time() * 1000) + number)
                self.played.times[text] = found[0]
                return text
            if number >= len(client.messages):
                return f"{what}-{number}"
            message = client.messages[number]
            names = {
                "ack": ("ack", "message-id"),
                "id": ("message-id",),
                "sub": ("subscription",),
                "reply": ("reply-to",),
            }
            return next((each for name in names[what] if (each := message.get(name)) is not None), "none")

        return re.sub(r"\{(t|now|ack|id|sub|reply)(?::(-?\d+))?\}", fill, value)


def play(sequence: Sequence, address: tuple[str, int], pace: Pace = FAST, expected: Played | None = None) -> Played:
    """Send a sequence to a broker and return what came back; as many frames as `expected` has are waited for."""
    return _Player(address, pace, expected).play(sequence)
