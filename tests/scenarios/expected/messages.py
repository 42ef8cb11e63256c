"""Bodies, headers, destinations."""

from __future__ import annotations

from tests.scenarios.expected.model import (
    ACTIVEMQ_5,
    ACTIVEMQ_6,
    ARTEMIS,
    CLASSIC,
    EMBEDDED,
    ESCAPING,
    KINDS,
    RABBITMQ,
    RABBITMQ_3,
    RABBITMQ_4,
    Fact,
    fact,
    on,
)

_TEXT, _BYTES = "send and receive text", "send and receive bytes, NULs"
_HEADERS, _SIZE, _WHERE = "UTF-8 and escapes in headers", "big bodies and limits", "queues and topics"
_CONTENT = "MESSAGE\ncontent-type:text/plain;charset=utf-8\n\nGrüße, 世界 🦊"

MESSAGES: tuple[Fact, ...] = (
    fact("text", _TEXT, "Are text and JSON preserved?", on(KINDS, True, "yes, with their `content-type`", _CONTENT)),
    fact(
        "text-length",
        _TEXT,
        "Does a MESSAGE have a `content-length` if its SEND had none?",
        on((*EMBEDDED, *RABBITMQ), "2", "yes", "MESSAGE\ncontent-length:2"),
        on(CLASSIC, "none", "no: it is a text message then", "MESSAGE\n!content-length"),
        on(ARTEMIS, "none", "not in 1.0", "MESSAGE\n!content-length", versions=["1.0"]),
        on(ARTEMIS, "2", "yes", "MESSAGE\ncontent-length:2"),
    ),
    fact(
        "bytes",
        _BYTES,
        "Are NULs and binary bodies preserved?",
        on(KINDS, True, "yes, sent with `content-length`"),
    ),
    fact(
        "bytes-length",
        _BYTES,
        "And bytes that are not UTF-8, sent without `content-length`?",
        on((*EMBEDDED, *ACTIVEMQ_5, *RABBITMQ), "intact", "they are preserved"),
        on((*ACTIVEMQ_6, *ARTEMIS), "replaced", "each becomes U+FFFD: it is a text message", grade="own"),
    ),
    fact(
        "bytes-empty",
        _BYTES,
        "Which `content-length` has an empty body, sent with one and without?",
        on((*EMBEDDED, *RABBITMQ), "none, none", "none"),
        on((*CLASSIC, *ARTEMIS), "0, none", "the sender's"),
    ),
    fact(
        "header-values",
        _HEADERS,
        "Which header values are not preserved?",
        on(
            EMBEDDED,
            "spaces 'a', LF refused, CR refused",
            "1.0 cannot represent line ends (stompy raises), and spaces around a value are stripped",
            versions=["1.0"],
        ),
        on(
            CLASSIC,
            "spaces 'a', backslash 'C:', LF refused, CR refused",
            "as in 1.0; but `\\n`, `\\c` and `\\\\` in a value are unescaped: a Windows path is damaged",
            versions=["1.0"],
            grade="own",
        ),
        on(
            ARTEMIS,
            "utf-8 '\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd', spaces 'a', LF refused, CR refused",
            "as in 1.0; and characters outside ASCII are lost",
            versions=["1.0"],
            grade="own",
        ),
        on(
            RABBITMQ,
            "spaces 'a'",
            "it uses escapes in 1.0 too, and so does stompy with it; spaces around a value are stripped",
            versions=["1.0"],
            grade="own",
        ),
        on(KINDS, "all kept", "all are preserved: colons, UTF-8, spaces, backslashes, line ends", versions=ESCAPING),
    ),
    fact(
        "header-repeated",
        _HEADERS,
        "Which of two headers with the same name is delivered?",
        on(EMBEDDED, "first last", "both"),
        on(CLASSIC, "first", "the first"),
        on(ARTEMIS, "last", "the last, contrary to STOMP", versions=["1.0", "1.1"], grade="own"),
        on((*ARTEMIS, *RABBITMQ), "first", "the first"),
    ),
    fact(
        "header-names",
        _HEADERS,
        "Which of a sender's own headers named `ack`, `id`, `version`, `session`, `server`, `subscription`, "
        "`redelivered`, `receipt` and `transaction` reach the subscriber?",
        on(EMBEDDED, "id version session server", "`id`, `version`, `session`, `server`"),
        on(
            CLASSIC,
            "ack id version session server",
            "`ack`, `id`, `version`, `session`, `server`: an `ack` on an `auto` message means nothing",
            "MESSAGE\nack:sent",
            grade="own",
        ),
        on(
            (*ARTEMIS, *RABBITMQ),
            "ack id version session server receipt transaction",
            "those too, and the `receipt` and `transaction` of the SEND",
            "MESSAGE\nreceipt:r\ntransaction:t\nack:sent",
            grade="own",
        ),
    ),
    fact(
        "body-limit",
        _SIZE,
        "What do bodies of 6 MiB, more than 100 MiB and more than 128 MiB get?",
        on(EMBEDDED, "RECEIPT read ERROR", "at most 128 MiB by default; more gets ERROR as soon as its head is read"),
        on(CLASSIC, "RECEIPT ERROR ERROR", "at most 100 MiB by default; more gets ERROR as soon as its head is read"),
        on(ARTEMIS, "RECEIPT read read", "no limit was found"),
        on(RABBITMQ_3, "RECEIPT read read", "no limit was found"),
        on(
            RABBITMQ_4,
            "closed read read",
            "at most 4 MiB by default, the frame as a whole; more is closed without ERROR when so much has come",
            grade="own",
        ),
    ),
    fact(
        "foreign-headers",
        _WHERE,
        "What does a SUBSCRIBE or SEND get whose headers ask for features of other brokers?",
        on(EMBEDDED, "ERROR", "ERROR, which names the header", grade="own"),
        on(KINDS, "MESSAGE", "they are ignored"),
    ),
    fact(
        "consumer-priority",
        _WHERE,
        "How many of four messages do consumers with `activemq.priority` 1 and 9 get?",
        on(EMBEDDED, "ERROR", "ERROR", grade="no"),
        on(CLASSIC, "0 4", "all go to the second, while it has room"),
        on((*ARTEMIS, *RABBITMQ), "2 2", "two each: they ignore it", grade="no"),
    ),
    fact(
        "destination-bare",
        _WHERE,
        "Which destination has a MESSAGE for `NAME`, and for `/NAME/bar`?",
        on((*EMBEDDED, *ARTEMIS), "NAME /NAME/bar", "unchanged"),
        on(CLASSIC, "/queue/NAME /queue//NAME/bar", "both are queues", grade="own"),
        on(RABBITMQ, "/queue/NAME refused", "the first is a queue; for the second, ERROR", grade="own"),
    ),
)
