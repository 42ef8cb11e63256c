"""Hostile clients: one row an attack on the embedded broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stompy.broker import User
from stompy.frames.grammar import Leniency
from tests.hostile.script import MIB, Await, Deaf, Drip, Fin, Flood, Rst, Step

HELLO = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
HELLO_1_0 = b"CONNECT\n\n\0"
HELLO_1_1 = b"CONNECT\naccept-version:1.1\nhost:h\n\n\0"
GREETED = Await(b"CONNECTED")


@dataclass(frozen=True)
class Attack:
    """What a client does, and how it must end.

    Attributes:
        name: of the attack.
        script: what the client does.
        words: what the ERROR says that ends it, with the limit's name where it is one; `None` where it gets none, as
            it broke the stream itself, or stays.
        memory: bytes that the broker may take meanwhile.
        options: of the broker.
        times: how many clients do so at once.
        end: `"error"` or a broken stream; `"stays"` where the session goes on, as the client does nothing that is
            forbidden; `"dropped"` where the broker ends it though the client does not hear so.
    """

    name: str
    script: tuple[Step, ...]
    words: str | None
    memory: int = 8 * MIB
    options: Mapping[str, Any] = field(default_factory=dict)
    times: int = 1
    end: Literal["error", "stays", "dropped"] = "error"


def before(name: str, *script: Step, words: str | None, **more: Any) -> Attack:
    """Return an attack instead of CONNECT."""
    return Attack(name, script, words, **more)


def after(name: str, *script: Step, words: str | None, hello: bytes = HELLO, **more: Any) -> Attack:
    """Return an attack behind CONNECT."""
    return Attack(name, (hello, GREETED, *script), words, **more)


def send(headers: bytes = b"", body: bytes = b"", destination: bytes = b"/queue/x") -> bytes:
    """Return a SEND; what is wrong with it stands in `headers` or `body`."""
    return b"SEND\ndestination:" + destination + b"\n" + headers + b"\n" + body + b"\0"


def each(frame: bytes, count: int) -> bytes:
    """Return so many frames in which `%d` is a number of its own."""
    return b"".join(frame.replace(b"%d", str(number).encode()) for number in range(count))


SHORT = {"connect_timeout": 1}
USERS = {"ann": "sesame", "bob": User(passcode="sesame", read=("/topic/*",), write=("/topic/*",), admin=())}
SUBSCRIBE = b"SUBSCRIBE\nid:%d\ndestination:/queue/%d\nack:client\n\n\0"

HANDSHAKES = (
    before("says nothing", words="connect_timeout=1", options=SHORT),
    before("drips CONNECT", Drip(b"CONNECT\nx:" + b"y" * 5000), words="connect_timeout=1", options=SHORT),
    before("drips line ends", Drip(b"\n"), words="connect_timeout=1", options=SHORT),
    before("half of CONNECT, then nothing", b"CONNECT\nhos", words="connect_timeout=1", options=SHORT),
    before("half of CONNECT, then the end", b"CONNECT\nhos", Fin(), words=None),
    before("ends at once", Fin(), words=None),
    before("reset at once", Rst(), words=None),
    before("reset inside of CONNECT", b"CONNECT\nhos", Rst(), words=None),
    before("twenty who say nothing", words="connect_timeout=1", options=SHORT, times=20),
    before("too many who say nothing", words="max_handshakes=3", options={**SHORT, "max_handshakes": 3}, times=4),
    before(
        "too many who say nothing, of one address",
        words="max_handshakes_per_address=3",
        options={**SHORT, "max_handshakes_per_address": 3},
        times=4,
    ),
    before("a storm of LF", Flood(b"\n", 8 * MIB), words="max_eol_rate=10000"),
    before("a storm of CR LF", Flood(b"\r\n", 8 * MIB), words="max_eol_rate=10000"),
    before("a storm of NUL", Flood(b"\0", 8 * MIB), words="max_eol_rate=10000"),
    before("a NUL to a strict broker", b"\0" + HELLO, words="not a STOMP command", options={"leniency": Leniency.NONE}),
    before("a storm of spaces", Flood(b" ", 8 * MIB), words="not a STOMP command"),
    before("speaks HTTP", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", words="not a STOMP command"),
    before("speaks TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), words="not a STOMP command"),
    before("speaks nothing known", bytes(range(255, 0, -1)), words="not a STOMP command"),
    before("an endless command", Flood(b"C", 8 * MIB), words="not a STOMP command"),
    before("a header bomb", b"CONNECT\n", Flood(b"k:v\n", 8 * MIB), words="max_headers=1000"),
    before("an endless header", b"CONNECT\nx:", Flood(b"y", 8 * MIB), words="max_header_line=65536"),
    before("a heavy head", b"CONNECT\n", Flood(b"k:" + b"v" * 60_000 + b"\n", 8 * MIB), words="max_header_block"),
    before("CONNECT of 2^63", b"CONNECT\ncontent-length:9223372036854775808\n\n", words="max_first_body=65536"),
    before("CONNECT with an endless body", b"CONNECT\n\n", Flood(b"x", 8 * MIB), words="max_first_body=65536"),
    before("SEND before CONNECT", send(), words="is not allowed"),
    before("a server's frame", b"CONNECTED\nversion:1.2\n\n\0", words="unknown command"),
    before("an unknown frame", b"HELLO\n\n\0", words="unknown command"),
    before("a version that nobody has", b"CONNECT\naccept-version:9.9\nhost:h\n\n\0", words="no common version"),
    before("a thousand versions", b"CONNECT\naccept-version:" + b"9.9," * 9000 + b"\nhost:h\n\n\0", words="no common"),
    before(
        "garbage for a heart-beat", b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:often\n\n\0", words="heart-beat"
    ),
    before(
        "a heart-beat of 5000 digits",
        b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:" + b"9" * 5000 + b",0\n\n\0",
        words="heart-beat",
    ),
    before("CONNECT in bad UTF-8", b"CONNECT\nhost:\xff\n\n\0", words="UTF-8"),
    before("CONNECT with a NUL in its head", b"CONNECT\nho\0st:h\n\n\0", words="a NUL before the empty line"),
    before("a wrong passcode", b"CONNECT\nlogin:ann\npasscode:x\n\n\0", words="wrong login", options={"users": USERS}),
    before("no passcode", b"CONNECT\nlogin:ann\n\n\0", words="wrong login or passcode", options={"users": USERS}),
    before("nobody's login", b"CONNECT\nlogin:eve\npasscode:x\n\n\0", words="wrong login", options={"users": USERS}),
    before("ten who guess", b"CONNECT\nlogin:ann\npasscode:x\n\n\0", words="wrong", options={"users": USERS}, times=10),
    before(
        "a passcode of 60 KB",
        b"CONNECT\nlogin:ann\npasscode:" + b"x" * 60_000 + b"\n\n\0",
        words="wrong login",
        options={"users": USERS},
    ),
)

SESSIONS = (
    after("a second CONNECT", HELLO, words="CONNECT frame is not allowed"),
    after("too many sessions", words="max_sessions=2", options={"max_sessions": 2}, times=2, end="stays"),
    after("a storm of NUL later", Flood(b"\0", 8 * MIB), words="max_eol_rate=10000"),
    after("a storm of NUL and LF", Flood(b"\0\n", 8 * MIB), words="max_eol_rate=10000"),
    after("a storm of LF later", Flood(b"\n", 8 * MIB), words="max_eol_rate=10000"),
    after("a storm of CR LF later", Flood(b"\r\n", 8 * MIB), words="max_eol_rate=10000"),
    after("a storm of CR", Flood(b"\r", 8 * MIB), words="line ends"),
    after("a header bomb later", b"SEND\n", Flood(b"k:v\n", 8 * MIB), words="max_headers=1000"),
    after("an endless header later", b"SEND\nx:", Flood(b"y", 8 * MIB), words="max_header_line=65536"),
    after("a heavy head later", b"SEND\n", Flood(b"k:" + b"v" * 60_000 + b"\n", 8 * MIB), words="max_header_block"),
    after("an endless body", send()[:-1], Flood(b"x", 16 * MIB), words="max_body=1048576"),
    after("content-length 2^63", send(b"content-length:9223372036854775808\n"), words="max_body=1048576"),
    after("content-length of 5000 digits", send(b"content-length:" + b"9" * 5000 + b"\n"), words="max_body=1048576"),
    after("content-length -1", send(b"content-length:-1\n"), words="decimal digits"),
    after("content-length +1", send(b"content-length:+1\n", b"x"), words="decimal digits"),
    after("content-length 1_0", send(b"content-length:1_0\n", b"x" * 10), words="decimal digits"),
    after("content-length in Arabic", send("content-length:١٢\n".encode(), b"x" * 12), words="decimal digits"),
    after("two content-lengths", send(b"content-length:3\ncontent-length:1\n", b"x\0yz"), words="followed by a NUL"),
    after("a content-length too small", send(b"content-length:1\n", b"hello"), words="followed by a NUL"),
    after("a content-length too large, then the end", send(b"content-length:9\n", b"x"), Fin(), words=None),
    after("a body promised and never sent", send(b"content-length:99\n"), words=None, end="stays"),
    after("a frame that drips forever", Drip(send(b"x:" + b"y" * 9000)), words=None, end="stays"),
    after("reset inside of a frame", send()[:9], Rst(), words=None),
    after("the end inside of a frame", send()[:9], Fin(), words=None),
    after("bad UTF-8", send(b"x:\xff\n"), words="UTF-8"),
    after("an undefined escape", send(b"x:\\t\n"), words="undefined escape"),
    after("a CR in a header", send(b"x:a\rb\n"), words="CR inside a header"),
    after("a NUL in a header", send(b"x:a\0b\n"), words="a NUL before the empty line"),
    after("a header without a colon", send(b"x\n"), words="without a colon"),
    after("a server's frame later", b"MESSAGE\n\n\0", words="unknown command"),
    after("SEND to nowhere", b"SEND\n\nx\0", words="destination"),
    after("SUBSCRIBE without an id", b"SUBSCRIBE\ndestination:/queue/a\n\n\0", words="'id'"),
    after("SUBSCRIBE twice with one id", SUBSCRIBE + SUBSCRIBE, words="already a subscription"),
    after("an ack mode that is none", b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:never\n\n\0", words="ack"),
    after("UNSUBSCRIBE of nothing", b"UNSUBSCRIBE\nid:1\n\n\0", words="no subscription"),
    after("ACK of nothing", b"ACK\nid:1\n\n\0", words="no unacknowledged message '1'"),
    after("ACK of another's message", b"ACK\nid:ack-x-1-1\n\n\0", words="there is no unacknowledged message"),
    after("COMMIT of nothing", b"COMMIT\ntransaction:t\n\n\0", words="no open transaction"),
    after("BEGIN twice", b"BEGIN\ntransaction:t\n\n\0" * 2, words="already open"),
    after("a prefetch of 2^63", SUBSCRIBE[:-2] + b"prefetch-count:9223372036854775808\n\n\0", words="prefetch-count"),
    after("a prefetch in letters", SUBSCRIBE[:-2] + b"prefetch-count:ten\n\n\0", words="prefetch-count"),
    after(
        "too many subscriptions",
        each(SUBSCRIBE, 51),
        words="max_session_subscriptions=50",
        options={"max_session_subscriptions": 50},
    ),
    after(
        "too many transactions",
        each(b"BEGIN\ntransaction:%d\n\n\0", 51),
        words="max_session_transactions=50",
        options={"max_session_transactions": 50},
    ),
    after(
        "a transaction of too many frames",
        b"BEGIN\ntransaction:t\n\n\0" + send(b"transaction:t\n") * 51,
        words="max_transaction_frames=50",
        options={"max_transaction_frames": 50},
    ),
    after(
        "a transaction of too many bytes",
        b"BEGIN\ntransaction:t\n\n\0" + send(b"transaction:t\n", b"x" * 1000) * 51,
        words="max_transaction_bytes=50000",
        options={"max_transaction_bytes": 50_000},
    ),
    after(
        "a queue that is never emptied",
        Flood(send(), 8 * MIB),
        words="max_queue_messages=5000",
        options={"max_queue_messages": 5000},
    ),
    after(
        "a queue of large messages", Flood(send(b"", b"x" * 9000), 32 * MIB), words="max_queue_bytes", memory=24 * MIB
    ),
    after(
        "a queue for every message",
        each(send(destination=b"/queue/%d"), 51),
        words="max_queues=50",
        options={"max_queues": 50},
    ),
    after(
        "more than the broker holds",
        each(send(b"", b"x" * 100_000, b"/queue/%d"), 60),
        words="max_store_bytes=4194304",
        options={"max_store_bytes": 4 * MIB},
        memory=16 * MIB,
    ),
    after(
        "a topic that it never reads",
        b"SUBSCRIBE\nid:1\ndestination:/topic/a\n\n\0",
        Flood(send(b"", b"x" * 9000, b"/topic/a"), 32 * MIB, deaf=True),
        Deaf(),
        words=None,
        end="dropped",
        memory=24 * MIB,
        options={"max_backlog_bytes": 4 * MIB, "linger": 0.2},
    ),
    after(
        "receipts that it never reads",
        Flood(send(b"receipt:" + b"r" * 1000 + b"\n", destination=b"/topic/none"), 8 * MIB, deaf=True),
        Deaf(),
        words=None,
        end="stays",
        memory=16 * MIB,
    ),
    after(
        "reads too slowly for too long",
        Flood(send(b"", b"x" * 60_000), 20 * MIB),
        SUBSCRIBE.replace(b"/queue/%d", b"/queue/x").replace(b"ack:client", b"ack:auto"),
        Deaf(),
        words=None,
        end="dropped",
        memory=48 * MIB,
        options={"send_timeout": 0.3, "max_queue_bytes": 32 * MIB},
    ),
    after(
        "asks for everything and takes nothing",
        Flood(send(b"", b"x" * 9000), 2 * MIB),
        SUBSCRIBE.replace(b"/queue/%d", b"/queue/x"),
        Deaf(),
        words=None,
        end="stays",
        memory=16 * MIB,
    ),
    after(
        "promises heartbeats and is silent",
        words="despite heartbeats",
        hello=b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:50,0\n\n\0",
        options={"heartbeat": (0, 0.05)},
    ),
    after("goes on after DISCONNECT", b"DISCONNECT\n\n\0", Flood(send(), 4 * MIB), words=None),
    after("goes on after an ERROR", b"HELLO\n\n\0", Flood(send(), 4 * MIB), words="unknown command"),
    after("refuses a message forever", b"NACK\nid:1\n\n\0" * 100, words="no unacknowledged message '1'"),
    after("1.0 that asks for NACK", b"NACK\nmessage-id:1\n\n\0", words="unknown command", hello=HELLO_1_0),
    after("CR LF in 1.1", b"SEND\r\ndestination:/queue/a\r\n\r\n\0", words="not a STOMP command", hello=HELLO_1_1),
    after(
        "what it has no right to",
        send(),
        words="no right to write '/queue/x'",
        hello=b"CONNECT\naccept-version:1.2\nhost:h\nlogin:bob\npasscode:sesame\n\n\0",
        options={"users": USERS},
    ),
    after("connects and leaves, many times", Fin(), words=None, times=50),
    after("connects and resets, many times", Rst(), words=None, times=50),
)

ATTACKS = HANDSHAKES + SESSIONS

OPTIONS: dict[str, Any] = {
    "max_body": MIB,
    "max_queue_bytes": 4 * MIB,
    "max_handshakes": 64,
    "max_handshakes_per_address": 64,
    "heartbeat": (0, 0),
    "login_delay": 0.05,
    "linger": 1.0,
}
