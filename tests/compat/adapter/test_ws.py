"""Connections over WebSocket."""

from __future__ import annotations

import pytest

import stompy.compat as stomp


def test_a_websocket_connection_says_that_there_is_none_yet() -> None:
    with pytest.raises(NotImplementedError, match="WebSocket"):
        stomp.WSConnection([("localhost", 15674)])
