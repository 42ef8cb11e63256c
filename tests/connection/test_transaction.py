"""Frames that the broker takes as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

import stompy
from tests.connection.conftest import Serving, Talking
from tests.support.peer import until
from tests.transport.conftest import Calling


@pytest.mark.requirement("TXN-01", "TXN-03", "TXN-05", "SND-04", "ACK-12")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_block_is_begin_its_frames_and_commit_with_a_receipt(
    talking: Talking, calling: Calling, version: str
) -> None:
    talk = talking(version)
    message = talk.received(b"in")

    def block() -> None:
        with talk.conn.transaction() as tx:
            tx.send("/queue/b", "one", headers={"n": 1})
            tx.ack(message)
            tx.send("/queue/b", b"two")

    call = calling(block)
    frames = [talk.peer.expect(command) for command in ("BEGIN", "SEND", "ACK", "SEND", "COMMIT")]
    assert len({frame.headers["transaction"] for frame in frames}) == 1
    assert [frame.body for frame in frames] == [b"", b"one", b"", b"two", b""]
    assert ["receipt" in frame.headers for frame in frames] == [False] * 4 + [True]
    call.until_blocked()
    talk.peer.receipt(frames[-1])
    call.result()


def test_the_frames_leave_together_with_the_commit(talking: Talking, calling: Calling) -> None:
    talk = talking()
    tx = talk.conn.transaction()
    with tx:
        for _ in range(10):
            tx.send("/queue/b", "x")
        assert talk.peer.quiet()
        assert repr(tx) == f"<Transaction {tx.id!r} open>"
        call = calling(tx.commit)
        talk.peer.expect("BEGIN")
        for _ in range(10):
            talk.peer.expect("SEND")
        talk.peer.expect_and_confirm("COMMIT")
        call.result()
    assert repr(tx) == f"<Transaction {tx.id!r} committed>"
    assert talk.peer.quiet()


def test_a_big_one_leaves_in_parts(serving: Serving) -> None:
    conn, served = serving()
    with conn.transaction() as tx:
        for _ in range(10):
            tx.send("/queue/b", b"x" * 20_000)
        until(lambda: served.commands().count("SEND") >= 4)
    assert served.commands() == ["BEGIN", *["SEND"] * 10, "COMMIT"]


@pytest.mark.requirement("TXN-06")
def test_a_block_that_raises_aborts_what_has_left(talking: Talking) -> None:
    talk = talking()
    with pytest.raises(ZeroDivisionError), talk.conn.transaction() as tx:  # noqa: PT012
        tx.send("/queue/b", b"x" * 100_000)
        _ = 1 / 0
    frames = [talk.peer.expect(command) for command in ("BEGIN", "SEND", "ABORT")]
    assert len({frame.headers["transaction"] for frame in frames}) == 1
    assert repr(tx).endswith(" aborted>")


def test_a_block_that_raises_before_anything_left_sends_nothing(talking: Talking) -> None:
    talk = talking()
    with pytest.raises(ZeroDivisionError), talk.conn.transaction() as tx:  # noqa: PT012
        tx.send("/queue/b", "x")
        _ = 1 / 0
    assert talk.peer.quiet()


@pytest.mark.parametrize("size", [1, 100_000])
def test_after_an_abort_a_message_waits_for_its_ack_again(talking: Talking, size: int) -> None:
    talk = talking()
    message = talk.received(b"in")
    with pytest.raises(ZeroDivisionError), talk.conn.transaction() as tx:  # noqa: PT012
        tx.ack(message)
        with pytest.raises(stompy.AckError, match="ACK was already sent"):
            message.ack()
        tx.send("/queue/b", b"x" * size)
        _ = 1 / 0
    assert message.settled is None
    message.nack()
    while (frame := talk.peer.frame()).command != "NACK":
        pass
    assert "transaction" not in frame.headers


def test_a_nack_may_be_part_of_it(serving: Serving) -> None:
    conn, served = serving()
    subscription = conn.subscribe("/queue/a", ack="client-individual", id="1")
    served.peer.deliver("x", ack="1")
    with conn.transaction() as tx:
        tx.nack(subscription.receive())
    assert served.commands()[1:] == ["BEGIN", "NACK", "COMMIT"]


@pytest.mark.requirement("TXN-04")
def test_transactions_side_by_side_have_ids_of_their_own(serving: Serving, calling: Calling) -> None:
    conn, served = serving()

    def block(body: str) -> None:
        with conn.transaction() as tx:
            for _ in range(20):
                tx.send("/queue/b", body)

    with conn.transaction() as outer, conn.transaction() as inner:
        inner.send("/queue/b", "inner")
        outer.send("/queue/b", "outer")
    for call in [calling(partial(block, str(number))) for number in range(6)]:
        call.result()
    by_id: dict[str, set[bytes]] = {}
    for frame in served.frames:
        if frame.command == "SEND":
            by_id.setdefault(frame.headers["transaction"], set()).add(frame.body)
    assert len(by_id) == 8
    assert all(len(bodies) == 1 for bodies in by_id.values())


def test_a_plain_send_inside_the_block_is_no_part_of_it(talking: Talking) -> None:
    talk = talking()
    with pytest.raises(ZeroDivisionError), talk.conn.transaction():  # noqa: PT012
        talk.conn.send("/queue/b", "at once")
        assert "transaction" not in talk.peer.expect("SEND").headers
        _ = 1 / 0


@pytest.mark.parametrize("how", ["commit", "abort"])
def test_a_transaction_that_is_over_takes_nothing_more(serving: Serving, how: str) -> None:
    conn, _ = serving()
    with conn.transaction() as tx:
        getattr(tx, how)()
        attempts: list[Callable[[], None]] = [lambda: tx.send("/queue/b", "x"), tx.commit, tx.abort]
        for attempt in attempts:
            with pytest.raises(
                stompy.TransactionError, match=f"already {'committed' if how == 'commit' else 'aborted'}"
            ):
                attempt()


def test_a_frame_that_cannot_be_written_leaves_the_rest_whole(serving: Serving) -> None:
    conn, served = serving("1.0")
    with conn.transaction() as tx:
        tx.send("/queue/b", "good")
        with pytest.raises(stompy.LocalProtocolError):
            tx.send("/queue/b", "bad", headers={"a": "b\nc"})
        tx.send("/queue/b", "good too")
    assert [frame.body for frame in served.frames if frame.command == "SEND"] == [b"good", b"good too"]


def test_an_ack_that_cannot_be_is_no_part_of_it(talking: Talking) -> None:
    talk = talking()
    message = talk.received(b"", mode="auto")
    with pytest.raises(stompy.AckError, match="needs no ACK"), talk.conn.transaction() as tx:
        tx.ack(message)
    assert talk.peer.quiet()


def test_an_error_of_the_broker_fails_the_block(talking: Talking, calling: Calling) -> None:
    talk = talking()

    def block() -> None:
        with talk.conn.transaction() as tx:
            tx.send("/queue/forbidden", "x")

    call = calling(block)
    while (frame := talk.peer.frame()).command != "COMMIT":
        pass
    talk.peer.error("not allowed", headers={"receipt-id": frame.headers["receipt"]})
    with pytest.raises(stompy.BrokerError, match="not allowed"):
        call.result()


def test_a_link_that_dies_inside_fails_the_block_and_nothing_of_it_goes_elsewhere(talking: Talking) -> None:
    talk = talking()

    def block() -> None:
        with talk.conn.transaction() as tx:
            tx.send("/queue/b", "x")
            talk.peer.close()
            until(lambda: not talk.conn.connected)
            tx.send("/queue/b", "y")

    with pytest.raises(stompy.ConnectionLost):
        block()


def test_a_commit_that_is_not_confirmed_says_that_the_outcome_is_unknown(talking: Talking, calling: Calling) -> None:
    talk = talking()

    def block() -> None:
        with talk.conn.transaction() as tx:
            tx.send("/queue/b", "x")

    call = calling(block)
    while talk.peer.frame().command != "COMMIT":
        pass
    talk.peer.close()
    with pytest.raises(stompy.ConnectionLost) as caught:
        call.result()
    assert caught.value.outcome == "unknown"


def test_a_commit_may_have_its_own_timeout(talking: Talking) -> None:
    talk = talking()
    with talk.conn.transaction() as tx, pytest.raises(stompy.ReceiptTimeout):
        tx.commit(timeout=0.3)


def test_the_blocks_own_error_is_not_hidden_by_a_dead_link(talking: Talking) -> None:
    talk = talking()

    def block() -> None:
        with talk.conn.transaction() as tx:
            tx.send("/queue/b", b"x" * 100_000)
            talk.peer.close()
            until(lambda: not talk.conn.connected)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()


def test_without_a_block_nothing_was_begun(talking: Talking) -> None:
    talk = talking()
    with pytest.raises(stompy.LocalProtocolError, match="is not open"):
        talk.conn.transaction().send("/queue/b", "x")
    assert talk.peer.quiet()
