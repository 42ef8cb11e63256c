"""Request and reply over one temporary queue."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

import stompy
from stompy.broker import Broker
from tests.connection.conftest import QUICK, Sessions, Talking
from tests.support.peer import WITHIN, Peer, until
from tests.transport.conftest import Calling


def test_a_request_names_where_the_reply_is_awaited_and_what_marks_it(talking: Talking, calling: Calling) -> None:
    talk = talking()
    call = calling(lambda: talk.conn.request("/queue/rpc", "ping", headers={"x": 1}))
    inbox = talk.peer.expect_and_confirm("SUBSCRIBE")
    frame = talk.peer.expect("SEND")
    assert inbox.headers["destination"].startswith("/temp-queue/")
    assert frame.headers["reply-to"] == inbox.headers["destination"]
    assert (frame.body, frame.headers["x"]) == (b"ping", "1")
    call.until_blocked()
    answer(talk.peer, inbox, frame, "pong")
    assert call.result().text == "pong"


@pytest.mark.parametrize("header", ["reply-to", "correlation-id"])
def test_a_request_sets_the_headers_of_the_reply_itself(talking: Talking, header: str) -> None:
    talk = talking()
    with pytest.raises(stompy.ConfigurationError, match=f"header '{header}' is set by request"):
        talk.conn.request("/queue/rpc", "ping", headers={header: "mine"})
    assert talk.peer.quiet()


def answer(peer: Peer, inbox: stompy.Frame, frame: stompy.Frame, body: str) -> None:
    peer.deliver(body, subscription=inbox.headers["id"], headers={"correlation-id": frame.headers["correlation-id"]})


def test_many_requests_share_one_inbox_and_each_gets_its_own_reply(talking: Talking, calling: Calling) -> None:
    talk = talking()
    calls = {body: calling(partial(talk.conn.request, "/queue/rpc", body)) for body in "01234567"}
    inbox = talk.peer.expect_and_confirm("SUBSCRIBE")
    frames = [talk.peer.expect("SEND") for _ in range(8)]
    assert talk.peer.quiet()
    for frame in reversed(frames):
        answer(talk.peer, inbox, frame, f"re: {frame.body.decode()}")
    for body, call in calls.items():
        assert call.result().text == f"re: {body}"


def test_a_late_reply_is_dropped_and_counted(talking: Talking, calling: Calling) -> None:
    talk = talking()
    call = calling(lambda: talk.conn.request("/queue/rpc", "x", timeout=1))
    inbox = talk.peer.expect_and_confirm("SUBSCRIBE")
    late = talk.peer.expect("SEND")
    with pytest.raises(stompy.ReceiveTimeoutError, match=r"no reply from '/queue/rpc' within 1 s") as caught:
        call.result()
    assert not caught.value.safe_to_retry  # the server may have done it
    answer(talk.peer, inbox, late, "late")
    until(lambda: talk.conn.stats().late_replies == 1)
    again = calling(lambda: talk.conn.request("/queue/rpc", "y"))
    answer(talk.peer, inbox, talk.peer.expect("SEND"), "in time")
    assert again.result().text == "in time"
    assert talk.conn.stats().queued_messages == 0


def test_a_doubled_or_foreign_reply_is_counted_and_harms_nobody(talking: Talking, calling: Calling) -> None:
    talk = talking()
    call = calling(lambda: talk.conn.request("/queue/rpc", "x"))
    inbox = talk.peer.expect_and_confirm("SUBSCRIBE")
    frame = talk.peer.expect("SEND")
    talk.peer.deliver("foreign", subscription=inbox.headers["id"], headers={"correlation-id": "other"})
    talk.peer.deliver("unmarked", subscription=inbox.headers["id"])
    answer(talk.peer, inbox, frame, "first")
    answer(talk.peer, inbox, frame, "second")
    assert call.result().text == "first"
    until(lambda: talk.conn.stats().late_replies == 3)


@pytest.mark.parametrize("how", ["lost", "error", "closed"])
def test_a_request_in_flight_fails_with_the_connection(talking: Talking, calling: Calling, how: str) -> None:
    talk = talking()
    call = calling(lambda: talk.conn.request("/queue/rpc", "x"))
    talk.peer.expect_and_confirm("SUBSCRIBE")
    talk.peer.expect("SEND")
    kind: type[stompy.StompError]
    if how == "lost":
        talk.peer.close()
        kind = stompy.ConnectionLostError
    elif how == "error":
        talk.peer.error("no such queue")
        kind = stompy.BrokerError
    else:
        leaving = talk.leave()
        talk.peer.expect_disconnect()
        leaving.result()
        kind = stompy.NotConnectedError
    with pytest.raises(kind):
        call.result()


def test_late_replies_stay_counted_on_the_next_session(sessions: Sessions, calling: Calling) -> None:
    conn, peer = sessions.connect()
    call = calling(lambda: conn.request("/queue/rpc", "x"))
    inbox = peer.expect_and_confirm("SUBSCRIBE")
    frame = peer.expect("SEND")
    answer(peer, inbox, frame, "first")
    answer(peer, inbox, frame, "second")
    call.result()
    until(lambda: conn.stats().late_replies == 1)
    peer.close()
    following = sessions.next()
    again = calling(lambda: conn.request("/queue/rpc", "x"))
    inbox = following.expect_and_confirm("SUBSCRIBE")
    answer(following, inbox, following.expect("SEND"), "y")
    again.result()
    assert conn.stats().late_replies == 1


LARGE = b"x" * 50_000_000
"""More than a peer that does not read takes."""


def test_a_request_leaves_on_the_session_that_gets_its_reply(sessions: Sessions, calling: Calling) -> None:
    conn, peer = sessions.connect()
    first = calling(lambda: conn.request("/queue/rpc", "x"))
    inbox = peer.expect_and_confirm("SUBSCRIBE")
    answer(peer, inbox, peer.expect("SEND"), "y")
    first.result()
    blocking = calling(lambda: conn.send("/queue/a", LARGE))
    blocking.until_blocked()
    call = calling(lambda: conn.request("/queue/rpc", "x"))
    call.until_blocked()
    peer.close()
    following = sessions.next()
    with pytest.raises(stompy.ConnectionLostError) as caught:
        call.result()
    assert caught.value.outcome == "not-sent"
    with pytest.raises(stompy.ConnectionLostError):
        blocking.result()
    assert following.quiet()


def test_a_request_waits_no_longer_than_its_timeout_to_be_written(talking: Talking, calling: Calling) -> None:
    talk = talking(timeouts=stompy.Timeouts(send=10 * WITHIN))
    first = calling(lambda: talk.conn.request("/queue/rpc", "x"))
    inbox = talk.peer.expect_and_confirm("SUBSCRIBE")
    answer(talk.peer, inbox, talk.peer.expect("SEND"), "y")
    first.result()
    blocking = calling(lambda: talk.conn.send("/queue/a", LARGE))
    blocking.until_blocked()
    with pytest.raises(stompy.SendTimeoutError) as caught:
        calling(lambda: talk.conn.request("/queue/rpc", "x", timeout=0.01)).result()
    assert caught.value.outcome == "not-sent"
    assert talk.peer.expect("SEND").body == LARGE
    blocking.result()


def test_a_request_inside_a_handler_works() -> None:
    with Broker() as broker, stompy.connect(broker.url) as conn, stompy.connect(broker.url) as other:

        def respond(message: stompy.Message) -> None:
            fields = {"correlation-id": message.headers["correlation-id"]}
            other.send(message.headers["reply-to"], message.body.upper(), headers=fields)

        other.subscribe("/queue/rpc", respond)
        seen: list[str] = []
        conn.subscribe("/queue/a", lambda message: seen.append(conn.request("/queue/rpc", message.text).text))
        conn.send("/queue/a", "ping")
        until(lambda: seen)
        assert seen == ["PING"]


def test_a_request_inside_a_batch_leaves_at_once() -> None:
    with Broker() as broker, stompy.connect(broker.url) as conn:
        conn.subscribe(
            "/queue/rpc",
            lambda message: conn.send(
                message.headers["reply-to"], "pong", headers={"correlation-id": message.headers["correlation-id"]}
            ),
        )
        with conn.batch():
            conn.send("/queue/a", "before")
            assert conn.request("/queue/rpc", "ping", timeout=WITHIN).text == "pong"


@pytest.mark.parametrize("resends", [False, True])
def test_a_request_leaves_on_the_next_session_beside_a_batch_of_the_last(
    sessions: Sessions, calling: Calling, resends: bool
) -> None:
    conn, peer = sessions.connect(reconnect=replace(QUICK, resend_unconfirmed=resends))
    replies: list[str] = []

    def block() -> None:
        with conn.batch():
            conn.send_async("/queue/a", "first")
            peer.close()
            until(lambda: conn.stats().reconnects == 1)
            replies.append(conn.request("/queue/rpc", "x").text)

    call = calling(block)
    following = sessions.next()
    if resends:
        following.expect_and_confirm("SEND")
    inbox = following.expect_and_confirm("SUBSCRIBE")
    answer(following, inbox, following.expect("SEND"), "y")
    until(lambda: replies == ["y"])
    if resends:
        call.result()
    else:
        with pytest.raises(stompy.ConnectionLostError):
            call.result()


def test_a_reply_queue_that_is_refused_fails_the_request(talking: Talking, calling: Calling) -> None:
    talk = talking()
    call = calling(lambda: talk.conn.request("/queue/rpc", "x"))
    frame = talk.peer.expect("SUBSCRIBE")
    talk.peer.error("no temporary queues here", headers={"receipt-id": frame.headers["receipt"]})
    with pytest.raises(stompy.BrokerError, match="no temporary queues here"):
        call.result()


def test_rabbitmq_needs_no_subscription_to_its_temporary_queue(talking: Talking, calling: Calling) -> None:
    talk = talking(server="RabbitMQ/4.0.5")
    call = calling(lambda: talk.conn.request("/queue/rpc", "x"))
    frame = talk.peer.expect("SEND")
    talk.peer.deliver(
        "pong",
        subscription=frame.headers["reply-to"],
        headers={"correlation-id": frame.headers["correlation-id"]},
    )
    assert call.result().text == "pong"
