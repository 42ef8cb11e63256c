"""Flow control, and brokers that go and come back."""

from __future__ import annotations

from tests.scenarios.expected.model import ARTEMIS, CLASSIC, EMBEDDED, KINDS, RABBITMQ, Fact, fact, on

_FLOW, _GONE, _PAUSE = "slow consumers and flow control", "kill, restart, persistence", "pause"

OUTAGES: tuple[Fact, ...] = (
    fact(
        "slow-queue",
        _FLOW,
        "Does a slow consumer of a queue get all messages, without delaying others?",
        on(KINDS, "all, in order", "yes (15 MB behind)"),
    ),
    fact(
        "slow-topic",
        _FLOW,
        "And a slow subscriber of a topic?",
        on(EMBEDDED, "all, in order", "yes, up to `max_backlog_bytes`; beyond it, its session is ended with ERROR"),
        on(KINDS, "all, in order", "yes (15 MB behind)"),
    ),
    fact(
        "ahead",
        _FLOW,
        "How many of 3000 messages are sent ahead of the first ACK, without a prefetch?",
        on(EMBEDDED, "some", "`prefetch` of the broker, 1000 by default"),
        on(CLASSIC, "some", "some hundred"),
        on(ARTEMIS, "some", "10 KB worth of them"),
        on(RABBITMQ, "all", "all", grade="own"),
    ),
    fact(
        "full",
        _FLOW,
        "What does a sender see when a queue, or the broker's memory, is full?",
        on(EMBEDDED, "ERROR", "ERROR, closed", "ERROR\nmessage:queue * is full*\nreceipt-id:*"),
        on(
            ARTEMIS,
            "ERROR",
            "ERROR with `address-full-policy` FAIL",
            "ERROR\nmessage:AMQ339011 Error sending message *",
        ),
        on(KINDS, "waits; then all", "no RECEIPT until there is room again; heartbeats continue"),
    ),
    fact(
        "kill-link",
        _GONE,
        "How does a connection end when the broker is killed?",
        on(KINDS, "closed", "the stream ends; with `reconnect=`, subscriptions are back before the next send"),
    ),
    fact(
        "kill-kept",
        _GONE,
        "Which messages are there after that: default, `persistent=True`, `persistent=False`?",
        on(
            EMBEDDED,
            "default persistent",
            "all but those with `persistent:false`; it lives in one process and keeps its queues while that lives",
        ),
        on((*CLASSIC, *ARTEMIS), "persistent", "those with `persistent:true`"),
        on(RABBITMQ, "persistent*", "those with `persistent:true`, `redelivered:true`"),
    ),
    fact(
        "restart-link",
        _GONE,
        "How does a connection end when the broker is shut down cleanly?",
        on(KINDS, "closed", "the stream ends, without ERROR"),
    ),
    fact(
        "restart-kept",
        _GONE,
        "Which messages are there after that?",
        on(EMBEDDED, "default persistent", "as after a kill"),
        on(KINDS, "persistent", "those with `persistent:true`"),
    ),
    fact(
        "pause",
        _PAUSE,
        "What does a client see of a frozen broker?",
        on(
            KINDS,
            "HeartbeatTimeoutError; then the RECEIPT",
            "with heartbeats, `HeartbeatTimeoutError`; without, the receipt arrives when the broker continues",
        ),
    ),
)
