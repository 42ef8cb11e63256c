"""How the MESSAGE frames of a subscription begin, and what it books."""

from __future__ import annotations

import pytest

from stompy.broker.queues import Item
from stompy.broker.session_state import Consumer, OutgoingMessage
from stompy.errors import LocalProtocolError
from tests.broker.conftest import a_consumer, a_queue, a_session_state, an_item


def _delivered(consumer: Consumer, item: Item) -> bytes:
    consumer.deliver(item)
    taken = consumer.session.write_queue.take(0)
    assert taken is not None
    (frame,) = taken[0]
    assert isinstance(frame, OutgoingMessage)
    return frame.head


@pytest.mark.requirement("SRV-05", "SRV-06", "A-44")
@pytest.mark.parametrize(
    ("version", "mode", "lead"),
    [
        ("1.2", "client", b"MESSAGE\nsubscription:1\nmessage-id:k-1\nack:ack-k-1\n"),
        ("1.2", "auto", b"MESSAGE\nsubscription:1\nmessage-id:k-1\n"),
        ("1.1", "client", b"MESSAGE\nsubscription:1\nmessage-id:k-1\n"),
        ("1.0", "client-individual", b"MESSAGE\nsubscription:1\nmessage-id:k-1\n"),
    ],
)
def test_the_headers_of_the_broker_come_first(version: str, mode: str, lead: bytes) -> None:
    consumer = a_consumer(a_session_state(version), a_queue(), mode=mode)
    item = an_item(1)
    assert _delivered(consumer, item) == lead + b"destination:/queue/a\ncontent-length:1\n\n"
    assert b"\nmessage-id:k-2\n" in _delivered(consumer, an_item(2))


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_message_keeps_its_id_when_it_is_delivered_again(version: str) -> None:
    item = an_item(1)
    assert b"\nmessage-id:one-1\n" in _delivered(a_consumer(a_session_state(version), a_queue(), key="one"), item)
    session = a_session_state(version)
    other = a_consumer(session, a_queue(), key="two")
    lead = _delivered(other, item)
    assert b"\nmessage-id:one-1\n" in lead
    assert (b"\nack:ack-two-1\n" in lead) is (version == "1.2")
    assert session.ledger.count("two") == 1
    assert b"\nmessage-id:two-2\n" in _delivered(other, an_item(2))


@pytest.mark.parametrize("identity", ["100%", "%d%s", "a:b", "content-length", "message-id:x"])
def test_an_odd_id_comes_back_as_it_was(identity: str) -> None:
    consumer = a_consumer(a_session_state("1.0"), a_queue(), mode="auto", identity=identity)
    lead = _delivered(consumer, an_item(1))
    assert lead.startswith(b"MESSAGE\nsubscription:%b\nmessage-id:k-1\ndestination:" % identity.encode())


def test_a_second_delivery_says_so() -> None:
    consumer = a_consumer(a_session_state(), a_queue(), mode="auto")
    item = an_item(1)
    assert b"redelivered" not in _delivered(consumer, item)
    assert b"\nredelivered:true\nredelivery-count:1\n" in _delivered(consumer, item)
    assert item.deliveries == 2


def test_client_modes_book_the_delivery_and_auto_does_not() -> None:
    session, queue = a_session_state(), a_queue()
    a_consumer(session, queue, mode="auto", key="a").deliver(an_item(1, queue))
    assert (len(session.ledger), queue.unacked) == (0, 0)
    a_consumer(session, queue, mode="client", key="c").deliver(an_item(2, queue))
    assert (len(session.ledger), queue.unacked) == (1, 1)
    assert session.ledger.find("ack-c-2").item.item.order == 2


def test_room_ends_with_prefetch_or_a_full_outbox() -> None:
    consumer = a_consumer(a_session_state(), a_queue(), prefetch=1)
    assert consumer.has_room()
    consumer.deliver(an_item(1))
    assert not consumer.has_room()
    auto = a_consumer(a_session_state(max_frames=1), a_queue(), mode="auto", prefetch=1)
    auto.deliver(an_item(1))
    assert not auto.has_room()


def test_a_message_that_cannot_be_written_changes_nothing() -> None:
    session, queue = a_session_state("1.0"), a_queue()
    consumer = a_consumer(session, queue)
    item = an_item(k="two\nlines")
    with pytest.raises(LocalProtocolError):
        consumer.deliver(item)
    assert (item.deliveries, len(session.ledger), queue.unacked) == (0, 0, 0)
    assert session.write_queue.withdraw(lambda delivery: True) == []
