"""Where the embedded broker, in the way of another, does otherwise than that one; each difference is tested for."""

from __future__ import annotations

from tests.scenarios.expected.model import ESCAPING, VERSIONS

_BOTH = ("like-activemq", "like-activemq5")
_FIVE, _ARTEMIS, _RABBITMQ = ("like-activemq5",), ("like-artemis",), ("like-rabbitmq",)
_ALL = (*_BOTH, *_ARTEMIS, *_RABBITMQ)
_NEWEST = VERSIONS[-1:]

_READ = "rejected with ERROR, and the connection is closed: frames are parsed strictly"
_EARLY = "rejected, and the connection is closed"
_ORDER = "closed as soon as the ERROR is written, without a RECEIPT beside it"
_AGAIN = "every redelivered message is marked"

_ROWS: tuple[tuple[tuple[str, ...], tuple[str, ...], str, str], ...] = (
    (_ALL, _NEWEST, "negotiation-spaces", "1.2: spaces are ignored"),
    (_ALL, _NEWEST, "body-limit", "the limit is that of the embedded broker, 128 MiB by default"),
    ((*_BOTH, *_RABBITMQ), _NEWEST, "full", "ERROR, as the limits of queues are those of the embedded broker"),
    ((*_BOTH, *_ARTEMIS), VERSIONS, "error-header-no-colon", _READ),
    ((*_BOTH, *_ARTEMIS), ("1.0",), "header-values", "as in 1.0: UTF-8 unchanged, no escapes"),
    (_BOTH, _NEWEST, "browse-raw", "the end marker has a unique `message-id`, not `0`"),
    (_BOTH, _NEWEST, "ack-unsubscribed", "ERROR, and it stays"),
    (_FIVE, ("1.0",), "ack-unsubscribed", "ERROR, and it stays"),
    (_FIVE, VERSIONS, "error-length-negative", _READ),
    (_FIVE, _NEWEST, "error-early-frame", _EARLY),
    (_FIVE, _NEWEST, "error-early-http", _EARLY),
    (_ARTEMIS, _NEWEST, "error-early-frame", _EARLY),
    (_ARTEMIS, _NEWEST, "error-early-http", _EARLY),
    (_ARTEMIS, VERSIONS, "reply", "a name that any connection can send to"),
    (_ARTEMIS, ("1.0",), "text-length", "yes, in 1.0 too"),
    (_ARTEMIS, VERSIONS, "ack-individual", _AGAIN),
    (_ARTEMIS, ESCAPING, "nack-client-individual", _AGAIN),
    (_ARTEMIS, VERSIONS, "error-connect-twice", "ERROR, closed"),
    (_ARTEMIS, VERSIONS, "error-length-negative", _READ),
    (_ARTEMIS, VERSIONS, "error-length-text", _READ),
    (_ARTEMIS, ESCAPING, "error-length-short", _READ),
    (_ARTEMIS, VERSIONS, "error-send-empty", "rejected like other invalid frames"),
    (_ARTEMIS, VERSIONS, "error-send-transaction", "rejected like other invalid frames"),
    (_ARTEMIS, _NEWEST, "duplicate-open", "the first: the second is dropped"),
    (_RABBITMQ, VERSIONS, "error-ack-twice", "ERROR, stays open"),
    (_RABBITMQ, VERSIONS, "error-subscribe-twice", _ORDER),
    (_RABBITMQ, _NEWEST, "error-early-frame", _EARLY),
    (_RABBITMQ, _NEWEST, "error-early-http", _EARLY),
    (_RABBITMQ, _NEWEST, "half-close", "RECEIPT, then closed"),
    (_RABBITMQ, _NEWEST, "login-wrong-then", "closed"),
    (_RABBITMQ, _NEWEST, "negotiation-unknown", "ERROR, closed"),
    (_RABBITMQ, _NEWEST, "restart-kept", "those with `persistent:true`, `redelivered:true`, as after a kill"),
)

DIFFERS: dict[tuple[str, str, str], str] = {
    (kind, version, fact): how for kinds, versions, fact, how in _ROWS for kind in kinds for version in versions
}
"""By kind, version and fact: how it differs from the real broker."""

_MISSING: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    (
        "like-artemis",
        "test_a_transaction_with_a_message_that_was_sent_before",
        ("duplicate-commit",),
        "the second message is dropped, and the COMMIT confirmed",
    ),
    ("like-rabbitmq", "test_a_request_gets_its_reply", ("reply",), "replies without a SUBSCRIBE"),
    ("like-rabbitmq", "test_a_late_reply_is_dropped", ("reply-late",), "replies without a SUBSCRIBE"),
    ("like-rabbitmq", "test_dead_letters_where_they_must_be_asked_for", ("nack-exchange",), "dead-letter exchanges"),
)

NOT_EMULATED: dict[tuple[str, str], str] = {(kind, test): why for kind, test, _, why in _MISSING}
"""By kind and test: what is not there at all."""

MISSING: dict[tuple[str, str], str] = {(kind, fact): why for kind, _, facts, why in _MISSING for fact in facts}
"""The same by fact."""
