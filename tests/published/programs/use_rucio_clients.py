from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import stomp
from rucio.common.stomp_utils import StompConnectionManager, resolve_ips

OPTIONS = {"vhost": None, "reconnect_attempts": 3, "ssl_key_file": None, "ssl_cert_file": None, "timeout": 5}


def test_connections_are_made_watched_and_replaced(place: SimpleNamespace) -> None:
    manager = StompConnectionManager()
    (conn,), deleted = manager.re_configure(["localhost"], place.port, False, heartbeats=(0, 500), **OPTIONS)
    assert deleted == []
    assert manager.is_stalled(conn)
    conn.connect("ann", "sesame", wait=True)
    assert not manager.is_stalled(conn)
    before, limit = conn.received_heartbeat, time.monotonic() + 20
    while conn.received_heartbeat == before and time.monotonic() < limit:
        time.sleep(0.05)
    assert conn.received_heartbeat != before
    assert manager.re_configure(["localhost"], place.port, False, heartbeats=(0, 500), **OPTIONS) == ([], [])
    created, deleted = manager.re_configure(["localhost"], place.port, False, heartbeats=(0, 700), **OPTIONS)
    assert (len(created), len(deleted)) == (1, 1)
    while conn.is_connected() and time.monotonic() < limit:
        time.sleep(0.05)
    assert not conn.is_connected()


def test_names_are_resolved() -> None:
    assert resolve_ips(["localhost"]) == ["127.0.0.1"]


def test_without_a_broker(place: SimpleNamespace) -> None:
    manager = StompConnectionManager()
    (conn,), _ = manager.re_configure(["localhost"], 1, False, **OPTIONS)
    with pytest.raises(stomp.exception.ConnectFailedException):
        conn.connect("ann", "sesame", wait=True)
