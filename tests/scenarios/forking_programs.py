"""Programs that fork while they hold something of the package's; `test_fork.py` runs them in processes of their own.

Each prints one line for each child, and then what became of the parent: see `main`.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy import locks
from stompy.broker import Broker
from stompy.compat.connect import StompConnection12
from stompy.compat.listener import ConnectionListener as CompatListener
from stompy.outbox.schema import LockFile
from stompy.spark.spool.files import Files
from stompy.testing.brokers import BrokerSettings, Certificates, EmbeddedBroker
from stompy.testing.listener import RecordingListener
from stompy.testing.proxy import FaultProxy
from stompy.transport.tls.options import Tls
from stompy.worker.task import SqliteSeen
from tests.support.forks import Held, locks_of
from tests.support.memory import MemoryListener
from tests.support.memory_broker import broker_over

WAYS = ("sys.exit", "os._exit", "exception", "end of the block", "multiprocessing")
CODES = {"sys.exit": 7, "os._exit": 7, "exception": 1, "end of the block": 0, "multiprocessing": 7}
HANGS_AFTER = 20

Call = Callable[[], object]
Held_ = tuple[list[object], Sequence[Call], Sequence[Call], Call]
"""What is held; what a child may not do; what ends it, which does nothing in a child; what the parent can do after."""


class Boom(Exception):
    """Ends a child."""


def leave(way: str) -> None:
    """End a child, or let it leave its blocks."""
    if way == "sys.exit":
        sys.exit(CODES[way])
    if way == "os._exit":
        os._exit(CODES[way])
    if way == "exception":
        raise Boom


def exit_code(child: int) -> int:
    """Wait for a child."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# What can be held.


@contextlib.contextmanager
def a_folder() -> Iterator[str]:
    parent, folder = os.getpid(), tempfile.mkdtemp()
    yield folder
    if os.getpid() == parent:
        shutil.rmtree(folder)


@contextlib.contextmanager
def a_broker(**options: Any) -> Iterator[Held_]:
    with Broker(**options) as broker, stompy.connect(broker.url, **client_of(options)) as connection:

        def works() -> None:
            connection.send("/queue/a", "old", confirm=True)
            with stompy.connect(broker.url, **client_of(options)) as other:
                other.send("/queue/a", "new", confirm=True)
            if options.get("ws"):
                with stompy.connect(broker.ws_url, **client_of(options)) as web:
                    web.send("/queue/a", "web", confirm=True)
            if options.get("console"):
                with urllib.request.urlopen(broker.console_url) as page:
                    assert page.status == 200

        refused = [
            broker.stats,
            broker.start,
            broker.restart,
            broker.connections,
            lambda: broker.purge("/queue/a"),
            lambda: broker.clock.advance(1),
            lambda: connection.send("/queue/a", "child"),
        ]
        yield [broker, connection], refused, [broker.close, connection.close], works


def client_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a client of a broker."""
    tls = options.get("tls")
    return {} if tls is None else {"tls": Tls(ca=CERTIFICATES.ca_file)}


@contextlib.contextmanager
def a_memory_broker() -> Iterator[Held_]:
    listener = MemoryListener("fork")
    with broker_over(listener) as broker:
        yield [broker, listener], [broker.stats], [broker.close], broker.stats


@contextlib.contextmanager
def a_broker_with_tls() -> Iterator[Held_]:
    global CERTIFICATES
    CERTIFICATES = Certificates()
    with contextlib.closing(CERTIFICATES), a_broker(tls=Tls(cert=CERTIFICATES.broker_file), ws=True) as held:
        things, refused, ended, works = held

        def still() -> None:
            works()
            assert Path(CERTIFICATES.ca_file).exists()

        yield things, refused, [*ended, CERTIFICATES.close], still


@contextlib.contextmanager
def a_broker_on_a_unix_socket() -> Iterator[Held_]:
    with a_folder() as folder, a_broker(unix=f"{folder}/broker") as held:
        yield held


@contextlib.contextmanager
def a_broker_for_tests() -> Iterator[Held_]:
    with EmbeddedBroker(BrokerSettings()) as broker, stompy.connect(broker.url()) as connection:

        def works() -> None:
            connection.send("/queue/a", "1", confirm=True)

        yield [broker, connection], [broker.broker.stats], [broker.close, broker.kill, broker.shut_down], works


@contextlib.contextmanager
def a_connection() -> Iterator[Held_]:
    """To the broker of the test, over whatever its address says."""
    options: dict[str, Any] = {"tls": Tls(ca=sys.argv[3])} if len(sys.argv) > 3 else {}
    with stompy.connect(sys.argv[2], **options) as connection:
        subscription = connection.subscribe(f"/queue/{os.getpid()}")
        session = connection.session

        def works() -> None:
            connection.send(f"/queue/{os.getpid()}", "x" * 300_000, confirm=True)
            assert len(subscription.receive(timeout=10).body) == 300_000
            assert connection.session == session

        refused = [
            lambda: connection.send("/queue/a", "child"),
            lambda: subscription.receive(timeout=0),
            connection.stats,
        ]
        yield [connection, connection._links.link.transport], refused, [connection.close], works


@contextlib.contextmanager
def a_compat_connection() -> Iterator[Held_]:
    with Broker() as broker:
        connection = StompConnection12([("127.0.0.1", int(broker.url.rpartition(":")[2]))])
        connection.connect(wait=True)

        def works() -> None:
            assert connection.is_connected()
            connection.send("/queue/a", "1")

        ended = [lambda: connection.disconnect("bye"), connection.disconnect, connection.transport.disconnect_socket]
        yield [connection, broker], [lambda: connection.send("/queue/a", "child")], ended, works
        connection.disconnect()


@contextlib.contextmanager
def a_proxy() -> Iterator[Held_]:
    with Broker() as broker, FaultProxy(broker.url) as proxy, stompy.connect(proxy.url) as connection:

        def works() -> None:
            connection.send("/queue/a", "1", confirm=True)
            with stompy.connect(proxy.url) as other:
                other.send("/queue/a", "1", confirm=True)

        refused: list[Call] = [proxy.cut, proxy.refuse, lambda: proxy.await_that(lambda _: False), proxy.heal]
        yield [proxy, broker], refused, [proxy.close], works


@contextlib.contextmanager
def an_outbox() -> Iterator[Held_]:
    with a_folder() as folder, Broker() as broker, stompy.Outbox(f"{folder}/outbox.db", broker.url) as outbox:

        def works() -> None:
            outbox.put("/queue/a", "1")
            outbox.flush()

        works()
        refused = [lambda: outbox.put("/queue/a", "child"), outbox.stats, outbox.flush]
        yield [outbox, broker], refused, [outbox.close], works


@contextlib.contextmanager
def a_worker() -> Iterator[Held_]:
    done = threading.Semaphore(0)
    with a_folder() as folder, Broker() as broker, stompy.connect(broker.url) as sender:
        seen = SqliteSeen(f"{folder}/seen")
        worker = stompy.Worker(broker.url)
        worker.add(lambda message: done.release(), "/queue/a", name="a", seen=seen)

        def works() -> None:
            sender.send("/queue/a", "1", confirm=True)
            assert done.acquire(timeout=10)
            assert "no" not in seen
            assert worker.health().state == "running"

        refused = [worker.health, worker.start, lambda: "x" in seen, lambda: seen.add("x")]
        with worker:
            yield [worker, broker], refused, [worker.close, seen.close], works
        seen.close()


@contextlib.contextmanager
def files_with_locks() -> Iterator[Held_]:
    with a_folder() as folder:
        first, second = Files(folder).lock("spool"), LockFile(f"{folder}/outbox", create=True)
        assert first is not None

        def works() -> None:
            assert Files(folder).lock("spool") is None
            try:
                LockFile(f"{folder}/outbox", create=True)
            except stompy.OutboxError:
                return
            raise AssertionError("it is not locked")

        yield [], [], [first.release, second.close], works
        first.release()
        second.close()


@contextlib.contextmanager
def a_listener() -> Iterator[Held_]:
    heard = RecordingListener()
    with Broker() as broker, stompy.connect(broker.url, listeners=[heard]) as connection:
        yield [heard, connection], [], [lambda: heard.events], lambda: connection.send("/queue/a", confirm=True)


THINGS: dict[str, Callable[[], contextlib.AbstractContextManager[Held_]]] = {
    "broker": lambda: a_broker(console=True, ws=True),
    "broker-tls": a_broker_with_tls,
    "broker-unix": a_broker_on_a_unix_socket,
    "broker-memory": a_memory_broker,
    "broker-for-tests": a_broker_for_tests,
    "compat": a_compat_connection,
    "proxy": a_proxy,
    "outbox": an_outbox,
    "worker": a_worker,
    "locks": files_with_locks,
    "listener": a_listener,
}
CERTIFICATES: Certificates


def hold(name: str) -> None:
    """Hold a thing, and fork in each way while another thread holds all of its locks."""
    locks.checked = False  # they are held in no order here
    with (a_connection if name == "connection" else THINGS[name])() as (things, refused, ended, works):
        works()
        for way in WAYS:
            with Held(locks_of(things)):
                if way == "multiprocessing":
                    process = multiprocessing.get_context("fork").Process(target=misuse, args=(refused, ended, True))
                    process.start()
                    process.join()
                    code = process.exitcode
                else:
                    child = os.fork()
                    if child == 0:
                        signal.alarm(HANGS_AFTER)
                        misuse(refused, ended, False)
                        leave(way)
                        return
                    code = exit_code(child)
            assert code == CODES[way], f"{way}: {code}"
            works()


def misuse(refused: Sequence[Call], ended: Sequence[Call], exits: bool) -> None:
    """Do in a child what it should not do."""
    signal.alarm(HANGS_AFTER)
    for call in refused:
        with pytest.raises(Exception, match="parent process"):
            call()
    for call in ended:
        call()
    if exits:
        sys.exit(7)


# Where user code runs on a thread of the package.


def fork_in(name: str) -> None:
    """Fork in user code that runs on a thread of the package."""
    codes: list[int] = []
    ways = iter(WAYS)
    all_done = threading.Event()

    def fork(*_: object) -> None:
        way = next(ways, None)
        if way is None:
            return all_done.set()
        if way == "multiprocessing":
            process = multiprocessing.get_context("fork").Process(target=sys.exit, args=(7,))
            process.start()
            process.join()
            codes.append(process.exitcode or 0)
            return None
        child = os.fork()
        if child == 0:
            signal.alarm(HANGS_AFTER)
            return leave(way)
        codes.append(exit_code(child))
        return None

    class Listener(stompy.Listener):
        def on_message(self, message: stompy.Message) -> None:
            fork()

    class OldListener(CompatListener):
        def on_message(self, frame: Any) -> None:
            fork()

    def on_frame(direction: str, session: str, frame: stompy.Frame) -> None:
        if frame.command == "SEND" and direction == "received":
            fork()

    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Broker(on_frame=on_frame if name == "on_frame" else None))
        proxy = stack.enter_context(FaultProxy(broker.url, on_connection=fork if name == "on_connection" else None))
        connection = stack.enter_context(stompy.connect(broker.url))
        if name in ("handler", "own_thread"):
            connection.subscribe("/queue/a", fork, own_thread=name == "own_thread", ack="client-individual")
        elif name == "listener":
            connection.subscribe("/queue/a", ack="client-individual")
            connection.add_listener(Listener())
        elif name == "compat":
            old = StompConnection12([("127.0.0.1", int(broker.url.rpartition(":")[2]))])
            old.set_listener("", OldListener())
            old.connect(wait=True)
            old.subscribe("/queue/a", "1")
            stack.callback(old.disconnect)
        elif name == "task":
            worker = stompy.Worker(broker.url)
            worker.add(fork, "/queue/a", name="fork", concurrency=1)
            stack.enter_context(worker)
        for _ in range(len(WAYS) + 1):
            if name == "on_connection":
                stompy.connect(proxy.url).close()
            elif name == "receipt":
                receipt = connection.send_async("/queue/b")
                assert receipt is not None
                receipt.add_done_callback(fork)
            else:
                connection.send("/queue/a", "1", confirm=True)
        assert all_done.wait(30)
        assert codes == [CODES[way] for way in WAYS], codes
        connection.send("/queue/b", "1", confirm=True)


def terminate() -> None:
    """Run a worker whose task starts a process and terminates it."""
    with Broker() as broker, stompy.connect(broker.url) as sender:
        worker = stompy.Worker(broker.url, max_messages=1)
        codes: list[int | None] = []

        def task(message: stompy.Message) -> None:
            context = multiprocessing.get_context("fork")
            runs = context.Event()
            process = context.Process(target=_wait_for_a_signal, args=(runs,))
            process.start()
            runs.wait(10)  # Python drops a signal that arrives before a child runs Python code
            process.terminate()
            process.join(10)
            codes.append(process.exitcode)
            process.kill()

        worker.add(task, "/queue/a", name="task")
        sender.send("/queue/a", "1", confirm=True)
        worker.run()
        assert codes == [-signal.SIGTERM], codes


def _wait_for_a_signal(runs: Any) -> None:
    runs.set()
    while True:  # without a system call: Python 3.13 would look for signals after that
        pass


def orphan() -> None:
    """Hold a session and a port, leave them to a child that goes on, and die."""
    folder = sys.argv[3]
    broker = Broker().start()
    connection = stompy.connect(sys.argv[2])
    lock = Files(folder).lock("spool")
    outbox = stompy.Outbox(f"{folder}/outbox", sys.argv[2])
    child = os.fork()
    if child == 0:
        sys.stdin.read()  # until the test ends
        os._exit(0)
    print(broker.url, connection.session, lock, outbox, flush=True)
    os._exit(0)


def main() -> None:
    """Run the program that the command line names; its last line is `ok`, if nothing was wrong."""
    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of fork beside threads: our very case
    parent = os.getpid()
    lines: list[str] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if os.getpid() == parent:
                lines.append(record.getMessage())

    logging.getLogger("stompy").addHandler(Heard(logging.WARNING))
    name = sys.argv[1]
    if name == "orphan":
        orphan()
    elif name == "terminate":
        terminate()
    elif name.startswith("in-"):
        fork_in(name.removeprefix("in-"))
    else:
        hold(name)
    if os.getpid() == parent:
        assert not lines, lines[:5]
        print("ok", flush=True)


if __name__ == "__main__":
    main()
