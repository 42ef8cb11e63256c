"""`format("stomp-killed")`: the sink, whose Python worker is killed at a moment that a test has ordered.

An order is a file in the folder of the option `orders`. Each attempt of a task takes the next one for its partition; in
the file stand the moment, the chunk (from 1) at which it comes, and what happens then.

| moment | when |
|---|---|
| `sent` | every SEND of the chunk has left, its COMMIT has not |
| `asked` | all has left, and nobody has waited for the confirmation |
| `confirmed` | the chunk is confirmed, and nothing was reported to Spark yet |
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unittest.mock import patch

from pyspark import TaskContext

from stompy.connection.transaction import Transaction
from stompy.link.receipts import Receipt
from stompy.spark.datasource import StompDataSource
from stompy.spark.sink.publisher import Publisher
from stompy.spark.sink.writer import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from stompy.spark.sink.writer import Published

Moment = Literal["sent", "asked", "confirmed"]
Fault = Literal["SIGKILL", "exit", "stay"]
"""`exit` ends the process as an extension that crashes does; `stay` leaves it at that moment forever."""

NAME = "stomp-killed"


@dataclass(frozen=True)
class Order:
    """A fault, when its moment comes."""

    moment: Moment
    chunk: int = 1
    fault: Fault = "SIGKILL"

    def __str__(self) -> str:
        return f"{self.moment} {self.chunk} {self.fault}"


class Orders:
    """The folder of orders; also where the sink notes what became of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def give(self, partition: int, *orders: Order) -> None:
        """Order a fault for each of the next attempts of a partition."""
        for number, order in enumerate(orders):
            (self.folder / f"{partition}-{number}").write_text(str(order))

    def take(self, partition: int) -> Order | None:
        """Return the next order for a partition."""
        for path in sorted(self.folder.glob(f"{partition}-*")):
            moment, chunk, fault = path.read_text().split()
            path.unlink()
            return Order(moment, int(chunk), fault)  # type: ignore[arg-type]
        return None

    @property
    def waiting(self) -> int:
        """How many orders nobody has taken."""
        return len(list(self.folder.glob("[0-9]*-*")))

    def note(self, word: str) -> None:
        """Note that something has happened."""
        with (self.folder / "noted").open("a") as file:
            file.write(f"{word}\n")

    @property
    def noted(self) -> list[str]:
        """What has happened, in order."""
        path = self.folder / "noted"
        return path.read_text().split("\n")[:-1] if path.exists() else []


class _KilledWriter:
    """Writes a partition as the sink does, with an order."""

    orders: Orders

    def write(self, iterator: Iterator[RecordBatch]) -> Published:
        context = TaskContext.get()
        assert context is not None
        order = self.orders.take(context.partitionId())
        with _armed(order, self.orders) if order else contextlib.nullcontext():
            return super().write(iterator)  # type: ignore[misc]  # of the writer beside it

    def abort(self, *arguments: Any) -> None:
        self.orders.note(f"abort {sum(message is None for message in arguments[0])} of {len(arguments[0])}")
        super().abort(*arguments)  # type: ignore[misc]


class KilledBatchWriter(_KilledWriter, BatchWriter):
    """Of a batch job."""


class KilledStreamWriter(_KilledWriter, StreamWriter):
    """Of a micro-batch."""


class KilledDataSource(StompDataSource):
    """The sink that is killed."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        return self._killed(KilledBatchWriter, super().writer, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802  # Spark's name
        return self._killed(KilledStreamWriter, super().streamWriter, schema, overwrite)

    def _killed(self, kind: type[Any], make: Callable[[Any, bool], Any], schema: Any, overwrite: bool) -> Any:
        orders = Orders(Path(self.options.pop("orders")))
        killed = object.__new__(kind)
        vars(killed).update(vars(make(schema, overwrite)), orders=orders)
        return killed


@contextlib.contextmanager
def _armed(order: Order, orders: Orders) -> Iterator[None]:
    """Kill this process when the moment of the order comes."""
    chunks = 0
    attempt, commit, wait = Publisher._attempt, Transaction.commit, Receipt.result

    def now(moment: Moment) -> None:
        if (moment, chunks) == (order.moment, order.chunk):
            orders.note(str(order))
            _kill(order.fault)

    def attempted(self: Publisher, chunk: Any) -> None:
        nonlocal chunks
        chunks += 1
        attempt(self, chunk)
        now("confirmed")

    def committed(self: Transaction, **given: Any) -> None:
        if order.moment == "sent":
            self._buffer.flush()
        now("sent")
        commit(self, **given)

    def waited(self: Receipt, *timeout: Any) -> None:
        now("asked")
        wait(self, *timeout)

    with (
        patch.object(Publisher, "_attempt", attempted),
        patch.object(Transaction, "commit", committed),
        patch.object(Receipt, "result", waited),
    ):
        yield


def _kill(fault: Fault) -> None:
    if fault == "exit":
        os._exit(1)
    if fault == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
