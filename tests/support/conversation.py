"""One conversation with everything in it, and what must become of each call and each message when its link is cut.

What has to come out follows from the bytes that went through, and from nothing that the client says: which frames went
whole to the broker, which answers came whole to the client, and whether the link died there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import stompy
from stompy.testing.proxied import Direction, ProxyLink
from stompy.testing.proxy import FaultProxy
from tests.support.peer import until
from tests.support.receipts import outcome_of

NAME = "cut"
"""The connection's, by which its threads are known."""


@dataclass(frozen=True)
class Call:
    """A call of the public face.

    Attributes:
        up: the frames that it makes the client say.
        down: the frames that it waits for.
        broken: how it may end when the link dies under it.
        dead: how it may end when the link has died before it.
    """

    name: str
    up: tuple[str, ...]
    down: tuple[str, ...]
    broken: frozenset[str]
    dead: frozenset[str]


def _one_of(*endings: str) -> frozenset[str]:
    return frozenset(endings)


DONE = _one_of("done")
_UNKNOWN, _NOT_SENT = _one_of("ConnectionLostError unknown"), _one_of("ConnectionLostError not-sent")

CALLS = (
    Call("connect", ("CONNECT",), ("CONNECTED",), _one_of("ConnectError"), _one_of()),
    Call("subscribe", ("SUBSCRIBE",), ("RECEIPT",), _UNKNOWN, _NOT_SENT),
    # It asks for no answer, and a frame that the kernel has taken is sent as far as anybody can know.
    Call("send one", ("SEND",), (), DONE, _NOT_SENT),
    Call("receive one", (), ("MESSAGE",), _UNKNOWN, _UNKNOWN),
    Call("confirm", ("SEND",), ("RECEIPT",), _UNKNOWN, _NOT_SENT),
    Call("receipt", ("SEND",), ("RECEIPT",), _one_of("unknown: ConnectionLostError unknown"), _NOT_SENT),
    Call("ack one", ("ACK",), (), DONE, _one_of("AckError", "nothing to acknowledge")),
    Call("send two", ("SEND",), (), DONE, _NOT_SENT),
    Call("receive two", (), ("MESSAGE",), _UNKNOWN, _UNKNOWN),
    Call("transaction", (), (), _UNKNOWN, _NOT_SENT),  # see TRANSACTIONS
    Call("disconnect", ("DISCONNECT",), ("RECEIPT",), DONE, DONE),
)


TRANSACTIONS: dict[str, tuple[tuple[str, ...], int]] = {
    "later": (("BEGIN", "SEND", "ACK", "SEND", "BEGIN", "ABORT", "COMMIT"), 2),
    "at once": (("BEGIN", "SEND", "SEND", "COMMIT"), 3),
    "after commit": (("BEGIN", "SEND", "SEND", "BEGIN", "ACK", "COMMIT", "COMMIT"), 5),
}
"""The frames of the transaction and the number of its receipts, by `Dialect.transacted_receipts`."""


@dataclass(frozen=True)
class Ways:
    """Where the conversation sends to, and what of it the broker can.

    Attributes:
        inward: a queue that nobody else uses; what is sent there is consumed as well.
        outward: another one; what is sent there stays.
        transacted: how the broker's dialect has it, `Dialect.transacted_receipts`.
    """

    inward: str = "/queue/in"
    outward: str = "/queue/out"
    transacted: str = "later"

    def calls(self) -> tuple[Call, ...]:
        """Return the calls in order."""
        up, receipts = TRANSACTIONS[self.transacted]
        return tuple(
            replace(call, up=up, down=("RECEIPT",) * receipts) if call.name == "transaction" else call for call in CALLS
        )


@dataclass(frozen=True)
class Frame:
    """A frame that went through whole."""

    command: str
    headers: dict[str, str]
    body: str


class Wire:
    """What went through in one direction: whole frames, and the beginning of one more.

    Args:
        data: none of the frames has a NUL in its body, and there are no heartbeats.
    """

    def __init__(self, data: bytes) -> None:
        *whole, rest = data.split(b"\0")
        self.frames = [_parsed(frame.decode()) for frame in whole]
        self.rest = rest.lstrip(b"\n")
        self._taken = 0

    def take(self, commands: tuple[str, ...]) -> bool:
        """Pass over frames; return whether all of them are there."""
        there = [frame.command for frame in self.frames[self._taken : self._taken + len(commands)]]
        assert there == list(commands[: len(there)]), f"{there} where {commands} were to come"
        self._taken += len(there)
        return len(there) == len(commands)

    @property
    def exhausted(self) -> bool:
        """Whether nothing more went through."""
        return self._taken == len(self.frames) and not self.rest


def _parsed(text: str) -> Frame:
    head, _, body = text.lstrip("\n").partition("\n\n")  # some brokers end a line behind each frame
    command, *lines = head.split("\n")
    return Frame(command, dict(line.split(":", 1) for line in lines), body)


# What must come out.


def expected_endings(up: bytes, down: bytes, ways: Ways, *, cut: Direction | None) -> dict[str, frozenset[str]]:
    """Return how each call may end.

    Args:
        up: what went through to the broker.
        down: what went through to the client.
        ways: what was said.
        cut: the direction in which the link was cut, right behind the last of these bytes.
    """
    wires: dict[str, Wire] = {"up": Wire(up), "down": Wire(down)}
    dead = False
    endings: dict[str, frozenset[str]] = {}
    for call in ways.calls():
        if dead:
            endings[call.name] = call.dead
            continue
        if wires["up"].take(call.up) and wires["down"].take(call.down):
            endings[call.name] = DONE
            dead = cut is not None and wires[cut].exhausted
            if dead and call.down in (("CONNECTED",), ("MESSAGE",)):
                # The end of the stream follows at once: the link may have ended before the test could read it.
                endings[call.name] |= call.broken
        else:
            endings[call.name] = call.broken
            dead = True
            if call.name == "transaction":
                endings[call.name] = _endings_of_transaction(call, wires["up"])
    return endings


def _endings_of_transaction(call: Call, up: Wire) -> frozenset[str]:
    whole, commit = len([frame for frame in up.frames if "transaction" in frame.headers]), call.up.index("COMMIT")
    if whole > commit or (whole == commit and up.rest):
        return call.broken
    # Without the frame whose receipt COMMIT waits for, which only an ABORT follows, it has surely not left.
    confirmed = whole >= commit - ("ABORT" in call.up)
    return call.broken | call.dead if confirmed else call.dead


@dataclass(frozen=True)
class PendingSend:
    """A message that the broker must still have.

    Attributes:
        seen: whether it went whole to the client, so that it must be flagged when it comes again.
    """

    body: str
    seen: bool = False


def expected_messages(up: bytes, down: bytes, ways: Ways) -> dict[str, list[PendingSend]]:
    """Return what must be in the queues, by the frames that went whole to the broker."""
    seen = {frame.body for frame in Wire(down).frames if frame.command == "MESSAGE"}
    kept: dict[str, list[PendingSend]] = {ways.inward: [], ways.outward: []}
    pending: dict[str, list[Frame]] = {}

    def take_effect(frame: Frame) -> None:
        if frame.command == "SEND":
            kept[frame.headers["destination"]].append(PendingSend(frame.body, frame.body in seen))
        elif frame.command == "ACK":
            kept[ways.inward].pop(0)

    for frame in Wire(up).frames:
        if frame.command == "COMMIT":
            for one in pending.pop(frame.headers["transaction"]):
                take_effect(one)
        elif "transaction" in frame.headers:
            pending.setdefault(frame.headers["transaction"], []).append(frame)
        else:
            take_effect(frame)
    return kept


# What does come out.


def converse(proxy: FaultProxy, version: str, ways: Ways, **options: Any) -> dict[str, str]:
    """Make all the calls, whatever becomes of them; return how each ended, as far as they could be made."""
    endings: dict[str, str] = {}
    conn: stompy.Connection | None = None

    def connect() -> str:
        nonlocal conn
        conn = stompy.connect(proxy.url, versions=version, heartbeat=(0, 0), name=NAME, **options)
        return "done"

    endings["connect"] = _ending_of(connect)
    if conn is None:
        return endings
    with conn:
        talk = _Talk(conn, ways)
        for call in ways.calls()[1:]:
            _await_quiet(proxy, proxy.links[-1], conn)
            endings[call.name] = _ending_of(talk.calls[call.name])
    return endings


class _Talk:
    """The calls that `connect` makes."""

    def __init__(self, conn: stompy.Connection, ways: Ways) -> None:
        self._conn = conn
        self._ways = ways
        self._subscription: stompy.Subscription | None = None
        self._messages: list[stompy.Message] = []
        self.calls: dict[str, Callable[[], str]] = {
            "subscribe": self._subscribe,
            "send one": lambda: self._send(ways.inward, b"one"),
            "receive one": self._receive,
            "confirm": lambda: self._send(ways.outward, b"a", confirm=True),
            "receipt": self._receipt,
            "ack one": self._ack,
            "send two": lambda: self._send(ways.inward, b"two"),
            "receive two": self._receive,
            "transaction": self._transaction,
            "disconnect": self._disconnect,
        }

    def _subscribe(self) -> str:
        self._subscription = self._conn.subscribe(self._ways.inward, ack="client-individual")
        return "done"

    def _send(self, destination: str, body: bytes, *, confirm: bool = False) -> str:
        self._conn.send(destination, body, confirm=confirm)
        return "done"

    def _receive(self) -> str:
        if self._subscription is None:
            return "ConnectionLostError unknown"  # there is nothing to receive from, as `subscribe` has said
        self._messages.append(self._subscription.receive())
        return "done"

    def _receipt(self) -> str:
        receipt = self._conn.send_async(self._ways.outward, b"b")
        assert receipt is not None

        def wait() -> str:
            receipt.result()
            return "done"

        ending = _ending_of(wait)
        return ending if outcome_of(receipt) == "confirmed" else f"{outcome_of(receipt)}: {ending}"

    def _ack(self) -> str:
        if not self._messages:
            return "nothing to acknowledge"
        self._messages[0].ack()
        return "done"

    def _transaction(self) -> str:
        with self._conn.transaction() as transaction:
            transaction.send(self._ways.outward, b"c")
            if self._ways.transacted != "at once":
                transaction.ack(self._messages[1])
            transaction.send(self._ways.outward, b"d")
        return "done"

    def _disconnect(self) -> str:
        self._conn.close()
        return "done"


def _ending_of(call: Callable[[], str]) -> str:
    try:
        return call()
    except stompy.SessionError as error:
        return f"{type(error).__name__} {error.outcome}"
    except stompy.StompError as error:
        return type(error).__name__


def _await_quiet(proxy: FaultProxy, link: ProxyLink, conn: stompy.Connection) -> None:
    """Wait until what the client has said went through, or its link is known to be dead on both sides.

    So each call finds a link that is either whole or dead, and it can be said before which of the two.
    """
    said = link.recorded("up").find(b"\0") + 1 + conn.stats().bytes_sent
    proxy.await_that(lambda _: link.forwarded("up") == said or not link.running)
    _await_turn(link)
    if not link.running:
        until(lambda: not conn.connected)


def _await_turn(link: ProxyLink) -> None:
    link.resume()  # takes effect between two turns of the proxy, so that a cut that is due is made
