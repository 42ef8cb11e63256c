"""Connecting, being refused, staying alive, and closing."""

from __future__ import annotations

import threading

import pytest

import stompy
from tests.scenarios.conftest import LOGIN, SOON, Candidate, Connecting

pytestmark = pytest.mark.broker


class Recorder(stompy.ConnectionListener):
    """Keeps what it hears of the end."""

    def __init__(self) -> None:
        self.errors: list[stompy.Frame] = []
        self.reasons: list[stompy.StompError | None] = []
        self.over = threading.Event()

    def on_error(self, frame: stompy.Frame) -> None:
        self.errors.append(frame)

    def on_disconnected(self, reason: stompy.StompError | None) -> None:
        self.reasons.append(reason)
        self.over.set()


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [(("1.0", "1.1", "1.2"), "1.2"), (("1.0", "1.1"), "1.1"), ("1.1", "1.1"), ("1.0", "1.0")],
)
def test_the_highest_common_version_is_spoken(connecting: Connecting, offered: tuple[str, ...], agreed: str) -> None:
    assert connecting(versions=offered).version == agreed


def test_a_wrong_passcode_is_refused_with_the_brokers_words(candidate: Candidate) -> None:
    with pytest.raises(stompy.ConnectRefused, match=candidate.refusal) as refused:
        stompy.connect(candidate.url, login=LOGIN, passcode="wr0ng")
    assert refused.value.frame.command == "ERROR"
    assert "wr0ng" not in str(refused.value)


def test_heartbeats_keep_a_silent_connection(candidate: Candidate, connecting: Connecting, queue: str) -> None:
    connection = connecting(heartbeat=(0.1, 0.1))
    ours, theirs = connection.heartbeat
    assert ours > 0
    assert theirs > 0
    heard = 0
    seen = connection.stats().octets_received
    give_up = threading.Event()
    for _ in range(int(SOON / 0.05)):
        if connection.stats().octets_received > seen:
            heard, seen = heard + 1, connection.stats().octets_received
        if heard >= 12:
            break
        give_up.wait(0.05)
    assert heard >= 12, "far more silence than either side allows without a beat"
    connection.send(queue, "alive", confirm=True)


def test_a_slow_listener_keeps_its_link(connecting: Connecting, queue: str) -> None:
    connection = connecting(heartbeat=(0.5, 0.5))
    started, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def sleep(_: stompy.Message) -> None:
        started.set()
        may_end.wait(5.0)
        ended.set()

    connection.subscribe(queue, sleep)
    connection.send(queue, "x")
    assert started.wait(SOON)
    # The listener sleeps its whole five seconds, ten beats of either side.
    assert ended.wait(SOON)
    connection.send(queue, "alive", confirm=True)
    may_end.set()


def test_an_error_of_the_broker_ends_the_link_and_says_why(connecting: Connecting, queue: str) -> None:
    heard = Recorder()
    connection = connecting(listeners=[heard])
    subscription = connection.subscribe(queue, ack="client-individual")
    connection.send(queue, "x", confirm=True)
    message = subscription.receive(timeout=SOON)
    receipt = message.ack(receipt=True)
    assert receipt is not None
    receipt.wait(SOON)
    # What our own side would never send: the same message again, behind its back.
    headers = {"id": message.headers["ack"]}
    handle = message.link.request("ACK", headers, receipt=True)
    assert handle is not None
    with pytest.raises(stompy.BrokerError) as refused:
        handle.wait(SOON)
    assert refused.value.frame.command == "ERROR"
    assert heard.over.wait(SOON)
    assert len(heard.errors) == 1
    assert len(heard.reasons) == 1
    assert isinstance(heard.reasons[0], stompy.BrokerError)
    with pytest.raises(stompy.ConnectionLost):
        connection.send(queue, "x")


def test_everything_works_inside_a_listener(connecting: Connecting, queue: str) -> None:
    connection = connecting()
    done: list[str] = []
    over = threading.Event()

    def handle(message: stompy.Message) -> None:
        message.ack()
        connection.send(f"{queue}.echo", message.body, confirm=True)
        done.append(connection.subscribe(f"{queue}.echo").receive(timeout=SOON).text)
        connection.disconnect()
        over.set()

    connection.subscribe(queue, handle, ack="client-individual")
    connection.send(queue, "round")
    assert over.wait(SOON)
    assert done == ["round"]
    with pytest.raises(stompy.NotConnected):
        connection.send(queue, "x")


def test_a_listener_that_raises_is_reported_and_the_connection_lives_on(
    connecting: Connecting, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = connecting()
    second = threading.Event()

    def handle(message: stompy.Message) -> None:
        if message.text == "bad":
            raise ValueError("told to")
        second.set()

    connection.subscribe(queue, handle)
    connection.send(queue, "bad")
    connection.send(queue, "good")
    assert second.wait(SOON)
    assert "told to" in caplog.text


def test_sending_after_disconnect_is_refused_and_says_so(connecting: Connecting, queue: str) -> None:
    connection = connecting()
    connection.disconnect()
    connection.disconnect()
    with pytest.raises(stompy.NotConnected, match="closed"):
        connection.send(queue, "x")


def test_what_send_took_is_there_after_the_connection_was_closed(connecting: Connecting, queue: str) -> None:
    first = connecting()
    for number in range(50):
        first.send(queue, str(number))
    first.disconnect()
    subscription = connecting().subscribe(queue)
    assert [subscription.receive(timeout=SOON).text for _ in range(50)] == [str(number) for number in range(50)]
