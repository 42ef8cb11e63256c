"""Sending, where a connection's face does not show it; see also test_connection, test_buffer and test_unconfirmed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import stompy
from stompy.deadline import Budget
from stompy.transport.sockets import SocketTransport
from tests.connection.conftest import Sessions, Talking
from tests.support.peer import until
from tests.transport.conftest import Calling


@pytest.mark.parametrize(
    ("act", "outcome"),
    [
        (lambda conn: conn.send("/queue/a", "x", timeout=0.01), "not-sent"),
        (lambda conn: conn.request("/queue/a", "x", timeout=0.01), "not-sent"),
        (lambda conn: conn.flush(timeout=0.01), "unknown"),  # of what was sent before, without a receipt
    ],
    ids=["send", "request", "flush"],
)
def test_one_deadline_covers_the_wait_for_a_link_and_all_that_follows(
    talking: Talking, calling: Calling, act: Callable[[stompy.Connection], object], outcome: str
) -> None:
    policy = stompy.Reconnect(backoff=stompy.Backoff(first=1000.0, longest=1000.0))
    talk = talking(
        reconnect=policy, timeouts=stompy.Timeouts(send=1000.0)
    )  # its listener is closed, so there will be no other link
    talk.peer.close()
    until(lambda: not talk.conn.connected)
    sending = calling(lambda: act(talk.conn))
    with pytest.raises(stompy.ConnectionLostError) as lost:
        sending.result()
    assert lost.value.outcome == outcome


def test_the_wait_for_a_link_is_taken_off_the_time_for_the_write(
    sessions: Sessions, calling: Calling, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets: list[Budget] = []
    send_all = SocketTransport.sendall

    def sendall(self: SocketTransport, data: bytes, deadline: Budget) -> None:
        if data.startswith(b"SEND\n"):
            budgets.append(deadline)
        send_all(self, data, deadline)

    monkeypatch.setattr(SocketTransport, "sendall", sendall)
    conn, peer = sessions.connect()
    peer.close()
    until(lambda: not conn.connected)
    sending = calling(lambda: conn.send("/queue/a", "x", timeout=1000.0))
    sessions.next().expect("SEND")
    sending.result()
    (budget,) = budgets
    assert isinstance(budget, float)
    assert budget < 1000.0


def test_connections_have_names_ids_and_receipts_of_their_own(talking: Talking) -> None:
    one, two = talking(), talking()
    receipts = [talk.conn.send_async("/queue/a", "x") for talk in (one, two)]
    transactions = [talk.conn.transaction().id for talk in (one, two, one)]
    assert len({receipt.id for receipt in receipts}) == 2
    assert len(set(transactions)) == 3


def test_except_connection_error_does_not_send_again_what_the_broker_refuses(
    sessions: Sessions, calling: Calling
) -> None:
    conn, peer = sessions.connect()
    others = [conn.send_async("/queue/b", "good")]
    peer.expect("SEND")
    sends = 0

    def send_again_and_again() -> None:
        nonlocal sends
        while True:
            sends += 1
            try:
                conn.send("/queue/a", "poison", confirm=True)
            except ConnectionError:
                continue

    sending = calling(send_again_and_again)
    frame = peer.expect("SEND")
    peer.error("no such queue", headers={"receipt-id": frame.headers["receipt"]})
    peer.close()
    with pytest.raises(stompy.BrokerError) as refused:
        sending.result()
    assert (sends, refused.value.outcome, refused.value.safe_to_retry) == (1, "rejected", False)
    with pytest.raises(stompy.SessionError) as ended:
        others[0].result()
    assert (ended.value.outcome, ended.value.session_ended, ended.value.safe_to_retry) == ("unknown", True, False)


def test_what_was_never_written_is_safe_to_retry(talking: Talking) -> None:
    talk = talking()
    talk.peer.close()
    until(lambda: not talk.conn.connected)
    with pytest.raises(stompy.ConnectionLostError) as lost:
        talk.conn.send("/queue/a", "x")
    assert (lost.value.outcome, lost.value.safe_to_retry) == ("not-sent", True)
