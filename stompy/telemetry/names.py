"""The names of what is recorded, by OpenTelemetry's conventions for messaging; see the page on observing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCHEMA_URL = "https://opentelemetry.io/schemas/1.37.0"
"""The version of the conventions."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A kind of span.

    Attributes:
        name: `messaging.operation.name`, with which the name of the span begins.
        type: `messaging.operation.type`.
        kind: of the span.
    """

    name: str
    type: Literal["send", "receive", "process", "settle"]
    kind: Literal["PRODUCER", "CONSUMER", "CLIENT"]


SEND = Operation("send", "send", "PRODUCER")
REQUEST = Operation("request", "send", "PRODUCER")
RECEIVE = Operation("receive", "receive", "CLIENT")
PROCESS = Operation("process", "process", "CONSUMER")
ACK = Operation("ack", "settle", "CLIENT")
NACK = Operation("nack", "settle", "CLIENT")
COMMIT = Operation("commit", "settle", "CLIENT")

OPERATIONS = (SEND, REQUEST, RECEIVE, PROCESS, ACK, NACK, COMMIT)

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
TEMPLATE = "messaging.destination.template"
TEMPORARY = "messaging.destination.temporary"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"
MESSAGE_ID = "messaging.message.id"
CONVERSATION = "messaging.message.conversation_id"
MESSAGE_COUNT = "messaging.batch.message_count"
CLIENT_ID = "messaging.client.id"
TASK = "stompy.task"
ATTEMPT = "stompy.attempt"
OUTCOME = "stompy.outcome"

OF_METRICS = (
    SYSTEM, OPERATION_NAME, OPERATION_TYPE, DESTINATION, TEMPLATE, TEMPORARY, SERVER_ADDRESS, SERVER_PORT, ERROR_TYPE,
)  # fmt: skip
"""Attributes of spans and of metrics: those with few values."""

OF_SPANS = (*OF_METRICS, MESSAGE_ID, CONVERSATION, MESSAGE_COUNT, CLIENT_ID, TASK, ATTEMPT, OUTCOME)


@dataclass(frozen=True, slots=True)
class Metric:
    """An instrument.

    Attributes:
        name: of the instrument.
        unit: by the UCUM; that of a counter is `{message}`.
        description: for people.
    """

    name: str
    unit: Literal["{message}", "s"]
    description: str


SENT = Metric("messaging.client.sent.messages", "{message}", "Messages that were sent, or failed to be.")
CONSUMED = Metric("messaging.client.consumed.messages", "{message}", "Messages that the application got.")
OPERATION_DURATION = Metric("messaging.client.operation.duration", "s", "Duration of all operations but `process`.")
PROCESS_DURATION = Metric("messaging.process.duration", "s", "Duration of `process`.")

METRICS = (SENT, CONSUMED, OPERATION_DURATION, PROCESS_DURATION)

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bounds that the conventions advise for durations, in seconds."""

TEMPORARY_PREFIXES = (
    "/temp-queue/", "/temp-topic/", "/remote-temp-queue/", "/remote-temp-topic/", "/reply-queue/", "/queue/amq.gen-",
)  # fmt: skip
"""How destinations begin that have a name of their own for each session."""
