"""The content of a message in each version, and its copies."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompy.broker import Like
from stompy.broker.broker import profile_named
from stompy.broker.message import MessageHead, StoredMessage, passed_on, route_to
from stompy.broker.profile import Profile
from stompy.broker.queues import Item
from stompy.errors import LocalProtocolError, ProtocolError
from stompy.frames.encoder import encode_lines
from stompy.frames.frame import headers_from_head
from stompy.frames.grammar import DEFAULT_LIMITS, Grammar, Version, grammar_of
from stompy.frames.heads import HeadChecker
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
    raw = b"\n" + encode_lines("SEND", [("destination", "/q"), *((name, "1") for name in own)], grammar=V1_2)
    assert passed_on(raw + b"kept:a\nkept:b\n", V1_2, Profile()) == b"kept:a\nkept:b\n"


@pytest.mark.parametrize("version", [Version.V1_0, Version.V1_1, Version.V1_2, Version.DRAFT])
@pytest.mark.parametrize("like", [None, *get_args(Like)])
@given(
    st.lists(
        st.tuples(st.sampled_from(("a", "b-c", "ack", "receipt", "größe")), st.text("a: \\cr\r\0é\xff", max_size=6)),
        max_size=4,
    )
)
def test_lines_that_are_passed_on_as_they_are_are_those_that_would_be_written(
    like: Like | None, version: Version, pairs: list[tuple[str, str]]
) -> None:
    profile = profile_named(like)
    rules, grammar = profile, grammar_of(version, profile.leniency)
    raw = "".join(["\n", *(f"{name}:{value}\n" for name, value in pairs)]).encode()
    try:
        raw = HeadChecker(grammar, DEFAULT_LIMITS).headers(raw, "SEND").encode()
        # A name that no header has: so every line is split and written again.
        again = passed_on(raw, grammar, rules, without=["none"])
    except ProtocolError:
        return
    split = [
        headers_from_head(b"\n" + lines, grammar, "MESSAGE").pairs for lines in (passed_on(raw, grammar, rules), again)
    ]
    assert split[0] == split[1]


@pytest.mark.parametrize("grammar", [V1_1, V1_2])
def test_a_moved_copy_has_a_content_length_only_if_the_original_has(grammar: Grammar) -> None:
    for length in (False, True):
        original = StoredMessage(MessageHead(route_to("/queue/a", V1_1, length=length), b"", 1), b"x")
        assert (
            b"content-length" in original.with_head(original.shared.moved("/queue/b", ())).shared.encoded(grammar)
        ) is length


def test_a_moved_copy_replaces_headers_of_the_same_name() -> None:
    message = a_message(body=b"x", original_destination="forged", k="v:1")
    moved = message.with_head(message.shared.moved("/queue/DLQ", (("original-destination", "/queue/a"),)))
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
