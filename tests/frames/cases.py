"""What the parser must make of which octets, as data: `test_parser.py` runs every case in every way it can be cut.

Each case names the rows of the requirements that it holds. `frames` are what must come out before the end or before the
error; `error` is a part of the error's text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stompy.frames.grammar import CLIENT_COMMANDS, SERVER_COMMANDS, Leniency
from stompy.frames.limits import DEFAULT_LIMITS, Limits
from tests.support.reference import PROFILES, Decoded

DRAFT, V1_0, V1_1, V1_2, HANDSHAKE = PROFILES
ALL = (DRAFT, V1_0, V1_1, V1_2)
FINAL = (V1_0, V1_1, V1_2)
MODERN = (V1_1, V1_2)


@dataclass(frozen=True)
class Case:
    """Octets, by which rules they are read, and what comes out."""

    name: str
    rows: tuple[str, ...]
    profiles: tuple[str, ...]
    octets: bytes
    frames: tuple[Decoded, ...] = ()
    error: str | None = None
    leniency: Leniency = Leniency.NONE
    limits: Limits = field(default=DEFAULT_LIMITS)


def frame(command: str, *headers: str, body: bytes = b"") -> Decoded:
    """Return a frame; each header is written `name:value`, split at the first colon."""
    pairs = tuple((name, value) for name, _, value in (header.partition(":") for header in headers))
    return command, pairs, body


def good(
    name: str,
    rows: str,
    profiles: tuple[str, ...],
    octets: bytes,
    *frames: Decoded,
    leniency: Leniency = Leniency.NONE,
    limits: Limits = DEFAULT_LIMITS,
) -> Case:
    return Case(name, tuple(rows.split()), profiles, octets, frames, leniency=leniency, limits=limits)


def bad(
    name: str,
    rows: str,
    profiles: tuple[str, ...],
    octets: bytes,
    error: str,
    *frames: Decoded,
    limits: Limits = DEFAULT_LIMITS,
) -> Case:
    return Case(name, tuple(rows.split()), profiles, octets, frames, error, limits=limits)


HI = frame("SEND", "destination:/q", body=b"hi")
ONE_LINE = Limits(max_headers=1, max_header_line=8, max_body=3)

FRAMES = [
    good(
        "command, headers, empty line, body, NUL",
        "FRM-01 FRM-12 BNF-01 BNF-02 BNF-03 BNF-04 D10-09",
        ALL,
        b"SEND\ndestination:/queue/a\n\nhi\0",
        frame("SEND", "destination:/queue/a", body=b"hi"),
    ),
    good("no headers", "FRM-02 BNF-02 BNF-03 BNF-04 A-12", ALL, b"DISCONNECT\n\n\0", frame("DISCONNECT")),
    bad("no empty line", "FRM-02 A-12", ALL, b"DISCONNECT\n\0", "a NUL before the empty line"),
    bad("no empty line after headers", "A-12", FINAL, b"RECEIPT\nreceipt-id:77\n\0", "a NUL before the empty line"),
    bad("a NUL in a header", "A-39", ALL, b"SEND\nk:a\0b\n\nhi\0", "a NUL before the empty line"),
    good(
        "line ends after the NUL",
        "FRM-06 A-46",
        FINAL,
        b"RECEIPT\nreceipt-id:1\n\n\0\n\n\nRECEIPT\nreceipt-id:2\n\n\0",
        frame("RECEIPT", "receipt-id:1"),
        frame("RECEIPT", "receipt-id:2"),
    ),
    good(
        "CR LF after the NUL",
        "FRM-06 BNF-04 A-46",
        (V1_2,),
        b"RECEIPT\nreceipt-id:1\n\n\0\r\n\n\r\nRECEIPT\nreceipt-id:2\n\n\0\r\n",
        frame("RECEIPT", "receipt-id:1"),
        frame("RECEIPT", "receipt-id:2"),
    ),
    bad("CR LF after the NUL in 1.1", "FRM-06 A-03", (V1_1,), b"BEGIN\ntransaction:1\n\n\0\r\n", "not a STOMP command", frame("BEGIN", "transaction:1")),
    good("line ends before the first frame", "BNF-01 D10-02", ALL, b"\n\nSEND\ndestination:/q\n\nhi\0", HI),
    good("CR LF before the first frame", "BNF-01", (V1_0, V1_2, HANDSHAKE), b"\r\n\nSEND\ndestination:/q\n\nhi\0", HI),
    bad("a CR between frames", "BNF-04 A-03", (V1_0, V1_2), b"\rSEND\n\n\0", "only line ends may stand"),
    bad("two CRs before an LF between frames", "BNF-04", (V1_0, V1_2), b"\r\r\nSEND\n\n\0", "only line ends may stand"),
    bad("a space before the command", "BNF-04", (V1_2,), b" SEND\n\n\0", "not a STOMP command"),
    good(
        "frames back to back",
        "FRM-12 BDY-05 BNF-01",
        ALL,
        b"SEND\ndestination:/q\n\nab\0SEND\ndestination:/q\n\ncd\0",
        frame("SEND", "destination:/q", body=b"ab"),
        frame("SEND", "destination:/q", body=b"cd"),
    ),
    bad("another protocol", "FRM-01", ALL, b"GET / HTTP/1.1\n", "not a STOMP command"),
    bad("a TLS greeting", "FRM-01", ALL, b"\x16\x03\x01\x02\0", ""),
    bad("a frame before the offence", "FRM-01", ALL, b"SEND\ndestination:/q\n\nhi\0!", "not a STOMP command", HI),
    good("an unknown command", "FRM-13", MODERN, b"FOO\nk:v\n\nx\0", frame("FOO", "k:v", body=b"x")),
]

LINE_ENDS = [
    good("CR is data", "FRM-03 A-03", (V1_1,), b"MESSAGE\nfoo:bar\r\n\n\0", frame("MESSAGE", "foo:bar\r")),
    good(
        "CR is stripped", "FRM-04 A-03", (V1_0, V1_2, HANDSHAKE), b"MESSAGE\nfoo:bar\r\n\n\0", frame("MESSAGE", "foo:bar")
    ),
    good("CR inside a value", "FRM-03 ESC-10", (V1_0, V1_1), b"MESSAGE\nfoo:b\rr\n\n\0", frame("MESSAGE", "foo:b\rr")),
    good("CR inside a name", "FRM-03 BNF-05 BNF-07", (V1_0, V1_1), b"MESSAGE\nf\ro:b\n\n\0", frame("MESSAGE", "f\ro:b")),
    good("one CR is stripped", "A-03", (V1_0,), b"MESSAGE\nfoo:bar\r\r\n\n\0", frame("MESSAGE", "foo:bar\r")),
    good("CR LF everywhere", "FRM-04 BNF-04", (V1_0, V1_2, HANDSHAKE), b"SEND\r\ndestination:/q\r\n\r\nhi\0", HI),
    good("CR LF here and there", "FRM-04 BNF-04", (V1_2,), b"SEND\r\ndestination:/q\n\r\nhi\0", HI),
    good("CR LF only in the empty line", "FRM-04", (V1_2,), b"SEND\ndestination:/q\n\r\nhi\0", HI),
    good("CR LF but in the empty line", "FRM-04", (V1_2,), b"SEND\r\ndestination:/q\r\n\nhi\0", HI),
    good("CR LF without headers", "BNF-04", (V1_2,), b"SEND\r\n\r\n\0\r\n\r\n", frame("SEND")),
    good(
        "an LF LF in the body of a CR LF frame",
        "FRM-04 BDY-10",
        (V1_2,),
        b"SEND\r\ndestination:/q\r\n\r\nh\n\ni\0SEND\ndestination:/q\n\nhi\0",
        frame("SEND", "destination:/q", body=b"h\n\ni"),
        HI,
    ),
    bad("CR LF in 1.1", "FRM-03 A-03", (V1_1,), b"SEND\r\ndestination:/q\r\n\r\nhi\0", "not a STOMP command"),
    bad("CR LF after the command line in 1.1", "FRM-03 A-03", (V1_1,), b"SEND\nk:v\r\n\r\n\n\0", "without a colon: '\\r'"),
    good(
        "CR LF in 1.1 where it is borne",
        "A-03",
        (V1_1,),
        b"SEND\r\ndestination:/q\r\n\r\nhi\0\r\n",
        HI,
        leniency=Leniency.CRLF_IN_1_1,
    ),
    bad("a stray CR in a value", "BNF-08 ESC-03", (V1_2,), b"MESSAGE\nk:a\rb\n\n\0", "a CR inside a header"),
    bad("a stray CR in a name", "BNF-08", (V1_2,), b"MESSAGE\na\rb:k\n\n\0", "a CR inside a header"),
    bad("two CRs at the line end", "BNF-08 FRM-04", (V1_2,), b"MESSAGE\nk:a\r\r\n\n\0", "a CR inside a header"),
]

HEADERS = [
    good("spaces are kept", "FRM-10 A-02", MODERN, b"MESSAGE\nfoo: bar \n\n\0", frame("MESSAGE", "foo: bar ")),
    good("spaces of names are kept", "FRM-10 A-02", FINAL, b"MESSAGE\n foo :bar\n\n\0", frame("MESSAGE", " foo :bar")),
    good(
        "spaces around values go",
        "FRM-11 A-02 BNF-13",
        (V1_0,),
        b"CONNECT\nlogin: bob \npasscode:x\n\n\0",
        frame("CONNECT", "login:bob", "passcode:x"),
    ),
    good(
        "spaces stay until the version is known",
        "FRM-11 A-14",
        (HANDSHAKE,),
        b"CONNECT\nlogin: bob\n\n\0",
        frame("CONNECT", "login: bob"),
    ),
    good("only spaces are trimmed", "A-02", (V1_0,), b"SEND\nk: \tv\t \n\n\0", frame("SEND", "k:\tv\t")),
    good("UTF-8", "FRM-08 A-38 D10-11", ALL, b"SEND\nk:\xc3\xa9\n\n\0", frame("SEND", "k:é")),
    good("UTF-8 in names", "FRM-08 A-38", FINAL, "SEND\né:😀\n\n\0".encode(), frame("SEND", "é:😀")),
    bad("not UTF-8", "FRM-08 A-38 D10-11", ALL, b"SEND\nk:\xff\n\n\0", "headers must be UTF-8: '\\\\xff'"),
    bad("half a character", "FRM-08", MODERN, b"SEND\nk:\xc3\n\n\0", "headers must be UTF-8"),
    bad("a surrogate", "FRM-08", MODERN, b"SEND\nk:\xed\xa0\x80\n\n\0", "headers must be UTF-8"),
    good(
        "not UTF-8 where it is borne",
        "A-38",
        (*ALL, HANDSHAKE),
        b"SEND\nk:\xff\n\n\0",
        frame("SEND", "k:\udcff"),
        leniency=Leniency.INVALID_UTF8,
    ),
    good("an empty value", "BNF-07 BNF-08 A-37", ALL, b"SEND\nk:\n\n\0", frame("SEND", "k:")),
    bad("no name", "BNF-09 A-39", ALL, b"SEND\n:x\n\n\0", "without a name: ':x'"),
    bad("no colon", "BNF-09 A-39", ALL, b"SEND\nfoo\n\n\0", "without a colon: 'foo'"),
    bad("no colon in a later line", "BNF-09", ALL, b"SEND\nk:v\nfoo\nk:v\n\n\0", "without a colon: 'foo'"),
    bad("no name in a later line", "BNF-09", ALL, b"SEND\nk:v\n:foo\n\n\0", "without a name: ':foo'"),
    good("colons in a value", "BNF-05 BNF-06 A-09", ALL, b"SEND\ndestination:a:b:\n\n\0", frame("SEND", "destination:a:b:")),
    good(
        "a header twice",
        "REP-01 REP-02 REP-03 A-36",
        ALL,
        b"MESSAGE\nfoo:World\nfoo:Hello\n\n\0",
        frame("MESSAGE", "foo:World", "foo:Hello"),
    ),
    bad("a secret in a bad line", "A-39", (V1_2, HANDSHAKE), b"CONNECT\nhush\n\n\0", "without a colon: (hidden"),
    bad("a lower-case command is another one", "FRM-07 A-01", FINAL, b"send\n\nx\0\x01", "not a STOMP", frame("send", body=b"x")),
    good(
        "header names keep their case",
        "FRM-07 A-01",
        FINAL,
        b"SEND\nDestination:/q\nContent-Length:9\n\nx\0",
        frame("SEND", "Destination:/q", "Content-Length:9", body=b"x"),
    ),
]

ESCAPES = [
    good("no escapes", "ESC-01 A-04", (DRAFT, V1_0), b"SEND\npath:C\\new\\c\n\n\0", frame("SEND", "path:C\\new\\c")),
    good("LF, colon, backslash", "ESC-02 ESC-03", MODERN, b"MESSAGE\nk:a\\nb\\cc\\\\d\n\n\0", frame("MESSAGE", "k:a\nb:c\\d")),
    good("CR", "ESC-03", (V1_2,), b"MESSAGE\nk:a\\r\\nb\n\n\0", frame("MESSAGE", "k:a\r\nb")),
    good("names", "ESC-05", MODERN, b"MESSAGE\na\\cb\\n\\\\:1\n\n\0", ("MESSAGE", (("a:b\n\\", "1"),), b"")),
    good("one pass", "ESC-09", MODERN, b"MESSAGE\nk:\\\\n\n\n\0", frame("MESSAGE", "k:\\n")),
    good("pairs of backslashes", "ESC-09", MODERN, b"MESSAGE\nk:\\\\\\\\\\c\\\\t\n\n\0", frame("MESSAGE", "k:\\\\:\\t")),
    bad("CR in 1.1", "ESC-06 A-05 A-06", (V1_1,), b"MESSAGE\nk:a\\rb\n\n\0", "undefined escape sequence '\\\\r'"),
    bad("a tab", "ESC-06 A-05", MODERN, b"MESSAGE\nk:a\\tb\n\n\0", "undefined escape sequence '\\\\t'"),
    bad("in a name", "ESC-05 ESC-06", MODERN, b"MESSAGE\nk\\t:v\n\n\0", "undefined escape sequence '\\\\t'"),
    bad("at the line end", "ESC-06", MODERN, b"MESSAGE\nk:a\\\n\n\0", "undefined escape sequence"),
    bad("at the end of an inner line", "ESC-06", MODERN, b"MESSAGE\nk:a\\\nn:b\n\n\0", "undefined escape sequence"),
    bad("before the colon", "ESC-06", MODERN, b"MESSAGE\nk\\:n\n\n\0", "undefined escape sequence"),
    bad("upper case", "ESC-06", MODERN, b"MESSAGE\nk:\\C\n\n\0", "undefined escape sequence"),
    bad("an odd backslash", "ESC-06 ESC-09", MODERN, b"MESSAGE\nk:\\\\\\t\n\n\0", "undefined escape sequence"),
    good(
        "undefined ones where they are borne",
        "A-05",
        MODERN,
        b"MESSAGE\nk:\\t\\n\\\\\\\n\n\0",
        frame("MESSAGE", "k:\\t\n\\\\"),
        leniency=Leniency.UNDEFINED_ESCAPES,
    ),
    good(
        "CR in 1.1 where it is borne",
        "A-06",
        (V1_1,),
        b"MESSAGE\nk:a\\rb\n\n\0",
        frame("MESSAGE", "k:a\rb"),
        leniency=Leniency.CR_ESCAPE_IN_1_1,
    ),
    good(
        "in 1.0 where they are borne",
        "A-04",
        (V1_0,),
        b"MESSAGE\nk: a\\rb\\c \n\n\0",
        frame("MESSAGE", "k:a\rb:"),
        leniency=Leniency.ESCAPES_IN_1_0,
    ),
    *(
        good(
            f"{command} is raw",
            "ESC-07 A-07" if command != "STOMP" else "ESC-07 A-08",
            (*MODERN, HANDSHAKE),
            command.encode() + b"\nhost:h\npasscode:a\\cb\\t:\\\n\n\0",
            frame(command, "host:h", "passcode:a\\cb\\t:\\"),
        )
        for command in ("CONNECT", "STOMP", "CONNECTED")
    ),
    good(
        "CONNECT where it is escaped",
        "A-07 A-08",
        (*MODERN, HANDSHAKE),
        b"CONNECT\npasscode:a\\cb\n\n\0",
        frame("CONNECT", "passcode:a:b"),
        leniency=Leniency.ESCAPED_CONNECT,
    ),
    good(
        "an early ERROR is read leniently",
        "A-14",
        (HANDSHAKE,),
        b"ERROR\r\nmessage:a\\cb\\t\\\n\nno\0",
        frame("ERROR", "message:a:b\\t\\", body=b"no"),
    ),
]

BODIES = [
    good(
        "a counted body with NULs",
        "BDY-03 BDY-04 BNF-02 BNF-03 D10-09",
        ALL,
        b"SEND\ndestination:/q\ncontent-length:3\n\na\0b\0",
        frame("SEND", "destination:/q", "content-length:3", body=b"a\0b"),
    ),
    good(
        "a counted body that is a frame",
        "BDY-03",
        ALL,
        b"SEND\ncontent-length:8\n\nABORT\n\n\0\0ABORT\n\n\0",
        frame("SEND", "content-length:8", body=b"ABORT\n\n\0"),
        frame("ABORT"),
    ),
    bad("a counted body that goes on", "BDY-04", ALL, b"SEND\ncontent-length:1\n\nhi\0", "must be followed by a NUL, not by 'i'"),
    bad("an empty counted body that goes on", "BDY-04", ALL, b"SEND\ncontent-length:0\n\nhi\0", "must be followed by a NUL"),
    good("an empty counted body", "BDY-03", ALL, b"SEND\ncontent-length:0\n\n\0", frame("SEND", "content-length:0")),
    good("octets, not characters", "BDY-09", ALL, b"SEND\ncontent-length:2\n\n\xc3\xa9\0", frame("SEND", "content-length:2", body=b"\xc3\xa9")),
    good(
        "octets as they are",
        "BDY-10",
        ALL,
        b"SEND\ndestination:/queue/a\n\nhello queue a\n\0",
        frame("SEND", "destination:/queue/a", body=b"hello queue a\n"),
    ),
    good("no text", "BDY-10", ALL, b"SEND\n\n\xff\\n\r\n:\0", frame("SEND", body=b"\xff\\n\r\n:")),
    good(
        "content-length where no body may be",
        "BDY-08 A-10",
        FINAL,
        b"SUBSCRIBE\nid:0\ndestination:/q\ncontent-length:0\n\n\0",
        frame("SUBSCRIBE", "id:0", "destination:/q", "content-length:0"),
    ),
    good(
        "content-length is obeyed on every frame",
        "A-10 BDY-02 A-11",
        (DRAFT, V1_0),
        b"SUBSCRIBE\ndestination:/q\ncontent-length:3\n\na\0b\0",
        frame("SUBSCRIBE", "destination:/q", "content-length:3"),
    ),
    good("content-length on an unknown frame", "A-10", FINAL, b"FOO\ncontent-length:2\n\n\0\0\0", frame("FOO", "content-length:2", body=b"\0\0")),
    good(
        "the first content-length counts",
        "REP-05 BDY-03",
        ALL,
        b"SEND\ndestination:/q\ncontent-length:3\ncontent-length:1\n\na\0b\0",
        frame("SEND", "destination:/q", "content-length:3", "content-length:1", body=b"a\0b"),
    ),
    *(
        bad(f"content-length {value!r}", "A-40", FINAL, f"SEND\ncontent-length:{value}\n\na\0".encode(), "must be decimal digits")
        for value in ("", "-1", "+1", "x", "1 1", "0x1", "1_0", "1.0", "١", "\t1")
    ),
    *(
        bad(f"content-length {value!r}", "A-40 FRM-10", MODERN, f"SEND\ncontent-length:{value}\n\na\0".encode(), "must be decimal digits")
        for value in (" 1", "1 ")
    ),
    good("a padded content-length", "A-40", (DRAFT, V1_0), b"SEND\ncontent-length: 1 \n\n\0\0", frame("SEND", "content-length:1", body=b"\0")),
    good(
        "a padded content-length of an unknown version",
        "A-40 A-14",
        (HANDSHAKE,),
        b"ERROR\ncontent-length: 1\n\n\0\0",
        frame("ERROR", "content-length: 1", body=b"\0"),
    ),
    good("zeros in front", "A-40", ALL, b"SEND\ncontent-length:0000000000000000000000001\n\n\0\0", frame("SEND", "content-length:0000000000000000000000001", body=b"\0")),
    good("nothing but zeros", "A-40", ALL, b"SEND\ncontent-length:00000000000000000000\n\n\0", frame("SEND", "content-length:00000000000000000000")),
    bad("a huge content-length", "A-40 LIM-01", ALL, b"SEND\ncontent-length:" + b"9" * 5000 + b"\n\n", "is too large"),
    good("a body where none may be", "BDY-02 A-11 D10-14", (DRAFT, V1_0), b"SUBSCRIBE\ndestination:/q\n\njunk\0", frame("SUBSCRIBE", "destination:/q")),
    good(
        "a body where none may be, of an unknown version",
        "A-11 A-14",
        (HANDSHAKE,),
        b"CONNECT\n\njunk\0",
        frame("CONNECT", body=b"junk"),
    ),
    *(
        bad(f"a {command} with a body", "BDY-01 A-11 BNF-11 BNF-12", MODERN, f"{command}\nid:0\n\nx\0".encode(), f"a {command} frame must not have a body")
        for command in sorted((CLIENT_COMMANDS | SERVER_COMMANDS) - {"SEND", "MESSAGE", "ERROR"})
    ),
    bad("a counted body where none may be", "BDY-01", MODERN, b"ACK\ncontent-length:1\n\nx\0", "must not have a body"),
    bad("more than an empty counted body", "BDY-01", MODERN, b"ACK\ncontent-length:0\n\nx\0", "must not have a body"),
    good(
        "a body where none may be, borne",
        "A-11",
        MODERN,
        b"ACK\nid:1\n\nx\0ACK\nid:1\n\n\0",
        frame("ACK", "id:1"),
        frame("ACK", "id:1"),
        leniency=Leniency.UNEXPECTED_BODY,
    ),
]  # fmt: skip

GRAMMAR = [
    good(f"{command} in {', '.join(profiles)}", rows, profiles, f"{command}\nk:v\n\n\0".encode(), frame(command, "k:v"))
    for commands, rows, profiles in (
        (CLIENT_COMMANDS - {"STOMP", "NACK"}, "BNF-10", (V1_0,)),
        (CLIENT_COMMANDS, "BNF-11", MODERN),
        (SERVER_COMMANDS, "BNF-12", FINAL),
    )
    for command in sorted(commands)
]

DRAFT_RULES = [
    good("trailing spaces and CRs go", "D10-01 A-03", (DRAFT,), b"SEND\nk:v \r \nl:w\r\n\r\nx\0", frame("SEND", "k:v", "l:w", body=b"x")),
    good("an empty line of spaces", "D10-01", (DRAFT,), b"SEND\nk:v\n \r \nx\0", frame("SEND", "k:v", body=b"x")),
    good("empty lines before the command", "D10-02", (DRAFT,), b"\n \n\r\n \r\nSEND\n\nx\0 \n", frame("SEND", body=b"x")),
    bad("a space before the command", "D10-02", (DRAFT,), b"\n SEND\n\nx\0", "only line ends may stand"),
    good("commands in any case", "D10-03 A-01", (DRAFT,), b"sEnD\n\nx\0", frame("SEND", body=b"x")),
    good("a body-less command in any case", "D10-03 D10-14", (DRAFT,), b"connect\n\nx\0", frame("CONNECT")),
    good("a CR after the command", "D10-04", (DRAFT,), b"SEND\r\nk:v\n\nx\0", frame("SEND", "k:v", body=b"x")),
    bad("two CRs after the command", "D10-04", (DRAFT,), b"SEND\r\r\nk:v\n\nx\0", "not a STOMP command"),
    bad("a space after the command", "D10-04", (DRAFT,), b"SEND \nk:v\n\nx\0", "not a STOMP command"),
    bad("a word after the command", "D10-04", (DRAFT,), b"SEND x\nk:v\n\nx\0", "not a STOMP command"),
    good(
        "leading space of values goes",
        "D10-05 A-02",
        (DRAFT,),
        b"MESSAGE\ndestination: /queue/a\nmessage-id: 1234\n\nhello, world!\0",
        frame("MESSAGE", "destination:/queue/a", "message-id:1234", body=b"hello, world!"),
    ),
    good("any header name", "D10-06", (DRAFT,), b"SEND\nX_Foo :v\n\n\0", frame("SEND", "x_foo :v")),
    good("header names in any case", "D10-07 A-01", (DRAFT,), b"SEND\nContent-LENGTH:1\n\n\0\0", frame("SEND", "content-length:1", body=b"\0")),
    *(
        bad(f"control character {char!r}", "D10-08", (DRAFT,), b"SEND\nk:a" + char + b"b\n\n\0", "control character")
        for char in (b"\x01", b"\t", b"\x0b", b"\r", b"\x1b", b"\x1f", b"\x7f")
    ),
    good(
        "content-length on a frame",
        "D10-10 D10-09",
        (DRAFT,),
        b"MESSAGE\ndestination: /queue/a\nmessage-id: 1234\ncontent-length: 13\n\nhello, world!\0",
        frame("MESSAGE", "destination:/queue/a", "message-id:1234", "content-length:13", body=b"hello, world!"),
    ),
    good("a padded RECEIPT", "D10-19", (DRAFT,), b"RECEIPT\nreceipt-id: foo9876\n\n\0", frame("RECEIPT", "receipt-id:foo9876")),
]  # fmt: skip

LIMITS = [
    good("as many headers as may be", "LIM-01", ALL, b"SEND\nk:v\n\n\0", frame("SEND", "k:v"), limits=ONE_LINE),
    bad("a header too many", "LIM-01 LIM-03", ALL, b"SEND\nk:v\nk:v\n\n\0", "too many headers in a frame (limit max_headers=1)", limits=ONE_LINE),
    bad("endless headers", "LIM-01 LIM-03", ALL, b"SEND\nk:v\nk:v\n", "too many headers", limits=ONE_LINE),
    good("as long a line as may be", "LIM-01", ALL, b"SEND\nk:345678\n\n\0", frame("SEND", "k:345678"), limits=ONE_LINE),
    good("a CR LF does not count", "LIM-01", (V1_0, V1_2), b"SEND\nk:345678\r\n\r\n\0", frame("SEND", "k:345678"), limits=ONE_LINE),
    bad("a CR counts in 1.1", "LIM-01", (V1_1,), b"SEND\nk:345678\r\n\n\0", "line is too long", limits=ONE_LINE),
    bad("a line too long", "LIM-01 LIM-03", ALL, b"SEND\nk:3456789\n\n\0", "a header line is too long (limit max_header_line=8)", limits=ONE_LINE),
    bad("a line too long with CR LF", "LIM-01", (V1_0, V1_2), b"SEND\nk:3456789\r\n\n\0", "line is too long", limits=ONE_LINE),
    bad("an endless line", "LIM-01 LIM-03", ALL, b"SEND\nk:3456789", "line is too long", limits=ONE_LINE),
    bad("an endless empty line", "LIM-01", (DRAFT,), b"SEND\nk:v\n          \n\0", "line is too long", limits=ONE_LINE),
    bad("an endless command", "LIM-01", ALL, b"S" * 65, "not a STOMP command", limits=ONE_LINE),
    good("as long a body as may be", "LIM-01", ALL, b"SEND\n\nabc\0", frame("SEND", body=b"abc"), limits=ONE_LINE),
    bad("a body too long", "LIM-01 LIM-03", ALL, b"SEND\n\nabcd\0", "does not end (limit max_body=3)", limits=ONE_LINE),
    bad("an endless body", "LIM-01 LIM-03", ALL, b"SEND\n\nabcd", "does not end (limit max_body=3)", limits=ONE_LINE),
    bad(
        "a content-length too large, before its body", "LIM-01 LIM-03", ALL, b"SEND\ncontent-length:4\n\n",
        "content-length '4' is too large (limit max_body=3)", limits=Limits(max_body=3),
    ),
    good("as large a content-length as may be", "LIM-01", ALL, b"SEND\ncontent-length:3\n\nabc\0", frame("SEND", "content-length:3", body=b"abc"), limits=Limits(max_body=3)),
]  # fmt: skip

GROUPS = {
    "frames": FRAMES,
    "line ends": LINE_ENDS,
    "headers": HEADERS,
    "escapes": ESCAPES,
    "bodies": BODIES,
    "grammar": GRAMMAR,
    "draft": DRAFT_RULES,
    "limits": LIMITS,
}
