"""Sending, where a connection's face does not show it; see also test_connection, test_buffer and test_unconfirmed."""

from __future__ import annotations

import pytest

import stompy
from tests.connection.conftest import Talking
from tests.support.peer import until
from tests.transport.conftest import Calling


def test_one_deadline_covers_the_wait_for_a_link_and_the_write(talking: Talking, calling: Calling) -> None:
    policy = stompy.Reconnect(first_delay=1000.0, max_delay=1000.0)
    talk = talking(reconnect=policy)  # its listener is closed, so there will be no other link
    talk.peer.close()
    until(lambda: not talk.conn.connected)
    sending = calling(lambda: talk.conn.send("/queue/a", "x", timeout=0.01))
    with pytest.raises(stompy.ConnectionLost) as lost:
        sending.result()
    assert lost.value.outcome == "not-sent"
