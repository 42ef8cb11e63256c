"""Programs of producers and consumers, drawn by a seed, in a simulated world; and the judge of what it saw.

A `Plan` is all that is decided before a run: the broker's profile, the programs, what may break. `run` runs it and
returns the breaches of the numbered promises of `docs/topics/delivery.md`: `judge` compares what programs were told
with what was handled and with what the broker still has, and knows nothing of the code.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Literal, TypeVar

import stompy
from stompy.broker import Broker, BrokerLimits, Like, User
from stompy.errors import StompError
from stompy.testing.faults import Cut, Delay, Double, Drop, FaultPlan, FrameFault
from stompy.transport.tcp import TcpDialer, TcpListener
from tests.simulation.network import Network, Weather
from tests.simulation.world import Drawn, Event, Few, Thread, World, current_world, installed

T = TypeVar("T")
Op = Literal["send", "confirm", "async", "batch", "transaction", "abort", "refused", "pause"]
Style = Literal["handler", "receive", "iterate", "transaction"]
OPS: tuple[Op, ...] = ("send", "confirm", "confirm", "async", "async", "batch", "transaction", "abort", "pause")
_BLOCKS = ("transaction", "abort", "refused")
REFUSED = "/queue/refused"
"""Where the broker lets nobody send."""
STYLES: tuple[Style, ...] = ("handler", "handler", "receive", "iterate", "transaction")
MODES: tuple[stompy.AckMode, ...] = ("handled", "handled", "client-individual", "client", "auto")
LIKE: tuple[Like | None, ...] = (None, None, None, "activemq", "activemq5", "artemis", "rabbitmq")
PORT = 61613
URL = f"stomp://127.0.0.1:{PORT}"
FORWARDED = "/queue/forwarded"
STEPS = 200_000
TOP = Path(stompy.__file__).parent.parent
CALM = 90.0
"""Simulated seconds that consumers have after the last fault to handle what is left."""
IDLE = 12.0
"""Simulated seconds without a change after which a queue stays as it is: heartbeats, pauses and limits are shorter."""
TIMEOUTS = stompy.Timeouts(connect=3.0, start=20.0, send=4.0, receipt=4.0, close=4.0)
SLACK = 1.0


class HandlerError(Exception):
    """What a handler raises."""


@dataclass(frozen=True)
class Producer:
    """A process that sends from one or two threads over one connection."""

    queue: str
    threads: tuple[tuple[Op, ...], ...]
    resends: bool
    killed_at: float | None


@dataclass(frozen=True)
class Consumer:
    """A process that handles the messages of one queue."""

    queue: str
    mode: stompy.AckMode
    style: Style
    fails: float
    slow: float
    killed_at: float | None
    inbox: int = 10_000
    """How many messages wait for the program before its connection stops reading."""


@dataclass(frozen=True)
class Plan:
    """What is decided before a run."""

    seed: int
    like: Like | None
    weather: Weather
    producers: tuple[Producer, ...]
    consumers: tuple[Consumer, ...]
    restarts: tuple[float, ...]
    rate: float
    room: int | None = None
    """How many messages a queue takes; what comes then is refused."""
    depth: int | None = None
    """How many preemptions there are, at steps that are drawn; `None`: at every step with the chance `rate`."""
    lines: tuple[str, ...] = ()
    """Modules in which the thread may change before each line."""
    frames: tuple[FrameFault, ...] = ()
    """What happens to single frames, until the weather clears up."""

    @classmethod
    def drawn(cls, seed: int) -> Plan:
        """Return the plan of a seed."""
        random = Random(seed)  # noqa: S311 - it has to repeat
        faults, small = random.random() < 0.75, random.random() < 0.5
        window = random.choice((65_536, 65_536, 300, 50))
        weather = Weather(
            breaks=random.choice((0.0, 0.2, 0.5)) if faults else 0.0,
            refusals=random.choice((0.0, 0.3)) if faults else 0.0,
            # A narrow window far away is so slow that every call reaches its limit.
            latency=random.choice((0.0, 0.02, 0.5 if window == 65_536 else 0.02)),
            window=window,
            pieces=random.random() < 0.5,
        )
        queues = ("/queue/a", "/queue/b")[: 1 if small else random.choice((1, 1, 2))]
        refuses = faults and random.random() < 0.2
        ops = (*OPS, *(("refused",) * 3 if refuses else ()))

        def kill() -> float | None:
            return random.uniform(0.0, 3.0) if faults and random.random() < 0.2 else None

        producers = tuple(
            Producer(
                queue=random.choice(queues),
                threads=tuple(
                    tuple(random.choice(ops) for _ in range(random.randint(1, 3 if small else 6)))
                    for _ in range(random.choice((1, 2)))
                ),
                resends=random.random() < 0.3,
                killed_at=kill(),
            )
            for _ in range(1 if small else random.choice((1, 1, 2)))
        )
        consumers = tuple(
            Consumer(
                queue=queue,
                mode=random.choice(MODES),
                style=random.choice(STYLES),
                fails=random.choice((0.0, 0.0, 0.3)),
                slow=random.choice((0.0, 0.1, 1.0)),
                killed_at=kill(),
                inbox=random.choice((1, 2, 10_000)),
            )
            for queue in queues
            for _ in range(random.choice((0, 1, 1) if small else (0, 1, 1, 2)))
        )
        restarts = tuple(random.uniform(0.0, 4.0) for _ in range(random.choice((0, 0, 1, 2)) if faults else 0))
        like, rate = random.choice(LIKE), random.choice((0.01, 0.05, 0.3))
        # Where a dead-letter queue is full too, what is refused is lost: then no handler fails.
        room = random.choice((2, 4)) if faults and not any(consumer.fails for consumer in consumers) else None
        depth = random.choice((None, None, 1, 2, 4))
        lines = (random.choice(LINES),) if random.random() < 0.05 else ()
        frames = tuple(_drawn_fault(random) for _ in range(random.choice((0, 0, 1, 2)) if faults else 0))
        return cls(seed, like, weather, producers, consumers, restarts, rate, room, depth, lines, frames)

    @property
    def faultless(self) -> bool:
        """Whether nothing breaks."""
        programs: list[Producer | Consumer] = [*self.producers, *self.consumers]
        killed = any(program.killed_at is not None for program in programs)
        weather = self.weather.breaks or self.weather.refusals
        refuses = any("refused" in ops for producer in self.producers for ops in producer.threads)
        return not (weather or self.restarts or killed or self.room or self.frames or refuses)

    @property
    def calm(self) -> bool:
        """Whether nothing breaks, nothing is slow, and so no call may fail."""
        wide = self.weather.window == 65_536 and self.weather.latency <= 0.02
        return self.faultless and wide and not any(consumer.fails for consumer in self.consumers)

    def smaller(self) -> Iterator[Plan]:
        """Yield plans with one thing less, to find the smallest that fails."""
        for number, producer in enumerate(self.producers):
            rest = self.producers[:number] + self.producers[number + 1 :]
            yield replace(self, producers=rest)
            for index, ops in enumerate(producer.threads):
                fewer = producer.threads[:index] + producer.threads[index + 1 :]
                candidates = [fewer] if fewer else []
                candidates += [
                    (*producer.threads[:index], ops[:at] + ops[at + 1 :], *producer.threads[index + 1 :])
                    for at in range(len(ops))
                ]
                for threads in candidates:
                    changed = replace(producer, threads=threads)
                    yield replace(self, producers=(*self.producers[:number], changed, *self.producers[number + 1 :]))
            if producer.killed_at is not None:
                changed = replace(producer, killed_at=None)
                yield replace(self, producers=(*self.producers[:number], changed, *self.producers[number + 1 :]))
        for number, consumer in enumerate(self.consumers):
            yield replace(self, consumers=self.consumers[:number] + self.consumers[number + 1 :])
            for changed_one in (
                replace(consumer, killed_at=None),
                replace(consumer, fails=0.0),
                replace(consumer, slow=0.0),
            ):
                if changed_one != consumer:
                    rest_of = self.consumers[number + 1 :]
                    yield replace(self, consumers=(*self.consumers[:number], changed_one, *rest_of))
        for number in range(len(self.restarts)):
            yield replace(self, restarts=self.restarts[:number] + self.restarts[number + 1 :])
        for weather in (
            replace(self.weather, breaks=0.0),
            replace(self.weather, refusals=0.0),
            replace(self.weather, latency=0.0),
            replace(self.weather, pieces=False),
            replace(self.weather, window=65_536),
        ):
            if weather != self.weather:
                yield replace(self, weather=weather)
        if self.room is not None:
            yield replace(self, room=None)
        for number in range(len(self.frames)):
            yield replace(self, frames=self.frames[:number] + self.frames[number + 1 :])
        if self.lines:
            yield replace(self, lines=())
        if self.depth:
            yield replace(self, depth=self.depth - 1)
        if self.like is not None:
            yield replace(self, like=None)
        for rate in (0.0, 0.01):
            if rate < self.rate:
                yield replace(self, rate=rate)


LINES = ("stompy/link/writer.py", "stompy/link/receipts.py", "stompy/link/flow.py", "stompy/connection/routing.py")


def _drawn_fault(random: Random) -> FrameFault:
    """Return what happens to a frame: the broker is late, silent, talks twice, or the session ends at the frame."""
    nth = random.randint(1, 4)
    kind = random.choice(("drop", "delay", "double", "cut"))
    if kind == "cut":
        frame = random.choice(("SEND", "COMMIT", "ACK", "RECEIPT", "MESSAGE", "CONNECTED", "DISCONNECT"))
        return Cut(frame, nth=nth, keep=random.choice((None, None, 0, 9)))
    if kind == "delay":
        return Delay(random.choice(("RECEIPT", "MESSAGE")), nth=nth, seconds=random.choice((0.1, 2.0, 5.0)))
    return Drop("RECEIPT", nth=nth) if kind == "drop" else Double("RECEIPT", nth=nth)


@dataclass
class Sent:
    """A message, and its outcome for its program: `sending`, until a call returned or raised."""

    body: str
    queue: str
    sender: str
    outcome: str = "sending"
    block: str | None = None
    resends: bool = False


@dataclass
class Handled:
    """A message that a handler has finished, and when it got it."""

    at: float
    queue: str
    body: str
    consumer: str
    redelivered: bool
    dedupe_id: str | None


@dataclass
class Seen:
    """What the world saw."""

    plan: Plan
    sent: dict[str, Sent] = field(default_factory=dict)
    handled: list[Handled] = field(default_factory=list)
    acknowledged: dict[str, float] = field(default_factory=dict)
    """By body, when the broker had confirmed an ACK."""
    left: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)
    opened: int = 0
    """Connections that programs have opened."""
    trace: list[str] = field(default_factory=list)

    def note(self, what: str) -> None:
        """Note what happened."""
        world = current_world()
        self.trace.append(f"{world.now - 1000:9.3f} {world.current.process:10} {what}")

    @contextmanager
    def call(self, what: str, limit: float) -> Iterator[None]:
        """Note how a call ends; it must end in time, and raise what the package documents."""
        began = current_world().now
        self.note(what)
        try:
            yield
        except StompError as error:
            self.note(f"{what}: {type(error).__name__}: {error} {getattr(error, 'outcome', '')}")
            if self.plan.calm and not isinstance(error, stompy.ReceiveTimeoutError):
                self.breaches.append(f"{what} failed, although nothing broke: {error}")
            raise
        finally:
            took = current_world().now - began
            if took > limit + SLACK:
                self.breaches.append(f"{what} took {took:.1f} s, its limit is {limit:g} s")


def outcome_of(error: StompError) -> str:
    """Return what the error of a call says of its frame."""
    return str(getattr(error, "outcome", None) or "unknown")


class Programs:
    """The processes of a world."""

    def __init__(self, world: World, network: Network, seen: Seen) -> None:
        self._world, self._network, self._seen = world, network, seen
        self._over = Event()
        self._closers: list[Thread] = []
        self._connections: list[stompy.Connection] = []

    def _connect(self, name: str, *, resends: bool = False, inbox: int = 10_000) -> stompy.Connection:
        policy = stompy.Reconnect(backoff=stompy.Backoff(first=0.05, longest=1.0), resend_unconfirmed=resends)
        limits = stompy.Limits(max_inbox_messages=inbox)
        with self._seen.call("connect", 20.0 + 3.0):
            conn = stompy.connect(
                URL,
                login="user",
                passcode="pass",
                name=name,
                heartbeat=(1.0, 1.0),
                timeouts=TIMEOUTS,
                reconnect=policy,
                limits=limits,
            )
        self._seen.opened += 1
        self._world.kept.append(conn)
        return conn

    # Producers

    def produce(self, name: str, producer: Producer) -> None:
        """Run a producer."""
        try:
            conn = self._connect(name, resends=producer.resends)
        except StompError:
            return
        threads = [
            Thread(partial(self._send_all, conn, producer, f"{name}.{index}", ops), f"{name}.{index}")
            for index, ops in enumerate(producer.threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with self._seen.call("close", 4.0):
            conn.close()

    def _send_all(self, conn: stompy.Connection, producer: Producer, sender: str, ops: tuple[Op, ...]) -> None:
        receipts: list[tuple[Sent, stompy.Receipt]] = []
        for number, op in enumerate(ops):
            body = f"{sender}.{number}"
            try:
                self._do(conn, producer, sender, op, body, receipts)
            except StompError:
                pass
            except HandlerError:
                pass
        for sent, receipt in receipts:
            try:
                with self._seen.call(f"result of {sent.body}", 30.0):
                    receipt.result(timeout=30.0)
                sent.outcome = "confirmed"
            except StompError as error:
                sent.outcome = outcome_of(error)

    def _new(self, producer: Producer, sender: str, body: str, block: str | None = None) -> Sent:
        resends = producer.resends and block is None
        sent = self._seen.sent[body] = Sent(body, producer.queue, sender, block=block, resends=resends)
        return sent

    def _do(
        self,
        conn: stompy.Connection,
        producer: Producer,
        sender: str,
        op: Op,
        body: str,
        receipts: list[tuple[Sent, stompy.Receipt]],
    ) -> None:
        queue = producer.queue
        if op == "pause":
            current_world().switch(lambda: False, 1.0, "a pause")
        elif op in ("send", "confirm"):
            sent = self._new(producer, sender, body)
            confirm = op == "confirm"
            with (
                self._with_outcome(sent, "confirmed" if confirm else "written"),
                self._seen.call(f"{op} {body}", 8.0 if confirm else 4.0),
            ):
                conn.send(queue, body, confirm=confirm, persistent=True)
        elif op == "async":
            sent = self._new(producer, sender, body)
            with self._with_outcome(sent, "sending"), self._seen.call(f"send_async {body}", 4.0):
                receipts.append((sent, conn.send_async(queue, body, persistent=True)))
        elif op == "batch":
            block = [self._new(producer, sender, f"{body}.{index}") for index in range(3)]
            with self._with_outcomes(block, "written"), self._seen.call(f"batch {body}", 8.0), conn.batch():
                for sent in block:
                    conn.send(queue, sent.body, persistent=True)
        else:
            block = [self._new(producer, sender, f"{body}.{index}", body) for index in range(3)]
            if op == "refused":
                block[current_world().random.randrange(3)].queue = REFUSED
            with (
                self._with_outcomes(block, "confirmed"),
                self._seen.call(f"{op} {body}", 24.0),
                conn.transaction() as tx,
            ):
                for sent in block:
                    tx.send(sent.queue, sent.body, persistent=True)
                if op == "abort":
                    raise HandlerError

    @contextmanager
    def _with_outcome(self, sent: Sent, success: str) -> Iterator[None]:
        with self._with_outcomes([sent], success):
            yield

    @contextmanager
    def _with_outcomes(self, block: list[Sent], success: str) -> Iterator[None]:
        try:
            yield
        except StompError as error:
            for sent in block:
                sent.outcome = outcome_of(error)
            raise
        except HandlerError:
            for sent in block:
                sent.outcome = "not-sent"
            raise
        for sent in block:
            sent.outcome = success

    # Consumers

    def consume(self, name: str, consumer: Consumer) -> None:
        """Run a consumer until all is over."""
        opened: list[stompy.Connection] = []
        closer = Thread(lambda: self._close_at_the_end(opened), f"{name}-closer")
        self._closers.append(closer)
        closer.start()
        while not self._over.is_set():
            try:
                conn = self._connect(name, inbox=consumer.inbox)
                opened[:] = [conn]
                with conn:
                    self._handle_all(conn, name, consumer)
            except StompError:
                current_world().switch(lambda: False, 0.5, "a pause")

    def _close_at_the_end(self, opened: list[stompy.Connection]) -> None:
        self._over.wait()
        for conn in opened:
            with self._seen.call("close", 4.0):
                conn.close(drain=True)

    def _handle_all(self, conn: stompy.Connection, name: str, consumer: Consumer) -> None:
        def handle(message: stompy.Message) -> None:
            self._handle(name, consumer, message)
            self._settle(message, consumer)

        handler = handle if consumer.style == "handler" else None
        with self._seen.call(f"subscribe {consumer.queue}", 8.0):
            sub = conn.subscribe(consumer.queue, handler, ack=consumer.mode)
        if handler is not None:
            while not self._over.wait(1.0):
                if conn.closed:
                    return
            return
        while not self._over.is_set():
            try:
                if consumer.style == "iterate":
                    self._iterate(sub, name, consumer)
                else:
                    self._take_one(conn, sub, name, consumer)
            except (HandlerError, stompy.ReceiveTimeoutError):
                pass
            except stompy.AckError as error:
                self._seen.note(f"{error}")

    def _iterate(self, sub: stompy.Subscription, name: str, consumer: Consumer) -> None:
        for message in sub:
            self._handle(name, consumer, message)
            self._settle(message, consumer)
        raise stompy.NotConnectedError("the loop has ended")

    def _take_one(self, conn: stompy.Connection, sub: stompy.Subscription, name: str, consumer: Consumer) -> None:
        message = sub.receive(timeout=5.0)
        # Artemis takes no ACK as a part of a transaction.
        transacts = consumer.mode not in ("auto", "handled") and self._seen.plan.like != "artemis"
        if consumer.style == "transaction" and transacts:
            body = f"{message.text}>{name}"
            known = self._seen.sent.get(body)
            sent = Sent(body, FORWARDED, name, block=body)
            with self._seen.call(f"transaction that forwards {body}", 24.0):
                try:
                    with conn.transaction() as tx:
                        tx.ack(message)
                        tx.send(FORWARDED, body, persistent=True)
                except StompError as error:
                    sent.outcome = outcome_of(error)
                    raise
                else:
                    sent.outcome = "confirmed"
                finally:
                    # A message that comes again is forwarded again: what the first block was told counts, if it counts.
                    if known is None or known.outcome in ("not-sent", "sending"):
                        self._seen.sent[body] = sent
                    elif "confirmed" in (known.outcome, sent.outcome):
                        known.outcome = "confirmed"
            self._note_handled(name, consumer, message, current_world().now)
            return
        self._handle(name, consumer, message)
        self._settle(message, consumer)

    def _handle(self, name: str, consumer: Consumer, message: stompy.Message) -> None:
        got_at = current_world().now
        current_world().switch(lambda: False, consumer.slow * current_world().random.random(), "work")
        # In mode client a later ACK covers what failed before.
        if consumer.mode != "client" and current_world().random.random() < consumer.fails:
            self._seen.note(f"fails at {message.text}")
            if consumer.style in ("receive", "transaction") and consumer.mode != "auto":
                message.nack()  # else it would count as handled when the next one is asked for
            raise HandlerError
        self._note_handled(name, consumer, message, got_at)

    def _note_handled(self, name: str, consumer: Consumer, message: stompy.Message, got_at: float) -> None:
        again = message.redelivered
        self._seen.note(f"handled {message.text}{' (redelivered)' if again else ''}")
        dedupe_id = message.headers.get("stompy-dedupe-id")
        self._seen.handled.append(Handled(got_at, consumer.queue, message.text, name, again, dedupe_id))

    def _settle(self, message: stompy.Message, consumer: Consumer) -> None:
        if consumer.mode in ("client", "client-individual"):
            confirm = current_world().random.random() < 0.5
            with self._seen.call(f"ack of {message.text}", 8.0):
                message.ack(confirm=confirm)
            if confirm and consumer.mode == "client-individual":
                self._seen.acknowledged[message.text] = current_world().now

    # The world

    def main(self) -> None:
        """Start everything, break what the plan says, wait, and look what is left."""
        plan, world, seen = self._seen.plan, self._world, self._seen
        me = world.current
        me.process = "broker"
        limits = BrokerLimits(max_queue_messages=plan.room or 10_000, prefetch=5 if plan.like is None else 1_000)
        users = {"user": User(passcode="pass", write=("/queue/a", "/queue/b", FORWARDED))}
        broker = Broker(port=PORT, like=plan.like, users=users, heartbeat=(0.5, 0.5), limits=limits).start()
        threads: dict[str, Thread] = {}
        for number, producer in enumerate(plan.producers):
            threads[f"p{number}"] = self._started(f"p{number}", partial(self.produce, f"p{number}", producer))
        for number, consumer in enumerate(plan.consumers):
            threads[f"c{number}"] = self._started(f"c{number}", partial(self.consume, f"c{number}", consumer))
        me.process = "main"
        self._break(broker)
        for number, _ in enumerate(plan.producers):
            threads[f"p{number}"].join(400.0)
        self._network.clear_up()
        self._wait_until_handled(broker)
        self._over.set()
        for name, thread in [*threads.items(), *((closer.name, closer) for closer in self._closers)]:
            thread.join(100.0)
            if thread.is_alive():
                seen.breaches.append(f"{name} does not end: it waits for {thread.waits_for}")
        end = world.now + CALM
        while broker.stats().sessions and world.now < end:
            world.switch(lambda: False, 1.0, "the ends of sessions")
        if broker.stats().sessions:
            seen.breaches.append(f"sessions that do not end: {broker.connections()}")
        ended = broker.stats().sessions_total - seen.opened
        if plan.calm and ended:
            seen.breaches.append(f"{ended} sessions were lost, although nothing broke")
        for queue in broker.stats().queues:
            seen.left.update(message.text for message in broker.browse(queue))
        me.process = "broker"
        broker.close(timeout=30.0)
        me.process = "main"
        world.switch(lambda: False, 5.0, "handlers that are slower than close waits")
        alive = [thread.name for thread in world.threads[1:] if thread.is_alive() and not thread.killed]
        if alive:
            seen.breaches.append(f"threads that are left: {alive}")
        seen.breaches += [f"logged as a bug: {bug}" for bug in world.bugs]
        seen.breaches += self._network.early_commits

    def _started(self, process: str, program: Callable[[], object]) -> Thread:
        thread = Thread(program, process)
        thread.process = process
        thread.start()
        return thread

    def _break(self, broker: Broker) -> None:
        plan, world = self._seen.plan, self._world
        events: list[tuple[float, str]] = [(at, "restart") for at in plan.restarts]
        programs: dict[str, Producer | Consumer] = {f"p{number}": each for number, each in enumerate(plan.producers)}
        programs |= {f"c{number}": each for number, each in enumerate(plan.consumers)}
        events += [(each.killed_at, name) for name, each in programs.items() if each.killed_at is not None]
        for at, what in sorted(events):
            world.switch(lambda: False, max(0.0, 1000.0 + at - world.now), "the next fault")
            self._seen.note(f"{what} {'of the broker' if what == 'restart' else 'is killed'}")
            if what != "restart":
                world.kill(what)
                self._network.hang_up(what)
                continue
            world.current.process = "broker"
            broker.close(timeout=30.0)
            world.switch(lambda: False, world.random.choice((0.0, 0.5, 3.0)), "a broker that is down")
            broker.start()
            world.current.process = "main"

    def _wait_until_handled(self, broker: Broker) -> None:
        """Wait until the queues that have a living consumer are empty, or for long."""
        plan, world = self._seen.plan, self._world
        consumed = {consumer.queue for consumer in plan.consumers if consumer.killed_at is None}
        end, changed_at, before = world.now + CALM, world.now, None
        while world.now < end and world.now < changed_at + IDLE:
            depths = broker.stats().queues
            left = [depths[queue].total for queue in sorted(consumed) if queue in depths]
            if not any(left):
                return
            if left != before:
                changed_at, before = world.now, left
            world.switch(lambda: False, 1.0, "the consumers")
        steady = {
            queue
            for queue in consumed
            if plan.room is None
            and all(
                consumer.fails == 0.0 and consumer.killed_at is None
                for consumer in plan.consumers
                if consumer.queue == queue
            )
        }
        depths = broker.stats().queues
        self._seen.breaches += [
            f"{queue} has {depths[queue].total} messages, although its consumers had {IDLE:g} s without a fault"
            for queue in sorted(steady)
            if queue in depths and depths[queue].total
        ]


def judge(seen: Seen) -> list[str]:
    """Return the breaches of what was promised."""
    plan, breaches = seen.plan, list(seen.breaches)
    handled: dict[str, list[Handled]] = defaultdict(list)
    for each in seen.handled:
        handled[each.body].append(each)
    lossy = {consumer.queue for consumer in plan.consumers if consumer.mode == "auto"}
    forwards = {body.partition(">")[0] for body in (handled.keys() | seen.left.keys()) if ">" in body}
    for body, sent in seen.sent.items():
        copies = handled.get(body, [])
        arrived = bool(copies) or seen.left[body] > 0 or body in forwards
        if sent.outcome == "confirmed" and not arrived and sent.queue not in lossy:
            breaches.append(f"{body} was confirmed, and is lost (promises 1, 11)")
        if sent.outcome == "written" and plan.faultless and not arrived and sent.queue not in lossy:
            breaches.append(f"{body} was written, nothing broke, and it is lost")
        if sent.outcome in ("not-sent", "rejected") and arrived:
            breaches.append(f"{body} was {sent.outcome}, and has arrived (promise 2)")
        forwarded = ">" in body
        unflagged = sum(not copy.redelivered for copy in copies)
        # Artemis flags the first only of the messages that a lost session gives back.
        if (
            unflagged > 1
            and plan.like != "artemis"
            and not forwarded
            and not (sent.resends and all(copy.dedupe_id for copy in copies))
        ):
            breaches.append(f"{body} was handled {len(copies)} times, {unflagged} times without a flag")
        if seen.left[body] > 1 and not sent.resends and not forwarded:
            breaches.append(f"{body} is in the broker {seen.left[body]} times")
        confirmed_at = seen.acknowledged.get(body)
        if confirmed_at is not None and not sent.resends:
            if seen.left[body]:
                breaches.append(f"{body} is in the broker although its ACK was confirmed")
            if any(copy.at > confirmed_at for copy in copies):
                breaches.append(f"{body} was handled after its ACK was confirmed")
    for body in (handled.keys() | seen.left.keys()) - seen.sent.keys():
        breaches.append(f"{body} was never sent")
    breaches += _partial(seen, handled)
    breaches += _out_of_order(seen)
    return breaches


def _partial(seen: Seen, handled: dict[str, list[Handled]]) -> Iterator[str]:
    """Yield the transactions that have taken effect in part (promise 9)."""
    blocks: dict[str, list[Sent]] = defaultdict(list)
    lossy = {consumer.queue for consumer in seen.plan.consumers if consumer.mode == "auto"}
    for sent in seen.sent.values():
        if sent.block is not None and sent.queue not in lossy:
            blocks[sent.block].append(sent)
    forwards = {body.partition(">")[0] for body in (handled.keys() | seen.left.keys()) if ">" in body}
    for name, block in blocks.items():
        arrived = [sent.body in handled or seen.left[sent.body] > 0 or sent.body in forwards for sent in block]
        if len(set(arrived)) > 1 and seen.plan.like != "rabbitmq":
            yield f"the transaction {name} took effect in part: {arrived} (promise 9)"


def _out_of_order(seen: Seen) -> Iterator[str]:
    """Yield the senders whose messages a single consumer got in another order, although nothing broke."""
    if not seen.plan.faultless:
        return
    consumers = Counter(consumer.queue for consumer in seen.plan.consumers)
    for queue, count in consumers.items():
        if count > 1 or any(consumer.fails for consumer in seen.plan.consumers):
            continue
        order: dict[str, list[str]] = defaultdict(list)
        for each in seen.handled:
            if each.queue == queue:
                order[seen.sent[each.body].sender].append(each.body)
        position = {body: number for number, body in enumerate(seen.sent)}
        for sender, bodies in order.items():
            if bodies != sorted(bodies, key=lambda body: position[body]):
                yield f"messages of {sender} were handled as {bodies}"


@dataclass
class Run:
    """What became of a plan."""

    plan: Plan
    breaches: list[str]
    trace: list[str]
    steps: int
    seconds: float
    left: Counter[str]


def run(plan: Plan) -> Run:
    """Run a plan in a world of its own; return what became of it."""
    random = Random(plan.seed)  # noqa: S311 - it has to repeat
    lot = Random(plan.seed + 1)  # noqa: S311
    schedule = Drawn(lot, plan.rate) if plan.depth is None else Few(lot, plan.depth, lot.choice((300, 1_000, 3_000)))
    traced = [str(TOP / file) for file in plan.lines]
    world = World(schedule, traced=traced, seed=plan.seed + 2, steps=STEPS * (10 if traced else 1))
    network = Network(world, random, plan.weather, FaultPlan(*plan.frames, seed=plan.seed))
    network.watched = any(op in ops for producer in plan.producers for ops in producer.threads for op in _BLOCKS)
    seen = Seen(plan)
    network.note = seen.note  # type: ignore[method-assign]
    with installed(TcpDialer=(TcpDialer, network.dialer), TcpListener=(TcpListener, network.listen)):
        try:
            world.run(Programs(world, network, seen).main)
            breaches = judge(seen)
        except AssertionError as error:
            breaches = [f"{type(error).__name__}: {error}"]
    return Run(plan, breaches, seen.trace, world.steps, world.now - 1000.0, seen.left)


def shrunk(plan: Plan, fails: Callable[[Plan], bool], *, most: int = 300) -> Plan:
    """Return the smallest plan that was found to fail too."""
    tries = 0
    progress = True
    while progress:
        progress = False
        for smaller in plan.smaller():
            tries += 1
            if tries > most:
                return plan
            if fails(smaller):
                plan, progress = smaller, True
                break
    return plan
