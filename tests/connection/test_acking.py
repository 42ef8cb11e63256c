"""Which message may still be settled."""

from __future__ import annotations

import pytest

import stompy
from stompy.errors import AckError, ConfigurationError
from tests.connection.conftest import ACTIVEMQ, ARTEMIS, EMBEDDED, RABBITMQ, Failing, Sessions, Talking
from tests.support.peer import WITHIN, until
from tests.transport.conftest import Calling


@pytest.mark.requirement("ACK-01", "ACK-03")
@pytest.mark.parametrize("command", ["ack", "nack"])
def test_a_message_of_auto_mode_needs_no_ack_and_none_is_sent(talking: Talking, command: str) -> None:
    talk = talking()
    message = talk.received(b"", mode="auto")
    with pytest.raises(AckError, match="'auto' subscription needs no ACK"):
        getattr(message, command)()
    assert talk.peer.quiet()
    assert talk.conn.connected


@pytest.mark.parametrize("first", ["ack", "nack"])
@pytest.mark.parametrize("second", ["ack", "nack"])
def test_a_message_is_settled_once(talking: Talking, first: str, second: str) -> None:
    talk = talking()
    message = talk.received(b"", id="m-7")
    getattr(message, first)()
    talk.peer.expect(first.upper())
    with pytest.raises(AckError, match=f"{first.upper()} was already sent for message 'm-7'"):
        getattr(message, second)()
    assert talk.peer.quiet()


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("token", ["ack-1", "ID:host-1:2", "a\\b", "\\", "ü", "ack:1"])
def test_the_broker_gets_its_own_token_back(talking: Talking, version: str, token: str) -> None:
    talk = talking(version)
    message = talk.received(b"", **({"ack": token} if version == "1.2" else {"id": token}))
    message.ack()
    frame = talk.peer.expect("ACK")
    assert frame.headers["id" if version == "1.2" else "message-id"] == token


@pytest.mark.parametrize("token", ["a\nb", "a\rb", "\r", "\\n", "\\\\c:"])
def test_a_token_with_line_ends_and_escapes_comes_back_too(talking: Talking, token: str) -> None:
    talk = talking()
    talk.received(b"", ack=token).ack()
    assert talk.peer.expect("ACK").headers["id"] == token


def test_of_many_threads_one_acks(talking: Talking, calling: Calling) -> None:
    talk = talking()
    message = talk.received(b"")

    def try_it() -> bool:
        try:
            message.ack()
        except AckError:
            return False
        return True

    assert sorted(call.result() for call in [calling(try_it) for _ in range(8)]) == [False] * 7 + [True]
    talk.peer.expect("ACK")
    assert talk.peer.quiet()


def test_a_message_of_a_link_that_died_is_not_acked(talking: Talking) -> None:
    talk = talking()
    message = talk.received(b"")
    talk.peer.close()
    until(lambda: not talk.conn.connected)
    for settle in (message.ack, message.nack):
        with pytest.raises(AckError, match="the broker will deliver it again"):
            settle()


@pytest.mark.requirement("DIS-03")
def test_a_message_is_not_acked_after_disconnect(talking: Talking) -> None:
    talk = talking()
    message = talk.received(b"")
    leaving = talk.leave()
    assert talk.peer.expect_disconnect() == []
    leaving.result()
    with pytest.raises(AckError):
        message.ack()


@pytest.mark.requirement("ACK-05")
@pytest.mark.parametrize("command", ["ack", "nack"])
def test_in_client_mode_a_settled_message_settles_all_before_it(talking: Talking, command: str) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a", ack="client")
    talk.peer.raw(b"".join(talk.peer.message(ack=str(number)) for number in range(4)))
    messages = [subscription.receive() for _ in range(4)]
    getattr(messages[2], command)()
    assert talk.peer.expect(command.upper()).headers["id"] == "2"
    assert [message.settled for message in messages] == [command.upper()] * 3 + [None]
    with pytest.raises(AckError, match=f"{command.upper()} was already sent"):
        messages[0].ack()
    messages[3].ack()
    assert talk.peer.expect("ACK").headers["id"] == "3"


def test_a_cumulative_ack_is_of_its_subscription_alone(talking: Talking) -> None:
    talk = talking()
    one, other = talk.subscribe("/queue/a", ack="client"), talk.subscribe("/queue/b", ack="client")
    for number, subscription in enumerate((one, other, one, other)):
        talk.peer.deliver("x", subscription=subscription.id, ack=str(number))
    mine, theirs = [one.receive(), one.receive()], [other.receive(), other.receive()]
    mine[1].ack()
    assert [message.settled for message in mine] == ["ACK", "ACK"]
    assert [message.settled for message in theirs] == [None, None]


def test_in_client_individual_mode_each_message_is_for_itself(talking: Talking) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a", ack="client-individual")
    talk.peer.raw(b"".join(talk.peer.message(ack=str(number)) for number in range(3)))
    messages = [subscription.receive() for _ in range(3)]
    messages[2].ack()
    messages[0].nack()
    assert [message.settled for message in messages] == ["NACK", None, "ACK"]


def test_where_the_broker_would_lose_a_refused_message_nothing_is_sent(talking: Talking) -> None:
    talk = talking(server="ActiveMQ-Artemis/2.56.0")
    message = talk.received("a")
    with pytest.raises(ConfigurationError, match="requeue=False"):
        message.nack()
    with pytest.raises(ZeroDivisionError), message:
        _ = 1 / 0
    assert message.settled is None
    message.nack(requeue=False)
    assert "requeue" not in talk.peer.expect("NACK").headers


def test_a_refused_message_says_where_it_goes_where_the_broker_listens(talking: Talking) -> None:
    talk = talking(server="RabbitMQ/4.3.6")
    talk.received("a").nack(requeue=False)
    assert talk.peer.expect("NACK").headers["requeue"] == "false"


@pytest.mark.parametrize(("server", "commands"), [("ActiveMQ/6", ["nack"]), ("ActiveMQ-Artemis/2", ["ack", "nack"])])
def test_what_would_not_wait_for_the_commit_is_refused_in_a_transaction(
    talking: Talking, server: str, commands: list[str]
) -> None:
    talk = talking(server=server)
    message = talk.received("a")
    transaction = talk.conn.transaction()
    with transaction:
        for command in commands:
            with pytest.raises(ConfigurationError, match="transaction"):
                getattr(transaction, command)(message)
        transaction.abort()
    assert message.settled is None
    assert talk.peer.quiet()


def test_at_activemq_a_refused_message_settles_no_other(talking: Talking) -> None:
    talk = talking(server="ActiveMQ/6.3.1")
    subscription = talk.subscribe("/queue/a", ack="client")
    for ack in "abc":
        talk.peer.deliver(ack, ack=ack, headers={"persistent": "true"})
    first, second, third = (subscription.receive(timeout=WITHIN) for _ in range(3))
    second.nack()
    assert (first.settled, second.settled, third.settled) == (None, "NACK", None)
    third.ack()
    assert first.settled == "ACK"


@pytest.mark.parametrize(
    ("persistent", "requeue", "expected"), [({}, None, True), ({}, False, False), ({"persistent": "true"}, None, False)]
)
def test_that_activemq_drops_what_is_not_persistent_is_said_once(
    talking: Talking,
    caplog: pytest.LogCaptureFixture,
    persistent: dict[str, str],
    requeue: bool | None,
    expected: bool,
) -> None:
    talk = talking(server="ActiveMQ/6.3.1")
    subscription = talk.subscribe("/queue/a", ack="client-individual")
    for ack in "ab":
        talk.peer.deliver(ack, ack=ack, headers=persistent)
        subscription.receive(timeout=WITHIN).nack(requeue=requeue)
    assert caplog.text.count("makes no dead letter") == expected


@pytest.mark.parametrize("server", ["ActiveMQ/6.3.1", "ActiveMQ-Artemis/2.56.0", "RabbitMQ/4.3.6"])
def test_a_message_of_an_ended_subscription_is_not_acked_where_that_is_an_error_or_nothing(
    talking: Talking, calling: Calling, server: str
) -> None:
    talk = talking(server=server)
    subscription = talk.subscribe("/queue/a", ack="client-individual")
    talk.peer.deliver("a", ack="a")
    message = subscription.receive(timeout=WITHIN)
    call = calling(subscription.close)
    talk.peer.expect_and_confirm("UNSUBSCRIBE")
    call.result()
    with pytest.raises(AckError, match="has ended"):
        message.ack()
    assert message.settled is None
    assert talk.peer.quiet()


@pytest.mark.parametrize("settle", ["ack", "commit", "nack"])
def test_what_is_settled_on_a_new_link_settles_nothing_of_the_old_one(
    sessions: Sessions, calling: Calling, settle: str
) -> None:
    """In mode `client` the broker has taken the old link's messages back: nothing covers them any more."""
    conn, peer = sessions.connect()
    subscribing = calling(lambda: conn.subscribe("/queue/a", ack="client", id="1"))
    peer.expect_and_confirm("SUBSCRIBE")
    subscription = subscribing.result()
    peer.raw(peer.message("earlier", ack="a") + peer.message("old", ack="b") + peer.message("later", ack="c"))
    earlier, old, later = (subscription.receive(timeout=WITHIN) for _ in range(3))
    earlier.ack()
    peer.expect("ACK")
    peer.close()
    peer = sessions.next()
    peer.expect_and_confirm("SUBSCRIBE")
    peer.raw(b"".join(peer.message("new", ack=f"n{number}") for number in range(4)))
    new = [subscription.receive(timeout=WITHIN) for _ in range(4)]
    if settle == "commit":
        with conn.transaction() as transaction:
            transaction.ack(new[3])
            committing = calling(transaction.commit)
            frames = peer.until_commit()
            assert [frame.command for frame in frames] == ["BEGIN", "ACK", "BEGIN", "ABORT", "COMMIT"]
            peer.receipt(frames[-1])
            committing.result()
    else:
        getattr(new[3], settle)()
        peer.expect(settle.upper())
    assert [message.settled for message in new] == ["NACK" if settle == "nack" else "ACK"] * 4
    assert (earlier.settled, old.settled, later.settled) == ("ACK", None, None)
    with pytest.raises(AckError, match="will deliver it again"), old:
        pass
    with pytest.raises(AckError, match="will deliver it again"):
        later.ack()
    assert peer.quiet()


# A handler that raises, in mode `client`


@pytest.mark.parametrize("server", [EMBEDDED, RABBITMQ, ACTIVEMQ])
def test_in_client_mode_a_message_is_refused_that_has_no_other_before_it(talking: Talking, server: str) -> None:
    handler = Failing("bad")
    talk = talking(server=server, listeners=[handler])
    talk.subscribe("/queue/a", handler, id="1", ack="client")
    for body, ack in (("good", "a1"), ("bad", "a2"), ("good", "a3")):
        talk.peer.deliver(body, ack=ack, headers={"persistent": "true"})
    assert [(frame.command, frame.headers["id"]) for frame in (talk.peer.frame() for _ in range(3))] == [
        ("ACK", "a1"),
        ("NACK", "a2"),
        ("ACK", "a3"),
    ]


@pytest.mark.parametrize("server", [EMBEDDED, RABBITMQ, ARTEMIS, ACTIVEMQ, None])
def test_in_client_mode_nothing_settles_a_message_whose_handler_raised_but_its_own_ack(
    talking: Talking, server: str | None
) -> None:
    """A NACK would refuse the first too, which nobody has settled; an ACK of the third would lose the second."""
    taken: list[stompy.Message] = []

    def handler(message: stompy.Message) -> None:
        taken.append(message)
        if message.text == "bad":
            raise ZeroDivisionError

    heard = Failing()
    talk = talking(server=server, listeners=[heard])
    talk.subscribe("/queue/a", handler, id="1", ack="client")
    for body, ack in (("first", "a1"), ("bad", "a2"), ("third", "a3"), ("fourth", "a4")):
        talk.peer.deliver(body, ack=ack)
    assert heard.await_event("handler_error") == ("bad", heard.await_event("handler_error")[1], None)
    until(lambda: len(taken) == 4)
    first, bad, third, fourth = taken
    with pytest.raises(stompy.AckError, match=r"'m2' too, whose handler raised"):
        third.ack()
    with talk.conn.transaction() as transaction:
        if server != ARTEMIS:
            with pytest.raises(stompy.AckError, match=r"'m2' too, whose handler raised"):
                transaction.ack(third)
        transaction.abort()
    assert third.settled is None
    first.ack()
    assert talk.peer.expect("ACK").headers["id"] == "a1"
    assert (first.settled, bad.settled) == ("ACK", None)
    bad.ack()
    assert talk.peer.expect("ACK").headers["id"] == "a2"
    fourth.ack()
    assert talk.peer.expect("ACK").headers["id"] == "a4"
    assert third.settled == "ACK"


def test_in_client_mode_a_transaction_that_aborts_later_does_not_lose_what_raised(talking: Talking) -> None:
    transactions: list[stompy.Transaction] = []

    def handler(message: stompy.Message) -> None:
        if message.text == "bad":
            transactions.append(talk.conn.transaction().__enter__())
            transactions[0].ack(message)
            raise ZeroDivisionError
        transactions[0].abort()
        message.ack()

    heard = Failing()
    talk = talking(server=None, listeners=[heard])
    talk.subscribe("/queue/a", handler, id="1", ack="client")
    talk.peer.deliver("bad", ack="a1")
    talk.peer.deliver("good", ack="a2")
    assert heard.await_event("handler_error")[2] == "ACK"
    assert isinstance(heard.await_event("handler_error", 2)[1], stompy.AckError)
    assert talk.peer.quiet()


@pytest.mark.parametrize("transacted", [False, True])
def test_an_acknowledgement_of_the_draft_counts_its_body_as_every_frame_there(
    talking: Talking, transacted: bool
) -> None:
    talk = talking("1.0-draft", versions="1.0-draft", connected={"session": "s"})
    message = talk.received("x")
    if transacted:
        with talk.conn.transaction() as transaction:
            transaction.ack(message)
            transaction.send("/queue/a", b"x" * 100_000)
            talk.peer.expect("BEGIN")
            transaction.abort()
    else:
        message.ack()
    assert talk.peer.expect("ACK").headers["content-length"] == "0"


def test_an_ack_that_had_to_wait_is_not_written_if_its_subscription_was_closed_meanwhile(
    talking: Talking, calling: Calling
) -> None:
    talk = talking(server=ACTIVEMQ)
    subscription = talk.subscribe("/queue/a", ack="client-individual")
    talk.peer.raw(talk.peer.message(subscription=subscription.id, ack="1"))
    message = subscription.receive(timeout=WITHIN)
    sending = calling(lambda: talk.conn.send("/queue/b", bytes(20_000_000)))
    sending.until_blocked()  # as the peer does not read
    waiting = [calling(message.ack), calling(subscription.close)]
    for call in waiting:
        call.until_blocked()
    talk.peer.expect("SEND")
    sending.result()
    talk.peer.expect_and_confirm("UNSUBSCRIBE")
    waiting[1].result()
    with pytest.raises(AckError, match="has ended"):
        waiting[0].result()
    assert talk.peer.quiet()
