"""Where the embedded broker, in the way of another, does otherwise than that one; each difference is tested for."""

from __future__ import annotations

from tests.scenarios.expected.model import VERSIONS

_BOTH = ("like-activemq", "like-activemq5")
_FIVE, _RABBITMQ = ("like-activemq5",), ("like-rabbitmq",)
_NEWEST = VERSIONS[-1:]


_ROWS: tuple[tuple[tuple[str, ...], tuple[str, ...], str, str], ...] = (
    ((*_BOTH, *_RABBITMQ), _NEWEST, "full", "ERROR, as the limits of queues are those of the embedded broker"),
    (_BOTH, ("1.0",), "header-values", "as in 1.0: UTF-8 unchanged, no escapes; a header line is never damaged"),
    (_BOTH, _NEWEST, "browse-raw", "the end marker has a unique `message-id`, not `0`"),
    (_BOTH, _NEWEST, "ack-unsubscribed", "ERROR, and it stays"),
    (_FIVE, ("1.0",), "ack-unsubscribed", "ERROR, and it stays"),
    (("like-artemis",), VERSIONS, "error-stomp-twice", "the same as after a second CONNECT; in 1.0 closed"),
    (_RABBITMQ, _NEWEST, "body-limit", "4 MiB; a longer body is rejected as soon as its head is read"),
    (_RABBITMQ, _NEWEST, "restart-kept", "those with `persistent:true`, `redelivered:true`, as after a kill"),
)

DIFFERS: dict[tuple[str, str, str], str] = {
    (kind, version, fact): how for kinds, versions, fact, how in _ROWS for kind in kinds for version in versions
}
"""By kind, version and fact: how it differs from the real broker."""
