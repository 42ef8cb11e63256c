"""Recording operations: a span and its metrics, by OpenTelemetry's conventions for messaging. Any thread; no locks.

Imported only where `OpenTelemetry` is made, as it needs the extra.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import Token
from copy import copy
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link as SpanLink
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from stompy.connection.message import Message, delivery_of
from stompy.link.link import Link
from stompy.world import threading, time

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

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bounds that the conventions advise for durations, in seconds."""

TEMPORARY_PREFIXES = (
    "/temp-queue/", "/temp-topic/", "/remote-temp-queue/", "/remote-temp-topic/", "/reply-queue/", "/queue/amq.gen-",
)  # fmt: skip
"""How destinations begin that have a name of their own for each session."""

_INSTRUMENTED = "stompy"
_Attributes = dict[str, str | int | bool]
_Headers = Mapping[str, object] | None


class Recorder:
    """Records the operations of one connection, or of one program.

    Args:
        tracer_provider: `None` uses the global one.
        meter_provider: `None` uses the global one.
        propagator: `None` uses the global one.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None,
        meter_provider: metrics.MeterProvider | None,
        propagator: TextMapPropagator | None,
    ) -> None:
        self.client_id: str | None = None
        self.tracer = trace.get_tracer(_INSTRUMENTED, tracer_provider=tracer_provider, schema_url=SCHEMA_URL)
        meter = metrics.get_meter(_INSTRUMENTED, meter_provider=meter_provider, schema_url=SCHEMA_URL)
        self._propagator = propagator
        self.sent, self.consumed = (
            meter.create_counter(each.name, each.unit, each.description) for each in (SENT, CONSUMED)
        )
        self.operation_duration, self.process_duration = (
            meter.create_histogram(each.name, each.unit, each.description, explicit_bucket_boundaries_advisory=BUCKETS)
            for each in (OPERATION_DURATION, PROCESS_DURATION)
        )

    def of_client(self, client_id: str | None) -> Recorder:
        """Return a recorder for a connection with this client id."""
        made = copy(self)
        made.client_id = client_id
        return made

    # The context in headers.

    def extract(self, headers: Mapping[str, object]) -> Context:
        """Return the context in the headers of a message."""
        # The propagators take the values for text.
        carrier = {name: value for name, value in headers.items() if isinstance(value, str)}
        return (self._propagator or propagate.get_global_textmap()).extract(carrier, Context())

    def inject(self, headers: _Headers, context: Context | None = None) -> _Headers:
        """Return the headers with a context, by default the current one, unless they have one already."""
        if headers and _span_in(self.extract(headers)).is_valid:
            return headers
        carrier: dict[str, object] = {}
        (self._propagator or propagate.get_global_textmap()).inject(carrier, context)
        return {**(headers or {}), **carrier}

    def around(self, headers: _Headers) -> tuple[Context, list[SpanLink]]:
        """Return the context of an operation with a message: the current one, with a link to that of another trace.

        Outside of any span it is the message's own.
        """
        current = contexts.get_current()
        if not headers:
            return current, []
        extracted = self.extract(headers)
        own, ambient = _span_in(extracted), _span_in(current)
        if not ambient.is_valid:
            return (extracted, []) if own.is_valid else (current, [])
        return current, [SpanLink(own)] if own.is_valid and own.trace_id != ambient.trace_id else []

    # Operations.

    def committing(self, link: Link, messages: Sequence[Message]) -> Observation:
        """Return the observation of a COMMIT that settles messages."""
        around = messages[0].headers if messages else None
        return Observation(self, COMMIT, link, None, around=around, more={MESSAGE_COUNT: len(messages)})

    def received(self, message: Message, waited: float) -> None:
        """Record that a caller got a message after waiting for some seconds."""
        self.of_message(RECEIVE, message, waited=waited).end()

    def processing(self, message: Message, more: _Attributes | None = None) -> Observation:
        """Return the observation of work on a message, in the context that the message brought."""
        extracted = self.extract(message.headers)
        parent = extracted if _span_in(extracted).is_valid else contexts.get_current()
        return self.of_message(PROCESS, message, parent=parent, more=more)

    def of_message(self, operation: Operation, message: Message, **arguments: Any) -> Observation:
        """Return the observation of an operation with a received message, such as an ACK; for the rest see there."""
        delivery = delivery_of(message)
        source = delivery.source
        subscribed = None if source is None else source.destination
        template = subscribed if subscribed != message.destination else None
        more: _Attributes = {MESSAGE_ID: message.message_id, **(arguments.pop("more", None) or {})}
        return Observation(
            self, operation, delivery.link, message.destination, headers=message.headers, template=template, more=more,
            **arguments,
        )  # fmt: skip


class Observation:
    """An operation from start to end: its span, which is current in the thread that entered it.

    Args:
        recorder: of the connection.
        operation: the kind.
        link: of the broker.
        destination: of the message, if it is one.
        headers: of the message.
        around: headers of a message in whose context the operation is; by default `headers`.
        parent: the context, instead.
        template: the subscribed destination, such as a pattern, of which the message's is one.
        more: attributes of the span.
        waited: seconds since the operation began.
    """

    def __init__(
        self,
        recorder: Recorder,
        operation: Operation,
        link: Link,
        destination: str | None,
        *,
        headers: _Headers = None,
        around: _Headers = None,
        parent: Context | None = None,
        template: str | None = None,
        more: _Attributes | None = None,
        waited: float = 0.0,
    ) -> None:
        self._recorder = recorder
        self._operation = operation
        self._headers = headers
        self._shared = _shared(operation, link, destination, template)
        attributes = {**self._shared, **(more or {})}
        name = self._shared.get(TEMPLATE) or self._shared.get(DESTINATION)
        if TEMPORARY in self._shared:
            name = "(temporary)"
        if destination is not None:
            attributes[DESTINATION] = str(destination)
        if recorder.client_id is not None:
            attributes[CLIENT_ID] = recorder.client_id
        correlation = headers.get("correlation-id") if headers else None
        if correlation is not None:
            attributes[CONVERSATION] = str(correlation)
        context, links = recorder.around(around or headers) if parent is None else (parent, [])
        self._began = time.perf_counter() - waited
        self._span = recorder.tracer.start_span(
            operation.name if name is None else f"{operation.name} {name}",
            context,
            kind=SpanKind[operation.kind],
            attributes=attributes,
            links=links,
            start_time=time.time_ns() - int(waited * 1e9) if waited else None,
        )
        # Without an SDK, some versions of the API return an invalid span, in which the context would be lost.
        recorded = self._span.get_span_context().is_valid
        self._context = trace.set_span_in_context(self._span, context) if recorded else context
        self._token: Token[Context] | None = None
        self._thread = 0

    @property
    def headers(self) -> _Headers:
        """The headers to send: with the context of the span, unless they had one."""
        return self._recorder.inject(self._headers, self._context)

    def enter(self) -> None:
        """Make the span the current one in this thread, if it is not."""
        if self._thread != threading.get_ident():
            self._thread = threading.get_ident()
            self._token = contexts.attach(self._context)

    def set(self, attribute: str, value: str) -> None:
        """Set an attribute of the span."""
        self._span.set_attribute(attribute, value)

    def fail(self, error: BaseException) -> None:
        """Record an error; only its class, as its text may quote a body."""
        self._shared[ERROR_TYPE] = type(error).__qualname__
        self._span.set_attribute(ERROR_TYPE, type(error).__qualname__)
        self._span.set_status(Status(StatusCode.ERROR))

    def answered(self, reply: Message) -> None:
        """Record the reply to a request."""
        context = _span_in(self._recorder.extract(reply.headers))
        if context.is_valid:
            self._span.add_link(context)
        self._recorder.consumed.add(1, self._shared)

    def end(self) -> None:
        """End the span, and record its metrics."""
        recorder, kind, seconds = self._recorder, self._operation.type, time.perf_counter() - self._began
        if self._token is not None and self._thread == threading.get_ident():
            contexts.detach(self._token)
        self._span.end()
        (recorder.process_duration if kind == "process" else recorder.operation_duration).record(seconds, self._shared)
        if kind == "send":
            recorder.sent.add(1, self._shared)
        elif kind == "receive":
            recorder.consumed.add(1, self._shared)

    def consumed(self) -> None:
        """Count the message as received by the application in this operation."""
        self._recorder.consumed.add(1, self._shared)

    def __enter__(self) -> Observation:
        self.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.fail(error)
        self.end()


def _span_in(context: Context) -> SpanContext:
    return trace.get_current_span(context).get_span_context()


def _shared(operation: Operation, link: Link, destination: str | None, template: str | None) -> _Attributes:
    """Return the attributes of a span and its metrics."""
    system = link.dialect.name
    made: _Attributes = {
        SYSTEM: "stomp" if system == "generic" else system,
        OPERATION_NAME: operation.name,
        OPERATION_TYPE: operation.type,
    }
    host, colon, port = link.address.rpartition(":")
    if colon and port.isdecimal():
        made[SERVER_ADDRESS], made[SERVER_PORT] = host.strip("[]"), int(port)
    else:
        made[SERVER_ADDRESS] = link.address.removeprefix("stomp+unix://")
    if destination is None:
        return made
    if str(template or destination).startswith(TEMPORARY_PREFIXES):
        made[TEMPORARY] = True
    elif template is not None:
        made[TEMPLATE] = template
    else:
        made[DESTINATION] = str(destination)
    return made
