"""Cases of what lies between frames and of their heads."""

from __future__ import annotations

from stompy.frames.grammar import Leniency
from tests.frames.case import ALL, DRAFT, FINAL, HANDSHAKE, HI, MODERN, V1_0, V1_1, V1_2, bad, frame, good

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
    bad(
        "CR LF after the NUL in 1.1",
        "FRM-06 A-03",
        (V1_1,),
        b"BEGIN\ntransaction:1\n\n\0\r\n",
        "not a STOMP command",
        frame("BEGIN", "transaction:1"),
    ),
    good("line ends before the first frame", "BNF-01 D10-02", ALL, b"\n\nSEND\ndestination:/q\n\nhi\0", HI),
    good("CR LF before the first frame", "BNF-01", (V1_0, V1_2, HANDSHAKE), b"\r\n\nSEND\ndestination:/q\n\nhi\0", HI),
    bad("a CR between frames", "BNF-04 A-03", (V1_0, V1_2), b"\rSEND\n\n\0", "only line ends are allowed"),
    bad(
        "two CRs before an LF between frames", "BNF-04", (V1_0, V1_2), b"\r\r\nSEND\n\n\0", "only line ends are allowed"
    ),
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
    bad("a frame before the error", "FRM-01", ALL, b"SEND\ndestination:/q\n\nhi\0!", "not a STOMP command", HI),
    good("an unknown command", "FRM-13", MODERN, b"FOO\nk:v\n\nx\0", frame("FOO", "k:v", body=b"x")),
]

LINE_ENDS = [
    good("CR is data", "FRM-03 A-03", (V1_1,), b"MESSAGE\nfoo:bar\r\n\n\0", frame("MESSAGE", "foo:bar\r")),
    good(
        "CR is stripped",
        "FRM-04 A-03",
        (V1_0, V1_2, HANDSHAKE),
        b"MESSAGE\nfoo:bar\r\n\n\0",
        frame("MESSAGE", "foo:bar"),
    ),
    good("CR inside a value", "FRM-03 ESC-10", (V1_0, V1_1), b"MESSAGE\nfoo:b\rr\n\n\0", frame("MESSAGE", "foo:b\rr")),
    good(
        "CR inside a name", "FRM-03 BNF-05 BNF-07", (V1_0, V1_1), b"MESSAGE\nf\ro:b\n\n\0", frame("MESSAGE", "f\ro:b")
    ),
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
    bad(
        "CR LF after the command line in 1.1",
        "FRM-03 A-03",
        (V1_1,),
        b"SEND\nk:v\r\n\r\n\n\0",
        "without a colon: '\\r'",
    ),
    good(
        "CR LF in 1.1 where it is tolerated",
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
    good("spaces are kept", "FRM-10 A-02 BNF-13", MODERN, b"MESSAGE\nfoo: bar \n\n\0", frame("MESSAGE", "foo: bar ")),
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
        "not UTF-8 where it is tolerated",
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
    good(
        "colons in a value",
        "BNF-05 BNF-06 A-09",
        ALL,
        b"SEND\ndestination:a:b:\n\n\0",
        frame("SEND", "destination:a:b:"),
    ),
    good(
        "a header twice",
        "REP-01 REP-02 REP-03 A-36",
        ALL,
        b"MESSAGE\nfoo:World\nfoo:Hello\n\n\0",
        frame("MESSAGE", "foo:World", "foo:Hello"),
    ),
    bad("a secret in a bad line", "A-39", (V1_2, HANDSHAKE), b"CONNECT\nhush\n\n\0", "without a colon: (hidden"),
    bad(
        "a lower-case command is another one",
        "FRM-07 A-01",
        FINAL,
        b"send\n\nx\0\x01",
        "not a STOMP",
        frame("send", body=b"x"),
    ),
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
    good(
        "LF, colon, backslash",
        "ESC-02 ESC-03",
        MODERN,
        b"MESSAGE\nk:a\\nb\\cc\\\\d\n\n\0",
        frame("MESSAGE", "k:a\nb:c\\d"),
    ),
    good("CR", "ESC-03", (V1_2,), b"MESSAGE\nk:a\\r\\nb\n\n\0", frame("MESSAGE", "k:a\r\nb")),
    good("names", "ESC-05", MODERN, b"MESSAGE\na\\cb\\n\\\\:1\n\n\0", ("MESSAGE", (("a:b\n\\", "1"),), b"")),
    good("one pass", "ESC-09", MODERN, b"MESSAGE\nk:\\\\n\n\n\0", frame("MESSAGE", "k:\\n")),
    good(
        "pairs of backslashes", "ESC-09", MODERN, b"MESSAGE\nk:\\\\\\\\\\c\\\\t\n\n\0", frame("MESSAGE", "k:\\\\:\\t")
    ),
    bad("CR in 1.1", "ESC-06 A-05 A-06", (V1_1,), b"MESSAGE\nk:a\\rb\n\n\0", "undefined escape sequence '\\\\r'"),
    bad("a tab", "ESC-06 A-05", MODERN, b"MESSAGE\nk:a\\tb\n\n\0", "undefined escape sequence '\\\\t'"),
    bad("in a name", "ESC-05 ESC-06", MODERN, b"MESSAGE\nk\\t:v\n\n\0", "undefined escape sequence '\\\\t'"),
    bad("at the line end", "ESC-06", MODERN, b"MESSAGE\nk:a\\\n\n\0", "undefined escape sequence"),
    bad("at the end of an inner line", "ESC-06", MODERN, b"MESSAGE\nk:a\\\nn:b\n\n\0", "undefined escape sequence"),
    bad("before the colon", "ESC-06", MODERN, b"MESSAGE\nk\\:n\n\n\0", "undefined escape sequence"),
    bad("upper case", "ESC-06", MODERN, b"MESSAGE\nk:\\C\n\n\0", "undefined escape sequence"),
    bad("an odd backslash", "ESC-06 ESC-09", MODERN, b"MESSAGE\nk:\\\\\\t\n\n\0", "undefined escape sequence"),
    good(
        "undefined ones where they are tolerated",
        "A-05",
        MODERN,
        b"MESSAGE\nk:\\t\\n\\\\\\\n\n\0",
        frame("MESSAGE", "k:\\t\n\\\\"),
        leniency=Leniency.UNDEFINED_ESCAPES,
    ),
    good(
        "CR in 1.1 where it is tolerated",
        "A-06",
        (V1_1,),
        b"MESSAGE\nk:a\\rb\n\n\0",
        frame("MESSAGE", "k:a\rb"),
        leniency=Leniency.CR_ESCAPE_IN_1_1,
    ),
    good(
        "in 1.0 where they are tolerated",
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
