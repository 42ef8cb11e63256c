"""How a session is kept alive by heartbeats, and how it ends."""

from __future__ import annotations

import socket
import struct
import threading
import time

import pytest

from stompy.broker import BrokerLimits
from stompy.broker.commands import Commands
from stompy.deadline import Deadline
from tests.broker.conftest import Serve, Served
from tests.support.peer import until
from tests.support.rawclient import RawClient

_NEVER = Deadline(None)


# Heartbeats


def _beats(client: RawClient, count: int) -> bytes:
    seen = b""
    while len(seen) < count:
        data = client.recv(20.0)
        assert data
        seen += data
    return seen


@pytest.mark.requirement("HBT-01", "HBT-03", "HBT-04", "HBT-05", "HBT-06", "HBT-13")
@pytest.mark.parametrize(
    ("version", "asked", "answer"),
    [("1.2", "0,0", "100,100"), ("1.1", None, "100,100"), ("1.2", "500,0", "100,100"), ("1.0", "50,50", None)],
)
def test_no_beats_where_the_client_wants_none(served: Served, version: str, asked: str | None, answer: str) -> None:
    client = served.dial(version)
    headers = {} if asked is None else {"heart-beat": asked}
    assert client.connect(**headers).headers.get("heart-beat") == answer
    if asked != "500,0":
        assert client.recv(0.3) == b""
    client.disconnect()


@pytest.mark.requirement("HBT-06", "HBT-08", "HBT-09", "HBT-10")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_beats_are_line_feeds(serve: Serve, version: str) -> None:
    client = serve(heartbeat=(0.05, 0)).client(version, heart_beat="0,10")
    assert set(_beats(client, 3)) == {10}


@pytest.mark.requirement("HBT-08")
def test_a_busy_line_needs_no_beats(serve: Serve) -> None:
    before = time.monotonic()
    client = serve(heartbeat=(0.2, 0)).client(heart_beat="0,10")
    give_up = time.monotonic() + 0.5
    client.subscribe("/queue/a")
    while (now := time.monotonic()) < give_up:
        client.say("SEND", {"destination": "/queue/a"}, b"x")
        data = client.recv(20.0)
        if data.startswith(b"\n"):  # right only if a busy machine left the line idle since the message before
            assert time.monotonic() - before > 0.1
            data = data.lstrip(b"\n") or client.recv(20.0)
        assert data.startswith(b"MESSAGE")
        before = now


@pytest.mark.requirement("HBT-05", "HBT-11")
def test_a_silent_client_is_let_go_with_an_error(serve: Serve) -> None:
    served = serve(heartbeat=(0, 0.05))
    client = served.client(heart_beat="50,0")
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "x")
    client.messages(1)
    assert "heartbeats" in client.error().headers["message"]
    assert served.depth("/queue/a") == (1, 0)


def test_how_long_a_client_may_be_silent_is_a_setting(serve: Serve) -> None:
    client = serve(heartbeat=(0, 0.05), limits=BrokerLimits(heartbeat_tolerance=10)).client(heart_beat="50,0")
    assert "nothing was received for 0.5 s" in client.error().headers["message"]


@pytest.mark.requirement("HBT-07", "HBT-12", "A-46")
def test_any_byte_is_a_sign_of_life(serve: Serve) -> None:
    client = serve(heartbeat=(0, 0.2)).client(heart_beat="50,0")
    data = client.encoded("SEND", {"destination": "/queue/a", "receipt": "r"}, b"x")
    for byte in data:
        client.raw(bytes((byte,)))
        time.sleep(0.02)  # a frame that takes longer than the silence that is allowed
    assert client.expect("RECEIPT").headers["receipt-id"] == "r"


@pytest.mark.requirement("HBT-02", "A-13")
@pytest.mark.parametrize("value", ["abc", "1", "1,2,3", "-1,0", ""])
def test_a_malformed_heartbeat_header_is_an_error(served: Served, value: str) -> None:
    client = served.dial()
    client.raw(b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:%b\n\n\0" % value.encode())
    client.error()


# The end


def test_a_fault_of_the_broker_itself_is_told_and_logged(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = served.client()
    monkeypatch.setattr(Commands, "process", lambda *arguments: 1 / 0)
    client.say("SEND", {"destination": "/queue/a"}, b"x")
    assert "internal error" in client.error().headers["message"]
    until(lambda: "the session failed" in caplog.text)
    served.until(lambda stats: stats.sessions == 0)


@pytest.mark.parametrize("data", [b"", b"CONNECT\naccept-ver"])
def test_a_client_that_does_not_connect_in_time_is_let_go(serve: Serve, data: bytes) -> None:
    client = serve(limits=BrokerLimits(connect_timeout=0.3)).dial()
    client.raw(data)
    assert "CONNECT" in client.error().headers["message"]


def test_a_trickle_does_not_prolong_the_time_for_connect(serve: Serve) -> None:
    client = serve(limits=BrokerLimits(connect_timeout=0.2)).dial()
    done = threading.Event()

    def trickle() -> None:
        while not done.is_set():
            client.transport.sendall(b"\n", _NEVER)
            time.sleep(0.01)

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    try:
        client.error()
    finally:
        done.set()
        thread.join()


@pytest.mark.requirement("RCP-04", "RCP-05", "DIS-01")
@pytest.mark.parametrize("carrier", ["serve", "serve_tcp"])
def test_everything_sent_before_a_half_close_is_processed_and_answered(
    request: pytest.FixtureRequest, carrier: str
) -> None:
    served: Served = request.getfixturevalue(carrier)()
    client = served.client()
    client.raw(b"".join(client.encoded("SEND", {"destination": "/queue/a"}, b"%d" % n) for n in range(99)))
    client.say("SEND", {"destination": "/queue/a", "receipt": "last"}, b"99")
    client.half_close()
    assert [frame.headers["receipt-id"] for frame in client.rest()] == ["last"]
    served.until(lambda stats: stats.sessions == 0)
    assert served.broker.depth("/queue/a") == 100


@pytest.mark.requirement("RCP-05")
def test_everything_sent_before_a_close_is_processed(serve_tcp: Serve) -> None:
    served = serve_tcp()
    client = served.client()
    client.raw(b"".join(client.encoded("SEND", {"destination": "/queue/a"}, b"x") for _ in range(100)))
    client.close()
    served.until(lambda stats: stats.sessions == 0)
    assert served.broker.depth("/queue/a") == 100


@pytest.mark.requirement("DIS-01", "TXN-07")
def test_a_reset_connection_is_cleaned_up(serve_tcp: Serve) -> None:
    served = serve_tcp()
    host, _, port = served.broker.url.removeprefix("stomp://").rpartition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(
            b"CONNECT\naccept-version:1.2\nhost:h\n\n\0BEGIN\ntransaction:t\n\n\0"
            b"SEND\ndestination:/queue/a\ntransaction:t\n\nx\0SEND\ndestination:/queue/b\n\nx\0"
        )
        served.until(lambda stats: "/queue/b" in stats.queues)
        # Closing now resets the connection instead of ending it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    served.until(lambda stats: stats.sessions == 0)
    stats = served.broker.stats()
    assert (stats.transactions, list(stats.queues)) == (0, ["/queue/b"])


@pytest.mark.requirement("DIS-06")
def test_a_client_that_does_not_close_is_closed_after_the_linger_time(serve_tcp: Serve) -> None:
    client = serve_tcp(limits=BrokerLimits(linger=0.05)).client()
    assert any(thread.name.endswith("-reader") for thread in threading.enumerate())
    client.sure("DISCONNECT")
    until(lambda: not any(thread.name.endswith(("-reader", "-writer")) for thread in threading.enumerate()))


def test_a_client_that_never_fetches_its_receipts_does_not_fill_the_memory(serve: Serve) -> None:
    served = serve(capacity=2_000, limits=BrokerLimits(max_outbox_bytes=5_000))
    client = served.client()
    frame = client.encoded("SEND", {"destination": "/topic/nobody", "receipt": "r" * 100})
    done = threading.Event()

    def flood() -> None:
        for _ in range(400):
            client.transport.sendall(frame, _NEVER)
        done.set()

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    assert not done.wait(0.3)
    assert served.broker.stats().messages_in < 200
    for _ in range(400):
        client.expect("RECEIPT")
    thread.join()


def test_a_client_that_waits_for_room_itself_is_not_taken_for_dead(serve: Serve) -> None:
    served = serve(capacity=2_000, limits=BrokerLimits(max_outbox_bytes=2_000), heartbeat=(0, 0.2))
    client = served.client(heart_beat="200,0")
    frame = client.encoded("SEND", {"destination": "/topic/nobody", "receipt": "r" * 100})
    data = frame * 200
    thread = threading.Thread(target=client.transport.sendall, args=(data, _NEVER), daemon=True)
    thread.start()
    time.sleep(1.0)  # longer than the silence that is allowed
    for _ in range(200):
        client.expect("RECEIPT")
    thread.join()
