"""A forked child must not touch its parent's session."""

from __future__ import annotations

import os
import warnings

import pytest

import stompy
from stompy.broker import Broker


def in_a_child(work: object) -> str:
    """Run `work` in a forked child and return the text it gives."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of fork beside threads: our very case
        child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(work()).encode())  # type: ignore[operator]
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("reconnect", [False, True])
def test_after_a_fork_the_child_is_refused_and_the_parent_goes_on(reconnect: bool) -> None:
    with Broker() as broker, stompy.connect(broker.url, reconnect=reconnect) as connection:
        subscription = connection.subscribe("/queue/a")

        def use() -> str:
            refused = []
            for call in (
                lambda: connection.send("/queue/a", "from the child"),
                lambda: subscription.receive(timeout=0),
                lambda: connection.subscribe("/queue/b"),
            ):
                try:
                    call()
                except stompy.ConcurrencyError:
                    refused.append("refused")
            connection.disconnect()
            return " ".join(refused)

        assert in_a_child(use) == "refused refused refused"
        connection.send("/queue/a", "from the parent", confirm=True)
        assert subscription.receive(timeout=10).text == "from the parent"
        assert connection.connected
