"""What is wrong, what is answered to it, and whether the connection outlives it."""

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
    VERSIONS,
    Answer,
    Fact,
    either,
    fact,
    on,
)

_GONE = "ERROR(receipt-id), closed"
_GONE_UNNAMED = "ERROR, closed"
_UP = "ERROR(receipt-id), open"
_UP_UNNAMED = "ERROR, open"
_SILENT = "nothing, closed"
_TAKEN = "RECEIPT, open"
# Artemis in 1.2: after an ERROR every further frame gets `Connection is not valid.`
_INVALID = "ERROR(receipt-id) then ERROR, closed"
_INVALID_UNNAMED = "ERROR then ERROR, closed"

_WORDS = {
    _GONE: "ERROR with `receipt-id`, closed",
    _GONE_UNNAMED: "ERROR without `receipt-id`, closed",
    _UP: "ERROR with `receipt-id`, stays open",
    _UP_UNNAMED: "ERROR without `receipt-id`, stays open",
    _SILENT: "closed without ERROR",
    _TAKEN: "accepted: RECEIPT",
    _INVALID: "ERROR with `receipt-id`; the next frame gets `Connection is not valid.`, closed",
    _INVALID_UNNAMED: "ERROR without `receipt-id`; the next frame gets `Connection is not valid.`, closed",
    "ERROR RECEIPT, closed": "ERROR without `receipt-id`, then a RECEIPT, closed",
    "CONNECTED, open": "CONNECTED again",
    "silence": "waits for more",
    "nothing, open": "nothing, stays open",
}

_AS_STOMP_SAYS = (_GONE, _GONE_UNNAMED)


def _do(
    kinds: tuple[str, ...], does: str, *frames: str, says: str = "", versions: tuple[str, ...] = VERSIONS
) -> Answer:
    grade = "yes" if does in _AS_STOMP_SAYS else "own"
    return on(kinds, does, says or _WORDS[does], *frames, grade=grade, versions=versions)  # type: ignore[arg-type]


def _artemis(named: bool, *frames: str) -> tuple[Answer, ...]:
    """Return how Artemis answers most wrong frames: in 1.2 it does not serve the connection any more."""
    invalid, gone = (_INVALID, _GONE) if named else (_INVALID_UNNAMED, _GONE_UNNAMED)
    return (
        _do(ARTEMIS, _UP if named else _UP_UNNAMED, *frames, versions=("1.0", "1.1")),
        # Its last words may be lost behind the end of the connection.
        on(ARTEMIS, either(invalid, gone), _WORDS[invalid], *frames, grade="own", versions=("1.2",)),
    )


def _wrong(case: str, asks: str, *answers: Answer) -> Fact:
    return fact(f"error-{case}", "errors", asks, *answers)


ERRORS: tuple[Fact, ...] = (
    _wrong(
        "unknown-command",
        "A command that does not exist (`FOO`)",
        _do((*EMBEDDED, *CLASSIC), _GONE, "ERROR\nmessage:*FOO*\nreceipt-id:r"),
        _do(ARTEMIS, _GONE_UNNAMED),
        _do(RABBITMQ, _UP_UNNAMED, "ERROR\nmessage:Bad command\n!receipt-id"),
    ),
    _wrong(
        "lower-case",
        "A command in lower case (`send`)",
        _do((*EMBEDDED, *CLASSIC), _GONE),
        _do(ARTEMIS, _GONE_UNNAMED),
        _do(RABBITMQ, _UP_UNNAMED),
    ),
    _wrong(
        "server-frame",
        "A server frame (RECEIPT)",
        _do((*EMBEDDED, *ACTIVEMQ_5), _GONE),
        _do(ACTIVEMQ_6, _GONE_UNNAMED),
        *_artemis(True, "ERROR\nmessage:AMQ339029 Unsupported command RECEIPT"),
        _do(RABBITMQ, _UP_UNNAMED),
    ),
    _wrong(
        "send-nowhere",
        "SEND without `destination`",
        _do(EMBEDDED, _GONE),
        _do(
            CLASSIC, _UP, "ERROR\nmessage:SEND received without a Destination specified!\nreceipt-id:r\n!content-length"
        ),
        *_artemis(True),
        _do(RABBITMQ, _UP_UNNAMED, "ERROR\nmessage:Missing destination\nversion:1.0,1.1,1.2\n!receipt-id"),
    ),
    _wrong(
        "send-empty",
        "SEND to an empty `destination`",
        _do(EMBEDDED, _GONE),
        _do(ARTEMIS, _TAKEN),
        _do(CLASSIC, _SILENT),
        _do(RABBITMQ, _UP_UNNAMED),
    ),
    _wrong(
        "header-no-colon",
        "A header line without a colon",
        _do(EMBEDDED, _GONE_UNNAMED),
        _do((*CLASSIC, *ARTEMIS), _TAKEN),
        _do(RABBITMQ, _SILENT),
    ),
    _wrong(
        "header-escape",
        "An undefined escape (`\\t`)",
        _do(EMBEDDED, _TAKEN, says="accepted: 1.0 has no escapes", versions=("1.0",)),
        _do(EMBEDDED, _GONE_UNNAMED, versions=ESCAPING),
        _do(CLASSIC, _TAKEN, says="accepted unchanged: RECEIPT"),
        _do(ARTEMIS, _TAKEN, says="accepted: 1.0 has no escapes", versions=("1.0",)),
        _do(ARTEMIS, _GONE_UNNAMED, versions=ESCAPING),
        _do(RABBITMQ, _SILENT),
    ),
    _wrong(
        "length-text",
        "`content-length:abc`",
        _do((*EMBEDDED, *CLASSIC), _GONE_UNNAMED),
        _do(ARTEMIS, "silence"),
        _do(RABBITMQ, _SILENT),
    ),
    _wrong(
        "length-negative",
        "`content-length:-1`",
        _do((*EMBEDDED, *ACTIVEMQ_6), _GONE_UNNAMED),
        _do(ACTIVEMQ_5, _SILENT),
        _do(ARTEMIS, _TAKEN),
        _do(RABBITMQ, _SILENT),
    ),
    _wrong(
        "length-short",
        "`content-length:1` and a body of three bytes",
        _do((*EMBEDDED, *CLASSIC), _GONE_UNNAMED),
        on(
            ARTEMIS,
            # It takes the message for one of a single byte, and confirms that when it is safe.
            either(_GONE_UNNAMED, "ERROR RECEIPT, closed", "RECEIPT ERROR, closed"),
            "ERROR without `receipt-id`, closed; perhaps a RECEIPT",
            versions=("1.0",),
            grade="own",
        ),
        _do(ARTEMIS, _TAKEN, versions=ESCAPING),
        _do(RABBITMQ, _SILENT),
    ),
    _wrong(
        "send-transaction",
        "SEND in an unknown transaction",
        _do(EMBEDDED, _GONE),
        _do(CLASSIC, _UP),
        _do(ARTEMIS, _TAKEN, says="accepted: it begins the transaction"),
        _do(RABBITMQ, _UP_UNNAMED),
    ),
    _wrong(
        "subscribe-nowhere",
        "SUBSCRIBE without `destination`",
        _do(EMBEDDED, _GONE),
        _do(CLASSIC, _UP),
        *_artemis(False),
        _do(RABBITMQ, _UP_UNNAMED),
    ),
    _wrong(
        "subscribe-no-id",
        "SUBSCRIBE without `id`",
        on(KINDS, _TAKEN, "accepted: 1.0 needs none", versions=("1.0",)),
        _do(EMBEDDED, _GONE),
        _do(CLASSIC, _UP, "ERROR\nmessage:SUBSCRIBE received without a subscription id!"),
        _do((*ARTEMIS, *RABBITMQ), _TAKEN),
    ),
    _wrong(
        "subscribe-twice",
        "SUBSCRIBE with an `id` that is in use",
        _do(EMBEDDED, _GONE),
        _do(CLASSIC, _TAKEN, says="accepted; the first subscription gets nothing more"),
        *_artemis(False, "ERROR\nmessage:There already is a subscription for: 1. *"),
        _do(RABBITMQ, "ERROR RECEIPT, closed", "ERROR\nmessage:Duplicated subscription identifier"),
    ),
    _wrong(
        "subscribe-ack",
        "SUBSCRIBE with `ack:banana`",
        _do(EMBEDDED, _GONE),
        _do((*CLASSIC, *ARTEMIS), _TAKEN),
        _do(RABBITMQ, _UP_UNNAMED, "ERROR\nmessage:Processing error"),
    ),
    _wrong(
        "subscribe-selector",
        "SUBSCRIBE with an invalid selector",
        _do(
            EMBEDDED,
            _GONE,
        ),
        _do(CLASSIC, _UP),
        *_artemis(False),
        _do(RABBITMQ, _TAKEN, says="accepted, as selectors are ignored"),
    ),
    _wrong(
        "subscribe-blank",
        "SUBSCRIBE with a selector of spaces",
        _do((*EMBEDDED, *RABBITMQ), _TAKEN),
        _do(CLASSIC, _UP),
        *_artemis(False),
    ),
    _wrong(
        "subscribe-empty",
        "SUBSCRIBE with an empty selector",
        _do((*EMBEDDED, *RABBITMQ), _TAKEN),
        _do(CLASSIC, _UP),
        *_artemis(False, "ERROR\nmessage:Selector cannot be empty"),
    ),
    _wrong(
        "subscribe-dots",
        "SUBSCRIBE with a selector that has a dot in a name",
        _do((*EMBEDDED, *RABBITMQ), _TAKEN),
        _do(CLASSIC, _UP),
        *_artemis(False),
    ),
    _wrong(
        "unsubscribe",
        "UNSUBSCRIBE of an unknown subscription",
        _do(EMBEDDED, _GONE),
        _do(CLASSIC, _UP, "ERROR\nmessage:No subscription matched."),
        *_artemis(True),
        _do(RABBITMQ, _UP_UNNAMED, "ERROR\nmessage:No subscription found"),
    ),
    _wrong(
        "ack",
        "ACK of a message that was never delivered",
        _do(EMBEDDED, _GONE),
        _do(CLASSIC, _UP, "ERROR\nmessage:Unexpected ACK received for message-id *"),
        *_artemis(True, "ERROR\nmessage:AMQ339018 Error acknowledging message nobody"),
        _do(RABBITMQ, _UP_UNNAMED),
    ),
    _wrong(
        "nack",
        "NACK of a message that was never delivered",
        _do(EMBEDDED, _GONE),
        _do(CLASSIC, _UP),
        _do(ARTEMIS, _GONE_UNNAMED, versions=("1.0",)),
        *_artemis(True),
        _do(RABBITMQ, _UP_UNNAMED),
    ),
    _wrong(
        "ack-twice",
        "ACK of a message that was already acknowledged",
        _do(EMBEDDED, _GONE),
        _do(CLASSIC, _UP),
        *_artemis(True),
        on(
            RABBITMQ,
            either("RECEIPT ERROR, closed", "RECEIPT ERROR ERROR, closed"),
            "RECEIPT, then ERROR without `receipt-id`, closed",
            "ERROR\nmessage:precondition_failed",
            grade="own",
        ),
    ),
    _wrong(
        "begin-unnamed",
        "BEGIN without `transaction`",
        _do(EMBEDDED, _GONE),
        _do(CLASSIC, _UP),
        *_artemis(True),
        _do(RABBITMQ, _UP_UNNAMED),
    ),
    _wrong(
        "begin-twice",
        "BEGIN of an open transaction",
        _do(EMBEDDED, _GONE),
        _do(CLASSIC, _UP),
        *_artemis(True),
        _do(RABBITMQ, _TAKEN),
    ),
    _wrong(
        "commit",
        "COMMIT of an unknown transaction",
        _do(EMBEDDED, _GONE),
        _do(CLASSIC, _UP, "ERROR\nmessage:Invalid transaction id: zz"),
        *_artemis(True, "ERROR\nmessage:AMQ339013 Error committing zz"),
        _do(RABBITMQ, _UP_UNNAMED),
    ),
    _wrong(
        "abort",
        "ABORT of an unknown transaction",
        _do(EMBEDDED, _GONE),
        _do(CLASSIC, _UP),
        *_artemis(True),
        _do(RABBITMQ, _UP_UNNAMED),
    ),
    _wrong(
        "connect-twice",
        "A second CONNECT",
        _do(EMBEDDED, _GONE),
        _do(ACTIVEMQ_6, _GONE_UNNAMED),
        _do(ACTIVEMQ_5, _UP, "ERROR\nmessage:Already connected."),
        _do(ARTEMIS, "CONNECTED, open"),
        _do(RABBITMQ, _SILENT),
    ),
    _wrong(
        "stomp-twice",
        "STOMP after CONNECT",
        _do(EMBEDDED, _GONE),
        _do(ACTIVEMQ_6, _GONE_UNNAMED),
        _do(ACTIVEMQ_5, _UP, "ERROR\nmessage:Already connected."),
        _do(ARTEMIS, _UP, "ERROR\nmessage:AMQ339029 Unsupported command STOMP", versions=("1.0",)),
        _do(ARTEMIS, _TAKEN),
        _do(RABBITMQ, _SILENT),
    ),
    _wrong(
        "early-frame",
        "SEND before CONNECT",
        _do((*EMBEDDED, *ACTIVEMQ_6), _GONE_UNNAMED),
        _do(ACTIVEMQ_5, _UP, "ERROR\nmessage:Not connected."),
        _do(ARTEMIS, "nothing, open"),
        _do(RABBITMQ, _UP_UNNAMED),
    ),
    _wrong(
        "early-http",
        "`GET / HTTP/1.1` instead of CONNECT",
        _do((*EMBEDDED, *ACTIVEMQ_6), _GONE_UNNAMED),
        _do((*ACTIVEMQ_5, *ARTEMIS, *RABBITMQ), "nothing, open", says="nothing for 1.5 s at least, stays open"),
    ),
    _wrong(
        "ends",
        "stompy ends the session at any ERROR, with a `BrokerError`. Does it know which frame was rejected?",
        on((*EMBEDDED, *CLASSIC, *ARTEMIS), "True", "yes, by `receipt-id`"),
        on(RABBITMQ, "False", "no: an ERROR never has a `receipt-id`", grade="own"),
    ),
)
