"""The edges of what goes through a broker: bodies, headers, redelivery, errors."""

from __future__ import annotations

import logging
import threading

import pytest

import stompy
from tests.connection.conftest import Recorder
from tests.scenarios.conftest import PASSCODE, SOON, Candidate, Connecting
from tests.support.peer import until

pytestmark = pytest.mark.broker


def acked(message: stompy.Message) -> None:
    """Acknowledge, and wait until the broker has done it."""
    receipt = message.ack(receipt=True)
    assert receipt is not None
    receipt.wait(SOON)


@pytest.mark.requirement("SND-02", "BDY-06")
@pytest.mark.parametrize("body", [b"", b"\0", b"a\0\0b\0", b"\n\n", b"\r\n\0\n", b"\xff\xfe"])
def test_any_octets_come_back(connecting: Connecting, queue: str, body: bytes) -> None:
    connection = connecting()
    connection.send(queue, body)
    assert connection.subscribe(queue).receive(SOON).body == body


@pytest.mark.requirement("FRM-09", "FRM-10", "SND-05")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_headers_come_back_as_far_as_the_version_can_write_them(
    connecting: Connecting, queue: str, version: str
) -> None:
    headers: dict[str, object] = {"x-utf8": "é😀", "x-colon": "a:b:c", "x-number": 7, "x-flag": True, "x-empty": ""}
    if version != "1.0":
        headers |= {"x-lines": "a\nb", "x-backslash": "C:\\new\\c", "x-spaces": "  a  "}
    if version == "1.2":
        headers["x-cr"] = "a\r\nb\r"
    connection = connecting(versions=version)
    connection.send(queue, "x", headers=headers)
    received = connection.subscribe(queue).receive(SOON).headers
    expected = {**headers, "x-number": "7", "x-flag": "true"}
    assert {name: received[name] for name in expected} == expected


def test_a_topic_keeps_nothing_for_those_who_come_late(connecting: Connecting, topic: str) -> None:
    connection = connecting()
    early = connection.subscribe(topic)
    connection.send(topic, "before", confirm=True)
    late = connection.subscribe(topic)
    connection.send(topic, "after", confirm=True)
    assert late.receive(SOON).text == "after"
    assert [early.receive(SOON).text for _ in range(2)] == ["before", "after"]


@pytest.mark.parametrize("how", ["disconnect", "lost"])
def test_what_was_not_acked_comes_again_to_somebody_else(connecting: Connecting, queue: str, how: str) -> None:
    first, second = connecting(), connecting()
    first.send(queue, "x", confirm=True)
    message = first.subscribe(queue, ack="client-individual").receive(SOON)
    assert not message.redelivered
    if how == "disconnect":
        first.disconnect()
    else:
        first._core.link.transport.shutdown()
        until(lambda: not first.connected)
    again = second.subscribe(queue, ack="client-individual").receive(SOON)
    assert (again.text, again.redelivered) == ("x", True)
    with pytest.raises(stompy.AckError):
        message.ack()
    acked(again)


def test_a_consumer_with_prefetch_1_leaves_the_rest_to_the_others(connecting: Connecting, queue: str) -> None:
    slow, quick = connecting(), connecting()
    mine = slow.subscribe(queue, ack="client-individual", prefetch=1)
    slow.send(queue, "a", confirm=True)
    held = mine.receive(SOON)
    theirs = quick.subscribe(queue, ack="client-individual", prefetch=1)
    for body in "bcd":
        slow.send(queue, body, confirm=True)
    for body in "bcd":
        message = theirs.receive(SOON)
        assert message.text == body
        acked(message)
    assert mine.queued == 0
    theirs.unsubscribe()
    slow.send(queue, "e", confirm=True)
    held.ack()
    assert mine.receive(SOON).text == "e"


@pytest.mark.requirement("TXN-02", "TXN-03")
def test_nothing_of_a_transaction_is_seen_before_its_commit(connecting: Connecting, queue: str) -> None:
    connection, other = connecting(), connecting()
    subscription = other.subscribe(queue)
    with connection.transaction() as transaction:
        transaction.send(queue, b"inside" + b" " * 100_000)  # so that it has left
        connection.send(queue, "outside", confirm=True)
        assert subscription.receive(SOON).text == "outside"
        assert subscription.queued == 0
    assert subscription.receive(SOON).body.strip() == b"inside"


@pytest.mark.requirement("TXN-04")
def test_transactions_side_by_side_do_not_mix(connecting: Connecting, queue: str) -> None:
    connection = connecting()
    subscription = connection.subscribe(queue)
    with connection.transaction() as kept, pytest.raises(ZeroDivisionError), connection.transaction() as dropped:  # noqa: PT012 - the block
        kept.send(queue, b"kept" + b" " * 70_000)
        dropped.send(queue, b"dropped" + b" " * 70_000)
        raise ZeroDivisionError
    connection.send(queue, b"last")
    assert [subscription.receive(SOON).body.strip() for _ in range(2)] == [b"kept", b"last"]


def test_a_refused_subscription_raises_the_brokers_words_and_ends_the_link_once(
    connecting: Connecting, queue: str
) -> None:
    heard = Recorder()
    connection = connecting(listeners=[heard])
    pending = [connection.send(queue, "x", receipt=True) for _ in range(3)]
    with pytest.raises(stompy.BrokerError, match=r"selector|\(\(\(") as refused:
        connection.subscribe(queue, headers={"selector": "((("})
    assert refused.value.frame.command == "ERROR"
    assert refused.value.receipt_id is not None
    assert isinstance(heard.await_event("disconnected"), stompy.BrokerError)
    assert heard.names.count("error") == heard.names.count("disconnected") == 1
    assert [receipt.outcome for receipt in pending if receipt is not None] == ["confirmed"] * 3
    assert not connection.connected


def test_the_passcode_of_a_whole_session_is_in_no_log(
    candidate: Candidate, connecting: Connecting, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        connection = connecting()
        connection.send(queue, "x", confirm=True)
        connection.subscribe(queue).receive(SOON)
        connection.disconnect()
        with pytest.raises(stompy.ConnectRefused):
            stompy.connect(candidate.url, login="somebody", passcode="mistaken")
    assert "CONNECTED" in caplog.text
    assert PASSCODE not in caplog.text
    assert "mistaken" not in caplog.text


def test_many_threads_may_ask_at_once(connecting: Connecting, queue: str) -> None:
    asker, responder = connecting(), connecting()

    def serve(request: stompy.Message) -> None:
        headers = {"correlation-id": request.headers["correlation-id"]}
        responder.send(request.headers["reply-to"], request.text.upper(), headers=headers)

    responder.subscribe(queue, serve)
    replies: dict[str, str] = {}

    def ask(word: str) -> None:
        replies[word] = asker.request(queue, word, timeout=SOON).text

    threads = [threading.Thread(target=ask, args=(f"word{number}",)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert replies == {f"word{number}": f"WORD{number}" for number in range(10)}


def test_beats_go_on_while_a_handler_is_busy(connecting: Connecting, queue: str) -> None:
    connection = connecting(heartbeat=(0.2, 0.2))
    gate, running = threading.Event(), threading.Event()

    def handler(message: stompy.Message) -> None:
        running.set()
        assert gate.wait(SOON)

    connection.subscribe(queue, handler)
    connection.send(queue, "x")
    assert running.wait(SOON)
    start = connection.stats()
    until(lambda: connection.stats().octets_received >= start.octets_received + 6, "beats of the broker")
    assert connection.stats().octets_sent >= start.octets_sent + 4
    assert connection.stats().frames_received == start.frames_received
    gate.set()
    connection.send(queue, "still there", confirm=True)
