"""What SEND, SUBSCRIBE and UNSUBSCRIBE say."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompy.connection.encoding import (
    SendEncoder,
    check_destination,
    encode_body,
    headers_of_send,
    headers_of_subscribe,
)
from stompy.dialects.brokers import ACTIVEMQ, ARTEMIS, EMBEDDED, GENERIC, RABBITMQ
from stompy.dialects.dialect import Dialect
from stompy.dialects.options import SubscribeOptions, check_send_options
from stompy.errors import ConfigurationError, LocalProtocolError, StompError
from stompy.frames.encoder import LARGE_BODY
from tests.connection.conftest import Talking
from tests.hostile.script import MIB, bounded
from tests.support.memory import memory_pair
from tests.support.peer import link_over

KNOWN = (ACTIVEMQ, ARTEMIS, RABBITMQ)


@pytest.mark.parametrize("wrong", ["", None, b"/queue/a", 5, ["/queue/a"]])
def test_a_destination_is_text_of_at_least_one_character(wrong: object) -> None:
    with pytest.raises(LocalProtocolError):
        check_destination(wrong)
    check_destination(" ")


def test_a_message_has_its_own_headers_then_those_of_options_then_those_by_hand(talking: Talking) -> None:
    talk = talking(dialect="activemq")
    talk.conn.send("/queue/a", "x", headers={"colour": "red"}, priority=1)
    frame = talk.peer.expect("SEND")
    assert frame.body == b"x"
    assert list(frame.headers.items()) == [
        ("destination", "/queue/a"),
        ("content-type", "text/plain;charset=utf-8"),
        ("priority", "1"),
        ("colour", "red"),
        ("content-length", "1"),
    ]


GIVEN = {"persistent": False, "priority": 1, "expires": 5, "delay": 5, "group": "g", "dedupe_id": "d"}


@pytest.mark.parametrize("dialect", KNOWN, ids=lambda dialect: str(dialect.name))
@pytest.mark.parametrize("option", GIVEN)
def test_an_option_that_is_given_twice_is_an_error_that_names_both(
    talking: Talking, dialect: Dialect, option: str
) -> None:
    header = dialect.headers.get(option)
    if header is None:
        return
    talk = talking(dialect=dialect.name)
    twice: dict[str, Any] = {option: GIVEN[option]}
    for _ in range(2):
        talk.conn.send("/queue/a", "x", **twice)
        with pytest.raises(ConfigurationError, match=f"{option}= and header '{header}'"):
            talk.conn.send("/queue/a", "x", headers={header: "1"}, **twice)
        with pytest.raises(ConfigurationError, match="content-type"):
            talk.conn.send("/queue/a", "x", headers={"content-type": "a/b"}, content_type="a/b")


def test_headers_by_hand_are_checked_each_time(talking: Talking) -> None:
    talk = talking(dialect="rabbitmq")
    for _ in range(2):
        talk.conn.send("/queue/a", "x", headers={"persistent": True})
        with pytest.raises(ConfigurationError, match="persistent=False"):
            talk.conn.send("/queue/a", "x", headers={"persistent": False})
        with pytest.raises(ConfigurationError, match="'receipt'"):
            talk.conn.send("/queue/a", "x", headers={"receipt": "1"})
        with pytest.raises(ConfigurationError, match="selector"):
            talk.conn.subscribe("/queue/a", headers={"selector": "a = 1"})


@pytest.mark.parametrize(
    ("options", "headers", "said"),
    [({}, {}, "0"), ({}, {"prefetch-count": 7}, "7"), ({"prefetch": 3}, {}, "3")],
)
def test_what_every_subscription_says_is_overridden_by_hand_and_by_what_was_asked(
    options: dict[str, Any], headers: dict[str, object], said: str
) -> None:
    link = link_over(*memory_pair(), dialect=RABBITMQ, start=False).link
    made = headers_of_subscribe(
        link, "/queue/a", "auto", options=SubscribeOptions(**options), headers=headers, client_id=None
    )
    assert made == {"prefetch-count": said}


@pytest.mark.parametrize("dialect", KNOWN, ids=lambda dialect: str(dialect.name))
@pytest.mark.parametrize(
    ("option", "value"),
    [("prefetch", 1), ("selector", "a = 1"), ("durable", "d"), ("exclusive", True), ("id", "mine"), ("ack", "client")],
)
def test_an_option_of_subscribe_that_is_given_twice_is_an_error_that_names_both(
    talking: Talking, dialect: Dialect, option: str, value: object
) -> None:
    header = option if option in ("id", "ack") else dialect.headers.get(option)
    if header is None:
        return
    talk = talking(dialect=dialect.name, client_id="me")
    given: dict[str, Any] = {option: value}
    with pytest.raises(ConfigurationError, match=f"{option}= and header '{header}'"):
        talk.conn.subscribe("/topic/a", headers={header: "other"}, **given)
    assert talk.peer.quiet()


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
            ("JMSXGroupID", "/queue/a"),
            ("priority", "7"),
            ("a", "/queue/a"),
            ("b", "7"),
        ]


TEXT = st.text(st.sampled_from("a:\\\n\r\0é\ud800"), max_size=4)
NAMES = st.sampled_from(["a", "b:", "priority", "persistent", "destination-type", "destination", "receipt", ""])


class Shouting(str):
    """Text that is equal to other text, whatever its case; as a header of a framework may be."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


DESTINATIONS = ["/queue/a", Shouting("/QUEUE/a"), Shouting("/queue/A"), Place.A, "/topic/a", "/queue/é", "/a:b\\c"]
VALUES: st.SearchStrategy[Any] = st.one_of(
    TEXT, st.sampled_from([True, False, 0, 1, 1.0, Number.SEVEN, Place.A, Shouting("X"), Shouting("x"), None, []])
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "content_type": st.sampled_from([None, "text/plain", "application/json", "text/html;charset=utf-16", "a/b", 5]),
        "content_length": st.sampled_from([None, True, False, 1]),
        "persistent": st.sampled_from([None, True, False, 1, 0]),
        "priority": st.sampled_from([None, 0, 1, True, 1.0, 10, Number.SEVEN]),
        "delay": st.sampled_from([None, 1, 1.0, True, 0]),
        "group": st.sampled_from([None, "g", "G", Shouting("g"), Shouting("G"), Place.A, ""]),
        "dedupe_id": st.sampled_from([None, "d", "e", ""]),
        "prioritty": st.just(4),
    },
)
SENDS = st.lists(
    st.tuples(
        st.sampled_from(DESTINATIONS),
        st.sampled_from(["", "é", "\0", b"", b"\0x", bytearray(b"x"), {"n": 1}, 5, True, b"x" * LARGE_BODY]),
        st.one_of(st.none(), st.dictionaries(NAMES, VALUES, max_size=3)),
        OPTIONS,
    ),
    min_size=1,
    max_size=8,
)


@given(
    version=st.sampled_from(["1.0", "1.1", "1.2"]), dialect=st.sampled_from((*KNOWN, EMBEDDED, GENERIC)), sends=SENDS
)
def test_a_head_that_was_kept_says_what_one_made_anew_says(
    version: str, dialect: Dialect, sends: list[tuple[str, object, Any, Any]]
) -> None:
    linked = link_over(*memory_pair(), version=version, dialect=dialect, start=False)
    encoder = SendEncoder(linked.link)

    def kept(destination: str, body: object, headers: Mapping[str, object] | None, options: Any) -> bytes:
        others = {**options}
        content_type = others.pop("content_type", None)
        encoded = encoder.send(destination, body, content_type, headers, others, b"receipt:1\n")
        return encoded if isinstance(encoded, bytes) else b"".join(encoded)

    def anew(destination: str, body: object, headers: Mapping[str, object] | None, options: Any) -> bytes:
        check_destination(destination)
        check_send_options(options)
        data, kind = encode_body(body, options.get("content_type"))
        fields = headers_of_send(linked.link, destination, kind, headers, options)
        length = options.get("content_length") is not False
        return linked.link.protocol.send("SEND", {**fields, "receipt": "1"}, data, content_length=length)

    for arguments in sends:
        assert outcome(kept, arguments) == outcome(anew, arguments) == outcome(kept, arguments)


def test_headers_that_the_program_changes_in_place_are_seen(talking: Talking) -> None:
    talk = talking()
    headers: dict[str, object] = {"a": "1", "b": True}
    sent = []
    for change in ({}, {}, {"a": "2"}, {"b": 1}, {"a": "1", "b": True}):
        headers.update(change)
        talk.conn.send("/queue/a", "x", headers=headers)
        got = talk.peer.expect("SEND").headers
        sent.append((got["a"], got["b"]))
    assert sent == [("1", "true"), ("1", "true"), ("2", "true"), ("2", "1"), ("1", "true")]


def test_a_large_body_is_not_copied() -> None:
    linked = link_over(*memory_pair(), start=False)
    body = b"x" * LARGE_BODY
    encoded = SendEncoder(linked.link).send("/queue/a", body, None, None, {})
    assert encoded[1] is body


def outcome(make: Callable[..., bytes], arguments: tuple[Any, ...]) -> tuple[bytes, set[bytes], bytes] | str:
    """Return command, header lines and body: a header that varies from message to message may stand elsewhere."""
    try:
        head, _, body = make(*arguments).partition(b"\n\n")
    except StompError:
        return "refused"
    command, *lines = head.split(b"\n")
    assert len(set(lines)) == len(lines)
    return command, set(lines), body


def test_long_destinations_are_not_kept() -> None:
    encoder = SendEncoder(link_over(*memory_pair(), start=False).link)
    with bounded(4 * MIB):
        for number in range(100):
            encoder.send(f"{number}{'x' * 200_000}", "", None, {"a": f"{number}{'x' * 200_000}"}, {})
