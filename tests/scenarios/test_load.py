"""Ten connections at once on the embedded broker: everything once, in order, in bounded memory, and no thread left."""

from __future__ import annotations

import gc
import threading
import tracemalloc

import pytest

import stompy
from stompy.broker import Broker
from tests.support.peer import until

CONNECTIONS = 10
BODY = b"x" * 100
FLUSHED = 1_000
"""Messages after which a producer waits for the broker: all that it has could lie in the buffers of the system."""


def exchange(url: str, each: int) -> dict[int, list[int]]:
    """Let every connection send `each` messages and consume its share; return the numbers received, by producer."""
    received: dict[int, list[int]] = {producer: [] for producer in range(CONNECTIONS)}
    per_consumer: list[dict[int, list[int]]] = []
    total = threading.Semaphore(0)
    errors: list[BaseException] = []

    def handler_for(mine: dict[int, list[int]]) -> object:
        def handler(message: stompy.Message) -> None:
            producer, number, _ = message.body.split(b" ", 2)
            mine.setdefault(int(producer), []).append(int(number))
            total.release()

        return handler

    def produce(conn: stompy.Connection, producer: int) -> None:
        try:
            for number in range(each):
                (conn.send if number % 100 else conn.send_async)("/queue/load", b"%d %d " % (producer, number) + BODY)
                if number % FLUSHED == FLUSHED - 1:
                    conn.flush(timeout=50)
        except BaseException as error:
            errors.append(error)

    conns = [stompy.connect(url) for _ in range(CONNECTIONS)]
    for conn in conns:
        per_consumer.append({})
        conn.subscribe("/queue/load", handler_for(per_consumer[-1]), ack="auto")  # type: ignore[arg-type]
    threads = [threading.Thread(target=produce, args=(conn, place)) for place, conn in enumerate(conns)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert errors == []
    for _ in range(CONNECTIONS * each):
        assert total.acquire(timeout=20)
    for conn in conns:
        conn.close()
    for mine in per_consumer:
        for producer, numbers in mine.items():
            assert numbers == sorted(numbers), "what one producer sent came to a consumer out of order"
            received[producer] += numbers
    return received


def check_exchange(broker: Broker, each: int) -> None:
    for numbers in exchange(broker.url, each).values():
        assert sorted(numbers) == list(range(each))
    until(lambda: broker.stats().sessions == 0)
    assert broker.stats().errors == 0
    assert broker.depth("/queue/load") == 0


def test_ten_connections_exchange_a_thousand_messages_each() -> None:
    with Broker() as broker:
        check_exchange(broker, 1_000)


@pytest.mark.load
@pytest.mark.timeout(300)
def test_ten_connections_exchange_ten_thousand_messages_each_in_flat_memory() -> None:
    with Broker() as broker:
        check_exchange(broker, 1_000)  # what is made once is made here
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            check_exchange(broker, 10_000)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    # 100,000 messages of some hundred bytes went through; what stays must not be any share of them.
    assert after - before < 1_000_000
