"""What SEND, SUBSCRIBE and UNSUBSCRIBE say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from stompy.connection.composing import Composer, check_destination
from stompy.connection.dialects.brokers import ACTIVEMQ, RABBITMQ
from stompy.connection.dialects.dialect import Dialect
from stompy.connection.dialects.options import SendOptions, SubscribeOptions
from stompy.errors import ConfigurationError, LocalProtocolError
from stompy.frames.version import Version


@dataclass
class Core:
    dialect: Dialect
    client_id: str | None = None
    version: Version = Version.V1_2


@pytest.mark.parametrize("wrong", ["", None, b"/queue/a", 5, ["/queue/a"]])
def test_a_destination_is_text_of_at_least_one_character(wrong: object) -> None:
    with pytest.raises(LocalProtocolError):
        check_destination(wrong)
    check_destination(" ")


def sent(dialect: Dialect, options: SendOptions | None = None, **headers: object) -> tuple[dict[str, str], bytes]:
    return Composer(Core(dialect)).send("/queue/a", "x", content_type=None, headers=headers, options=options)


def test_a_message_has_its_own_headers_then_those_by_hand_then_what_was_asked() -> None:
    fields, octets = sent(ACTIVEMQ, SendOptions(priority=1), colour="red", priority=9)
    assert octets == b"x"
    assert list(fields.items()) == [
        ("destination", "/queue/a"),
        ("content-type", "text/plain;charset=utf-8"),
        ("colour", "red"),
        ("priority", "1"),
    ]


def test_headers_by_hand_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="persistent=False"):
        sent(RABBITMQ, persistent=False)
    with pytest.raises(ConfigurationError, match="selector"):
        Composer(Core(RABBITMQ)).subscribe(
            "/queue/a", "auto", options=SubscribeOptions(), headers={"selector": "a = 1"}
        )


@pytest.mark.parametrize(
    ("options", "headers", "said"),
    [({}, {}, "0"), ({}, {"prefetch-count": 7}, "7"), ({"prefetch": 3}, {"prefetch-count": 7}, "3")],
)
def test_what_every_subscription_says_is_overridden_by_hand_and_that_by_what_was_asked(
    options: dict[str, Any], headers: dict[str, object], said: str
) -> None:
    made = Composer(Core(RABBITMQ)).subscribe("/queue/a", "auto", options=SubscribeOptions(**options), headers=headers)
    assert made == {"prefetch-count": said}
