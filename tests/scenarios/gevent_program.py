"""A program whose threads are greenlets; `test_gevent.py` runs it, with a broker here or in the process of the test.

    python -m gevent.monkey --module tests.scenarios.gevent_program OVER [URL CA]

OVER is `stomp`, `stomp+ssl`, `ws` or `wss`. The last line that it prints is `ok`, if nothing was wrong.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import gevent

import stompy
from stompy.broker import Broker
from stompy.testing.brokers import Certificates
from stompy.testing.proxy import FaultProxy
from stompy.transport.tls.options import Tls

WITHIN = 20.0
GREENLETS, EACH = 20, 20

Connect = Callable[..., stompy.Connection]


@contextlib.contextmanager
def ticking() -> Iterator[None]:
    """Check that other greenlets run while the block waits."""
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            gevent.sleep(0.001)

    ticker = gevent.spawn(tick)
    yield
    ticker.kill()
    assert ticks > 1  # without a switch there is none but that of the end


def until(holds: Callable[[], object]) -> None:
    """Wait until `holds()` is true."""
    with gevent.Timeout(WITHIN):
        while not holds():
            gevent.sleep(0.005)


def messages(connect: Connect, url: str) -> None:
    """Send from many greenlets on one connection, with receipts, to a handler and to a loop."""
    handled: list[str] = []
    with connect(url) as connection:
        connection.subscribe("/queue/handled", lambda message: handled.append(message.text), ack="client-individual")
        inbox = connection.subscribe("/queue/inbox", ack="client")

        def send(sender: int) -> None:
            for number in range(EACH):
                connection.send("/queue/handled", f"{sender} {number}", confirm=True)
                connection.send_async("/queue/inbox", "x" * 20_000)

        senders = [gevent.spawn(send, sender) for sender in range(GREENLETS)]
        for _ in range(GREENLETS * EACH):
            message = inbox.receive(timeout=WITHIN)
            assert len(message.body) == 20_000
        message.ack_async()
        gevent.joinall(senders, raise_error=True)
        connection.flush()
        until(lambda: len(handled) == GREENLETS * EACH)
        for sender in range(GREENLETS):
            assert [text for text in handled if text.startswith(f"{sender} ")] == [f"{sender} {n}" for n in range(EACH)]
        with ticking(), contextlib.suppress(stompy.ReceiveTimeoutError):
            inbox.receive(timeout=0.2)


def requests(connect: Connect, url: str) -> None:
    """Answer requests of several greenlets."""
    with connect(url) as server, connect(url) as client:
        server.subscribe("/queue/service", lambda m: server.send(m.headers["reply-to"], m.body, headers=correlation(m)))
        asked = [gevent.spawn(client.request, "/queue/service", str(number)) for number in range(GREENLETS)]
        gevent.joinall(asked, raise_error=True)
        assert [each.value.text for each in asked] == [str(number) for number in range(GREENLETS)]


def correlation(message: stompy.Message) -> dict[str, object]:
    """Return the header of a reply."""
    return {"correlation-id": message.headers["correlation-id"]}


def transactions(connect: Connect, url: str) -> None:
    """Commit one transaction and abort another."""
    with connect(url) as connection:
        subscription = connection.subscribe("/queue/transactions")
        for text in ("committed", "aborted"):
            with contextlib.suppress(KeyError), connection.transaction() as transaction:
                transaction.send("/queue/transactions", text)
                if text == "aborted":
                    raise KeyError
        assert subscription.receive(timeout=WITHIN).text == "committed"
        connection.send("/queue/transactions", "last", confirm=True)
        assert subscription.receive(timeout=WITHIN).text == "last"


def heartbeats(connect: Connect, url: str) -> None:
    """Keep an idle session by heartbeats; a handler that waits does not keep them back."""
    waiting = threading.Event()
    with connect(url, heartbeat=(0.5, 0.5)) as connection:  # each side allows a silence of 1.5 s
        connection.subscribe("/queue/beats", lambda message: waiting.wait(WITHIN))
        connection.send("/queue/beats", confirm=True)
        with ticking():
            gevent.sleep(2)
        assert connection.connected
        assert connection.stats().reconnects == 0
        waiting.set()


def outages(connect: Connect, url: str) -> None:
    """Lose the session in the middle of messages, several times."""
    with (
        FaultProxy(url) as proxy,
        connect(proxy.url, reconnect=stompy.Reconnect(resend_unconfirmed=True)) as connection,
    ):
        subscription = connection.subscribe("/queue/outages", ack="client-individual")
        found: set[str] = set()

        def send(cut: int) -> None:
            for number in range(50):
                connection.send_async("/queue/outages", f"{cut} {number}")  # others may be lost with a session

        for cut in range(3):
            sender = gevent.spawn(send, cut)
            gevent.sleep(0.01)
            proxy.cut("rst")
            sender.join()
            with gevent.Timeout(WITHIN):
                while len(found) < 50 * (cut + 1):
                    message = subscription.receive(timeout=WITHIN)
                    found.add(message.text)
                    with contextlib.suppress(stompy.StompError):
                        message.ack()
        assert connection.stats().reconnects >= 1


def work(connect: Connect, url: str, options: dict[str, Any]) -> None:
    """Run a worker: several threads, a retry, a dead letter, a time limit, a stop that waits for what runs."""
    seen: list[str] = []
    worker = stompy.Worker(url, concurrency=4, **options)

    @worker.task("/queue/work", attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.02))
    def task(message: stompy.Message, context: stompy.TaskContext) -> None:
        gevent.sleep(0.01)
        seen.append(message.text)
        if message.text == "dead" or (message.text == "again" and context.attempt == 1):
            raise ValueError(message.text)

    @worker.task("/queue/slow", time_limit=0.2, attempts=1)
    def slow(message: stompy.Message) -> None:
        gevent.sleep(1)

    with connect(url) as connection, worker:
        dead = connection.subscribe("/queue/work.dead")
        late = connection.subscribe("/queue/slow.dead")
        for text in ("dead", "again", *map(str, range(40))):
            connection.send("/queue/work", text, confirm=True)
        connection.send("/queue/slow", "late", confirm=True)
        assert dead.receive(timeout=WITHIN).text == "dead"
        assert late.receive(timeout=WITHIN).text == "late"
        until(lambda: len(seen) == 44)
        assert worker.health().ready


def outbox(url: str, options: dict[str, Any]) -> None:
    """Put messages into an outbox from many greenlets."""
    with tempfile.TemporaryDirectory() as folder, stompy.Outbox(f"{folder}/outbox", url, **options) as outbox:
        gevent.joinall([gevent.spawn(outbox.put, "/queue/outbox", "1") for _ in range(GREENLETS)], raise_error=True)
        outbox.flush(timeout=WITHIN)
        assert outbox.stats().sent == GREENLETS


def main() -> None:
    """Run everything."""
    over = sys.argv[1]
    secure, web = over in ("stomp+ssl", "wss"), over in ("ws", "wss")
    with contextlib.ExitStack() as stack:
        if len(sys.argv) > 2:
            url, ca = sys.argv[2:]
        else:
            certificates = stack.enter_context(contextlib.closing(Certificates()))
            ca = certificates.ca_file
            tls = Tls(cert=certificates.broker_file) if secure else None
            broker = stack.enter_context(Broker(tls=tls, ws=web))
            url = broker.ws_url if web else broker.url
        options: dict[str, Any] = {"tls": Tls(ca=ca)} if secure else {}

        def connect(url: str, **more: Any) -> stompy.Connection:
            return stompy.connect(url, **options, **more)

        for scenario in (messages, requests, transactions, heartbeats, outages):
            scenario(connect, url)
        work(connect, url, options)
        outbox(url, options)
    print("ok", flush=True)


if __name__ == "__main__":
    main()
