"""Hostile servers: one row an attack on the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stompy.errors import (
    BodyDecodeError,
    BrokerError,
    ConnectError,
    ConnectionLostError,
    ConnectRefusedError,
    ConnectTimeoutError,
    HeartbeatTimeoutError,
    LimitExceededError,
    ReceiptTimeoutError,
    ReceiveTimeoutError,
    SendTimeoutError,
    StompError,
    TlsError,
    VersionMismatchError,
)
from tests.hostile.script import MIB, Await, Deaf, Drip, Fin, Flood, Ready, Rst, Step

SMALL = {"max_body": MIB}
GREETING = b"CONNECTED\nversion:1.2\n\n\0"


@dataclass(frozen=True)
class Attack:
    """What a server does, and how it must end.

    Attributes:
        name: of the attack.
        script: what the server does.
        error: what the user gets.
        words: what its text has; the limit's name where it is one.
        act: what the user does, a method of `Victim`; `connect` where there is no session to come.
        seconds: the deadline.
        memory: bytes that the client may take meanwhile.
        options: of `connect`.
    """

    name: str
    script: tuple[Step, ...]
    error: type[StompError] | None
    words: str = ""
    act: str = "receive"
    seconds: float = 10.0
    memory: int = 8 * MIB
    options: Mapping[str, Any] = field(default_factory=dict)


def before(name: str, *script: Step, error: type[StompError] = ConnectError, words: str = "", **more: Any) -> Attack:
    """Return an attack instead of CONNECTED."""
    return Attack(name, script, error, words, act="connect", **more)


def after(
    name: str,
    *script: Step,
    error: type[StompError] | None = ConnectionLostError,
    words: str = "",
    greeting: bytes = GREETING,
    **more: Any,
) -> Attack:
    """Return an attack behind CONNECTED."""
    return Attack(name, (greeting, Ready(), *script), error, words, **more)


def message(headers: bytes = b"", body: bytes = b"", subscription: bytes = b"1") -> bytes:
    """Return a MESSAGE; what is wrong with it stands in `headers` or `body`."""
    head = b"MESSAGE\ndestination:/queue/a\nmessage-id:m\nsubscription:" + subscription
    return head + b"\n" + headers + b"\n" + body + b"\0"


SHORT = {"connect": 1.0}
SMALL_INBOX = {"max_inbox_bytes": MIB // 64, "hard_max_inbox_bytes": MIB // 16}
"""So that it is full before a receipt is late, however busy the machine is."""
ARABIC = "content-length:١٢\n".encode()
SUPERSCRIPT = "content-length:²\n".encode()
FULLWIDTH = "content-length:１２\n".encode()
JSON = b"content-type:application/json\n"

HANDSHAKES = (
    before("says nothing", error=ConnectTimeoutError, words="did not answer CONNECT", options=SHORT),
    before("drips CONNECTED", Drip(b"CONNECTED\nx:" + b"y" * 5000), error=ConnectTimeoutError, options=SHORT),
    before("drips line ends", Drip(b"\n"), error=ConnectTimeoutError, options=SHORT),
    before("half of CONNECTED, then nothing", b"CONNECTED\nver", error=ConnectTimeoutError, options=SHORT),
    before("half of CONNECTED, then the end", b"CONNECTED\nver", Fin(), words="closed the connection before CONNECTED"),
    before("closes at once", Fin(), words="closed the connection before CONNECTED"),
    before("reset at once", Await(b"\0"), Rst(), words="before CONNECTED"),
    before("reset inside of CONNECTED", Await(b"\0"), b"CONNECTED\nver", Rst(), words="before CONNECTED"),
    before("a storm of LF", Flood(b"\n", 8 * MIB), words="max_eol_rate=10000"),
    before("a storm of CR LF", Flood(b"\r\n", 8 * MIB), words="max_eol_rate=10000"),
    before("a storm of NUL", Flood(b"\0", 8 * MIB), words="not a STOMP command"),
    before("a storm of spaces", Flood(b" ", 8 * MIB), words="not a STOMP command"),
    before("speaks HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n", words="speaks HTTP on this port, not STOMP"),
    before("speaks SSH", b"SSH-2.0-OpenSSH_9.9\r\n", words="not a STOMP command"),
    before("speaks TLS", b"\x15\x03\x01\x00\x02\x02\x46", error=TlsError, words="speaks TLS"),
    before("speaks nothing known", bytes(range(255, 0, -1)), words="not a STOMP command"),
    before("a byte order mark", b"\xef\xbb\xbfCONNECTED\nversion:1.2\n\n\0", words="not a STOMP command"),
    before("an endless command", Flood(b"C", 8 * MIB), words="not a STOMP command"),
    before("a header bomb", b"CONNECTED\n", Flood(b"k:v\n", 8 * MIB), words="max_headers=1000"),
    before("an endless header", b"CONNECTED\nx:", Flood(b"y", 8 * MIB), words="max_header_line=65536"),
    before("a heavy head", b"CONNECTED\n", Flood(b"k:" + b"v" * 60_000 + b"\n", 8 * MIB), words="max_header_block"),
    before("CONNECTED of 2^63", b"CONNECTED\ncontent-length:9223372036854775808\n\n", words="max_first_body=65536"),
    before("an ERROR of 2^63", b"ERROR\ncontent-length:9223372036854775808\n\n", words="max_first_body=65536"),
    before("an endless ERROR", b"ERROR\n\n", Flood(b"x", 8 * MIB), words="max_first_body=65536"),
    before(
        "an ERROR of many words",
        b"ERROR\nmessage:" + b"no " * 20_000 + b"\n\n\0",
        error=ConnectRefusedError,
        words="no no",
    ),
    before(
        "an ERROR and a flood",
        b"ERROR\nmessage:no\n\n\0",
        Flood(message(), 8 * MIB),
        error=ConnectRefusedError,
        words="no",
    ),
    before("MESSAGE before CONNECTED", message(), words="is not allowed"),
    before("RECEIPT before CONNECTED", b"RECEIPT\nreceipt-id:1\n\n\0", words="is not allowed"),
    before("a client's frame", b"SEND\ndestination:/queue/a\n\n\0", words="not a server command"),
    before("an unknown frame", b"HELLO\n\n\0", words="not a server command"),
    before("a version that nobody offered", b"CONNECTED\nversion:9.9\n\n\0", words="chose version"),
    before("an empty version", b"CONNECTED\nversion:\n\n\0", words="chose version"),
    before(
        "1.0 to who wants 1.2",
        b"CONNECTED\n\n\0",
        error=VersionMismatchError,
        words="only 1.0",
        options={"versions": "1.2"},
    ),
    before("garbage for a heart-beat", b"CONNECTED\nversion:1.2\nheart-beat:often\n\n\0", words="heart-beat"),
    before("a negative heart-beat", b"CONNECTED\nversion:1.2\nheart-beat:-1,-1\n\n\0", words="heart-beat"),
    before(
        "a heart-beat of Unicode digits", "CONNECTED\nversion:1.2\nheart-beat:١,٢\n\n\0".encode(), words="heart-beat"
    ),
    before(
        "a heart-beat of 5000 digits", b"CONNECTED\nversion:1.2\nheart-beat:" + b"9" * 5000 + b",0\n\n\0", words="heart"
    ),
    before("CONNECTED in bad UTF-8", b"CONNECTED\nversion:1.2\nx:\xff\n\n\0", words="UTF-8"),
    before("CONNECTED with a body", b"CONNECTED\nversion:1.2\n\nboo\0", words="must not have a body"),
    before("CONNECTED with a NUL in its head", b"CONNECTED\nversion\0:1.2\n\n\0", words="a NUL before the empty line"),
    before("CONNECTED without a colon", b"CONNECTED\nversion\n\n\0", words="without a colon"),
)

SESSIONS = (
    after("a second CONNECTED", GREETING, words="CONNECTED frame is not allowed"),
    after("ERROR, and goes on", b"ERROR\nmessage:no\n\n\0", Flood(message(), 8 * MIB), error=BrokerError, words="no"),
    after("a client's frame later", b"SUBSCRIBE\nid:1\ndestination:/queue/a\n\n\0", words="not a server command"),
    after("a command in small letters", b"message\n\n\0", words="not a server command"),
    after("a command with a space", b"MESSAGE \n\n\0", words="not a STOMP command"),
    after("a storm of NUL later", Flood(b"\0", 8 * MIB), words="not a STOMP command"),
    after("a storm of LF later", Flood(b"\n", 8 * MIB), words="max_eol_rate=10000"),
    after("a storm of CR LF later", Flood(b"\r\n", 8 * MIB), words="max_eol_rate=10000"),
    after(
        "a storm of CR LF in 1.1",
        Flood(b"\r\n", MIB),
        greeting=b"CONNECTED\nversion:1.1\n\n\0",
        words="broke the protocol",
    ),
    after("a storm of CR", Flood(b"\r", 8 * MIB), words="line ends"),
    after("a header bomb later", b"MESSAGE\n", Flood(b"k:v\n", 8 * MIB), words="max_headers=1000"),
    after("an endless header later", b"MESSAGE\nx:", Flood(b"y", 8 * MIB), words="max_header_line=65536"),
    after("an endless header name", b"MESSAGE\n", Flood(b"y", 8 * MIB), words="max_header_line=65536"),
    after("a heavy head later", b"MESSAGE\n", Flood(b"k:" + b"v" * 60_000 + b"\n", 8 * MIB), words="max_header_block"),
    after("an endless body", message()[:-1], Flood(b"x", 16 * MIB), words="max_body", options=SMALL),
    after("content-length 2^63", message(b"content-length:9223372036854775808\n"), words="max_body=134217728"),
    after("content-length 2^64", message(b"content-length:18446744073709551616\n"), words="max_body=134217728"),
    after("content-length of 5000 digits", message(b"content-length:" + b"9" * 5000 + b"\n"), words="max_body"),
    after("content-length -1", message(b"content-length:-1\n"), words="decimal digits"),
    after("content-length +1", message(b"content-length:+1\n", b"x"), words="decimal digits"),
    after("content-length 1_0", message(b"content-length:1_0\n", b"x" * 10), words="decimal digits"),
    after("content-length 0x10", message(b"content-length:0x10\n", b"x" * 16), words="decimal digits"),
    after("content-length 1e1", message(b"content-length:1e1\n", b"x" * 10), words="decimal digits"),
    after("content-length with a space", message(b"content-length: 1\n", b"x"), words="decimal digits"),
    after("content-length of nothing", message(b"content-length:\n"), words="decimal digits"),
    after("content-length in Arabic", message(ARABIC, b"x" * 12), words="decimal digits"),
    after("content-length in superscript", message(SUPERSCRIPT, b"xx"), words="decimal digits"),
    after("content-length in full width", message(FULLWIDTH, b"x" * 12), words="decimal digits"),
    after(
        "two content-lengths",
        message(b"content-length:3\ncontent-length:1\n", b"x\0yz"),
        words="followed by a NUL",
    ),
    after("a content-length too small", message(b"content-length:1\n", b"hello"), words="followed by a NUL"),
    after("a content-length too large, then the end", message(b"content-length:9\n", b"x"), Fin(), words="closed the"),
    after(
        "a body promised and never sent", message(b"content-length:99\n"), error=ReceiveTimeoutError, act="receive_soon"
    ),
    after(
        "a frame that drips forever", Drip(message(b"x:" + b"y" * 9000)), error=ReceiveTimeoutError, act="receive_soon"
    ),
    after("reset inside of a frame", Await(b"\0"), message()[:20], Rst(), words=""),
    after("the end inside of a frame", message()[:20], Fin(), words="closed the connection"),
    after("bad UTF-8", message(b"x:\xff\n"), words="UTF-8"),
    after("overlong UTF-8", message(b"x:\xc0\x80\n"), words="UTF-8"),
    after("a surrogate in UTF-8", message(b"x:\xed\xa0\x80\n"), words="UTF-8"),
    after("an undefined escape", message(b"x:\\t\n"), words="undefined escape"),
    after("half of an escape", message(b"x:\\\n"), words="undefined escape"),
    after("a CR in a header", message(b"x:a\rb\n"), words="CR inside a header"),
    after("a NUL in a header", message(b"x:a\0b\n"), words="a NUL before the empty line"),
    after("a header without a colon", message(b"x\n"), words="without a colon"),
    after("a header without a name", message(b":x\n"), words="without a name"),
    after("MESSAGE without an id", b"MESSAGE\ndestination:/queue/a\nsubscription:1\n\n\0", words="message-id"),
    after("MESSAGE without a destination", b"MESSAGE\nmessage-id:1\nsubscription:1\n\n\0", words="destination"),
    after("MESSAGE without a subscription", b"MESSAGE\nmessage-id:1\ndestination:/queue/a\n\n\0", words="subscription"),
    after("RECEIPT without an id", b"RECEIPT\n\n\0", words="receipt-id"),
    after("RECEIPT with a body", b"RECEIPT\nreceipt-id:1\n\nboo\0", words="must not have a body"),
    after(
        "receipts that nobody asked for", Flood(b"RECEIPT\nreceipt-id:1\n\n\0", MIB // 16), Fin(), words="closed the"
    ),
    after(
        "receipts in front of a listener that hangs",
        Flood(b"RECEIPT\nreceipt-id:1\n\n\0", 16 * MIB),
        error=None,
        act="hang_in_a_listener",
        memory=16 * MIB,
        options={"max_inbox_messages": 1_000},
    ),
    after(
        "messages for nobody", Flood(message(subscription=b"nobody"), MIB // 4), Fin(), words="closed the connection"
    ),
    after(
        "empty messages while a receipt is waited for",
        Flood(message(), 16 * MIB),
        error=ReceiptTimeoutError,
        words="inbox is at its hard limit",
        act="confirm",
        memory=24 * MIB,
        options={**SMALL_INBOX, "receipt": 2.5},
    ),
    after(
        "messages that are all header while a receipt is waited for",
        Flood(message(b"x:" + b"y" * 50_000 + b"\n"), 32 * MIB),
        error=ReceiptTimeoutError,
        words="inbox is at its hard limit",
        act="confirm",
        memory=16 * MIB,
        options={**SMALL_INBOX, "receipt": 2.5},
    ),
    after("never confirms", error=ReceiptTimeoutError, act="confirm", options={"receipt": 0.3}),
    after(
        "confirms what others sent",
        Await(b"SEND"),
        b"RECEIPT\nreceipt-id:other\n\n\0",
        error=ReceiptTimeoutError,
        act="confirm",
        options={"receipt": 0.3},
    ),
    after(
        "never confirms a thousand",
        error=LimitExceededError,
        words="max_receipts=10",
        act="many",
        options={"max_receipts": 10},
    ),
    after("never confirms a subscription", error=ReceiptTimeoutError, act="subscribe", options={"receipt": 0.3}),
    after("never answers a request", error=ReceiveTimeoutError, act="request"),
    after("never confirms a transaction", error=ReceiptTimeoutError, act="transaction", options={"receipt": 0.3}),
    after("never answers DISCONNECT", error=None, act="disconnect", options={"close": 0.5}),
    after("reads nothing", Deaf(), error=SendTimeoutError, act="send_much", options={"send": 0.3}),
    after(
        "promises heartbeats and is silent",
        Deaf(),
        greeting=b"CONNECTED\nversion:1.2\nheart-beat:50,0\n\n\0",
        error=HeartbeatTimeoutError,
        options={"heartbeat": (0, 0.05)},
    ),
    after(
        "promises heartbeats and stops inside of a frame",
        message(b"content-length:99\n"),
        Deaf(),
        greeting=b"CONNECTED\nversion:1.2\nheart-beat:50,0\n\n\0",
        error=HeartbeatTimeoutError,
        options={"heartbeat": (0, 0.05)},
    ),
    after("JSON of ten thousand brackets", message(JSON, b"[" * 100_000), error=BodyDecodeError, act="json"),
    after("JSON of a number of a million digits", message(JSON, b"9" * 1_000_000), error=BodyDecodeError, act="json"),
    after(
        "a charset that is none",
        message(b"content-type:text/plain;charset=nil\n", b"x"),
        error=BodyDecodeError,
        act="text",
    ),
    after(
        "a charset that is slow on purpose",
        message(b"content-type:text/plain;charset=punycode\n", b"a" * 200_000 + b"-" + b"b" * 200_000),
        error=BodyDecodeError,
        act="text",
    ),
    after(
        "a charset that is code",
        message(b"content-type:text/plain;charset=zlib\n", b"x"),
        error=BodyDecodeError,
        act="text",
    ),
    after(
        "a body that is not its charset",
        message(b"content-type:text/plain\n", b"\xff"),
        error=BodyDecodeError,
        act="text",
    ),
)

AT_ONCE = (
    before("CONNECTED, and ERROR with it", GREETING + b"ERROR\nmessage:no, no\n\n\0", error=StompError, words="no, no"),
    before("CONNECTED, and nonsense with it", GREETING + b"NONSENSE\n\n\0", error=StompError, words="NONSENSE"),
    before("CONNECTED, and the end with it", GREETING, Fin(), error=StompError, words="closed the connection"),
)

ATTACKS = AT_ONCE + HANDSHAKES + SESSIONS
