"""SENDs that come again and again: their plans are remembered, and mean the same each time."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stompy.broker import BrokerLimits, User
from stompy.broker.broker import Like, profile_named
from stompy.broker.commands import Commands
from stompy.broker.profile import Profile
from stompy.broker.router import BrokerRouter
from stompy.broker.session_state import OutgoingMessage
from stompy.broker.settings import Settings
from stompy.errors import ProtocolError
from stompy.frames.frame import Frame
from stompy.frames.grammar import Version, grammar_of
from stompy.frames.heads import Run
from tests.broker.conftest import Serve, Served, a_session_state

MANY = 200
"""Frames after which the parser has learned a head."""

NAMES = ("destination", "receipt", "content-length", "persistent", "priority", "ack", "message-id", "a", "b-c", "type")
NOT_PLAIN = ("transaction", "reply-to", "expires", "AMQ_SCHEDULED_DELAY", "JMSXGroupID", "_AMQ_DUPL_ID", "x-delay")

lines = st.lists(
    st.tuples(
        st.sampled_from((*NAMES, *NOT_PLAIN)),
        st.one_of(
            st.sampled_from(("/queue/a", "/queue/a,/queue/b", "/queue/a.*", "/temp-queue/t", "true", "4", "x", "")),
            st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r"), max_size=8),
        ),
    ),
    max_size=6,
)


def _published(
    profile: Profile, version: Version, raw: bytes, body: bytes, *, after: bytes | None = None
) -> list[tuple[list[object], list[bytes | OutgoingMessage]]]:
    """Return what a SEND puts into its queue, and its answers, each time that it comes, or once `after` another."""
    router = BrokerRouter(settings := Settings(profile=profile), instance="test")
    router.clock.now = lambda: 1e9  # type: ignore[method-assign]
    session, commands, grammar = a_session_state(str(version)), Commands(router, settings), grammar_of(version)
    run = Run("SEND", frozenset(), grammar)
    run.rows.append((raw, b"", body))
    times: list[tuple[list[object], list[bytes | OutgoingMessage]]] = []
    if after is not None:
        commands.process(session, run.frame((after, b"", body)))
        session.write_queue.take(0)
    for again in (False, False, True) if after is None else (True,):
        router.topology.queue("/queue/a")
        if not again:
            commands.process(session, run.frame(run.rows[0]))
        elif commands.process_again(session, run, 0) == 0:
            break
        queue = router.topology.queues["/queue/a"]
        messages = [item.message for item in queue.items()]
        for item in queue.items():
            queue.remove(item)
        grammars = [grammar_of(other) for other in (Version.V1_1, version)]
        found = [(m.body, m.size, m.options, m.destination, [m.shared.encoded(g) for g in grammars]) for m in messages]
        answered = session.write_queue.take(0)
        assert answered is not None
        times.append((list(found), answered[0]))
    return times


@example([("receipt", ""), ("receipt", "/queue/a")], b"", Version.V1_0, False)
@given(lines, st.binary(max_size=20), st.sampled_from((Version.V1_0, Version.V1_1, Version.V1_2)), st.booleans())
@pytest.mark.parametrize("like", [None, *get_args(Like)])
def test_a_send_does_the_same_each_time(
    like: Like | None, pairs: list[tuple[str, str]], body: bytes, version: Version, length: bool
) -> None:
    text = "".join(f"\n{name}:{value}" for name, value in pairs if name != "content-length")
    counted = f"\ncontent-length:{len(body)}" if length or b"\0" in body else ""
    raw = f"\ndestination:/queue/a{text}{counted}\n".encode()
    try:
        first, *others = _published(profile_named(like), version, raw, body)
    except (ProtocolError, KeyError):  # what is refused is refused each time
        return
    if not {name for name, _ in pairs} & {"_AMQ_DUPL_ID", "expires"}:
        assert all(other == first for other in others)


@example([("persistent", "true"), ("a", "x")], b"body", Version.V1_2, True)
@example([("persistent", "true"), ("a", "x")], b"body", Version.V1_2, False)
@given(lines, st.binary(max_size=20), st.sampled_from((Version.V1_0, Version.V1_1, Version.V1_2)), st.booleans())
@pytest.mark.parametrize("like", [None, *get_args(Like)])
def test_a_send_does_the_same_after_one_to_another_queue(
    like: Like | None, pairs: list[tuple[str, str]], body: bytes, version: Version, length: bool
) -> None:
    text = "".join(f"\n{name}:{value}" for name, value in pairs if name != "content-length")
    counted = f"\ncontent-length:{len(body)}" if length or b"\0" in body else ""
    raw, other = (f"\ndestination:/queue/{name}{text}{counted}\n".encode() for name in ("a", "b"))
    try:
        first, *_ = _published(profile_named(like), version, raw, body)
        alike = _published(profile_named(like), version, raw, body, after=other)
    except ProtocolError:
        return
    if pairs == [("persistent", "true"), ("a", "x")]:
        assert alike, "it was not known from the other queue"
    assert alike in ([], [first])


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"persistent": "true", "priority": "7", "content-type": "text/plain"},
        {"note": "a:b\\c", "größe": "ß"},
        {"message-id": "forged", "ack": "forged", "redelivered": "true"},
        {"reply-to": "/queue/back"},
        {"JMSXGroupID": "one"},
        {"expires": "99999999999999"},
    ],
    ids=lambda headers: "-".join(headers) or "none",
)
def test_all_messages_of_one_producer_look_alike(served: Served, version: str, headers: dict[str, str]) -> None:
    consumer, producer = served.client("1.2"), served.client(version)
    consumer.subscribe("/queue/a")
    fields = headers if version != "1.0" else {name: value.replace("\\", "/") for name, value in headers.items()}
    for number in range(MANY):
        producer.say("SEND", {"destination": "/queue/a", **fields, "receipt": str(number)}, b"%03d" % number)
    assert [producer.expect("RECEIPT").headers["receipt-id"] for _ in range(MANY)] == [str(n) for n in range(MANY)]
    messages = consumer.messages(MANY)
    assert [message.body for message in messages] == [b"%03d" % number for number in range(MANY)]
    assert len({message.headers["message-id"] for message in messages}) == MANY
    alike = {tuple(pair for pair in message.headers.pairs if pair[0] != "message-id") for message in messages}
    assert len(alike) == 1


@pytest.mark.parametrize("fields", [{"subject": "{}"}, {"receipt": "{}:"}, {}], ids=["header", "odd receipt", "body"])
def test_what_differs_from_message_to_message_arrives(served: Served, fields: dict[str, str]) -> None:
    consumer, producer = served.client(), served.client()
    consumer.subscribe("/queue/a")
    for number in range(MANY):
        producer.say(
            "SEND",
            {"destination": "/queue/a", **{name: text.format(number) for name, text in fields.items()}},
            b"x" * number,
        )
    messages = consumer.messages(MANY)
    assert [len(message.body) for message in messages] == list(range(MANY))
    if "subject" in fields:
        assert [message.headers["subject"] for message in messages] == [str(number) for number in range(MANY)]
    if "receipt" in fields:
        receipts = [producer.expect("RECEIPT").headers["receipt-id"] for _ in range(MANY)]
        assert receipts == [f"{number}:" for number in range(MANY)]


@pytest.mark.parametrize("like", [None, *get_args(Like)])
@pytest.mark.parametrize("receipts", [("r",), ("", "r"), ("r", ""), ("r", "q"), ("q:", "r")], ids=repr)
def test_every_send_is_confirmed_by_its_first_receipt_header(
    serve: Serve, like: Like | None, receipts: tuple[str, ...]
) -> None:
    client = serve(like=like).client(host="/")
    lines = "".join(f"\nreceipt:{each}" for each in receipts)
    client.raw(f"SEND\ndestination:/queue/a{lines}\ncontent-length:1\n\nx\0".encode() * MANY)
    assert {client.expect("RECEIPT").headers["receipt-id"] for _ in range(MANY)} == {
        receipts[0].replace(":", "") if like == "artemis" else receipts[0]
    }


def test_the_first_of_two_destinations_counts_whatever_came_before(served: Served) -> None:
    consumer, producer = served.client(), served.client()
    consumer.subscribe("/topic/a")
    for first, second in (("/queue/b", "/topic/a"), ("/topic/a", "/queue/c")):
        producer.raw(f"SEND\ndestination:{first}\ndestination:{second}\n\n{first}\0".encode() * MANY)
    assert {message.body for message in consumer.messages(MANY)} == {b"/topic/a"}
    assert served.depth("/queue/b") == (MANY, 0)


def test_bodies_without_content_length_arrive(served: Served) -> None:
    consumer, producer = served.client(), served.client()
    consumer.subscribe("/queue/a")
    producer.raw(b"".join(b"SEND\ndestination:/queue/a\n\n%b\0" % (b"x" * (number % 7)) for number in range(MANY)))
    messages = consumer.messages(MANY)
    assert [len(message.body) for message in messages] == [number % 7 for number in range(MANY)]
    assert all(message.headers.get("content-length", "0") == str(len(message.body)) for message in messages)


def test_messages_in_a_transaction_wait_for_its_commit(served: Served) -> None:
    client = served.client()
    for number in range(MANY):
        transaction = {"transaction": "t"} if number % 2 else {}
        if number == 1:
            client.say("BEGIN", transaction)
        client.say("SEND", {"destination": "/queue/a", **transaction}, b"x")
    client.sync()
    assert served.depth("/queue/a") == (MANY // 2, 0)
    client.sure("COMMIT", {"transaction": "t"})
    assert served.depth("/queue/a") == (MANY, 0)


def test_messages_to_several_destinations_keep_their_order(served: Served) -> None:
    consumer, producer = served.client(), served.client()
    for number, destination in enumerate(("/queue/a", "/topic/a")):
        consumer.subscribe(destination, id=str(number))
    for number in range(MANY):
        producer.say("SEND", {"destination": "/topic/a" if number % 3 else "/queue/a"}, b"%03d" % number)
    bodies: dict[str, list[bytes]] = {}
    for message in consumer.messages(MANY):
        bodies.setdefault(message.headers["destination"], []).append(message.body)
    for found in bodies.values():
        assert found == sorted(found)


def test_a_subscription_to_several_topics_gets_them_in_the_order_of_their_producer(served: Served) -> None:
    consumer, producer = served.client(), served.client()
    consumer.subscribe("/topic/>")
    producer.raw(
        b"".join(
            producer.encoded("SEND", {"destination": f"/topic/{'abc'[number % 3]}"}, b"%03d" % number)
            for number in range(MANY)
        )
    )
    assert [message.body for message in consumer.messages(MANY)] == [b"%03d" % number for number in range(MANY)]


def test_a_full_durable_subscription_ends_the_session_after_the_receipts_of_what_it_took(serve: Serve) -> None:
    served = serve(limits=BrokerLimits(max_queue_messages=150))
    owner, producer = served.client(client_id="me"), served.client()
    owner.sure("SUBSCRIBE", {"destination": "/topic/a", "id": "1", "activemq.subscriptionName": "mine"})
    owner.disconnect()
    for number in range(MANY):
        producer.say("SEND", {"destination": "/topic/a", "receipt": str(number)}, b"x")
    assert [producer.expect("RECEIPT").headers["receipt-id"] for _ in range(150)] == [str(n) for n in range(150)]
    error = producer.expect("ERROR").headers
    assert ("max_queue_messages" in error["message"], error["receipt-id"]) == (True, "150")


def test_a_user_without_the_right_is_refused_as_always(serve: Serve) -> None:
    served = serve(users={"a": User(passcode="secret", write=("/queue/mine", "/topic/*"))})
    client = served.client(login="a", passcode="secret")
    for _ in range(MANY):
        client.say("SEND", {"destination": "/queue/mine"}, b"x")
    client.sync()
    assert served.depth("/queue/mine") == (MANY, 0)
    client.say("SEND", {"destination": "/queue/other"}, b"x")
    assert "access refused" in client.expect("ERROR").headers["message"]


@pytest.mark.parametrize(
    ("limits", "named"),
    [({"max_queue_messages": 150}, "max_queue_messages"), ({"max_store_bytes": 150 * 50}, "max_store_bytes")],
)
def test_limits_hold_to_the_message(serve: Serve, limits: dict[str, Any], named: str) -> None:
    served = serve(limits=BrokerLimits(**limits))
    client = served.client()
    for number in range(MANY):
        client.say("SEND", {"destination": "/queue/a", "receipt": f"{number:03}"}, b"x" * 10)
    frames: list[Frame] = []
    while not frames or frames[-1].command == "RECEIPT":
        frames.append(client.frame())
    assert named in frames[-1].headers["message"]
    assert served.depth("/queue/a")[0] == len(frames) - 1
    if named == "max_queue_messages":
        assert len(frames) == 151
