"""What whoever holds a broker can see and do."""

from __future__ import annotations

import logging
import threading

import pytest

from stompy.errors import ConfigurationError
from stompy.frames.frame import Frame
from tests.broker.conftest import Serve, Served


def test_browse_shows_what_waits(served: Served) -> None:
    client = served.client()
    client.send("/queue/a", "1", kind="x")
    client.send("/queue/a", "urgent", priority="9")
    urgent, first = served.broker.browse("/queue/a")
    assert (urgent.text, urgent.headers["priority"], urgent.deliveries) == ("urgent", "9", 0)
    assert (first.body, first.headers["destination"], first.headers["kind"]) == (b"1", "/queue/a", "x")
    assert (served.broker.depth("/queue/a"), served.broker.browse("/queue/none")) == (2, [])


def test_purge_drops_what_waits_and_not_what_was_delivered(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client", prefetch_count="1")
    client.send("/queue/a", *"123")
    client.messages(1)
    assert (served.broker.purge("/queue/a"), served.broker.purge("/queue/none")) == (2, 0)
    assert served.depth("/queue/a") == (0, 1)


def test_move_puts_messages_into_another_queue_in_order(served: Served) -> None:
    client = served.client()
    client.send("/queue/DLQ", *"123", kind="x")
    assert served.broker.move("/queue/DLQ", "/queue/a") == 3
    client.subscribe("/queue/a")
    messages = client.messages(3)
    assert [message.body for message in messages] == [b"1", b"2", b"3"]
    assert {message.headers["destination"] for message in messages} == {"/queue/a"}
    with pytest.raises(ConfigurationError, match="another"):
        served.broker.move("/queue/a", "/queue/a")


def test_a_paused_queue_takes_and_does_not_give(served: Served) -> None:
    client = served.client()
    served.broker.pause("/queue/a")
    client.subscribe("/queue/a")
    client.send("/queue/a", "x")
    assert client.idle()
    assert served.broker.depth("/queue/a") == 1
    served.broker.resume("/queue/a")
    served.broker.resume("/queue/none")
    assert client.bodies(1) == ["x"]


@pytest.mark.parametrize("name", ["", "/topic/a", "/queue/a.*", "/queue/a,/queue/b", "/queue/a,/queue/a"])
def test_what_is_not_one_queue_is_refused(served: Served, name: str) -> None:
    for act in (served.broker.depth, served.broker.browse, served.broker.purge, served.broker.pause):
        with pytest.raises(ConfigurationError):
            act(name)


def test_connections_tell_who_is_there(serve: Serve) -> None:
    served = serve(users={"ann": "sesame"})
    client = served.client("1.1", login="ann", passcode="sesame", client_id="me")
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "x")
    client.messages(1)
    (seen,) = served.broker.connections()
    assert (seen.login, seen.client_id, seen.version) == ("ann", "me", "1.1")
    assert (seen.subscriptions, seen.unacked) == (("/queue/a",), 1)
    assert "sesame" not in repr(seen)


def test_kill_ends_one_connection_and_gives_back_what_it_had(served: Served) -> None:
    victim, other = served.client(), served.client()
    victim.subscribe("/queue/a", "client")
    other.send("/queue/a", "x")
    victim.messages(1)
    first, _ = served.broker.connections()
    assert served.broker.kill(first)
    assert not served.broker.kill(first.session)
    assert victim.rest() == []
    other.subscribe("/queue/a")
    assert other.messages(1)[0].headers["redelivered"] == "true"


def test_a_hook_sees_every_frame_both_ways(serve: Serve) -> None:
    seen: list[tuple[str, str, str]] = []
    served = serve(on_frame=lambda direction, session, frame: seen.append((direction, session, frame.command)))
    client = served.client()
    client.subscribe("/queue/a")
    client.sure("SEND", {"destination": "/queue/a"}, b"x")
    client.messages(1)
    client.disconnect()
    served.until(lambda stats: stats.sessions == 0)
    sent = [command for direction, _, command in seen if direction == "sent"]
    received = [command for direction, _, command in seen if direction == "received"]
    assert received == ["CONNECT", "SUBSCRIBE", "SEND", "DISCONNECT"]
    assert sorted(sent) == ["CONNECTED", "MESSAGE", "RECEIPT", "RECEIPT", "RECEIPT"]
    assert len({session for _, session, _ in seen}) == 1


def test_a_hook_that_raises_disturbs_nobody(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)

    def hook(direction: str, session: str, frame: Frame) -> None:
        raise ValueError(threading.current_thread().name)

    client = serve(on_frame=hook).client()
    client.sync()
    assert "the hook of the broker's frames failed" in caplog.text


def test_some_messages_are_purged_or_moved_by_their_numbers(served: Served) -> None:
    client = served.client()
    client.send("/queue/a", *"1234")
    numbers = [message.number for message in served.broker.browse("/queue/a")]
    assert served.broker.purge("/queue/a", numbers=[numbers[0]]) == 1
    assert served.broker.move("/queue/a", "/queue/b", numbers=[numbers[2], numbers[0]]) == 1
    assert [message.text for message in served.broker.browse("/queue/a")] == ["2", "4"]
    assert [message.text for message in served.broker.browse("/queue/b")] == ["3"]


def test_browse_returns_a_part(served: Served) -> None:
    served.client().send("/queue/a", *"12345")
    assert [message.text for message in served.broker.browse("/queue/a", start=1, limit=2)] == ["2", "3"]


def test_retry_sends_dead_letters_where_they_came_from(serve: Serve) -> None:
    served = serve(attempts=1)
    client, topic = served.client(), served.client()
    topic.subscribe("/topic/t", "client-individual")
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "1", kind="x")
    client.send("/topic/t", "2")
    client.send("/queue/DLQ", "never was elsewhere")
    for consumer in (client, topic):
        (message,) = consumer.messages(1)
        consumer.nack(message)
    served.until(lambda stats: stats.dead_lettered == 2)
    assert served.broker.retry("/queue/DLQ") == 2
    (again,), (published,) = client.messages(1), topic.messages(1)
    assert (again.body, again.headers["kind"], again.headers["destination"]) == (b"1", "x", "/queue/a")
    assert published.body == b"2"
    assert not {"original-destination", "delivery-count", "dead-letter-reason"} & set(again.headers)
    assert [message.text for message in served.broker.browse("/queue/DLQ")] == ["never was elsewhere"]


def test_retry_takes_only_the_numbers_that_it_is_given(served: Served) -> None:
    client = served.client()
    client.send("/queue/DLQ", "1", "2", original_destination="/queue/a")
    first, second = served.broker.browse("/queue/DLQ")
    assert served.broker.retry("/queue/DLQ", numbers=[second.number]) == 1
    assert [message.text for message in served.broker.browse("/queue/a")] == ["2"]
    assert [message.number for message in served.broker.browse("/queue/DLQ")] == [first.number]
    assert served.broker.retry("/queue/none") == 0


def test_retry_reads_the_headers_of_the_broker_that_is_emulated(serve: Serve) -> None:
    served = serve(like="rabbitmq")
    client = served.client(host="/")
    client.send("/queue/letters", "1", **{"x-first-death-queue": "a"})
    client.send("/queue/letters", "2", original_destination="/queue/a,/queue/b")
    assert served.broker.retry("/queue/letters") == 1
    assert [message.text for message in served.broker.browse("/queue/a")] == ["1"]


def test_connections_tell_their_heartbeats(served: Served) -> None:
    served.client("1.2", heart_beat="0,3000")
    served.client("1.0")
    first, second = served.broker.connections()
    assert (first.heartbeat, second.heartbeat) == ((0.0, 3.0), (0.0, 0.0))
    assert first.idle >= 0
