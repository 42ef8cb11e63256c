"""Cases of bodies, commands, limits and the rules of the 1.0-draft."""

from __future__ import annotations

from stompy.frames.grammar import CLIENT_COMMANDS, SERVER_COMMANDS, FrameLimits, Leniency
from tests.frames.case import ALL, DRAFT, FINAL, HANDSHAKE, MODERN, V1_0, V1_1, V1_2, bad, frame, good

ONE_LINE = FrameLimits(max_headers=1, max_header_line=8, max_body=3)

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
    bad(
        "a counted body that goes on",
        "BDY-04",
        ALL,
        b"SEND\ncontent-length:1\n\nhi\0",
        "must be followed by a NUL, not by 'i'",
    ),
    bad(
        "an empty counted body that goes on",
        "BDY-04",
        ALL,
        b"SEND\ncontent-length:0\n\nhi\0",
        "must be followed by a NUL",
    ),
    good("an empty counted body", "BDY-03", ALL, b"SEND\ncontent-length:0\n\n\0", frame("SEND", "content-length:0")),
    good(
        "bytes, not characters",
        "BDY-09",
        ALL,
        b"SEND\ncontent-length:2\n\n\xc3\xa9\0",
        frame("SEND", "content-length:2", body=b"\xc3\xa9"),
    ),
    good(
        "bytes as they are",
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
    good(
        "content-length on an unknown frame",
        "A-10",
        FINAL,
        b"FOO\ncontent-length:2\n\n\0\0\0",
        frame("FOO", "content-length:2", body=b"\0\0"),
    ),
    good(
        "the first content-length counts",
        "REP-05 BDY-03",
        ALL,
        b"SEND\ndestination:/q\ncontent-length:3\ncontent-length:1\n\na\0b\0",
        frame("SEND", "destination:/q", "content-length:3", "content-length:1", body=b"a\0b"),
    ),
    *(
        bad(
            f"content-length {value!r}",
            "A-40",
            FINAL,
            f"SEND\ncontent-length:{value}\n\na\0".encode(),
            "must be decimal digits",
        )
        for value in ("", "-1", "+1", "x", "1 1", "0x1", "1_0", "1.0", "١", "\t1")
    ),
    *(
        bad(
            f"content-length {value!r}",
            "A-40 FRM-10",
            MODERN,
            f"SEND\ncontent-length:{value}\n\na\0".encode(),
            "must be decimal digits",
        )
        for value in (" 1", "1 ")
    ),
    good(
        "a padded content-length",
        "A-40",
        (DRAFT, V1_0),
        b"SEND\ncontent-length: 1 \n\n\0\0",
        frame("SEND", "content-length:1", body=b"\0"),
    ),
    good(
        "a padded content-length of an unknown version",
        "A-40 A-14",
        (HANDSHAKE,),
        b"ERROR\ncontent-length: 1\n\n\0\0",
        frame("ERROR", "content-length: 1", body=b"\0"),
    ),
    good(
        "zeros in front",
        "A-40",
        ALL,
        b"SEND\ncontent-length:0000000000000000000000001\n\n\0\0",
        frame("SEND", "content-length:0000000000000000000000001", body=b"\0"),
    ),
    good(
        "nothing but zeros",
        "A-40",
        ALL,
        b"SEND\ncontent-length:00000000000000000000\n\n\0",
        frame("SEND", "content-length:00000000000000000000"),
    ),
    bad("a huge content-length", "A-40 LIM-01", ALL, b"SEND\ncontent-length:" + b"9" * 5000 + b"\n\n", "is too large"),
    good(
        "a body where none may be",
        "BDY-02 A-11 D10-14",
        (DRAFT, V1_0),
        b"SUBSCRIBE\ndestination:/q\n\njunk\0",
        frame("SUBSCRIBE", "destination:/q"),
    ),
    good(
        "a body where none may be, of an unknown version",
        "A-11 A-14",
        (HANDSHAKE,),
        b"CONNECT\n\njunk\0",
        frame("CONNECT", body=b"junk"),
    ),
    *(
        bad(
            f"a {command} with a body",
            "BDY-01 A-11 BNF-11 BNF-12",
            MODERN,
            f"{command}\nid:0\n\nx\0".encode(),
            f"a {command} frame must not have a body: 'x",
        )
        for command in sorted((CLIENT_COMMANDS | SERVER_COMMANDS) - {"SEND", "MESSAGE", "ERROR"})
    ),
    bad(
        "a counted body where none may be",
        "BDY-01",
        MODERN,
        b"ACK\ncontent-length:1\n\nx\0",
        "must not have a body: content-length 1",
    ),
    bad("more than an empty counted body", "BDY-01", MODERN, b"ACK\ncontent-length:0\n\nx\0", "must not have a body"),
    good(
        "a body where none may be, tolerated",
        "A-11",
        MODERN,
        b"ACK\nid:1\n\nx\0ACK\nid:1\n\n\0",
        frame("ACK", "id:1"),
        frame("ACK", "id:1"),
        leniency=Leniency.UNEXPECTED_BODY,
    ),
]

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
    good(
        "trailing spaces and CRs go",
        "D10-01 A-03",
        (DRAFT,),
        b"SEND\nk:v \r \nl:w\r\n\r\nx\0",
        frame("SEND", "k:v", "l:w", body=b"x"),
    ),
    good("an empty line of spaces", "D10-01", (DRAFT,), b"SEND\nk:v\n \r \nx\0", frame("SEND", "k:v", body=b"x")),
    good(
        "empty lines before the command", "D10-02", (DRAFT,), b"\n \n\r\n \r\nSEND\n\nx\0 \n", frame("SEND", body=b"x")
    ),
    bad("a space before the command", "D10-02", (DRAFT,), b"\n SEND\n\nx\0", "only line ends are allowed"),
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
    good(
        "header names in any case",
        "D10-07 A-01",
        (DRAFT,),
        b"SEND\nContent-LENGTH:1\n\n\0\0",
        frame("SEND", "content-length:1", body=b"\0"),
    ),
    good(
        "the first content-length counts, in any case",
        "D10-07",
        (DRAFT,),
        b"SEND\nContent-Length:3\ncontent-length:1\n\na\0b\0",
        frame("SEND", "content-length:3", "content-length:1", body=b"a\0b"),
    ),
    bad(
        "the first content-length is no number, in any case",
        "D10-07",
        (DRAFT,),
        b"SEND\nContent-Length:x\ncontent-length:1\n\na\0",
        "must be decimal digits",
    ),
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
    good(
        "a padded RECEIPT",
        "D10-19",
        (DRAFT,),
        b"RECEIPT\nreceipt-id: foo9876\n\n\0",
        frame("RECEIPT", "receipt-id:foo9876"),
    ),
]

LIMITS = [
    good("as many headers as may be", "LIM-01", ALL, b"SEND\nk:v\n\n\0", frame("SEND", "k:v"), limits=ONE_LINE),
    bad(
        "a header too many",
        "LIM-01 LIM-03",
        ALL,
        b"SEND\nk:v\nk:v\n\n\0",
        "too many headers in a frame (limit max_headers=1)",
        limits=ONE_LINE,
    ),
    bad("endless headers", "LIM-01 LIM-03", ALL, b"SEND\nk:v\nk:v\n", "too many headers", limits=ONE_LINE),
    good(
        "as long a line as may be", "LIM-01", ALL, b"SEND\nk:345678\n\n\0", frame("SEND", "k:345678"), limits=ONE_LINE
    ),
    good(
        "a CR LF does not count",
        "LIM-01",
        (V1_0, V1_2),
        b"SEND\nk:345678\r\n\r\n\0",
        frame("SEND", "k:345678"),
        limits=ONE_LINE,
    ),
    bad("a CR counts in 1.1", "LIM-01", (V1_1,), b"SEND\nk:345678\r\n\n\0", "line is too long", limits=ONE_LINE),
    bad(
        "a line too long",
        "LIM-01 LIM-03",
        ALL,
        b"SEND\nk:3456789\n\n\0",
        "too long (limit max_header_line=8)",
        limits=ONE_LINE,
    ),
    bad(
        "a line too long with CR LF",
        "LIM-01",
        (V1_0, V1_2),
        b"SEND\nk:3456789\r\n\n\0",
        "line is too long",
        limits=ONE_LINE,
    ),
    bad("an endless line", "LIM-01 LIM-03", ALL, b"SEND\nk:3456789", "line is too long", limits=ONE_LINE),
    bad("a long blank line", "LIM-01", (DRAFT,), b"SEND\nk:v\n     \r    \n\0", "line is too long", limits=ONE_LINE),
    good("a blank line", "D10-01", (DRAFT,), b"SEND\nk:v\n     \r  \n\0", frame("SEND", "k:v"), limits=ONE_LINE),
    good("spaces before a name", "D10-05", (DRAFT,), b"SEND\n    k:v\n \n\0", frame("SEND", "    k:v")),
    bad("a long line of spaces", "LIM-01", (DRAFT,), b"SEND\nk:v\n           :", "line is too long", limits=ONE_LINE),
    bad("an endless command", "LIM-01", ALL, b"S" * 65, "not a STOMP command", limits=ONE_LINE),
    good("as long a body as may be", "LIM-01", ALL, b"SEND\n\nabc\0", frame("SEND", body=b"abc"), limits=ONE_LINE),
    bad(
        "a body too long",
        "LIM-01 LIM-03",
        ALL,
        b"SEND\n\nabcd\0",
        "does not end (limit max_body=3)",
        limits=ONE_LINE,
    ),
    bad(
        "an endless body",
        "LIM-01 LIM-03",
        ALL,
        b"SEND\n\nabcd",
        "does not end (limit max_body=3)",
        limits=ONE_LINE,
    ),
    bad(
        "a content-length too large, before its body",
        "LIM-01 LIM-03",
        ALL,
        b"SEND\ncontent-length:4\n\n",
        "content-length '4' is too large (limit max_body=3)",
        limits=FrameLimits(max_body=3),
    ),
    good(
        "as large a content-length as may be",
        "LIM-01",
        ALL,
        b"SEND\ncontent-length:3\n\nabc\0",
        frame("SEND", "content-length:3", body=b"abc"),
        limits=FrameLimits(max_body=3),
    ),
]
