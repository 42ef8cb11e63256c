"""The facts in the tables of `stompy.dialects`, tried on the real brokers.

Each test does to the broker what stompy would refuse or write otherwise, by the dialect `generic`, which sends
everything as it is, and compares what happens with the table. A broker that changes its ways turns a test red.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import stompy
from stompy.dialects.brokers import RABBITMQ, dialect_named, dialect_of
from stompy.dialects.dialect import Dialect
from stompy.frames.grammar import Leniency
from stompy.testing.brokers import RunningBroker
from stompy.testing.containers import broker_or_skip
from tests.support.needs import each

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

SOON = 20.0
"""Seconds in which what must come has come."""
NEVER = 0.4
"""Seconds after which what has not come is taken not to come."""

MUCH = 100_000
"""Bytes that a transaction does not hold back until its end."""

LOGIN = "ann"
PASSCODE = "a\\nb"
"""Four characters, of which a broker that unescapes CONNECT makes three."""

NAMES = {
    "activemq": "activemq",
    "activemq5": "activemq",
    "artemis": "artemis",
    "rabbitmq3": "rabbitmq",
    "rabbitmq4": "rabbitmq",
}


@dataclass
class Case:
    """A running broker, and what stompy believes of it."""

    broker: RunningBroker
    dialect: Dialect

    def connect(self, dialect: Any = "generic", **options: Any) -> stompy.Connection:
        """Connect; as `generic`, with the passcode as this broker wants it written."""
        escaped = dialect == "generic" and Leniency.ESCAPED_CONNECT in self.dialect.leniency
        options.setdefault("passcode", PASSCODE.replace("\\", "\\\\") if escaped else PASSCODE)
        if self.dialect is RABBITMQ and dialect == "generic":
            options.setdefault("vhost", "/")
        return stompy.connect(self.broker.url(login=""), login=LOGIN, dialect=dialect, **options)

    def has(self, destination: str) -> list[str]:
        """Return, and take, what lies in a queue."""
        with self.connect() as conn:
            return rest(conn.subscribe(destination, ack="auto"))


@pytest.fixture(scope="module", params=each(NAMES, group="dialects"))
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(broker_or_skip(request.param, users={LOGIN: PASSCODE}))
        yield Case(broker, dialect_named(NAMES[request.param]))


@pytest.fixture
def queue() -> str:
    return f"/queue/facts-{uuid.uuid4().hex[:8]}"


def rest(subscription: stompy.Subscription) -> list[str]:
    """Return the texts of what comes, until nothing does."""
    texts = []
    with contextlib.suppress(stompy.ReceiveTimeoutError):
        while True:
            texts.append(subscription.receive(timeout=NEVER).text)
    return texts


def fill(conn: stompy.Connection, queue: str, *texts: str) -> None:
    for text in texts:
        conn.send(queue, text, headers={"persistent": True}, confirm=True)


def taken(subscription: stompy.Subscription, count: int) -> list[stompy.Message]:
    return [subscription.receive(timeout=SOON) for _ in range(count)]


def test_it_tells_its_name(case: Case) -> None:
    assert dialect_of(case.broker.server) is case.dialect
    with case.connect(case.dialect.name) as conn:
        assert dialect_of(conn.server) is case.dialect


def test_in_1_0_artemis_alone_hides_its_name(case: Case) -> None:
    with case.connect(versions="1.0") as conn:
        assert (conn.server is None) == (case.dialect.name == "artemis")


def test_connect_is_unescaped_by_those_of_which_the_table_says_so(case: Case) -> None:
    case.connect(case.dialect.name).close()
    if Leniency.ESCAPED_CONNECT in case.dialect.leniency:
        with pytest.raises(stompy.ConnectRefusedError):
            case.connect(passcode=PASSCODE)


def test_the_name_of_the_machine_is_a_virtual_host_to_rabbitmq_alone(case: Case) -> None:
    if case.dialect is RABBITMQ:
        with pytest.raises(stompy.ConnectRefusedError, match="Virtual host"):
            case.connect(vhost="localhost")
    else:
        case.connect(vhost="no-such-host").close()


@pytest.mark.parametrize("other", ["client", "client-individual"])
def test_a_cumulative_ack_reaches_as_far_as_the_table_says(case: Case, queue: str, other: Any) -> None:
    with case.connect() as conn:
        fill(conn, queue, "waits")
        fill(conn, f"{queue}-2", "acked")
        taken(conn.subscribe(queue, ack=other), 1)
        receipt = taken(conn.subscribe(f"{queue}-2", ack="client"), 1)[0].ack_async()
        receipt.result(SOON)
    left = case.has(queue)
    assert left == ([] if case.dialect.ack_reaches == "connection" else ["waits"])


def test_a_refused_message_goes_where_the_table_says(case: Case, queue: str) -> None:
    with case.connect() as conn:
        fill(conn, queue, "a", "b")
        subscription = conn.subscribe(queue, ack="client-individual")
        first, _ = taken(subscription, 2)
        receipt = first.nack_async()
        receipt.result(SOON)
        again = rest(subscription)
        dead = []
        if case.dialect.nack == "dead letter":
            dead = [one.text for one in taken(conn.subscribe("/queue/ActiveMQ.DLQ", ack="auto"), 1)]
    requeued = case.dialect.nack == "requeued"
    assert (again, dead) == (["a"] if requeued else [], ["a"] if case.dialect.nack == "dead letter" else [])
    assert case.has(queue) == (["a", "b"] if requeued else ["b"])


def test_a_refused_message_that_is_not_persistent_is_no_dead_letter(case: Case, queue: str) -> None:
    with case.connect() as conn:
        conn.send(queue, "a", confirm=True)
        receipt = taken(conn.subscribe(queue, ack="client-individual"), 1)[0].nack_async()
        receipt.result(SOON)
        assert rest(conn.subscribe("/queue/ActiveMQ.DLQ", ack="auto")) == []
    assert case.has(queue) == (["a"] if case.dialect.nack == "requeued" else [])


@pytest.mark.parametrize("kind", ["topic", "dead letter", "second copy", "second durable subscriber"])
def test_a_refused_message_of_which_the_table_knows_no_dead_letter_has_none(case: Case, queue: str, kind: str) -> None:
    """What a handler that raises must therefore leave unacknowledged."""
    if case.dialect.nack != "dead letter":
        return  # the others requeue or discard all alike, see above
    topic, copies = queue.replace("/queue/", "/topic/"), [f"{queue}-a", f"{queue}-b"]
    with contextlib.ExitStack() as stack:
        conn = stack.enter_context(case.connect(case.dialect.name))
        if kind == "topic":
            subscriptions = [conn.subscribe(topic, ack="client-individual")]
            conn.send(topic, "a", persistent=True, confirm=True)
        elif kind == "second durable subscriber":
            others = [stack.enter_context(case.connect(case.dialect.name, client_id=f"{queue}-{one}")) for one in "ab"]
            subscriptions = [one.subscribe(topic, durable="d", ack="client-individual") for one in others]
            conn.send(topic, "a", persistent=True, confirm=True)
        elif kind == "second copy":
            subscriptions = [conn.subscribe(one, ack="client-individual") for one in copies]
            conn.send(",".join(copies), "a", persistent=True, confirm=True)
        else:
            subscriptions = [conn.subscribe(one, ack="client-individual") for one in (queue, "/queue/ActiveMQ.DLQ")]
            conn.send(queue, "a", persistent=True, confirm=True)
        for subscription in subscriptions:
            (message,) = taken(subscription, 1)
            if subscription is subscriptions[-1]:
                assert case.dialect.why_nack_loses(message.headers.get) is not None
            receipt = message.nack_async()
            assert receipt is not None
            receipt.result(SOON)
            if subscription is not subscriptions[-1] and kind != "dead letter":
                assert case.has("/queue/ActiveMQ.DLQ") == ["a"]
        assert case.has("/queue/ActiveMQ.DLQ") == []


def test_in_mode_client_a_nack_is_about_what_the_table_says(case: Case, queue: str) -> None:
    with case.connect(case.dialect.name) as conn:
        fill(conn, queue, "a", "b", "c")
        messages = taken(conn.subscribe(queue, ack="client"), 3)
        requeue = False if case.dialect.nack == "discarded" else None
        receipt = messages[1].nack_async(requeue=requeue)
        receipt.result(SOON)
        assert (messages[0].settled is None) == case.dialect.nack_is_individual
    kept = {"dead letter": ["a", "c"], "discarded": ["c"], "requeued": ["a", "b", "c"]}
    assert case.has(queue) == kept[case.dialect.nack]


@pytest.mark.parametrize("command", ["ack", "nack"])
def test_what_is_transacted_waits_for_the_commit_and_the_rest_does_not(case: Case, queue: str, command: str) -> None:
    with case.connect() as conn:
        fill(conn, queue, "a")
        message = taken(conn.subscribe(queue, ack="client-individual"), 1)[0]
        refused = False
        try:
            with conn.transaction() as transaction:
                getattr(transaction, command)(message)
                transaction.send(f"{queue}-2", "x" * MUCH)
                transaction.abort()
            conn.send(f"{queue}-3", "y", confirm=True)
            # An ERROR may come behind that answer, as ActiveMQ's do on a busy machine.
            with contextlib.suppress(stompy.ReceiveTimeoutError):
                conn.subscribe(f"{queue}-4", ack="auto").receive(timeout=NEVER)
        except stompy.BrokerError:
            refused = True
    kept = case.has(queue) == ["a"]
    assert (kept and not refused) == (command.upper() in case.dialect.transacted)


def test_an_ack_behind_an_unsubscribe_is_worth_what_the_table_says(case: Case, queue: str) -> None:
    assert not case.dialect.ack_after_unsubscribe
    with case.connect() as conn:
        fill(conn, queue, "a")
        subscription = conn.subscribe(queue, ack="client-individual")
        message = taken(subscription, 1)[0]
        subscription.close()
        with contextlib.suppress(stompy.BrokerError):
            receipt = message.ack_async()
            receipt.result(SOON)
    assert case.has(queue) == ["a"]


def test_selectors_are_ignored_where_they_are_a_trap(case: Case, queue: str) -> None:
    with case.connect() as conn:
        subscription = conn.subscribe(queue, ack="auto", headers={"selector": "colour = 'red'"})
        for colour in ("red", "blue"):
            conn.send(queue, colour, headers={"colour": colour}, confirm=True)
        assert rest(subscription) == (["red"] if case.dialect.supports("selector") else ["red", "blue"])


def test_browsing_takes_messages_where_it_is_a_trap(case: Case, queue: str) -> None:
    with case.connect() as conn:
        fill(conn, queue, "a", "b")
        rest(conn.subscribe(queue, ack="auto", headers={"browser": True}))
    assert case.has(queue) == (["a", "b"] if case.dialect.supports("browse") else [])


def test_a_delay_is_ignored_where_it_cannot_be_asked_for(case: Case, queue: str) -> None:
    with case.connect() as conn:
        subscription = conn.subscribe(queue, ack="auto")
        conn.send(queue, "late", headers={"AMQ_SCHEDULED_DELAY": 3000}, confirm=True)
        assert rest(subscription) == ([] if case.dialect.supports("delay") else ["late"])


def test_a_duplicate_is_dropped_where_that_can_be_asked_for(case: Case, queue: str) -> None:
    with case.connect() as conn:
        for _ in range(2):
            conn.send(queue, "x", headers={"_AMQ_DUPL_ID": queue}, confirm=True)
    assert case.has(queue) == (["x"] if case.dialect.supports("dedupe_id") else ["x", "x"])


def test_not_persistent_makes_a_queue_of_another_kind_where_the_header_is_left_out(case: Case, queue: str) -> None:
    with case.connect() as conn, case.connect() as other:
        conn.send(queue, "x", headers={"persistent": False}, confirm=True)
        if case.dialect.omits_transient:
            with pytest.raises(stompy.BrokerError, match="exclusive"):
                other.subscribe(queue, ack="auto")
        else:
            assert rest(other.subscribe(queue, ack="auto")) == ["x"]


def test_a_prefetch_holds_for_later_subscriptions_where_each_says_its_own(case: Case, queue: str) -> None:
    header = case.dialect.headers["prefetch"]
    with case.connect() as conn:
        fill(conn, queue, "a", "b")
        conn.subscribe(f"{queue}-2", ack="client-individual", headers={header: 1})
        sticky = rest(conn.subscribe(queue, ack="client-individual")) == ["a"]
    assert sticky == ("prefetch-count" in case.dialect.subscribe_defaults)


def test_a_prefetch_bounds_nothing_in_auto_mode_but_a_window_starves_it(case: Case, queue: str) -> None:
    window = case.dialect.prefetch_as_window
    with case.connect() as conn:
        fill(conn, queue, "a", "b")
        subscription = conn.subscribe(queue, ack="auto", headers={case.dialect.headers["prefetch"]: 0 if window else 1})
        assert rest(subscription) == (["a"] if window else ["a", "b"])


def test_a_client_id_is_taken_once_by_activemq_alone(case: Case) -> None:
    with case.connect(client_id="facts"):
        if case.dialect.name == "activemq":
            with pytest.raises(stompy.ClientIdInUseError):
                case.connect(client_id="facts")
        else:
            case.connect(client_id="facts").close()


def test_drain_acknowledges_what_it_works_off_and_leaves_no_error(case: Case, queue: str) -> None:
    worked: list[str] = []

    def work(message: stompy.Message) -> None:
        worked.append(message.text)
        message.ack()

    with case.connect(case.dialect.name) as other:
        other.subscribe(f"{queue}-ask", lambda ask: other.send(ask.headers["reply-to"], "yes", headers=same(ask)))
        conn = case.connect(case.dialect.name)
        assert conn.request(f"{queue}-ask", "there?", timeout=SOON).text == "yes"
        fill(conn, queue, *"abcde")
        conn.subscribe(queue, work, ack="client-individual")
        conn.close(drain=True)
    left = case.has(queue)
    assert sorted(worked + left) == list("abcde")


def same(ask: stompy.Message) -> dict[str, object]:
    return {"correlation-id": ask.headers["correlation-id"]}


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_durable_subscription_collects_until_it_is_deleted(case: Case, version: str) -> None:
    topic = f"/topic/facts-{uuid.uuid4().hex[:8]}"
    name = topic.rpartition("/")[2]
    options = {"versions": version, "client_id": name, "dialect": case.dialect.name}
    with case.connect(**options) as conn:
        conn.subscribe(topic, durable=name)
    with case.connect() as other, case.connect(**options) as conn:
        other.send(topic, "away", confirm=True)
        subscription = conn.subscribe(topic, durable=name)
        assert rest(subscription) == ["away"]
        subscription.unsubscribe(delete=True)
        other.send(topic, "gone", confirm=True)
        subscription = conn.subscribe(topic, durable=name)
        assert rest(subscription) == []
        subscription.unsubscribe(delete=True)


def test_a_redelivered_message_has_its_id_and_its_mark(case: Case, queue: str) -> None:
    with case.connect() as conn:
        fill(conn, queue, *"abc")
    with case.connect() as conn:
        before = taken(conn.subscribe(queue, ack="client-individual"), 3)
    with case.connect() as conn:
        after = taken(conn.subscribe(queue, ack="client-individual"), 3)
    ids = [{message.text: message.message_id.rpartition(",")[2] for message in each} for each in (before, after)]
    assert (ids[0] == ids[1]) == case.dialect.keeps_message_id
    assert all(message.redelivered for message in after) == case.dialect.marks_redelivered
