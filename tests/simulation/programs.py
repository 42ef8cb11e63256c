"""Programs that a seed draws, in a simulated world.

A `Plan` is all that is decided before a run: the broker's profile, the programs, what may break. `run` runs it and
returns what the judge says of it.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import stompy
from stompy.broker import Broker, BrokerLimits, User
from stompy.compat import waiting
from stompy.connection.message import Message, header_table
from stompy.errors import StompError
from stompy.frames.frame import Frame
from stompy.testing.faults import FaultPlan
from stompy.testing.network import Network, SimulatedTransport, Tap
from stompy.testing.replaced import installed
from stompy.testing.world import Event, Thread, World, current_world
from stompy.transport.sockets import SocketTransport
from stompy.transport.tcp import TcpDialer, TcpListener
from stompy.transport.websocket.frames import MAX_FRAME
from tests.simulation import dropins, outboxes, spools, workers
from tests.simulation.callbacks import Called, Heard, HeardMessages, heard_wrongly
from tests.simulation.children import Service
from tests.simulation.disks import Disk, DiskFault, Disks
from tests.simulation.dropins import DropInProgram
from tests.simulation.judge import Web, Wire, judge
from tests.simulation.plans import Consumer, Op, Plan, Producer
from tests.simulation.processes import System, with_processes
from tests.simulation.schedules import Drawn, Few
from tests.simulation.seen import Handled, HandlerError, Seen, Sent, outcome_of

REFUSED = "/queue/refused"
"""Where the broker lets nobody send."""
PORT = 61613
ADDRESS = f"127.0.0.1:{PORT}"
FORWARDED = "/queue/forwarded"
STEPS = 1_000_000
TOP = Path(stompy.__file__).parent.parent
FAULTS = 150.0
"""Simulated seconds for what is to be sent beside faults, some of which end every session."""
CALM = 90.0
"""Simulated seconds that consumers have after the last fault to handle what is left."""
IDLE = 12.0
"""Simulated seconds without a change after which a queue stays as it is: heartbeats, pauses and limits are shorter."""
LONG_IDLE = 40.0
"""The same of a queue that a spool is filled from, whose receivers have the heartbeats of a default connection, or that
a worker empties, which starts within the limits of an attempt that was cut off, and the longest delay."""
TIMEOUTS = stompy.Timeouts(connect=3.0, start=20.0, send=4.0, receipt=4.0, close=4.0)
SHARED = next((folder for folder in ("/dev/shm",) if Path(folder).is_dir()), None)  # noqa: S108 - a sync is free there
"""Where the files of outboxes are."""


class Programs:
    """The processes of a world."""

    def __init__(self, world: World, network: Network, seen: Seen, folder: Path) -> None:
        self._world, self._network, self._seen = world, network, seen
        self._folder = folder
        self._over = Event()
        self._calm = Event()
        """Set when nothing breaks any more."""
        self._threads: dict[str, Thread] = {}
        self._closers: list[Thread] = []
        self._heard: list[Heard] = []
        """The listeners of the connections that were opened."""
        self._disks = Disks(network.hang_up)
        self._services: dict[str, Service] = {}
        """Workers with child processes."""

    def _url(self, name: str) -> str:
        return f"{'ws' if name in self._seen.plan.web else 'stomp'}://{ADDRESS}"

    def _connect(self, name: str, heard: Heard, *, resends: bool = False, inbox: int = 10_000) -> stompy.Connection:
        policy = stompy.Reconnect(backoff=stompy.Backoff(first=0.05, longest=1.0), resend_unconfirmed=resends)
        limits = stompy.Limits(max_inbox_messages=inbox)
        with self._seen.call("connect", 20.0 + 3.0):
            conn = stompy.connect(
                self._url(name),
                login="user",
                passcode="pass",
                name=name,
                heartbeat=(1.0, 1.0),
                timeouts=TIMEOUTS,
                reconnect=policy,
                limits=limits,
                listeners=[heard],
            )
        self._seen.opened += 1
        self._heard.append(heard)
        self._world.kept.append(conn)
        return conn

    # Producers

    def produce(self, name: str, producer: Producer) -> None:
        """Run a producer."""
        try:
            conn = self._connect(name, Heard(name, self._seen.breaches), resends=producer.resends)
        except StompError:
            return
        called = Called(self._seen.breaches)
        threads = [
            Thread(partial(self._send_all, conn, producer, f"{name}.{index}", ops, called), f"{name}.{index}")
            for index, ops in enumerate(producer.threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with self._seen.call("close", 4.0):
            conn.close()
        called.check()

    def _send_all(
        self, conn: stompy.Connection, producer: Producer, sender: str, ops: tuple[Op, ...], called: Called
    ) -> None:
        receipts: list[tuple[Sent, stompy.Receipt]] = []
        raised: set[str] = set()
        for number, op in enumerate(ops):
            body, before = f"{sender}.{number}", len(receipts)
            try:
                self._do(conn, producer, sender, op, body, receipts)
            except (StompError, HandlerError):
                raised.add(body)
            for sent, receipt in receipts[before:]:
                called.watch(sent.body, receipt)
        # The error of a batch is about all of its frames, and no flush raises it again.
        watched = [receipt for sent, receipt in receipts if sent.body.rpartition(".")[0] not in raised]
        self._flush(conn, sender, watched)
        for sent, receipt in receipts:
            try:
                with self._seen.call(f"result of {sent.body}", 30.0):
                    receipt.result(timeout=30.0)
                sent.outcome = "confirmed"
            except StompError as error:
                sent.outcome = outcome_of(error)

    def _flush(self, conn: stompy.Connection, sender: str, receipts: Sequence[stompy.Receipt]) -> None:
        """Wait for what is pending, beside another thread that may still send."""
        breaches = self._seen.breaches
        try:
            with self._seen.call(f"flush of {sender}", 30.0):
                conn.flush(timeout=30.0)
            if not all(receipt.done() and receipt.exception() is None for receipt in receipts):
                breaches.append(f"the flush of {sender} has returned, although not all is confirmed (promise 3)")
        except stompy.ReceiptTimeoutError:
            if not conn.stats().receipts_pending:
                breaches.append(f"the flush of {sender} has waited for nothing (promise 3)")
        except StompError:
            pass

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
                self._seen.outcome([sent], "confirmed" if confirm else "written"),
                self._seen.call(f"{op} {body}", 8.0 if confirm else 4.0),
            ):
                conn.send(queue, body, confirm=confirm, persistent=True)
        elif op == "async":
            sent = self._new(producer, sender, body)
            with self._seen.outcome([sent], "sending"), self._seen.call(f"send_async {body}", 4.0):
                receipts.append((sent, conn.send_async(queue, body, persistent=True)))
        elif op == "request":
            sent = self._new(producer, sender, body)
            sent.resends = False
            # Each of the messages before it may take its consumer a second.
            limit = 100.0 if self._seen.plan.calm else 5.0
            try:
                with self._seen.outcome([sent], "written"), self._seen.call(f"request {body}", limit):
                    reply = conn.request(queue, body, timeout=limit, persistent=True)
            except stompy.ReceiveTimeoutError:
                if self._seen.plan.answers(queue):
                    self._seen.breaches.append(f"the request {body} got no reply, although nothing broke")
                raise
            if reply.text != f"re {body}":
                self._seen.breaches.append(f"the request {body} got {reply.text!r}")
        elif op == "batch":
            first, awaited, last = [self._new(producer, sender, f"{body}.{index}") for index in range(3)]
            written = self._seen.outcome([first, last], "written")
            with written, self._seen.call(f"batch {body}", 8.0), conn.batch():
                conn.send(queue, first.body, persistent=True)
                with self._seen.outcome([awaited], "sending"):
                    receipts.append((awaited, conn.send_async(queue, awaited.body, persistent=True)))
                conn.send(queue, last.body, persistent=True)
        else:
            block = [self._new(producer, sender, f"{body}.{index}", body) for index in range(3)]
            if op == "refused":
                block[current_world().random.randrange(3)].queue = REFUSED
            with (
                self._seen.outcome(block, "confirmed"),
                self._seen.call(f"{op} {body}", 24.0),
                conn.transaction() as tx,
            ):
                for sent in block:
                    tx.send(sent.queue, sent.body, persistent=True)
                if op == "abort":
                    raise HandlerError

    # Consumers

    def consume(self, name: str, consumer: Consumer) -> None:
        """Run a consumer until all is over."""
        opened: list[stompy.Connection] = []
        closer = Thread(lambda: self._close_at_the_end(opened), f"{name}-closer")
        self._closers.append(closer)
        closer.start()
        while not self._over.is_set():
            try:
                heard: Heard = Heard(name, self._seen.breaches)
                if consumer.hears:
                    heard = HeardMessages(name, self._seen.breaches)
                if consumer.style == "listener":
                    heard = HeardMessages(name, self._seen.breaches, partial(self._serve_one, name, consumer))
                heard.alone = consumer.alone
                conn = self._connect(name, heard, inbox=consumer.inbox)
                opened[:] = [conn]
                try:
                    with conn:
                        self._handle_all(conn, name, consumer, heard)
                except StompError:
                    self._seen.owed[name].clear()  # an end by an exception drains nothing
                    raise
            except StompError:
                current_world().switch(lambda: False, 0.5, "a pause")

    def _close_at_the_end(self, opened: list[stompy.Connection]) -> None:
        self._over.wait()
        for conn in opened:
            with self._seen.call("close", 4.0):
                conn.close(drain=True)

    def _serve_one(self, name: str, consumer: Consumer, message: stompy.Message) -> None:
        self._handle(name, consumer, message)
        self._settle(message, consumer)

    def _handle_all(self, conn: stompy.Connection, name: str, consumer: Consumer, heard: Heard) -> None:
        left: set[str | None] = set()

        def handle(message: stompy.Message) -> None:
            if message.subscription in left and consumer.mode != "auto":
                self._seen.breaches.append(f"{name} was given {message.text} after its subscription had ended")
            heard.begins(message)
            try:
                self._serve_one(name, consumer, message)
            except BaseException:
                heard.raised += 1
                raise

        def subscribe() -> stompy.Subscription:
            with self._seen.call(f"subscribe {consumer.queue}", 8.0):
                own = handler is not None and not consumer.alone
                return conn.subscribe(consumer.queue, handler, ack=consumer.mode, own_thread=own)

        def leave() -> stompy.Subscription:
            """End the subscription, and begin another one."""
            # The thread that receives would wait for itself.
            drain = called and (consumer.mode == "auto" or current_world().random.random() < 0.5)
            # Slow handlers need longer than a receipt that is lost may keep a queue from being emptied.
            limit = 20.0 if self._seen.plan.calm else 4.0
            with self._seen.call(f"unsubscribe {consumer.queue}", limit):
                sub.close(drain=drain, timeout=limit)
            left.add(sub.id)
            return subscribe()

        def take_beside() -> None:
            """Receive in a second thread."""
            while not (self._over.is_set() or conn.closed):
                try:
                    self._take_one(conn, sub, name, consumer)
                except (HandlerError, StompError):
                    current_world().switch(lambda: False, 0.1, "a pause")

        handler = handle if consumer.style == "handler" else None
        called = consumer.style in ("handler", "listener")
        sub = subscribe()
        if called:
            while not self._over.wait(1.0):
                if conn.closed:
                    return
                if current_world().random.random() < consumer.leaves:
                    sub = leave()
            return
        if consumer.receives_twice:
            Thread(take_beside, f"{name}-beside").start()
        while not self._over.is_set():
            try:
                if consumer.style == "iterate":
                    self._iterate(sub, name, consumer)
                else:
                    self._take_one(conn, sub, name, consumer)
                    if current_world().random.random() < consumer.leaves:
                        sub = leave()
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
                # Else it would count as handled when the next one is asked for.
                if current_world().random.random() < 0.5:
                    message.nack_async().result()
                else:
                    message.nack()
            raise HandlerError
        self._note_handled(name, consumer, message, got_at)

    def _note_handled(self, name: str, consumer: Consumer, message: stompy.Message, got_at: float) -> None:
        again = message.redelivered
        self._seen.note(f"handled {message.text}{' (redelivered)' if again else ''}")
        dedupe_id = message.headers.get("stompy-dedupe-id")
        self._seen.handled.append(Handled(got_at, consumer.queue, message.text, name, again, dedupe_id))
        # Some brokers end the session that replies to a program that is gone: once, and not with each copy.
        if message.headers.get("reply-to") and not again:
            with self._seen.call(f"reply to {message.text}", 4.0):
                message.reply(f"re {message.text}")

    def _settle(self, message: stompy.Message, consumer: Consumer) -> None:
        if consumer.mode in ("client", "client-individual"):
            drawn = current_world().random.random()
            confirm = drawn < 0.5
            with self._seen.call(f"ack of {message.text}", 8.0):
                if drawn < 0.2:
                    message.ack_async().result()
                else:
                    message.ack(confirm=confirm)
            if confirm and consumer.mode == "client-individual":
                self._seen.acknowledged[message.text] = current_world().now

    # Workers

    def work(self, name: str, number: int, pause: float) -> None:
        """Run a worker until all is over."""
        current_world().switch(lambda: False, pause, "its start")
        self._seen.opened += 1
        runner = workers.Runner(self._seen.watches[number], name, self._seen.note)
        self._world.kept.append(runner)
        runner.run(self._url(name), TIMEOUTS, self._over)

    def _serve(self, system: System, name: str, watch: workers.Watch) -> None:
        """Start a worker with child processes."""
        service = self._services[name] = Service(system, watch, name, self._seen.note)
        self._threads[name] = Thread(partial(service.run, self._url(name), TIMEOUTS, self._over), f"service of {name}")
        self._threads[name].start()

    def child_starts(self, name: str) -> None:
        """Note that a child process has a session, by WebSocket as its parent would."""
        self._seen.opened += 1
        if name.partition(".")[0] in self._network.opaque:
            self._network.opaque |= {name}

    def process_ended(self, name: str, code: int) -> None:
        """Close the connections of a process that has ended."""
        self._network.hang_up(name)
        self._services[name.partition(".")[0]].ended(name, code, self._seen.plan.faultless)

    def _start_worker(self, number: int, pause: float) -> None:
        name = f"w{number}"
        if isinstance(self._world, System):
            self._serve(self._world, name, self._seen.watches[number])
            return
        self._threads[name] = self._started(name, partial(self.work, name, number, pause))

    # Outboxes

    def store(self, name: str, number: int, pause: float) -> None:
        """Run an outbox until all is over."""
        current_world().switch(lambda: False, pause, "its start")
        self._seen.opened += 1
        stored = self._seen.stored[number]
        try:
            outboxes.PutProgram(stored, name, self._put).run(self._url(name), TIMEOUTS, self._calm)
        except StompError as error:
            stored.breaches.append(f"{name} has failed: {error}")
            stored.all_put = True

    def _put(self, outbox: stompy.Outbox, queue: str, sender: str, body: str) -> None:
        sent = self._seen.sent[body] = Sent(body, queue, sender, resends=True)
        disk = any(each.program.disk for each in self._seen.stored)
        headers = {"padding": "x" * 1_000} if disk else None  # so that a file grows, on a disk that is full
        with self._seen.outcome([sent], "confirmed"), self._seen.call(f"put {body}", 60.0 if disk else 1.0):
            outbox.put(queue, body, headers=headers)

    def _start_outbox(self, number: int, pause: float) -> None:
        name = f"o{number}"
        self._threads[name] = self._started(name, partial(self.store, name, number, pause))

    def _arrived(self, side: str, _: str, frame: Frame) -> None:
        if side == "received" and frame.command == "SEND":
            headers = frame.headers
            arrival = outboxes.Arrival(headers["destination"], frame.body.decode(), headers.get("stompy-dedupe-id"))
            self._seen.arrivals.append(arrival)

    # Spools

    def _start_spool(self, name: str, pause: float) -> None:
        """Start a process that fills a spool, `s<spool program><number>`, or that reads them, `r<spool program>`."""
        spooled = self._seen.spooled[int(name[1])]
        spooled.ended(name)
        run = spooled.fill if name[0] == "s" else spooled.read
        self._threads[name] = self._started(
            name, partial(run, name, self._url(name), pause, self._over, self._seen.note)
        )

    # Programs for stomp.py

    def drop_in(self, name: str, program: DropInProgram) -> None:
        """Run a program for stomp.py until all is over."""
        web = name in self._seen.plan.web
        dropins.DropIn(replace(program, version="1.2") if web else program, name, self._seen).run(
            PORT, self._over, web=web
        )

    # The world

    def main(self) -> None:
        """Start everything, break what the plan says, wait, and look what is left."""
        plan, world, seen = self._seen.plan, self._world, self._seen
        me = world.current
        me.process = "broker"
        limits = BrokerLimits(max_queue_messages=plan.room or 10_000, prefetch=5 if plan.like is None else 1_000)
        replies = ("/temp-queue/*", "/topic//temp-queue/*", "/queue/amq.gen-*")  # by what profiles call them
        users = {"user": User(passcode="pass", write=("/queue/a*", "/queue/b*", FORWARDED, *replies))}
        hook = self._arrived if plan.outboxes else None
        broker = Broker(
            port=PORT,
            like=plan.like,
            users=users,
            heartbeat=(0.5, 0.5),
            limits=limits,
            on_frame=hook,
            ws=bool(plan.web),
        ).start()
        threads = self._threads
        for number, producer in enumerate(plan.producers):
            threads[f"p{number}"] = self._started(f"p{number}", partial(self.produce, f"p{number}", producer))
        for number, consumer in enumerate(plan.consumers):
            threads[f"c{number}"] = self._started(f"c{number}", partial(self.consume, f"c{number}", consumer))
        for number, drop_in in enumerate(plan.drop_ins):
            seen.unsent.add(f"d{number}")
            threads[f"d{number}"] = self._started(f"d{number}", partial(self.drop_in, f"d{number}", drop_in))
        for number, worker in enumerate(plan.workers):
            seen.watches.append(workers.Watch(worker))
            self._start_worker(number, 0.0)
        for number, outbox in enumerate(plan.outboxes):
            folder = self._folder / f"outbox-{number}"
            disk = self._disk(folder, outbox.disk, [f"o{number}"])
            folder.mkdir()
            seen.stored.append(outboxes.Stored(outbox, folder / "outbox", disk))
            self._start_outbox(number, 0.0)
        for number, spool in enumerate(plan.spools):
            folder = self._folder / f"spool-{number}"
            disk = self._disk(folder, spool.disk, spool.processes(number))
            seen.spooled.append(spools.Spooled(spool, folder, disk))
            for name in spool.processes(number):
                self._start_spool(name, 0.0)
        me.process = "main"
        self._break(broker)
        for service in self._services.values():
            service.events.join()
        faults_end = world.now + FAULTS
        self._await_senders(faults_end)
        self._network.clear_up()
        weather = self._network.weather
        if weather.latency:  # through 50 bytes, what a session gets first delays its receipts past their limit
            self._network.weather = replace(weather, window=max(300, weather.window))
        for each in self._disks.all:
            each.calm()
        world.switch(lambda: not any(each.off for each in self._disks.all), 400.0, "power")
        if world.now >= faults_end:  # a fault may have ended each session before anything was sent
            self._await_senders(world.now + 400.0)
        self._calm.set()
        for number, stored in enumerate(seen.stored):
            threads[f"o{number}"].join(outboxes.FLUSH + 40.0)
            seen.left.update(stored.dead)
        self._wait_until_handled(broker)
        seen.over = True
        self._over.set()
        for name, thread in [*threads.items(), *((closer.name, closer) for closer in self._closers)]:
            noted = -1
            while thread.is_alive() and noted != len(seen.trace):  # a slow reader may have hundreds of batches left
                noted = len(seen.trace)
                thread.join(100.0)
            if thread.is_alive():
                seen.breaches.append(f"{name} does not end: it waits for {thread.waits_for}")
        end = world.now + CALM
        while broker.stats().sessions:
            if world.now >= end:
                seen.breaches.append(f"sessions that do not end: {broker.connections()}")
                break
            world.switch(lambda: False, 1.0, "the ends of sessions")
        ended = broker.stats().sessions_total - seen.opened - sum(spooled.opened for spooled in seen.spooled)
        if plan.calm and ended > 0:
            seen.breaches.append(f"{ended} sessions were lost, although nothing broke")
        for queue in broker.stats().queues:
            found = broker.browse(queue)
            seen.left.update(message.text for message in found)
            for watch in seen.watches:
                if queue == watch.program.dead_letters:
                    for message in found:
                        watch.dead[message.text].append(message.headers)
        me.process = "broker"
        broker.close(timeout=30.0)
        me.process = "main"
        world.switch(lambda: False, 5.0, "handlers that are slower than close waits")
        killed = {name for name in plan.names if name[0] in "pc" and plan.killed(name)}
        seen.breaches += heard_wrongly(self._heard, seen.read, killed)
        alive = [thread.name for thread in world.threads[1:] if thread.is_alive() and not thread.killed]
        if alive:
            seen.breaches.append(f"threads that are left: {alive}")
        seen.breaches += [f"logged as a bug: {bug}" for bug in world.bugs]

    def _await_senders(self, until: float) -> None:
        """Wait for what is to be sent."""
        world, seen = self._world, self._seen
        for number, _ in enumerate(seen.plan.producers):
            self._threads[f"p{number}"].join(until - world.now)
        world.switch(lambda: all(each.all_put for each in seen.stored), until - world.now, "what outboxes put")
        world.switch(lambda: not seen.unsent, until - world.now, "what programs for stomp.py send")

    def _disk(self, folder: Path, faults: tuple[DiskFault, ...], processes: Sequence[str]) -> Disk | None:
        """Return the disk of a machine with some processes, if something happens to it."""
        if not faults:
            return None
        self._world.disk = self._disks
        disk = self._disks.add(folder, faults, self._world.random)
        name = f"power-{folder.name}"
        self._threads[name] = self._started("main", partial(self._switch_on, disk, processes))
        return disk

    def _switch_on(self, disk: Disk, processes: Sequence[str]) -> None:
        """End the processes of a machine whose power has failed, and start them again, until all is over."""
        while self._world.switch(lambda: disk.off or self._over.is_set(), None, "a power failure") and disk.off:
            self._seen.note(f"the power of {' '.join(processes)} fails")
            files = disk.cut()
            for name in processes:
                self._world.kill(name)
                self._network.hang_up(name)
            disk.restore(files)
            for name in processes:
                self._start(name, 0.5)

    def _start(self, name: str, pause: float) -> None:
        """Start a process again."""
        if name[0] in "sr":
            self._start_spool(name, pause)
        elif name[0] in "wo":
            (self._start_worker if name[0] == "w" else self._start_outbox)(int(name[1:]), pause)

    def _started(self, process: str, program: Callable[[], object]) -> Thread:
        thread = Thread(program, process)
        thread.process = process
        thread.start()
        return thread

    def _break(self, broker: Broker) -> None:
        plan, world = self._seen.plan, self._world
        events: list[tuple[float, str]] = [(at, "restart") for at in plan.restarts]
        programs: dict[str, Producer | Consumer | DropInProgram]
        programs = {f"p{number}": each for number, each in enumerate(plan.producers)}
        programs |= {f"c{number}": each for number, each in enumerate(plan.consumers)}
        programs |= {f"d{number}": each for number, each in enumerate(plan.drop_ins)}
        events += [(each.killed_at, name) for name, each in programs.items() if each.killed_at is not None]
        events += [(at, f"w{number}") for number, worker in enumerate(plan.workers) for at in worker.kills]
        events += [(at, f"o{number}") for number, outbox in enumerate(plan.outboxes) for at in outbox.kills]
        events += [kill for number, spool in enumerate(plan.spools) for kill in spool.kills_of(number)]
        for at, what in sorted(events):
            world.switch(lambda: False, max(0.0, 1000.0 + at - world.now), "the next fault")
            self._seen.note(f"{what} {'of the broker' if what == 'restart' else 'is killed'}")
            if what != "restart":
                world.kill(what)
                self._network.hang_up(what)
                self._seen.unsent.discard(what)
                self._start(what, 0.5)
                continue
            world.current.process = "broker"
            broker.close(timeout=30.0)
            world.switch(lambda: False, world.random.choice((0.0, 0.5, 3.0)), "a broker that is down")
            broker.start()
            world.current.process = "main"

    def _wait_until_handled(self, broker: Broker) -> None:
        """Wait until the queues that have a living consumer are empty, or for long."""
        plan, world = self._seen.plan, self._world
        consumed = {each.queue for each in plan.receivers if each.killed_at is None}
        consumed |= {each.queue for each in plan.spools}
        end, changed_at, before = world.now + CALM * (10 if plan.workers else 1), world.now, None
        idle = LONG_IDLE if plan.spools or plan.workers else IDLE
        while world.now < end and world.now < changed_at + idle:
            stats = broker.stats()
            depths, tried = stats.queues, sum(len(watch.tried) for watch in self._seen.watches)
            worked = {name for watch in self._seen.watches for name in depths if watch.program.empties(name)}
            left = [depths[queue].total for queue in sorted(consumed | worked) if queue in depths]
            left += [stats.scheduled, tried] if stats.scheduled or any(left) else []
            if not any(left):
                return
            if left != before:
                changed_at, before = world.now, left
            world.switch(lambda: False, 1.0, "the consumers")
        steady = {
            queue
            for queue in consumed
            if plan.room is None
            and all(each.fails == 0.0 and each.killed_at is None for each in plan.receivers if each.queue == queue)
        }
        depths = broker.stats().queues
        steady |= {name for watch in self._seen.watches for name in depths if watch.program.empties(name)}
        self._seen.breaches += [
            f"{queue} has {depths[queue].total} messages, although its consumers had {idle:g} s without a fault"
            for queue in sorted(steady)
            if queue in depths and depths[queue].total
        ]


@dataclass
class Run:
    """What became of a plan."""

    plan: Plan
    breaches: list[str]
    trace: list[str]
    steps: int
    seconds: float
    left: Counter[str]


def _headers_late(plan: Plan, messages: Sequence[Message]) -> Any:
    """Return the headers of messages that came together, which some receivers are late to split."""
    world = current_world()
    late = plan.spools[int(world.current.process[1])].late
    if late and world.random.random() < late:
        world.switch(lambda: False, 6.0 * world.random.random(), "a processor")
    return header_table(messages)


def run(plan: Plan) -> Run:
    """Run a plan in a world of its own; return what became of it."""
    random = Random(plan.seed)  # noqa: S311 - it has to repeat
    lot = Random(plan.seed + 1)  # noqa: S311
    schedule = Drawn(lot, plan.rate) if plan.depth is None else Few(lot, plan.depth, lot.choice((300, 1_000, 3_000)))
    traced = [str(TOP / file) for file in plan.lines]
    made = System if any(each.children for each in plan.workers) else World
    world = made(schedule, traced=traced, seed=plan.seed + 2, steps=STEPS * (10 if traced else 1))
    network = Network(world, random, plan.weather, FaultPlan(*plan.frames, seed=plan.seed))
    seen = Seen(plan)

    def tap() -> Tap | None:
        process = world.current.process
        # A program for stomp.py commits when it likes, and a receiver of a spool nothing, to see that it has a session.
        wire = Wire(seen, process).passes if process[0] not in "ds" else None
        return Web(seen.breaches, wire).passes if process in network.opaque else wire

    network.tap = tap
    network.note = seen.note  # type: ignore[method-assign]
    network.opaque = frozenset(plan.web)
    seam: dict[str, Any] = {"TcpDialer": (TcpDialer, network.dialer), "TcpListener": (TcpListener, network.listen)}
    seam |= {"SocketTransport": (SocketTransport, SimulatedTransport), "MAX_FRAME": (MAX_FRAME, plan.fragment)}
    seam |= {"header_table": (header_table, partial(_headers_late, plan))}
    files = plan.outboxes or plan.spools or isinstance(world, System)
    with installed(**seam, limit=(waiting.limit, dropins.LIMIT)):
        try:
            with tempfile.TemporaryDirectory(dir=SHARED) if files else nullcontext(".") as folder:
                programs = Programs(world, network, seen, Path(folder))
                if isinstance(world, System):
                    world.folder = Path(folder)
                    world.on_start, world.on_end = programs.child_starts, programs.process_ended
                with with_processes() if isinstance(world, System) else nullcontext():
                    world.run(programs.main)
            if files:  # the folder has another name each time
                seen.trace = [line.replace(f"{folder}/", "") for line in seen.trace]
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
