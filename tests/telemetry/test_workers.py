"""What is recorded of workers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from opentelemetry.trace import StatusCode, get_current_span

import stompy
import stompy.worker
from stompy.broker import Broker
from tests.telemetry.conftest import WITHIN, Make, Spans, Telemetry, attributes, context_of, is_child

TOP = Path(__file__).parents[2]

QUICK = stompy.Backoff(first=0.01, longest=0.01)


@pytest.mark.parametrize("like", [None, "activemq", "artemis", "rabbitmq"])
def test_from_the_web_through_a_worker_and_back_is_one_trace(
    like: str | None, make_worker: Make, spans: Spans, telemetry: Telemetry
) -> None:
    with Broker(like=like) as broker:  # type: ignore[arg-type]
        worker = make_worker(broker.url)

        @worker.task("/queue/a", name="answer")
        def answer(message: stompy.Message) -> str:
            return "pong"

        with (
            worker,
            stompy.connect(broker.url, telemetry=telemetry.stompy) as conn,
            telemetry.tracer.start_as_current_span("GET /"),
        ):
            assert conn.request("/queue/a", "ping", timeout=WITHIN).text == "pong"
    web, request, process = spans.one("GET /"), spans.one("request /queue/a"), spans.one("process /queue/a")
    assert is_child(request, web)
    assert is_child(process, request)
    assert is_child(spans.one("send (temporary)"), process)
    assert is_child(spans.one("ack /queue/a"), process)
    assert len(spans.traces()) == 1
    found = attributes(process)
    assert (found["stompy.task"], found["stompy.attempt"], found["stompy.outcome"]) == ("answer", 1, "processed")


@pytest.mark.parametrize("like", [None, "rabbitmq"])
def test_each_attempt_and_the_dead_letter_are_in_the_trace(
    like: str | None, make_worker: Make, spans: Spans, telemetry: Telemetry
) -> None:
    with Broker(like=like) as broker:  # type: ignore[arg-type]
        worker = make_worker(broker.url)

        @worker.task("/queue/a", attempts=2, backoff=QUICK)
        def fail(message: stompy.Message) -> None:
            raise ValueError("part of the body")

        with worker, stompy.connect(broker.url, telemetry=telemetry.stompy) as conn:
            with telemetry.tracer.start_as_current_span("work"):
                conn.send("/queue/a", "x")
            first, second = spans.wait("process /queue/a", 2)
            dead = spans.one("send /queue/a.dead")
    assert [attributes(span)["stompy.attempt"] for span in (first, second)] == [1, 2]
    assert [attributes(span)["stompy.outcome"] for span in (first, second)] == ["retried", "dead_lettered"]
    for span in (first, second):
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span)["error.type"] == "ValueError"
        assert "part of the body" not in span.to_json()
    assert is_child(dead, second)
    # Also what the parking queue's thread does, with a broker that cannot delay.
    assert len(spans.traces()) == 1
    assert telemetry.points("messaging.process.duration") == {("process", "ValueError"): 2}


def test_the_attempts_of_an_ordered_task_are_spans_of_their_own(
    broker: Broker, conn: stompy.Connection, make_worker: Make, spans: Spans
) -> None:
    worker, tried = make_worker(broker.url), []

    @worker.task("/queue/a", attempts=2, key=lambda message: "k", backoff=QUICK)
    def fail_once(message: stompy.Message) -> None:
        tried.append(message)
        if len(tried) == 1:
            raise ValueError

    with worker:
        conn.send("/queue/a", "x")
        found = spans.wait("process /queue/a", 2)
    assert [attributes(span)["stompy.outcome"] for span in found] == ["retried", "processed"]
    assert len(spans.traces()) == 1


def test_what_a_task_wants_is_seen(
    broker: Broker, conn: stompy.Connection, make_worker: Make, spans: Spans, telemetry: Telemetry
) -> None:
    worker = make_worker(broker.url, concurrency=1)

    @worker.task("/queue/a")
    def ask(message: stompy.Message) -> None:
        if message.text == "defer":
            raise stompy.Defer(3600)
        raise stompy.Reject("no")

    with worker:
        conn.send("/queue/a", "defer", confirm=True)
        conn.send("/queue/a", "reject", confirm=True)
        deferred, rejected = spans.wait("process /queue/a", 2)
    assert (attributes(deferred)["stompy.outcome"], attributes(deferred).get("error.type")) == ("deferred", None)
    assert (attributes(rejected)["stompy.outcome"], attributes(rejected)["error.type"]) == ("dead_lettered", "Reject")


def test_a_transactional_task_is_one_trace(
    broker: Broker, conn: stompy.Connection, make_worker: Make, spans: Spans
) -> None:
    worker = make_worker(broker.url)

    @worker.task("/queue/a", transactional=True)
    def forward(message: stompy.Message, context: stompy.TaskContext) -> None:
        context.send("/queue/b", message.body)

    with worker:
        conn.send("/queue/a", "x")
        process = spans.one("process /queue/a")
    for name in ("send /queue/b", "ack /queue/a", "commit"):
        assert is_child(spans.one(name), process)
    assert len(spans.traces()) == 1


def test_a_task_that_is_stuck_ends_its_span(
    broker: Broker, conn: stompy.Connection, make_worker: Make, spans: Spans
) -> None:
    worker, release = make_worker(broker.url), threading.Event()

    @worker.task("/queue/a", attempts=1, time_limit=0.05)
    def hang(message: stompy.Message) -> None:
        release.wait(WITHIN)

    with worker:
        conn.send("/queue/a", "x")
        process = spans.one("process /queue/a")
        release.set()
    assert attributes(process)["error.type"] == "TimeLimitExceededError"
    assert attributes(process)["stompy.outcome"] == "dead_lettered"
    assert is_child(spans.one("send /queue/a.dead"), process)


def test_middleware_runs_in_the_span_of_the_task(
    broker: Broker, conn: stompy.Connection, make_worker: Make, spans: Spans
) -> None:
    seen: list[int] = []

    class Mine(stompy.worker.Middleware):
        def before(self, task: object, message: stompy.Message) -> None:
            seen.append(get_current_span().get_span_context().span_id)

    worker = make_worker(broker.url, middleware=[Mine()])
    worker.add(lambda message: None, "/queue/a", name="nothing")
    with worker:
        conn.send("/queue/a", "x")
        process = spans.one("process /queue/a")
    assert seen == [context_of(process).span_id]


def test_child_processes_continue_the_trace(
    broker: Broker, conn: stompy.Connection, telemetry: Telemetry, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "stompy", "worker", "tests.telemetry.programs:traced", "--processes", "2"],
        cwd=TOP,
        env={**os.environ, "STOMPY_URL": broker.url, "STOMPY_TEST_FOLDER": str(tmp_path)},
    )
    try:
        replies = conn.subscribe("/queue/replies")
        with telemetry.tracer.start_as_current_span("work") as work:
            for _ in range(2):
                conn.send("/queue/a", "x", headers={"reply-to": "/queue/replies"})
        got = [replies.receive(timeout=2 * WITHIN) for _ in range(2)]
    finally:
        process.terminate()
        process.wait(WITHIN)
    trace = f"{work.get_span_context().trace_id:032x}"
    answers = [message.json() for message in got]
    assert len({answer["process"] for answer in answers}) == 2
    assert [answer["trace"] for answer in answers] == [trace] * 2
    assert all(trace in message.headers["traceparent"] for message in got)
