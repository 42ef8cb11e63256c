"""What a caller may ask of a broker beyond the specification."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy.dialects.options import SEND_OPTIONS, SubscribeOptions, check_send_options
from stompy.errors import ConfigurationError
from stompy.telemetry.traced import TracedConnection

TOP = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 10},
        {"priority": -1},
        {"priority": True},
        {"priority": "4"},
        {"expires": 0},
        {"expires": -1},
        {"expires": 1e10},
        {"expires": True},
        {"expires": float("nan")},
        {"delay": 0},
        {"delay": "1"},
        {"persistent": "yes"},
        {"persistent": 1},
        {"group": ""},
        {"group": 5},
        {"dedupe_id": ""},
        {"content_type": 5},
        {"content_length": 1},
        {"headers": ["a"]},
        {"prioritty": 4},
    ],
)
def test_a_message_is_not_sent_with_a_value_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        check_send_options(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"prefetch": 0},
        {"prefetch": -1},
        {"prefetch": 1.0},
        {"prefetch": True},
        {"prefetch": "5"},
        {"selector": ""},
        {"durable": ""},
        {"durable": True},
        {"browse": "no"},
        {"exclusive": 1},
    ],
)
def test_nothing_is_subscribed_to_with_a_value_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        SubscribeOptions(**wrong)


@pytest.mark.parametrize("other", [{"durable": "me"}, {"exclusive": True}])
def test_browsing_goes_with_nothing_that_takes_messages(other: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="browse reads"):
        SubscribeOptions(browse=True, **other)


def test_only_what_was_given_is_asked() -> None:
    assert SubscribeOptions().asked() == {}
    check_send_options(dict.fromkeys(SEND_OPTIONS))
    check_send_options({"persistent": False, "priority": 0})
    assert SubscribeOptions(browse=True, prefetch=3).asked() == {"browse": True, "prefetch": 3}


FAST = (stompy.Connection.send, stompy.Connection.send_async, stompy.Transaction.send)
SENDERS = (
    *FAST,
    stompy.Connection.request,
    stompy.Transaction.forward,
    stompy.Message.reply,
    stompy.Message.forward,
    stompy.TaskContext.send,
    stompy.Outbox.put,
    TracedConnection.send,
    TracedConnection.send_async,
    TracedConnection.request,
)


@pytest.mark.parametrize("sender", SENDERS, ids=lambda sender: str(sender.__qualname__))
def test_whatever_sends_takes_the_options_and_names_none_of_them(sender: Callable[..., object]) -> None:
    """But for those that are called most often, and for what most messages have."""
    parameters = inspect.signature(sender).parameters
    named = {"content_type", "headers"} if sender in FAST else set()
    assert parameters["options"].annotation == f"Unpack[{'OtherSendOptions' if named else 'SendOptions'}]"
    assert set(SEND_OPTIONS).intersection(parameters) == named


def test_the_table_has_each_option_that_editors_show() -> None:
    assert list(SEND_OPTIONS) == list(stompy.SendOptions.__annotations__), (
        "both, in stompy/dialects/options.py, in one order"
    )


def test_an_option_without_a_meaning_of_its_own_stands_in_the_table_and_at_the_brokers_alone() -> None:
    named = set()
    for file in (TOP / "stompy").rglob("*.py"):
        folder = file.relative_to(TOP / "stompy").parts[0]
        if folder not in ("broker", "cli", "spark") and any(map(names_group, ast.walk(ast.parse(file.read_bytes())))):
            named.add(file.name)
    assert named == {"options.py", "brokers.py"}


def names_group(node: ast.AST) -> bool:
    """Return whether a node names the option `group`."""
    return (isinstance(node, (ast.arg, ast.keyword)) and node.arg == "group") or (
        isinstance(node, ast.Constant) and node.value == "group"
    )
