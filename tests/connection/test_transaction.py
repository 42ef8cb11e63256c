"""Frames that the broker takes as a whole or not at all."""

from __future__ import annotations

import contextlib
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
    frames = talk.peer.until_commit()
    assert [frame.command for frame in frames] == ["BEGIN", "SEND", "ACK", "SEND", "BEGIN", "ABORT", "COMMIT"]
    first, second = frames[0].headers["transaction"], frames[4].headers["transaction"]
    assert [frame.headers["transaction"] for frame in frames] == [first] * 4 + [second] * 2 + [first]
    assert first != second
    assert [frame.body for frame in frames] == [b"", b"one", b"", b"two", b"", b"", b""]
    assert ["receipt" in frame.headers for frame in frames] == [False, True, True, True, True, False, True]
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
        *frames, commit = talk.peer.until_commit()
        assert [frame.command for frame in frames] == ["BEGIN", *["SEND"] * 10, "BEGIN", "ABORT"]
        talk.peer.receipt(commit)
        call.result()
    assert repr(tx) == f"<Transaction {tx.id!r} committed>"
    assert talk.peer.quiet()


def test_a_big_one_leaves_in_parts(serving: Serving) -> None:
    conn, served = serving()
    with conn.transaction() as tx:
        for _ in range(10):
            tx.send("/queue/b", b"x" * 20_000)
        until(lambda: served.commands().count("SEND") >= 4)
    assert served.commands() == ["BEGIN", *["SEND"] * 10, "BEGIN", "ABORT", "COMMIT"]


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
    assert served.commands()[1:] == ["BEGIN", "NACK", "BEGIN", "ABORT", "COMMIT"]


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
    frame = talk.peer.until_commit()[-1]
    talk.peer.error("not allowed", headers={"receipt-id": frame.headers["receipt"]})
    with pytest.raises(stompy.BrokerError, match=r"outcome of the transaction is unknown, .*not allowed") as caught:
        call.result()
    assert caught.value.outcome == "unknown"


def test_a_link_that_dies_inside_fails_the_block_and_nothing_of_it_goes_elsewhere(talking: Talking) -> None:
    talk = talking()

    def block() -> None:
        with talk.conn.transaction() as tx:
            tx.send("/queue/b", "x")
            talk.peer.close()
            until(lambda: not talk.conn.connected)
            tx.send("/queue/b", "y")

    with pytest.raises(stompy.ConnectionLostError):
        block()


def test_a_commit_that_is_not_confirmed_says_that_the_outcome_is_unknown(talking: Talking, calling: Calling) -> None:
    talk = talking()

    def block() -> None:
        with talk.conn.transaction() as tx:
            tx.send("/queue/b", "x")

    call = calling(block)
    talk.peer.until_commit()
    talk.peer.close()
    with pytest.raises(stompy.ConnectionLostError) as caught:
        call.result()
    assert caught.value.outcome == "unknown"


def test_a_commit_may_have_its_own_timeout(talking: Talking) -> None:
    talk = talking()
    with talk.conn.transaction() as tx, pytest.raises(stompy.ReceiptTimeoutError):
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


LATER, AT_ONCE, AFTER = "ActiveMQ/6.3.1", "ActiveMQ-Artemis/2.44.0", "RabbitMQ/4.3.6"


def test_commit_leaves_when_the_receipt_of_a_later_frame_is_there(talking: Talking, calling: Calling) -> None:
    talk = talking(server=LATER)

    def block() -> None:
        with talk.conn.transaction() as tx:
            tx.send("/queue/b", "x")

    call = calling(block)
    frames = [talk.peer.expect(command) for command in ("BEGIN", "SEND", "BEGIN", "ABORT")]
    assert ["receipt" in frame.headers for frame in frames] == [False, False, True, False]
    assert talk.peer.quiet()
    talk.peer.receipt(frames[2])
    talk.peer.expect_and_confirm("COMMIT")
    call.result()


def test_commit_leaves_when_the_receipt_of_each_frame_is_there(talking: Talking, calling: Calling) -> None:
    talk = talking(server=AT_ONCE)

    def block() -> None:
        with talk.conn.transaction() as tx:
            tx.send("/queue/b", "x")
            tx.send("/queue/b", "y")

    call = calling(block)
    frames = [talk.peer.expect(command) for command in ("BEGIN", "SEND", "SEND")]
    talk.peer.receipt(frames[2])
    assert talk.peer.quiet()
    talk.peer.receipt(frames[1])
    talk.peer.expect_and_confirm("COMMIT")
    call.result()


def test_acknowledgements_are_committed_when_each_message_is_confirmed(talking: Talking, calling: Calling) -> None:
    talk = talking(server=AFTER)
    message = talk.received(b"in", ack="T_1@@session-a@@1")

    def block() -> None:
        with talk.conn.transaction() as tx:
            tx.ack(message)
            tx.send("/queue/b", "x")

    call = calling(block)
    begin, send, second, ack = [talk.peer.expect(command) for command in ("BEGIN", "SEND", "BEGIN", "ACK")]
    assert send.headers["transaction"] == begin.headers["transaction"]
    assert ack.headers["transaction"] == second.headers["transaction"] != begin.headers["transaction"]
    assert talk.peer.quiet()
    talk.peer.receipt(ack)
    commit = talk.peer.expect_and_confirm("COMMIT")
    assert commit.headers["transaction"] == begin.headers["transaction"]
    assert talk.peer.quiet()
    talk.peer.receipt(send)
    commit = talk.peer.expect_and_confirm("COMMIT")
    assert commit.headers["transaction"] == second.headers["transaction"]
    call.result()


def test_an_unconfirmed_message_leaves_its_input_to_be_acknowledged(talking: Talking, calling: Calling) -> None:
    talk = talking(server=AFTER, timeouts=stompy.Timeouts(receipt=0.3))
    message = talk.received(b"in", ack="T_1@@session-a@@1")

    def block() -> None:
        with talk.conn.transaction() as tx:
            tx.ack(message)
            tx.send("/queue/b", "x")

    call = calling(block)
    _, _, second, ack = [talk.peer.expect(command) for command in ("BEGIN", "SEND", "BEGIN", "ACK")]
    talk.peer.receipt(ack)
    talk.peer.expect_and_confirm("COMMIT")
    with pytest.raises(stompy.ReceiptTimeoutError, match="none of its acknowledgements took effect") as caught:
        call.result()
    assert caught.value.outcome == "unknown"
    assert talk.peer.expect("ABORT").headers["transaction"] == second.headers["transaction"]
    assert message.settled is None


@pytest.mark.parametrize("server", [LATER, AT_ONCE, AFTER, "peer/1"])
def test_a_frame_that_is_refused_before_commit_leaves_nothing(talking: Talking, calling: Calling, server: str) -> None:
    talk = talking(server=server)

    def block() -> None:
        with talk.conn.transaction() as tx:
            tx.send("/queue/b", "x")

    call = calling(block)
    talk.peer.expect("BEGIN")
    talk.peer.expect("SEND")
    talk.peer.error("not allowed")
    with pytest.raises(stompy.BrokerError, match=r"nothing of the transaction took effect: .*not allowed") as caught:
        call.result()
    assert caught.value.outcome == "not-sent"


@pytest.mark.parametrize("server", [LATER, AT_ONCE, AFTER, "peer/1"])
def test_a_frame_that_is_not_confirmed_aborts(talking: Talking, server: str) -> None:
    talk = talking(server=server, timeouts=stompy.Timeouts(receipt=0.1))
    with pytest.raises(stompy.ReceiptTimeoutError, match="nothing of the") as caught, talk.conn.transaction() as tx:
        tx.send("/queue/b", "x")
    assert caught.value.outcome == "not-sent"
    begin = talk.peer.expect("BEGIN").headers["transaction"]
    while (frame := talk.peer.frame()).headers["transaction"] != begin or frame.command != "ABORT":
        assert frame.command != "COMMIT"
    assert talk.conn.stats().receipts_pending == 0


def test_the_end_of_a_session_after_commit_is_unknown_whatever_ended_it(talking: Talking, calling: Calling) -> None:
    talk = talking()

    def block() -> None:
        with talk.conn.transaction() as tx:
            tx.send("/queue/b", "x")

    call = calling(block)
    talk.peer.until_commit()
    talk.peer.raw(b"NONSENSE\n\n\0")
    with pytest.raises(stompy.ConnectionLostError, match="is unknown") as caught:
        call.result()
    assert caught.value.outcome == "unknown"


def test_receipts_in_an_open_transaction_keep_nobody_else_waiting(serving: Serving) -> None:
    conn, served = serving(server=AFTER, on=lambda frame: frame.command == "SEND")
    with pytest.raises(ZeroDivisionError), conn.transaction() as tx:  # noqa: PT012 - the block
        tx.send("/queue/b", b"x" * 100_000)
        conn.flush(timeout=0)
        _ = 1 / 0
    assert conn.stats().receipts_pending == 0
    until(lambda: served.commands() == ["BEGIN", "SEND", "ABORT"])


@pytest.mark.parametrize("ended", [False, True])
def test_it_is_entered_once(serving: Serving, ended: bool) -> None:
    conn, served = serving()
    with conn.transaction() as tx:
        tx.send("/queue/b", "x")
        if ended:
            tx.commit()
        with pytest.raises(stompy.TransactionError, match="already committed" if ended else "already open"):
            tx.__enter__()
        assert repr(tx).endswith("committed>" if ended else "open>")
    assert served.commands() == ["BEGIN", "SEND", "BEGIN", "ABORT", "COMMIT"]


def test_one_that_has_ended_opens_none_again(serving: Serving) -> None:
    conn, _ = serving(limits=stompy.Limits(max_transactions=2))
    for _ in range(3):
        with conn.transaction() as tx:
            pass
        with pytest.raises(stompy.TransactionError, match="already committed"):
            tx.__enter__()
    with conn.transaction(), conn.transaction():
        pass


@pytest.mark.parametrize(("server", "limited"), [("RabbitMQ/4.4.0", True), ("RabbitMQ/4.10.1", True), (AFTER, False)])
def test_a_frame_more_than_the_broker_takes_does_not_leave(serving: Serving, server: str, limited: bool) -> None:
    conn, served = serving(server=server)

    def block() -> None:
        with conn.transaction() as tx:
            for _ in range(1025):
                tx.send("/queue/b", "x" * 100)

    if not limited:
        block()
        return
    with pytest.raises(stompy.LimitExceededError, match="max_transaction_frames=1024"):
        block()
    until(lambda: served.commands()[-1:] == ["ABORT"])
    assert "COMMIT" not in served.commands()


def test_a_transaction_more_than_the_broker_takes_does_not_begin(serving: Serving) -> None:
    # Half of its sixteen, as each may need a second one to commit.
    conn, served = serving(server="RabbitMQ/4.4.0")
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(conn.transaction())
        with pytest.raises(stompy.LimitExceededError, match="max_transactions=8"):
            conn.transaction().__enter__()
    assert served.commands().count("BEGIN") == served.commands().count("COMMIT") == 8
