"""What SEND, SUBSCRIBE and UNSUBSCRIBE say."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompy.connection.codec import encode_body
from stompy.connection.encoding import SendEncoder, check_destination, headers_of_send, headers_of_subscribe
from stompy.dialects.brokers import ACTIVEMQ, ARTEMIS, GENERIC, RABBITMQ
from stompy.dialects.dialect import Dialect
from stompy.dialects.options import SendOptions, SubscribeOptions
from stompy.errors import ConfigurationError, LocalProtocolError, StompError
from stompy.frames.encoder import LARGE_BODY
from stompy.transport.memory import memory_pair
from tests.connection.conftest import Talking
from tests.hostile.script import MIB, bounded
from tests.support.peer import link_over


@pytest.mark.parametrize("wrong", ["", None, b"/queue/a", 5, ["/queue/a"]])
def test_a_destination_is_text_of_at_least_one_character(wrong: object) -> None:
    with pytest.raises(LocalProtocolError):
        check_destination(wrong)
    check_destination(" ")


def test_a_message_has_its_own_headers_then_those_by_hand_then_what_was_asked(talking: Talking) -> None:
    talk = talking(dialect="activemq")
    talk.conn.send("/queue/a", "x", headers={"colour": "red", "priority": 9}, priority=1)
    frame = talk.peer.expect("SEND")
    assert frame.body == b"x"
    assert list(frame.headers.items()) == [
        ("destination", "/queue/a"),
        ("content-type", "text/plain;charset=utf-8"),
        ("colour", "red"),
        ("priority", "1"),
        ("content-length", "1"),
    ]


def test_headers_by_hand_are_checked_each_time(talking: Talking) -> None:
    talk = talking(dialect="rabbitmq")
    for _ in range(2):
        talk.conn.send("/queue/a", "x", headers={"persistent": True})
        with pytest.raises(ConfigurationError, match="persistent=False"):
            talk.conn.send("/queue/a", "x", headers={"persistent": False})
        with pytest.raises(LocalProtocolError, match="'receipt'"):
            talk.conn.send("/queue/a", "x", headers={"receipt": "1"})
        with pytest.raises(ConfigurationError, match="selector"):
            talk.conn.subscribe("/queue/a", headers={"selector": "a = 1"})


@pytest.mark.parametrize(
    ("options", "headers", "said"),
    [({}, {}, "0"), ({}, {"prefetch-count": 7}, "7"), ({"prefetch": 3}, {"prefetch-count": 7}, "3")],
)
def test_what_every_subscription_says_is_overridden_by_hand_and_that_by_what_was_asked(
    options: dict[str, Any], headers: dict[str, object], said: str
) -> None:
    link = link_over(*memory_pair(), dialect=RABBITMQ, start=False).link
    made = headers_of_subscribe(
        link, "/queue/a", "auto", options=SubscribeOptions(**options), headers=headers, client_id=None
    )
    assert made == {"prefetch-count": said}


class Place(str, enum.Enum):
    A = "/queue/a"
    HTML = "text/html"


class Number(enum.IntEnum):
    SEVEN = 7


def test_members_of_an_enum_are_written_as_their_value_before_and_behind_plain_text(talking: Talking) -> None:
    talk = talking(dialect="activemq")
    for destination, content_type in [(Place.A, Place.HTML), ("/queue/a", "text/html")]:
        by_hand = {"a": Place.A, "b": Number.SEVEN}
        talk.conn.send(
            destination, "x", content_type=content_type, headers=by_hand, group=Place.A, priority=Number.SEVEN
        )
        assert list(talk.peer.expect("SEND").headers.items())[:6] == [
            ("destination", "/queue/a"),
            ("content-type", "text/html"),
            ("a", "/queue/a"),
            ("b", "7"),
            ("priority", "7"),
            ("JMSXGroupID", "/queue/a"),
        ]


DIALECTS = (ACTIVEMQ, ARTEMIS, RABBITMQ, GENERIC)
TEXT = st.text(st.sampled_from("a:\\\n\r\0é\ud800"), max_size=4)
NAMES = st.sampled_from(["a", "b:", "priority", "persistent", "destination-type", "destination", "receipt", ""])


@given(
    version=st.sampled_from(["1.0", "1.1", "1.2"]),
    dialect=st.sampled_from(DIALECTS),
    destination=st.sampled_from(["/queue/a", "/topic/a", "queue://é", "a:b\\c"]),
    body=st.sampled_from(["", "é", "\0", b"", b"\0x", bytearray(b"x"), {"n": 1}, 5, True, b"x" * LARGE_BODY]),
    content_type=st.sampled_from([None, "text/plain", "application/json", "text/html;charset=utf-16", "a/b"]),
    headers=st.one_of(st.none(), st.dictionaries(NAMES, st.one_of(TEXT, st.booleans(), st.integers(0, 9)), max_size=3)),
    priority=st.sampled_from([None, 1]),
    content_length=st.booleans(),
)
def test_a_head_that_was_kept_says_what_one_made_anew_says(
    version: str,
    dialect: Dialect,
    destination: str,
    body: object,
    content_type: str | None,
    headers: Mapping[str, object] | None,
    priority: int | None,
    content_length: bool,
) -> None:
    options = None if priority is None else SendOptions(priority=priority)
    linked = link_over(*memory_pair(), version=version, dialect=dialect, start=False)
    encoder, more = SendEncoder(linked.link), b"receipt:1\n"

    def kept() -> bytes:
        encoded = encoder.send(
            destination,
            body,
            content_type=content_type,
            headers=headers,
            options=options,
            content_length=content_length,
            extra=more,
        )
        return encoded if isinstance(encoded, bytes) else b"".join(encoded)

    def anew() -> bytes:
        data, kind = encode_body(body, content_type)
        fields = headers_of_send(linked.link, destination, kind, headers, options)
        return linked.link.protocol.send("SEND", {**fields, "receipt": "1"}, data, content_length=content_length)

    assert outcome(kept) == outcome(anew) == outcome(kept)


def test_a_large_body_is_not_copied() -> None:
    linked = link_over(*memory_pair(), start=False)
    body = b"x" * LARGE_BODY
    encoded = SendEncoder(linked.link).send("/queue/a", body, None, None, None, content_length=True)
    assert encoded[1] is body


def outcome(make: Any) -> object:
    try:
        return make()
    except StompError:
        return "refused"


def test_long_destinations_are_not_kept() -> None:
    encoder = SendEncoder(link_over(*memory_pair(), start=False).link)
    with bounded(4 * MIB):
        for number in range(100):
            encoder.send(f"{number}{'x' * 200_000}", "", None, None, None, True)
