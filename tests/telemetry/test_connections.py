"""What is recorded of connections."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

import stompy
from stompy.broker import Broker, BrokerLimits
from tests.telemetry.conftest import WITHIN, Spans, Telemetry, attributes, context_of, is_child, trace_of


@pytest.fixture
def plain(broker: Broker) -> Iterator[stompy.Connection]:
    """A connection that records nothing."""
    with stompy.connect(broker.url) as conn:
        yield conn


def test_a_message_carries_the_context_of_its_send(
    conn: stompy.Connection, plain: stompy.Connection, spans: Spans, telemetry: Telemetry
) -> None:
    subscription = plain.subscribe("/queue/a")
    with telemetry.tracer.start_as_current_span("work"):
        conn.send("/queue/a", "x", headers={"n": 1})
    message = subscription.receive(timeout=WITHIN)
    send, work = spans.one("send /queue/a"), spans.one("work")
    context = context_of(send)
    assert message.headers["traceparent"].startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    assert message.headers["n"] == "1"
    assert is_child(send, work)
    assert send.kind is SpanKind.PRODUCER


def test_a_span_has_the_attributes_of_the_conventions(broker: Broker, spans: Spans, telemetry: Telemetry) -> None:
    with stompy.connect(broker.url, telemetry=telemetry.stompy, client_id="ann") as conn:
        conn.send("/queue/a", "a body", headers={"correlation-id": "c-1", "password": "a header"})
    assert attributes(spans.one("send /queue/a")) == {
        "messaging.system": "stompy",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "/queue/a",
        "messaging.message.conversation_id": "c-1",
        "messaging.client.id": "ann",
        "server.address": "127.0.0.1",
        "server.port": int(broker.url.rpartition(":")[2]),
    }


@pytest.mark.parametrize("like", ["activemq", "artemis", "rabbitmq"])
def test_the_system_is_the_broker(like: str, spans: Spans, telemetry: Telemetry) -> None:
    with Broker(like=like) as broker, stompy.connect(broker.url, telemetry=telemetry.stompy) as conn:  # type: ignore[arg-type]
        conn.send("/queue/a", "x")
    assert attributes(spans.one("send /queue/a"))["messaging.system"] == like


def test_a_unix_socket_is_the_server(tmp_path: Path, spans: Spans, telemetry: Telemetry) -> None:
    with Broker(unix=tmp_path / "b") as broker, stompy.connect(broker.url, telemetry=telemetry.stompy) as conn:
        conn.send("/queue/a", "x")
    found = attributes(spans.one("send /queue/a"))
    assert found["server.address"] == str(tmp_path / "b")
    assert "server.port" not in found


def test_a_handler_runs_in_a_child_of_the_send(conn: stompy.Connection, spans: Spans, telemetry: Telemetry) -> None:
    inside: list[int] = []

    def handle(message: stompy.Message) -> None:
        inside.append(get_current_span().get_span_context().span_id)
        message.ack()

    conn.subscribe("/queue/a", handle, ack="client-individual")
    with telemetry.tracer.start_as_current_span("work"):
        conn.send("/queue/a", "x")
    process, ack, send = spans.one("process /queue/a"), spans.one("ack /queue/a"), spans.one("send /queue/a")
    assert is_child(process, send)
    assert is_child(ack, process)
    assert inside == [context_of(process).span_id]
    assert process.kind is SpanKind.CONSUMER
    assert attributes(process)["messaging.message.id"] == attributes(ack)["messaging.message.id"] != ""
    assert attributes(ack)["messaging.operation.type"] == "settle"


def test_a_handler_that_raises_fails_its_span_without_the_text_of_the_error(
    conn: stompy.Connection, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(message: stompy.Message) -> None:
        raise ValueError("part of the body")

    conn.subscribe("/queue/a", handle, ack="client-individual", on_exception="nack")
    conn.send("/queue/a", "x")
    process, nack = spans.wait("process /queue/a")[0], spans.wait("nack /queue/a")[0]
    assert process.status.status_code is StatusCode.ERROR
    assert attributes(process)["error.type"] == "ValueError"
    assert "part of the body" not in process.to_json()
    assert trace_of(nack) == trace_of(process)  # outside of any span: in the trace of the message


def test_messages_that_are_received_stay_in_the_trace_of_their_send(conn: stompy.Connection, spans: Spans) -> None:
    subscription = conn.subscribe("/queue/a", ack="client-individual")
    conn.send("/queue/a", "1")
    conn.send("/queue/a", "2")
    subscription.receive(timeout=WITHIN).ack()
    for message in subscription:
        message.ack()
        break
    sends, receives, acks = (spans.wait(f"{name} /queue/a", 2) for name in ("send", "receive", "ack"))
    for send, receive, ack in zip(sends, receives, acks, strict=True):
        assert is_child(receive, send)
        assert is_child(ack, send)
        assert receive.kind is SpanKind.CLIENT
    assert len(spans.traces()) == 2


def test_in_a_span_a_receive_is_its_child_with_a_link_to_the_send(
    conn: stompy.Connection, spans: Spans, telemetry: Telemetry
) -> None:
    subscription = conn.subscribe("/queue/a")
    conn.send("/queue/a", "x")
    with telemetry.tracer.start_as_current_span("work"):
        subscription.receive(timeout=WITHIN)
    receive, send, work = spans.one("receive /queue/a"), spans.one("send /queue/a"), spans.one("work")
    assert is_child(receive, work)
    assert [link.context.span_id for link in receive.links] == [context_of(send).span_id]


def test_no_message_no_span(conn: stompy.Connection, spans: Spans) -> None:
    with pytest.raises(stompy.ReceiveTimeoutError):
        conn.subscribe("/queue/a").receive(timeout=0)
    assert spans.all() == []


def test_what_is_done_with_a_received_message_can_be_a_process_span(
    conn: stompy.Connection, spans: Spans, telemetry: Telemetry
) -> None:
    subscription = conn.subscribe("/queue/a", ack="client-individual")
    conn.send("/queue/a", "x")
    with telemetry.stompy.process(message := subscription.receive(timeout=WITHIN)):
        conn.send("/queue/b", "y")
        message.ack()
    process = spans.one("process /queue/a")
    assert is_child(process, spans.one("send /queue/a"))
    assert is_child(spans.one("send /queue/b"), process)
    assert is_child(spans.one("ack /queue/a"), process)
    assert telemetry.points("messaging.client.consumed.messages") == {("receive", ""): 1}


def test_each_message_of_a_batch_has_its_span(
    conn: stompy.Connection, plain: stompy.Connection, spans: Spans, telemetry: Telemetry
) -> None:
    subscription = plain.subscribe("/queue/a")
    with telemetry.tracer.start_as_current_span("work"), conn.batch():
        for number in range(3):
            conn.send("/queue/a", str(number))
    parents = {subscription.receive(timeout=WITHIN).headers["traceparent"] for _ in range(3)}
    assert len(parents) == 3
    assert len(spans.wait("send /queue/a", 3)) == 3
    assert len(spans.traces()) == 1


def test_a_transaction_is_recorded_with_its_commit(
    conn: stompy.Connection, plain: stompy.Connection, spans: Spans, telemetry: Telemetry
) -> None:
    incoming, outgoing = conn.subscribe("/queue/a", ack="client-individual"), plain.subscribe("/queue/b")
    conn.send("/queue/a", "x")
    message = incoming.receive(timeout=WITHIN)
    with telemetry.stompy.process(message), conn.transaction() as transaction:
        transaction.send("/queue/b", "y")
        transaction.ack(message)
    assert "traceparent" in outgoing.receive(timeout=WITHIN).headers
    process = spans.one("process /queue/a")
    for name in ("send /queue/b", "ack /queue/a", "commit"):
        assert is_child(spans.one(name), process)
    assert attributes(spans.one("commit"))["messaging.batch.message_count"] == 1
    assert len(spans.traces()) == 1


def test_a_request_its_handler_and_the_reply_are_one_trace(
    conn: stompy.Connection, spans: Spans, telemetry: Telemetry
) -> None:
    def answer(message: stompy.Message) -> None:
        correlation = {"correlation-id": message.headers["correlation-id"]}
        conn.send(message.headers["reply-to"], "pong", headers=correlation)

    conn.subscribe("/queue/a", answer)
    with telemetry.tracer.start_as_current_span("work"):
        assert conn.request("/queue/a", "ping", timeout=WITHIN).text == "pong"
    request, process, reply = (
        spans.one("request /queue/a"),
        spans.one("process /queue/a"),
        spans.one("send (temporary)"),
    )
    assert is_child(request, spans.one("work"))
    assert is_child(process, request)
    assert is_child(reply, process)
    assert [link.context.span_id for link in request.links] == [context_of(reply).span_id]
    assert len(spans.traces()) == 1


def test_a_message_that_has_a_context_keeps_it(
    conn: stompy.Connection, plain: stompy.Connection, spans: Spans, telemetry: Telemetry
) -> None:
    subscription = plain.subscribe("/queue/a")
    parent = f"00-{7:032x}-{8:016x}-01"
    conn.send("/queue/a", "x", headers={"traceparent": parent})
    with telemetry.tracer.start_as_current_span("work"):
        conn.send("/queue/a", "x", headers={"traceparent": parent})
    assert [subscription.receive(timeout=WITHIN).headers["traceparent"] for _ in range(2)] == [parent] * 2
    first, second = spans.wait("send /queue/a", 2)
    assert trace_of(first) == 7
    assert is_child(second, spans.one("work"))
    assert [link.context.trace_id for link in second.links] == [7]


def test_errors_of_a_send_are_those_without_telemetry(conn: stompy.Connection, spans: Spans) -> None:
    with pytest.raises(stompy.LocalProtocolError):
        conn.send("", "x")
    with pytest.raises(stompy.LocalProtocolError):
        conn.send("/queue/a", None)  # type: ignore[arg-type]
    for name in ("send /queue/a", "send "):
        span = spans.wait(name)[0]
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span)["error.type"] == "LocalProtocolError"


def test_a_message_that_the_broker_refuses_fails_its_span(spans: Spans, telemetry: Telemetry) -> None:
    with (
        Broker(limits=BrokerLimits(max_queue_messages=1)) as broker,
        stompy.connect(broker.url, telemetry=telemetry.stompy) as conn,
    ):
        conn.send("/queue/a", "x", confirm=True)
        with pytest.raises(stompy.StompError) as raised:
            conn.send("/queue/a", "x", confirm=True)
    assert [attributes(span).get("error.type") for span in spans.wait("send /queue/a", 2)] == [
        None,
        type(raised.value).__name__,
    ]


def test_what_was_not_confirmed_is_sent_again_with_its_context(broker: Broker, telemetry: Telemetry) -> None:
    with (
        stompy.connect(broker.url) as plain,
        stompy.connect(
            broker.url, reconnect=stompy.Reconnect(resend_unconfirmed=True), telemetry=telemetry.stompy
        ) as conn,
    ):
        subscription = plain.subscribe("/queue/a")
        conn.send("/queue/a", "x", confirm=True)
        assert "traceparent" in subscription.receive(timeout=WITHIN).headers


def test_metrics_count_and_time_each_operation(conn: stompy.Connection, telemetry: Telemetry) -> None:
    subscription = conn.subscribe("/queue/a", ack="client-individual")
    conn.send("/queue/a", "x")
    subscription.receive(timeout=WITHIN).ack()
    done = threading.Event()
    conn.subscribe("/queue/b", lambda message: done.set(), ack="auto")
    conn.send("/queue/b", "x")
    assert done.wait(WITHIN)
    telemetry.spans.one("process /queue/b")
    with pytest.raises(stompy.LocalProtocolError):
        conn.send("/queue/a", None)  # type: ignore[arg-type]
    assert telemetry.points("messaging.client.sent.messages") == {("send", ""): 2, ("send", "LocalProtocolError"): 1}
    assert telemetry.points("messaging.client.consumed.messages") == {("receive", ""): 1, ("process", ""): 1}
    assert telemetry.points("messaging.client.operation.duration") == {
        ("send", ""): 2,
        ("send", "LocalProtocolError"): 1,
        ("receive", ""): 1,
        ("ack", ""): 1,
    }
    assert telemetry.points("messaging.process.duration") == {("process", ""): 1}
    assert not telemetry.metric_attributes() & {"messaging.message.id", "messaging.client.id"}


def test_a_name_of_one_session_is_no_attribute_of_a_metric(conn: stompy.Connection, telemetry: Telemetry) -> None:
    conn.send("/temp-queue/x", "x")
    assert "messaging.destination.name" not in telemetry.metric_attributes()
    assert attributes(telemetry.spans.one("send (temporary)"))["messaging.destination.temporary"] is True


def test_a_wildcard_is_the_template_of_a_destination(conn: stompy.Connection, spans: Spans) -> None:
    subscription = conn.subscribe("/topic/orders.>")
    conn.send("/topic/orders.eu", "x")
    subscription.receive(timeout=WITHIN)
    found = attributes(spans.one("receive /topic/orders.>"))
    assert found["messaging.destination.template"] == "/topic/orders.>"
    assert found["messaging.destination.name"] == "/topic/orders.eu"


def test_without_an_sdk_the_context_is_passed_on(
    broker: Broker, plain: stompy.Connection, telemetry: Telemetry
) -> None:
    subscription = plain.subscribe("/queue/a")
    with stompy.connect(broker.url, telemetry=stompy.OpenTelemetry()) as conn:
        conn.send("/queue/a", "outside")
        with telemetry.tracer.start_as_current_span("work"):
            conn.send("/queue/a", "inside")
    assert "traceparent" not in subscription.receive(timeout=WITHIN).headers
    assert "traceparent" in subscription.receive(timeout=WITHIN).headers


def test_a_propagator_of_ones_own_is_used(broker: Broker, plain: stompy.Connection) -> None:
    class Mine(TextMapPropagator):
        fields = frozenset({"mine"})  # type: ignore[assignment]

        def extract(self, carrier, context=None, getter=None):  # type: ignore[no-untyped-def]
            return context

        def inject(self, carrier, context=None, setter=None) -> None:  # type: ignore[no-untyped-def]
            carrier["mine"] = "yes"

    subscription = plain.subscribe("/queue/a")
    observed = stompy.OpenTelemetry(tracer_provider=TracerProvider(shutdown_on_exit=False), propagator=Mine())
    with stompy.connect(broker.url, telemetry=observed) as conn:
        conn.send("/queue/a", "x")
    assert subscription.receive(timeout=WITHIN).headers["mine"] == "yes"


def test_a_message_of_an_outbox_keeps_the_context_of_put(
    broker: Broker, plain: stompy.Connection, spans: Spans, telemetry: Telemetry, tmp_path: Path
) -> None:
    subscription = plain.subscribe("/queue/a")
    with stompy.Outbox(tmp_path / "outbox", broker.url, telemetry=telemetry.stompy) as outbox:
        with telemetry.tracer.start_as_current_span("work") as work:
            outbox.put("/queue/a", "x")
        message = subscription.receive(timeout=WITHIN)
    assert f"{work.get_span_context().trace_id:032x}" in message.headers["traceparent"]
    assert is_child(spans.one("send /queue/a"), spans.one("work"))


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "stompy.telemetry.recorder")
    with pytest.raises(stompy.ConfigurationError, match=r"pip install 'stompy-client\[otel\]'"):
        stompy.OpenTelemetry()
