"""The inputs that the fuzzers of the whole client and the whole broker start from, run with every test run."""

from __future__ import annotations

import logging

import pytest

from tests.fuzz import whole

SEEDS = tuple(whole.seeds())


@pytest.mark.parametrize("part", range(4))
def test_the_client_bears_every_seed(part: int) -> None:
    for stream in SEEDS[part::4]:
        whole.check_client(stream)


@pytest.mark.parametrize("part", range(4))
def test_the_broker_bears_every_seed_and_serves_another_client(part: int) -> None:
    for stream in SEEDS[part::4]:
        whole.check_broker(stream)


def test_an_input_without_a_stream_says_nothing() -> None:
    for stream in (b"", b"\0"):
        whole.check_client(stream)
        whole.check_broker(stream)


@pytest.mark.parametrize("check", [whole.check_client, whole.check_broker])
def test_a_fault_of_our_own_is_noticed(check: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("stompy.connection.routing.Router.messages", fail)
    monkeypatch.setattr("stompy.broker.commands.Commands.process", fail)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    assert callable(check)
    message = b"MESSAGE\ndestination:/queue/a\nmessage-id:1\nsubscription:1\n\nx\0"
    with pytest.raises(AssertionError):
        check(b"\2\0" + (message if check is whole.check_client else b"SEND\ndestination:q\n\nx\0"))
