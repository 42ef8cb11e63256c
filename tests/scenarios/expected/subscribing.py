"""Subscriptions with a wish, temporary queues, and what depends on time or rank."""

from __future__ import annotations

from tests.scenarios.acts import REFUSED
from tests.scenarios.expected.model import (
    ARTEMIS,
    CLASSIC,
    EMBEDDED,
    ESCAPING,
    KINDS,
    RABBITMQ,
    RABBITMQ_3,
    RABBITMQ_4,
    Fact,
    either,
    fact,
    on,
)

_DURABLE, _SELECT, _WILD, _BROWSE = "durable topics", "selectors", "wildcards", "browsing"
_TEMPORARY, _GROUPS, _TWICE = "temporary queues, request and reply", "message groups", "duplicates"
_EXPIRY, _PRIORITY, _DELAY = "expiry", "priority", "scheduled delivery"

SUBSCRIBING: tuple[Fact, ...] = (
    fact(
        "durable",
        _DURABLE,
        "Does `subscribe(durable=...)` keep messages for a subscriber that is not connected?",
        on(
            EMBEDDED,
            "after unsubscribing: unsubscribed; after deleting: nothing",
            "yes: `client-id` on CONNECT and `activemq.subscriptionName` on SUBSCRIBE, which with UNSUBSCRIBE "
            "deletes it",
        ),
        on(
            CLASSIC,
            "after unsubscribing: unsubscribed; after deleting: nothing",
            "yes: `client-id` on CONNECT and `activemq.subscriptionName` on SUBSCRIBE, which with UNSUBSCRIBE "
            "deletes it; in 1.0 that needs a name equal to the client id",
        ),
        on(
            ARTEMIS,
            "after unsubscribing: unsubscribed; after deleting: nothing",
            "yes: `client-id` on CONNECT and `durable-subscription-name` on SUBSCRIBE, which with UNSUBSCRIBE "
            "deletes it",
        ),
        on(
            RABBITMQ,
            "after unsubscribing: unsubscribed; after deleting: nothing",
            "yes: a queue bound to the topic; `durable:true`, `auto-delete:false` and `x-queue-name` on SUBSCRIBE, "
            "which with UNSUBSCRIBE delete it",
        ),
    ),
    fact(
        "selector",
        _SELECT,
        "Does `subscribe(selector=...)` filter messages?",
        on((*EMBEDDED, *CLASSIC, *ARTEMIS), "2 4; left: 1 3", "yes; others stay in the queue"),
        on(RABBITMQ, REFUSED, "no: stompy raises", grade="no"),
    ),
    fact(
        "selector-types",
        _SELECT,
        "Which are fulfilled by headers `size:9`, `kind:bc` and `a-b:x`: `size > 5`, `size = '9'`, `size BETWEEN 8 "
        "AND 10`, `kind LIKE 'b%'`, `a-b = 'x'`?",
        on(RABBITMQ, REFUSED, "it has no selectors", grade="no"),
        on(
            (*EMBEDDED, *CLASSIC),
            "size > 5; size = '9'; size BETWEEN 8 AND 10; kind LIKE 'b%'",
            "all but the last: text is compared with numbers too",
        ),
        on(ARTEMIS, "size = '9'; kind LIKE 'b%'", "the second and the fourth: every header is text", grade="own"),
    ),
    fact(
        "selector-raw",
        _SELECT,
        "What does a broker do with a `selector` header, if a client sends one?",
        on((*EMBEDDED, *CLASSIC, *ARTEMIS), "b", "delivers messages that match"),
        on(RABBITMQ, "a b", "ignores it and delivers all messages", grade="own"),
    ),
    fact(
        "wildcard-topic",
        _WILD,
        "Which of `NAME.a` and `NAME.a.b` do the topics `NAME.*`, `NAME.>` and `NAME.#` cover?",
        on(EMBEDDED, "*: one; >: one two; #: one two", "`*` the first, `>` and `#` both"),
        on(CLASSIC, "*: one; >: one two; #: nothing", "`*` the first, `>` both"),
        on((*ARTEMIS, *RABBITMQ), "*: one; >: nothing; #: one two", "`*` the first, `#` both"),
    ),
    fact(
        "wildcard-queue",
        _WILD,
        "And the queues of these names?",
        on(EMBEDDED, "*: one; >: one two; #: one two", "`*` the first, `>` and `#` both"),
        on(RABBITMQ, "*: nothing; >: nothing; #: nothing", "none", grade="no"),
        on(CLASSIC, "*: one; >: one two; #: nothing", "`*` the first, `>` both"),
        on(ARTEMIS, "*: one; >: nothing; #: one two", "`*` the first, `#` both"),
    ),
    fact(
        "browse",
        _BROWSE,
        "Does `browse` read a queue without consuming?",
        on(EMBEDDED, "1 2 3; left: 1 2 3", "yes: `browser:true`"),
        on((*ARTEMIS, *RABBITMQ), REFUSED, "no: stompy raises", grade="no"),
        on(CLASSIC, REFUSED, "not in 1.0: stompy raises", versions=["1.0"], grade="no"),
        on(CLASSIC, "1 2 3; left: 1 2 3", "yes: `browser:true`", versions=ESCAPING),
    ),
    fact(
        "browse-raw",
        _BROWSE,
        "What does a broker do with `browser:true`, if a client sends it?",
        on(
            (*ARTEMIS, *RABBITMQ),
            "end marked: False; left: nothing",
            "ignores it: the message is delivered and deleted",
            grade="own",
        ),
        on(EMBEDDED, "end marked: True; left: 1", "browses, and marks the end", "MESSAGE\nbrowser:end"),
        on(CLASSIC, "end marked: True; left: 1", "browses, and marks the end", "MESSAGE\nbrowser:end\nmessage-id:0"),
    ),
    fact(
        "reply",
        _TEMPORARY,
        "What does a responder get as `reply-to` of a temporary queue, and what is in the reply?",
        on(
            EMBEDDED,
            True,
            "a name that any connection can send to",
            "MESSAGE\nreply-to:/remote-temp-queue/*\ncorrelation-id:*",
            "MESSAGE\ndestination:/temp-queue/*\nsubscription:/temp-queue/*\ncorrelation-id:*",
        ),
        on(
            CLASSIC,
            True,
            "a name that any connection can send to",
            "MESSAGE\nreply-to:/remote-temp-queue/ID:*\ncorrelation-id:*",
            "MESSAGE\ndestination:/temp-queue/*\ncorrelation-id:*",
        ),
        on(
            ARTEMIS,
            True,
            "the name unchanged; it is globally unique",
            "MESSAGE\nreply-to:/temp-queue/*\ncorrelation-id:*",
            "MESSAGE\ndestination:/temp-queue/*\ncorrelation-id:*",
        ),
        on(
            RABBITMQ,
            True,
            "a queue of RabbitMQ's own; the reply comes without a SUBSCRIBE",
            "MESSAGE\nreply-to:/reply-queue/amq.gen-*\ncorrelation-id:*",
            "MESSAGE\ndestination:*\nsubscription:/temp-queue/*\ncorrelation-id:*",
            grade="own",
        ),
    ),
    fact(
        "reply-late",
        _TEMPORARY,
        "What answer does a reply get after the owner of the temporary queue has disconnected?",
        on((*EMBEDDED, *ARTEMIS, *RABBITMQ_3), "RECEIPT", "RECEIPT: it is dropped"),
        on(
            CLASSIC,
            "ERROR",
            "ERROR, which ends the responder's session with stompy",
            "ERROR\nmessage:temp-queue://ID:*\nreceipt-id:*",
            grade="own",
        ),
        on(
            RABBITMQ_4,
            either("RECEIPT", "closed"),
            "RECEIPT; while the queue is being removed, the responder's connection is sometimes closed without ERROR",
            grade="own",
        ),
    ),
    fact(
        "group",
        _GROUPS,
        "Do the messages of `send(group=...)` go to one consumer each?",
        on(RABBITMQ, REFUSED, "no: stompy raises", grade="no"),
        on((*EMBEDDED, *CLASSIC, *ARTEMIS), "one consumer each", "yes: `JMSXGroupID`"),
    ),
    fact(
        "duplicate",
        _TWICE,
        "Does the broker drop a second message with the same `send(dedupe_id=...)`?",
        on(ARTEMIS, "x", "yes: `_AMQ_DUPL_ID`"),
        on(KINDS, REFUSED, "no: stompy raises", grade="no"),
    ),
    fact(
        "duplicate-commit",
        _TWICE,
        "What happens to a transaction with a message whose `dedupe_id` the broker knows?",
        on(
            ARTEMIS,
            "ERROR; left: first",
            "ERROR to the COMMIT, which does not say why; nothing of the transaction is stored",
            "ERROR\nmessage:AMQ339013 Error committing *",
            grade="own",
        ),
        on(KINDS, REFUSED, "as above", grade="no"),
    ),
    fact(
        "duplicate-open",
        _TWICE,
        "Two open transactions contain a message with the same `dedupe_id`. Which are committed?",
        on(ARTEMIS, "1 2", "both: the id is stored at the COMMIT", grade="own"),
        on(KINDS, REFUSED, "as above", grade="no"),
    ),
    fact(
        "expiry",
        _EXPIRY,
        "Is a message of `send(expires=...)` removed when it expires?",
        on(
            (*EMBEDDED, *CLASSIC, *ARTEMIS),
            "long",
            "yes: `expires`, in milliseconds since the epoch",
            "MESSAGE\nexpires:1*",
        ),
        on(RABBITMQ, "long", "yes: `expiration`, in milliseconds to live", "MESSAGE\nexpiration:100000"),
    ),
    fact(
        "expiry-letter",
        _EXPIRY,
        "Where does an expired message end, if it is persistent?",
        on(EMBEDDED, "nowhere", "nowhere, unless `expired` names a queue"),
        on(
            CLASSIC,
            "/queue/ActiveMQ.DLQ",
            "in `ActiveMQ.DLQ`",
            "MESSAGE\ndestination:/queue/ActiveMQ.DLQ\noriginalExpiration:1*\noriginal-destination:/queue/*",
        ),
        on(ARTEMIS, "/queue/ExpiryQueue", "in `ExpiryQueue`", "MESSAGE\ndestination:/queue/ExpiryQueue"),
        on(RABBITMQ, "nowhere", "nowhere, without a dead-letter exchange"),
    ),
    fact(
        "expiry-delayed",
        _EXPIRY,
        "Is a message of `send(expires=3.0, delay=3.3)` delivered?",
        on(RABBITMQ, REFUSED, "no: stompy raises", grade="no"),
        on(CLASSIC, "delayed", "yes: its life counts from its delivery", grade="own"),
        on((*EMBEDDED, *ARTEMIS), "nothing", "no: it has expired by then"),
    ),
    fact(
        "priority",
        _PRIORITY,
        "In which order are messages of `send(priority=...)` 1, 9 and 5 delivered?",
        on(CLASSIC, "1 9 5", "in the order sent, by default", "MESSAGE\npriority:1", grade="own"),
        on((*EMBEDDED, *ARTEMIS), "9 5 1", "by priority", "MESSAGE\npriority:9"),
        on(
            RABBITMQ,
            "1 9 5",
            "in the order sent, unless the queue was declared with `x-max-priority`",
            "MESSAGE\npriority:1",
            grade="own",
        ),
    ),
    fact(
        "persistent-order",
        _PRIORITY,
        "In which order do messages that waited arrive, 1 and 3 without, 2 and 4 with `persistent=True`?",
        on(CLASSIC, "2 4 1 3", "persistent ones first, each kind in the order sent", grade="own"),
        on(KINDS, "1 2 3 4", "in the order sent"),
    ),
    fact(
        "delay",
        _DELAY,
        "Is a message of `send(delay=...)` delivered later?",
        on(RABBITMQ, REFUSED, "no: stompy raises", grade="no"),
        on(CLASSIC, "at once, delayed", "yes: `AMQ_SCHEDULED_DELAY`", "MESSAGE\nscheduledJobId:ID:*"),
        on((*EMBEDDED, *ARTEMIS), "at once, delayed", "yes: `AMQ_SCHEDULED_DELAY`"),
    ),
    fact(
        "delay-order",
        _DELAY,
        "And where it waits with one that was sent later, without a delay?",
        on(RABBITMQ, REFUSED, "as above", grade="no"),
        on(ARTEMIS, "delayed, at once", "it comes first", grade="own"),
        on((*EMBEDDED, *CLASSIC), "at once, delayed", "it comes last"),
    ),
    fact(
        "portable",
        "portable options",
        "Which features does a program that uses all of `tests/scenarios/test_portable.py` have to do without?",
        on((*EMBEDDED, *CLASSIC), "dedupe_id", "`dedupe_id`"),
        on(ARTEMIS, "browse exclusive", "`browse`, `exclusive`"),
        on(
            RABBITMQ,
            "delay group dedupe_id selector browse exclusive",
            "`delay`, `group`, `dedupe_id`, `selector`, `browse`, `exclusive`",
            grade="own",
        ),
    ),
)
