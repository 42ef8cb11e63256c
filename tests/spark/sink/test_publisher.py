from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest

import stompy
from stompy import backoff
from stompy.broker import Broker
from stompy.dialects.dialect import DEDUPE_HEADER
from stompy.errors import LocalProtocolError, PublishError
from stompy.spark.option_tables import SinkOptions
from stompy.spark.sink import publisher as module
from stompy.spark.sink.publisher import Publisher
from stompy.spark.sink.rows import DedupMode, Outgoing, identified
from stompy.testing.faults import Cut, CutAfter, Delay, Drop, FaultPlan, Insert
from stompy.testing.proxy import FaultProxy

QUEUE = "/queue/rows"
PART = "job/1/0"

Make = Callable[..., closing[Publisher]]


@pytest.fixture
def faults() -> FaultPlan:
    return FaultPlan()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def proxy(broker: Broker, faults: FaultPlan) -> Iterator[FaultProxy]:
    with FaultProxy(broker.url, faults=faults) as proxy:
        yield proxy


@pytest.fixture
def make(proxy: FaultProxy) -> Make:
    def made(**given: object) -> closing[Publisher]:
        options = {"url": proxy.url, "receipt_timeout": 20.0, **given}
        return closing(Publisher(SinkOptions(**options), name="test"))  # type: ignore[arg-type]

    return made


def rows(count: int, *, mode: DedupMode = "content") -> list[Outgoing]:
    return list(identified([Outgoing(QUEUE, f"row {number}") for number in range(count)], PART, mode))


def test_the_caller_is_called_after_each_chunk_when_no_later_row_was_taken(make: Make) -> None:
    taken = 0

    def counted() -> Iterator[Outgoing]:
        nonlocal taken
        for row in rows(7):
            taken += 1
            yield row

    reported: list[tuple[int, int]] = []
    with make(transaction_size=3) as publisher:
        publisher.publish(counted(), lambda: reported.append((publisher.confirmed, taken)))
    assert reported == [(3, 3), (6, 6), (7, 7)]


def stored(broker: Broker, queue: str = QUEUE) -> list[stompy.Message]:
    count = broker.depth(queue)
    with stompy.connect(broker.url) as connection:
        subscription = connection.subscribe(queue)
        return [subscription.receive(timeout=20) for _ in range(count)]


def bodies(messages: Iterable[stompy.Message]) -> list[str]:
    return [message.text for message in messages]


def test_every_row_arrives_once_in_order_with_an_id_of_its_own(broker: Broker, make: Make) -> None:
    with make(transaction_size=7) as publisher:
        chunks: list[int] = []
        publisher.publish(rows(50), lambda: chunks.append(publisher.confirmed))
    assert chunks == [7, 14, 21, 28, 35, 42, 49, 50]
    messages = stored(broker)
    assert bodies(messages) == [f"row {number}" for number in range(50)]
    assert len({message.headers[DEDUPE_HEADER] for message in messages}) == 50


def test_nothing_is_connected_for_no_rows() -> None:
    nowhere = SinkOptions(url="stomp://127.0.0.1:1", broker_timeout=0.0)
    with closing(Publisher(nowhere, name="test")) as publisher:
        publisher.publish([])


def test_a_chunk_ends_at_its_bytes_too(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", 100)
    with make() as publisher:
        chunks: list[int] = []
        publisher.publish([Outgoing(QUEUE, b"x" * 60) for _ in range(4)], lambda: chunks.append(publisher.confirmed))
        assert chunks == [2, 4]


def test_a_row_larger_than_a_chunk_goes_by_itself(broker: Broker, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", 100)
    with make() as publisher:
        chunks: list[int] = []
        publisher.publish([Outgoing(QUEUE, b"x" * 5000)] * 2, lambda: chunks.append(publisher.confirmed))
        assert chunks == [1, 2]
    assert broker.depth(QUEUE) == 2


@pytest.mark.parametrize(
    ("rate", "wanted", "delays"),
    [(2, [2, 4, 6], [0.0, 1.0, 2.0]), (0.5, [1, 2, 3, 4, 5, 6], [0.0, 2.0, 4.0, 6.0, 8.0, 10.0])],
)
def test_a_low_rate_makes_small_chunks(
    make: Make, monkeypatch: pytest.MonkeyPatch, rate: float, wanted: list[int], delays: list[float]
) -> None:
    slept: list[float] = []
    time = SimpleNamespace(monotonic=lambda: 0.0, sleep=slept.append)
    monkeypatch.setattr(module, "time", time)
    monkeypatch.setattr(backoff, "time", time)
    with make(rate_limit=rate) as publisher:
        chunks: list[int] = []
        publisher.publish(rows(6), lambda: chunks.append(publisher.confirmed))
        assert chunks == wanted
    assert slept == delays


def test_without_transactions_every_row_is_confirmed(broker: Broker, make: Make) -> None:
    with make(transactions="false", transaction_size=10) as publisher:
        publisher.publish(rows(25))
        assert publisher.confirmed == 25
    assert bodies(stored(broker)) == [f"row {number}" for number in range(25)]


@pytest.mark.parametrize(
    ("transactions", "way", "begins", "reported"),
    [
        ("auto", "content", 0, True),
        ("false", "content", 0, True),
        ("true", "content", 2, False),
        ("auto", "none", 2, False),
    ],
)
def test_a_broker_that_drops_duplicates_gets_each_row_with_its_id_outside_of_transactions(
    broker: Broker, make: Make, faults: FaultPlan, transactions: str, way: DedupMode, begins: int, reported: bool
) -> None:
    faults.add(Delay("BEGIN", seconds=0.0, link=1))
    with make(dialect="artemis", transactions=transactions, transaction_size=5) as publisher:
        # Without a prefix, for which a client of Artemis sends a header that this broker does not know.
        publisher.publish(replace(row, destination="plain") for row in rows(10, mode=way))
    assert len(faults.strikes) == begins
    messages = stored(broker, "plain")
    assert len(messages) == 10
    for message in messages:
        assert message.headers.get("_AMQ_DUPL_ID") == (message.headers[DEDUPE_HEADER] if reported else None)


@pytest.mark.hard_case("T20")
def test_a_transaction_that_is_cut_leaves_nothing_and_is_sent_again(
    broker: Broker, make: Make, faults: FaultPlan
) -> None:
    faults.add(CutAfter(received=600, link=1))
    with make(transaction_size=50) as publisher:
        publisher.publish(rows(100))
    assert bodies(stored(broker)) == [f"row {number}" for number in range(100)]
    assert len(faults.strikes) == 1


@pytest.mark.hard_case("T20")
def test_a_transaction_whose_confirmation_is_lost_is_sent_again_with_the_same_ids(
    broker: Broker, make: Make, faults: FaultPlan
) -> None:
    faults.add(Cut("RECEIPT", nth=2, keep=0, link=1))  # that of COMMIT
    with make(transaction_size=5) as publisher:
        publisher.publish(rows(5))
        assert publisher.confirmed == 5
    messages = stored(broker)
    assert Counter(bodies(messages)) == {f"row {number}": 2 for number in range(5)}
    assert Counter(message.headers[DEDUPE_HEADER] for message in messages).most_common(1)[0][1] == 2
    assert len({message.headers[DEDUPE_HEADER] for message in messages}) == 5


def test_a_broker_that_stops_confirming_is_named_for_what_it_is(make: Make, faults: FaultPlan) -> None:
    faults.add(Drop("RECEIPT", nth=4))  # of the second COMMIT
    with (
        make(receipt_timeout=0.5, transaction_size=5) as publisher,
        pytest.raises(PublishError, match="stopped reading or confirming") as stalled,
    ):
        publisher.publish(rows(10))
    assert stalled.value.confirmed == 5


@pytest.mark.hard_case("T21")
def test_a_broker_that_stops_reading_is_named_for_what_it_is(broker: Broker, make: Make) -> None:
    large = [Outgoing(QUEUE, b"x" * 100_000) for _ in range(200)]
    with FaultProxy(broker.url) as proxy, make(url=proxy.url, receipt_timeout=0.5) as publisher:
        publisher.publish(rows(1))
        proxy.stall("up")
        with pytest.raises(PublishError, match="stopped reading or confirming"):
            publisher.publish(large)


def test_a_broker_that_stays_down_is_given_up_after_the_patience(broker: Broker, make: Make) -> None:
    with make(broker_timeout=0.3) as publisher:
        publisher.publish(rows(3))
        broker.close()
        with pytest.raises(PublishError, match=r"no broker was reachable for 0\.3 s") as away:
            publisher.publish(rows(1))
    assert away.value.confirmed == 3


def test_a_broker_that_refuses_is_not_asked_again(make: Make, faults: FaultPlan) -> None:
    faults.add(Insert("RECEIPT", data=b"ERROR\nmessage:not for you\n\n\0"))
    with make() as publisher, pytest.raises(PublishError, match=r"rejected a message: .*not for you"):
        publisher.publish(rows(3))
    assert len(faults.strikes) == 1


@pytest.mark.hard_case("T20")
def test_a_row_that_cannot_be_written_aborts_its_transaction(broker: Broker, make: Make) -> None:
    with make() as publisher, pytest.raises(LocalProtocolError):
        publisher.publish([*rows(3), Outgoing(QUEUE, "x", {"": "no name"})])
    assert broker.depth(QUEUE) == 0


def test_what_a_row_says_reaches_the_broker(broker: Broker, make: Make) -> None:
    with make() as publisher:
        publisher.publish([Outgoing(QUEUE, b"{}", {"kind": "order: new"}, content_type="application/json")])
    (message,) = stored(broker)
    assert message.json() == {}
    assert message.headers["kind"] == "order: new"
