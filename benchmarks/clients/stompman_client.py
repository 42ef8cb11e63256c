"""stompman, measured: asyncio, in its own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import stompman

from benchmarks.clients import worker
from benchmarks.clients.worker import BATCH, BODY, QUEUE, WAIT, Action, Feed, Round, order

Run = Callable[[int], Coroutine[Any, Any, None]]


def on_loop(prepare: Callable[[Any, Feed], Awaitable[Run]]) -> Action:
    """Return an action that runs its rounds on a loop."""

    def action(port: int, feed: Feed) -> Round:
        loop = asyncio.new_event_loop()
        client = stompman.Client(
            [stompman.ConnectionParameters("127.0.0.1", port, "", "")], heartbeat=stompman.Heartbeat(0, 0)
        )

        async def connect() -> Run:
            await client.__aenter__()
            return await prepare(client, feed)

        run = loop.run_until_complete(connect())
        return lambda count: loop.run_until_complete(run(count))

    return action


def received(look: Callable[[Any], Awaitable[object]], *, ack: bool = False) -> Action:
    """Return an action that gives each message to a handler."""

    async def prepare(client: Any, feed: Feed) -> Run:
        left = 0
        done = asyncio.Event()

        async def handle(frame: Any) -> None:
            nonlocal left
            await look(frame)
            left -= 1
            if not left:
                done.set()

        for number in range(feed.get("subscriptions", 1)):
            if ack:
                await client.subscribe_with_manual_ack(f"/control/{number}", handle)
            else:
                await client.subscribe(f"/control/{number}", handle, ack="auto", on_suppressed_exception=print)

        async def run(count: int) -> None:
            nonlocal left
            left = count
            done.clear()
            await client.send(order(feed, count).encode(), "/control/give")
            await asyncio.wait_for(done.wait(), WAIT)

        return run

    return on_loop(prepare)


async def untouched(frame: Any) -> None:
    """Take the body alone."""
    frame.body  # noqa: B018


async def read_headers(frame: Any) -> None:
    """Take the body and two headers."""
    frame.body, frame.headers["message-id"], frame.headers["priority"]


def sent(headers: Callable[[int], dict[str, str] | None]) -> Action:
    """Return an action that sends messages, each with the headers of its number."""

    async def prepare(client: Any, feed: Feed) -> Run:
        async def run(count: int) -> None:
            for number in range(count):
                await client.send(BODY, QUEUE, headers=headers(number))

        return run

    return on_loop(prepare)


async def send_transaction(client: Any, feed: Feed) -> Run:
    """Send transactions."""

    async def run(count: int) -> None:
        for start in range(0, count, BATCH):
            async with client.begin() as transaction:
                for _ in range(min(BATCH, count - start)):
                    await transaction.send(BODY, QUEUE)

    return run


async def send_receipts(client: Any, feed: Feed) -> Run:
    """Send messages with receipts, a thousand at a time."""

    async def run(count: int) -> None:
        for start in range(0, count, BATCH):
            window = range(min(BATCH, count - start))
            await asyncio.gather(*(client.send(BODY, QUEUE, receipt_timeout=WAIT) for _ in window))

    return run


async def latency(client: Any, feed: Feed) -> Run:
    """Send a message, and wait until the handler has its reply."""
    came = asyncio.Event()

    async def handle(frame: Any) -> None:
        came.set()

    await client.subscribe("/control/0", handle, ack="auto", on_suppressed_exception=print)

    async def run(count: int) -> None:
        for _ in range(count):
            came.clear()
            await client.send(BODY, "/control/echo")
            await came.wait()

    return run


ACTIONS: Mapping[str, Action] = {
    "receive": received(untouched),
    "receive-headers": received(read_headers),
    "receive-ack": received(lambda frame: frame.ack(), ack=True),
    "send": sent(lambda number: None),
    "send-differing": sent(lambda number: {"number": str(number)}),
    "send-batch": sent(lambda number: None),  # it has no batch
    "send-transaction": on_loop(send_transaction),
    "send-receipts": on_loop(send_receipts),
    "latency": on_loop(latency),
}

if __name__ == "__main__":
    worker.main(ACTIONS)
