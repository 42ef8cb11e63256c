from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import stompy
from stompy.broker import Broker

SOON = 10.0
"""Seconds that something may take before the test fails."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def connection(broker: Broker) -> Iterator[stompy.Connection]:
    with stompy.connect(broker.url) as connection:
        yield connection


def answer(connection: stompy.Connection, request: stompy.Message, body: bytes) -> None:
    connection.send(request.headers["reply-to"], body, headers={"correlation-id": request.headers["correlation-id"]})


@pytest.fixture
def echo(broker: Broker) -> Iterator[str]:
    """Return a destination that answers with the body reversed."""
    with stompy.connect(broker.url) as responder:
        responder.subscribe("/queue/echo", lambda request: answer(responder, request, request.body[::-1]))
        yield "/queue/echo"


def test_a_request_returns_its_reply(connection: stompy.Connection, echo: str) -> None:
    assert connection.request(echo, "abc", timeout=SOON).text == "cba"


def test_requests_share_one_reply_subscription(connection: stompy.Connection, echo: str) -> None:
    for number in range(20):
        assert connection.request(echo, str(number + 10), timeout=SOON).text == str(number + 10)[::-1]
    assert connection.stats().subscriptions == 1


def test_many_requests_at_once_get_each_its_own_reply(connection: stompy.Connection, echo: str) -> None:
    wrong: list[str] = []

    def ask(caller: int) -> None:
        for number in range(20):
            body = f"{caller}:{number}"
            if connection.request(echo, body, timeout=SOON).text != body[::-1]:
                wrong.append(body)

    callers = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []
    assert connection.stats().late_replies == 0


def test_a_request_inside_a_handler_works(connection: stompy.Connection, echo: str) -> None:
    replies: list[str] = []
    done = threading.Event()

    def handle(_: stompy.Message) -> None:
        replies.append(connection.request(echo, "in a handler", timeout=SOON).text)
        done.set()

    connection.subscribe("/queue/start", handle)
    connection.send("/queue/start", "go")
    assert done.wait(SOON)
    assert replies == ["reldnah a ni"]


def test_a_request_inside_a_batch_is_not_held_back(connection: stompy.Connection, echo: str) -> None:
    with connection.batch():
        assert connection.request(echo, "abc", timeout=SOON).text == "cba"


def test_no_reply_in_time_is_an_error_that_names_the_destination(connection: stompy.Connection) -> None:
    with pytest.raises(stompy.ReceiveTimeout, match="/queue/nobody"):
        connection.request("/queue/nobody", "x", timeout=0.01)


def test_no_time_at_all_is_no_reply_in_time(connection: stompy.Connection) -> None:
    with pytest.raises(stompy.ReceiveTimeout):
        connection.request("/queue/nobody", "x", timeout=0)


def test_a_late_reply_is_dropped_and_counted(broker: Broker, connection: stompy.Connection) -> None:
    with stompy.connect(broker.url) as responder:
        requests = responder.subscribe("/queue/slow")
        with pytest.raises(stompy.ReceiveTimeout):
            connection.request("/queue/slow", "x", timeout=0.2)
        answer(responder, requests.receive(timeout=SOON), b"late")
        # A reply that comes after it proves that the late one has been seen.
        answered = threading.Thread(target=lambda: answer(responder, requests.receive(timeout=SOON), b"in time"))
        answered.start()
        assert connection.request("/queue/slow", "y", timeout=SOON).text == "in time"
        answered.join()
    assert connection.stats().late_replies == 1
    assert connection.stats().queued_messages == 0


def test_a_reply_for_a_client_that_is_gone_is_kept_nowhere(broker: Broker) -> None:
    with stompy.connect(broker.url) as responder:
        requests = responder.subscribe("/queue/slow")
        with stompy.connect(broker.url) as asker, pytest.raises(stompy.ReceiveTimeout):
            asker.request("/queue/slow", "x", timeout=0.2)
        request = requests.receive(timeout=SOON)
        answer(responder, request, b"too late")
        responder.send("/queue/after", "x", confirm=True)
        assert broker.depth(request.headers["reply-to"]) == 0


def test_the_end_of_the_connection_fails_a_waiting_request(broker: Broker) -> None:
    connection = stompy.connect(broker.url)
    failed: list[BaseException] = []
    asking = threading.Event()

    def ask() -> None:
        try:
            asking.set()
            connection.request("/queue/nobody", "x", timeout=SOON)
        except stompy.StompError as error:
            failed.append(error)

    with stompy.connect(broker.url) as watcher:
        seen = watcher.subscribe("/queue/nobody")
        asker = threading.Thread(target=ask)
        asker.start()
        seen.receive(timeout=SOON)  # it is under way
        connection.disconnect()
        asker.join()
    assert isinstance(failed[0], stompy.NotConnected)


def test_a_lost_link_fails_a_request_and_the_next_one_has_a_new_reply_queue() -> None:
    first = Broker()
    first.start()
    policy = stompy.Reconnect(first_delay=0.01, max_delay=0.05)
    with stompy.connect(first.url, reconnect=policy) as connection:
        failed: list[BaseException] = []

        def ask() -> None:
            try:
                connection.request("/queue/a", "x", timeout=SOON)
            except stompy.StompError as error:
                failed.append(error)

        with stompy.connect(first.url) as watcher:
            seen = watcher.subscribe("/queue/a")
            asker = threading.Thread(target=ask)
            asker.start()
            old_queue = seen.receive(timeout=SOON).headers["reply-to"]
            first.stop()
            asker.join()
        assert isinstance(failed[0], stompy.ConnectionLost)
        first.start()
        with stompy.connect(first.url) as responder:
            queues: list[str] = []

            def serve(request: stompy.Message) -> None:
                queues.append(request.headers["reply-to"])
                answer(responder, request, b"again")

            responder.subscribe("/queue/a", serve)
            assert connection.request("/queue/a", "y", timeout=SOON).text == "again"
        assert old_queue not in queues
    first.stop()
