"""The content of a message in each version, and its copies."""

from __future__ import annotations

import pytest

from stompy.broker.message import MessageHead, StoredMessage, passed_on
from stompy.broker.profile import DeliveryRules
from stompy.broker.queues import Item
from stompy.errors import LocalProtocolError
from stompy.frames.frame import Headers
from stompy.frames.grammar import Grammar, Version, grammar_of
from tests.broker.conftest import a_message

V1_0, V1_1, V1_2 = (grammar_of(version) for version in (Version.V1_0, Version.V1_1, Version.V1_2))


def test_the_head_holds_destination_headers_and_length() -> None:
    message = a_message("/queue/a", b"a\0b", x_id="1:2")
    assert message.shared.encoded(V1_2) == b"destination:/queue/a\nx-id:1\\c2\ncontent-length:3\n\n"
    assert message.size == len(message.shared.encoded(V1_2)) + 3


def test_the_head_is_encoded_anew_for_another_version() -> None:
    message = a_message(body=b"x", x_path="a:b\\c")
    assert message.shared.encoded(V1_0) == b"destination:/queue/a\nx-path:a:b\\c\ncontent-length:1\n\n"
    assert message.shared.encoded(V1_2) == b"destination:/queue/a\nx-path:a\\cb\\\\c\ncontent-length:1\n\n"
    assert message.shared.encoded(V1_0) is message.shared.encoded(V1_0)


def test_a_carriage_return_is_escaped_in_1_2_and_raw_in_1_1() -> None:
    message = a_message(body=b"", k="a\rb")
    assert message.shared.encoded(V1_2) == b"destination:/queue/a\nk:a\\rb\n\n"
    assert message.shared.encoded(V1_1) == b"destination:/queue/a\nk:a\rb\n\n"


def test_what_a_version_cannot_write_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        a_message(k="two\nlines").shared.encoded(V1_0)


@pytest.mark.requirement("A-47", "SRV-07")
def test_headers_of_the_send_alone_are_not_passed_on() -> None:
    own = ("message-id", "subscription", "ack", "redelivered", "receipt", "transaction", "content-length")
    headers = Headers([("destination", "/q"), *((name, "1") for name in own), ("kept", "a"), ("kept", "b")])
    assert passed_on(headers, V1_2, DeliveryRules()) == [("kept", "a"), ("kept", "b")]


@pytest.mark.parametrize("grammar", [V1_1, V1_2])
def test_a_moved_copy_has_a_content_length_only_if_the_original_has(grammar: Grammar) -> None:
    for length in (False, True):
        head = MessageHead([], V1_1, body_size=1, destination="/queue/a", target="/queue/a", length=length)
        original = StoredMessage(head, b"x")
        assert (b"content-length" in original.moved("/queue/b", ()).shared.encoded(grammar)) is length


def test_a_moved_copy_replaces_headers_of_the_same_name() -> None:
    message = a_message(body=b"x", original_destination="forged", k="v:1")
    moved = message.moved("/queue/DLQ", (("original-destination", "/queue/a"),))
    assert moved.destination == "/queue/DLQ"
    assert moved.body is message.body
    assert moved.shared.encoded(V1_2) == (
        b"destination:/queue/DLQ\noriginal-destination:/queue/a\nk:v\\c1\ncontent-length:1\n\n"
    )
    assert message.destination == "/queue/a"


def test_repr_shows_no_content() -> None:
    assert (
        repr(Item(a_message(body=b"secret"), 7)) == "<Item 7 <StoredMessage '/queue/a' 6 bytes> deliveries=0 nacks=0>"
    )
