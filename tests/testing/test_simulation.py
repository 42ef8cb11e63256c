"""Programs of users in simulated worlds: what is wrong is found, what is right passes, what is outside is refused."""

from __future__ import annotations

import contextlib
import gc
import importlib
import queue
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

import stompy
from stompy.testing import Simulation, SimulationError, simulate, world
from tests.support.printed import TOP, blocks

pytestmark = pytest.mark.timeout(300)

QUEUE = "/queue/orders"
ORDERS = [f"order {number}" for number in range(3)]


def send_all(simulation: Simulation) -> None:
    for order in ORDERS:
        simulation.send(QUEUE, order)


class Handled:
    """A worker with a task that may wrongly take each delivery for a new order."""

    def __init__(self, *, once: bool) -> None:
        self.once = once
        self.charged: list[str] = []

    def worker(self, url: str) -> None:
        worker = stompy.Worker(url, reconnect=True)
        worker.add(self.charge, QUEUE, name="charge", attempts=5, backoff=stompy.Backoff(first=0.1))
        worker.run()

    def charge(self, message: stompy.Message) -> None:
        if not (self.once and message.text in self.charged):
            self.charged.append(message.text)
            assert self.charged.count(message.text) == 1, f"{message.text} was charged twice"

    def program(self, simulation: Simulation) -> None:
        simulation.start(self.worker, simulation.url)
        send_all(simulation)
        simulation.wait_empty(QUEUE)
        assert set(ORDERS) <= set(self.charged)


class Totals:
    """Handlers of two queues that count, with a lock or without one."""

    def __init__(self, *, locked: bool) -> None:
        self.locked = locked
        self.seen: set[str] = set()
        self.total = 0

    def serve(self, url: str) -> None:
        self.lock = threading.Lock()
        conns = [stompy.connect(url, reconnect=True) for _ in range(2)]
        for number, conn in enumerate(conns):
            conn.subscribe(f"{QUEUE}{number}", self.count)
        while True:
            time.sleep(60.0)

    def count(self, message: stompy.Message) -> None:
        if self.locked:
            with self.lock:
                self.add(message)
        else:
            self.add(message)

    def add(self, message: stompy.Message) -> None:
        total = self.total
        self.seen.add(message.text)
        self.total = total + 1

    def program(self, simulation: Simulation) -> None:
        simulation.start(self.serve, simulation.url)
        for number in range(4):
            simulation.send(f"{QUEUE}{number % 2}", str(number))
        simulation.wait_empty(f"{QUEUE}0")
        simulation.wait_empty(f"{QUEUE}1")
        assert self.total >= len(self.seen) == 4, f"{self.total} of {len(self.seen)} orders were counted"


class Stored:
    """Iteration with a database, whose commit comes before the acknowledgement, or after it."""

    def __init__(self, *, commits_first: bool) -> None:
        self.commits_first = commits_first

    def serve(self, url: str, path: Path) -> None:
        database = sqlite3.connect(path)
        database.execute("CREATE TABLE IF NOT EXISTS charged (id TEXT PRIMARY KEY)")
        with stompy.connect(url) as conn:
            for message in conn.subscribe(QUEUE, ack="client-individual"):
                database.execute("INSERT OR IGNORE INTO charged VALUES (?)", (message.text,))
                if self.commits_first:
                    database.commit()
                    message.ack()
                else:
                    message.ack()
                    database.commit()

    def program(self, simulation: Simulation) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "orders.db"
            simulation.start(self.serve, simulation.url, path)
            send_all(simulation)
            simulation.wait_empty(QUEUE)
            charged = {row[0] for row in sqlite3.connect(path).execute("SELECT id FROM charged")}
        assert charged == set(ORDERS), f"only {charged} were charged"


class Produced:
    """A producer that notes what it has sent, once that is sure or at once, and goes on where it was."""

    def __init__(self, *, outbox: bool) -> None:
        self.outbox = outbox

    def produce(self, url: str, folder: Path, done: list[str]) -> None:
        if self.outbox:
            with stompy.Outbox(folder / "outbox.db", url) as outbox:
                for order in ORDERS[len(done) :]:
                    outbox.put(QUEUE, order)
                    done.append(order)
                outbox.flush(timeout=None)
            return
        with stompy.connect(url) as conn:
            for order in ORDERS[len(done) :]:
                conn.send(QUEUE, order)
                done.append(order)

    def program(self, simulation: Simulation) -> None:
        done: list[str] = []
        arrived: set[str] = set()

        def consume() -> None:
            with stompy.connect(simulation.url, reconnect=True) as conn:
                for message in conn.subscribe(QUEUE):
                    arrived.add(message.text)

        with tempfile.TemporaryDirectory() as folder:
            simulation.start(self.produce, simulation.url, Path(folder), done)
            simulation.start(consume)
            simulation.wait_empty(QUEUE)
            time.sleep(120.0)
            simulation.wait_empty(QUEUE)
        assert arrived == set(ORDERS), f"only {arrived} have arrived"


class Forwarded:
    """Forwards messages, in a transaction with the acknowledgement or without one."""

    def __init__(self, *, transaction: bool) -> None:
        self.transaction = transaction

    def forward(self, url: str) -> None:
        with stompy.connect(url) as conn:
            for message in conn.subscribe(QUEUE, ack="client-individual"):
                if self.transaction:
                    with conn.transaction() as tx:
                        tx.ack(message)
                        tx.send("/queue/bills", message.text)
                else:
                    conn.send("/queue/bills", message.text, confirm=True)
                    message.ack()

    def program(self, simulation: Simulation) -> None:
        simulation.start(self.forward, simulation.url)
        send_all(simulation)
        simulation.wait_empty(QUEUE)
        bills = sorted(message.text for message in simulation.broker.browse("/queue/bills"))
        assert bills == ORDERS, f"bills: {bills}"


RIGHT: dict[str, Callable[[Simulation], None]] = {
    "worker": lambda simulation: Handled(once=True).program(simulation),
    "handlers": lambda simulation: Totals(locked=True).program(simulation),
    "database": lambda simulation: Stored(commits_first=True).program(simulation),
    "outbox": lambda simulation: Produced(outbox=True).program(simulation),
    "transaction": lambda simulation: Forwarded(transaction=True).program(simulation),
}
WRONG: dict[str, tuple[Callable[[Simulation], None], str]] = {
    "worker": (lambda simulation: Handled(once=False).program(simulation), "was charged twice"),
    "handlers": (lambda simulation: Totals(locked=False).program(simulation), "3 of 4 orders were counted"),
    "database": (lambda simulation: Stored(commits_first=False).program(simulation), "were charged"),
    "producer": (lambda simulation: Produced(outbox=False).program(simulation), "have arrived"),
    "transaction": (lambda simulation: Forwarded(transaction=False).program(simulation), "bills: "),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str) -> None:
    simulate(RIGHT[name], seeds=10)


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_found_and_its_seed_repeats_it(name: str) -> None:
    program, reason = WRONG[name]
    with pytest.raises(SimulationError, match=reason) as found:
        simulate(program, seeds=300)
    with pytest.raises(SimulationError, match=f"^seed {found.value.seed}: ") as again:
        simulate(program, seeds=1, first=found.value.seed)
    assert again.value.trace == found.value.trace
    cause = found.value.__cause__
    assert cause is not None
    assert cause.__traceback__ is not None
    assert cause.__traceback__.tb_frame.f_code.co_filename == __file__, "it begins with what is not the user's"


def raises_when_killed(simulation: Simulation) -> None:
    """Fails at two lines: always if a connection breaks, and if a process is killed."""
    lives: list[str] = []

    def serve() -> None:
        lives.append("")
        with stompy.connect(simulation.url) as conn:
            conn.subscribe(QUEUE).receive(timeout=100.0)

    simulation.start(serve)
    simulation.send(QUEUE, "order")
    simulation.wait_empty(QUEUE)
    if any("killed" in line for line in simulation.trace):
        raise ValueError("it was killed")
    assert len(lives) < 2, "it began again"


def test_a_failure_is_made_calmer_only_as_far_as_it_is_the_same() -> None:
    found: dict[type, SimulationError] = {}
    for first in range(100):
        with contextlib.suppress(SimulationError):
            simulate(raises_when_killed, seeds=1, first=first)
            continue
        with pytest.raises(SimulationError) as failed:
            simulate(raises_when_killed, seeds=1, first=first)
        found.setdefault(type(failed.value.__cause__), failed.value)
        if len(found) == 2:
            break
    of_kills, of_streams = found[ValueError].trace, found[AssertionError].trace
    assert sum("killed" in line for line in of_kills) == 1
    assert not any("stream" in line for line in of_kills), "connections broke for nothing"
    assert not any("killed" in line for line in of_streams)


def waits_for_each_other(simulation: Simulation) -> None:
    def serve() -> None:
        one, two = threading.Lock(), threading.Lock()

        def other() -> None:
            with two, one:
                simulation.note("other")

        thread = threading.Thread(target=other)
        thread.start()
        with stompy.connect(simulation.url, reconnect=True) as conn:
            with one, two:
                simulation.note("serve")
            thread.join()
            conn.subscribe(QUEUE, ack="auto").receive()
            time.sleep(1_000.0)

    simulation.start(serve)
    simulation.send(QUEUE, "order")
    simulation.wait_empty(QUEUE)


def test_a_deadlock_says_where_each_thread_waits() -> None:
    with pytest.raises(SimulationError, match="/queue/orders has 1 messages after 300 s") as found:
        simulate(waits_for_each_other)
    assert "with two, one:" in str(found.value)
    assert "with one, two:" in str(found.value)


def waits_for_nobody(simulation: Simulation) -> None:
    threading.Event().wait()


def never_ends(simulation: Simulation) -> None:
    while True:
        time.sleep(1.0)


@pytest.mark.parametrize(("program", "error"), [(waits_for_nobody, "DeadlockError"), (never_ends, "EndlessError")])
def test_a_program_that_does_not_end_says_where_it_is(program: Callable[[Simulation], None], error: str) -> None:
    with pytest.raises(SimulationError, match=error) as found:
        simulate(program, seeds=1)
    assert f"in {program.__name__}" in str(found.value)


def test_a_world_leaves_no_database_in_memory() -> None:
    def databases() -> int:
        gc.collect()
        return sum(isinstance(each, sqlite3.Connection) for each in gc.get_objects())

    before = databases()
    simulate(Produced(outbox=True).program, seeds=10)
    assert databases() == before


def asserts_in_a_handler(simulation: Simulation) -> None:
    def handle(message: stompy.Message) -> None:
        assert message.text != "order", "the handler's own error"

    def serve() -> None:
        with stompy.connect(simulation.url, reconnect=True) as conn:
            conn.subscribe(QUEUE, handle)
            time.sleep(1_000.0)

    simulation.start(serve)
    simulation.send(QUEUE, "order")
    simulation.wait_empty(QUEUE)


def test_an_assertion_of_a_handler_fails_the_simulation() -> None:
    with pytest.raises(SimulationError, match="seed 0: the handler's own error"):
        simulate(asserts_in_a_handler)


def opens_a_socket(simulation: Simulation) -> None:
    socket.socket().close()


def runs_a_process(simulation: Simulation) -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def has_a_pool(simulation: Simulation) -> None:
    with ThreadPoolExecutor() as pool:
        pool.submit(int)


def has_a_barrier(simulation: Simulation) -> None:
    threading.Barrier(2)


@pytest.mark.parametrize(
    ("program", "what"),
    [
        (opens_a_socket, "a simulated world has no real socket"),
        (runs_a_process, "a simulated world has no real "),
        (has_a_pool, "a simulated world has no real thread"),
        (has_a_barrier, r"a simulated world has no threading\.Barrier"),
    ],
)
def test_what_is_outside_of_the_world_is_refused(program: Callable[[Simulation], None], what: str) -> None:
    with pytest.raises(SimulationError, match=what):
        simulate(program, seeds=1)


def test_a_function_whose_module_does_not_see_the_world_is_refused() -> None:
    with pytest.raises(SimulationError, match=r"simulate\(\.\.\., modules=\[_pytest\.raises\]\)"):
        simulate(lambda simulation: simulation.start(pytest.raises), seeds=1)


def test_a_program_that_waits_outside_of_the_world_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "STUCK_AFTER", 0.2)
    free = threading.Event()

    def wait(simulation: Simulation) -> None:
        free.wait()

    try:
        with pytest.raises(SimulationError, match="waits for what is outside of the world"):
            simulate(wait, seeds=1)
    finally:
        free.set()


def test_a_program_that_depends_on_what_is_outside_is_told_so() -> None:
    seen: list[datetime] = []

    def program(simulation: Simulation) -> None:
        seen.append(datetime.now())
        assert len(seen) > 1, "the first time"

    with pytest.raises(SimulationError, match="it did not fail in the same way again"):
        simulate(program)


def test_queues_semaphores_and_conditions_of_the_world() -> None:
    simulate(hands_on, seeds=20)


def hands_on(simulation: Simulation) -> None:
    numbers: queue.Queue[int] = queue.Queue(1)
    lock = threading.Lock()
    changed, turns = threading.Condition(lock), threading.Semaphore(2)
    got: list[int] = []

    def take() -> None:
        for _ in range(3):
            with turns:
                number = numbers.get()
            with changed:
                got.append(number)
                changed.notify_all()

    threading.Thread(target=take).start()
    for number in range(3):
        numbers.put(number)
    with changed:
        assert changed.wait_for(lambda: len(got) == 3, 10.0)
    with pytest.raises(queue.Empty):
        numbers.get(timeout=1.0)
    assert got == [0, 1, 2]


def test_the_example_fails_as_the_page_prints_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TOP / "examples")
    monkeypatch.delitem(sys.modules, "test_simulated", raising=False)
    example = importlib.import_module("test_simulated")
    (printed,) = (block.text for block in blocks("docs/how-to/simulating.md", "text"))
    with pytest.raises(SimulationError) as found:
        simulate(example.shop_that_charges_too_early)
    error = f"SimulationError: {found.value}".splitlines()
    assert [line for line in printed.splitlines() if line != "..." and line not in error] == [], error
    simulate(example.shop_that_charges, seeds=5)
