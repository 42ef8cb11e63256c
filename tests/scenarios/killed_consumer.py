"""A program that handles the messages of a queue in one of many ways: it is killed somewhere in the middle.

python -m tests.scenarios.killed_consumer WAY URL SEED FILE

It appends the body of each message to FILE when it has handled it. Sometimes handling raises, before that.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import sys
import threading
from collections.abc import Callable

import stompy

QUEUE = "/queue/work"
SHARE_OF_ERRORS = 0.03
TOGETHER = 20
"""Messages after which a loop or a block ends."""


class Mishap(Exception):
    """Raised in the middle of handling."""


Handle = Callable[[stompy.Message], None]


class Consumer(stompy.Listener):
    """Handles messages."""

    def __init__(self, handle: Handle) -> None:
        self.on_message = handle  # type: ignore[method-assign,assignment]


def forever() -> None:
    threading.Event().wait()


def handler(conn: stompy.Connection, handle: Handle) -> None:
    conn.subscribe(QUEUE, handle)
    forever()


def own_thread(conn: stompy.Connection, handle: Handle) -> None:
    conn.subscribe(QUEUE, handle, own_thread=True, prefetch=10)
    forever()


def listener(conn: stompy.Connection, handle: Handle) -> None:
    conn.subscribe(QUEUE, Consumer(handle))
    forever()


def listener_of_the_connection(conn: stompy.Connection, handle: Handle) -> None:
    conn.add_listener(Consumer(handle))
    conn.subscribe(QUEUE)
    forever()


def loop(conn: stompy.Connection, handle: Handle) -> None:
    for message in conn.subscribe(QUEUE):
        handle(message)


def loop_that_goes_on(conn: stompy.Connection, handle: Handle) -> None:
    subscription = conn.subscribe(QUEUE)
    for _ in range(TOGETHER):
        try:
            for message in subscription:
                handle(message)
        except Mishap:
            pass  # a loop that was left has not handled its last message


def receive(conn: stompy.Connection, handle: Handle) -> None:
    subscription = conn.subscribe(QUEUE)
    while True:
        handle(subscription.receive(timeout=None))


def threads(conn: stompy.Connection, handle: Handle) -> None:
    subscription = conn.subscribe(QUEUE)

    def work() -> None:
        for message in subscription:
            handle(message)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def blocks(conn: stompy.Connection, handle: Handle) -> None:
    while True:
        with conn.subscribe(QUEUE) as subscription:
            for message in itertools.islice(subscription, TOGETHER):
                handle(message)


def short_connections(conn: stompy.Connection, handle: Handle) -> None:
    for message in itertools.islice(conn.subscribe(QUEUE), TOGETHER):
        handle(message)


WAYS = (
    handler, own_thread, listener, listener_of_the_connection, loop, loop_that_goes_on, receive, threads, blocks,
    short_connections,
)  # fmt: skip


def main(way: str, url: str, seed: str, path: str) -> None:
    """Handle messages until killed."""
    chance = random.Random(seed)
    done = os.open(path, os.O_APPEND | os.O_WRONLY | os.O_CREAT)
    consume = next(each for each in WAYS if each.__name__ == way)
    logging.disable()
    threading.excepthook = lambda arguments: None

    begun = False

    def handle(message: stompy.Message) -> None:
        nonlocal begun
        if not begun:
            begun = True
            print("first", flush=True)
        text = message.text
        sum(range(chance.randrange(5_000)))  # so that kills fall into handling too
        if chance.random() < SHARE_OF_ERRORS:
            raise Mishap
        os.write(done, text.encode() + b"\n")

    while True:
        try:
            with stompy.connect(url) as conn:
                consume(conn, handle)
        except Mishap:
            continue


if __name__ == "__main__":
    main(*sys.argv[1:])
