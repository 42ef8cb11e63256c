"""Producers and consumers that continue while their links are cut and their broker is restarted, without losses.

The schedule of faults comes from a seed: at which confirmed message, which connection, in which direction, behind how
many more bytes, by which ending. How the threads interleave does not, so that a replay meets the same faults at the
same points of the work, and not at the same instructions.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import stompy
from stompy.testing.proxied import ProxyLink
from stompy.testing.proxy import FaultProxy
from tests.support.receipts import outcome_of
from tests.support.soak_plan import CUT, PAUSE, RESTART, Fault, Kind, Plan, Tally

QUICK = stompy.Reconnect(backoff=stompy.Backoff(first=0.01, longest=0.5))

_ID = "soak-id"
"""The producer's own name for a message, in mode `producer`."""

_CUT_WITHIN = 1.0
"""Seconds that an armed cut waits for bytes to go through, before it is made where they stand."""

_GLANCE = 0.001
"""Seconds between two looks at what others do."""

_ENDED_WITHIN = 5.0
"""Seconds that a thread gets to end where something has failed."""

_SILENCE = 0.5
"""Seconds without a message after which a queue counts as empty."""


class SoakError(AssertionError):
    """A message got lost, came twice unannounced, or something did not end."""


class Soak:
    """One run.

    Args:
        plan: what is to be done.
        proxy: before the broker.
        restart: ends the broker as a crash would and brings it back.
        pause: lets the broker stand still for a while.
    """

    def __init__(
        self,
        plan: Plan,
        proxy: FaultProxy,
        restart: Callable[[], object],
        pause: Callable[[], object] = lambda: None,
    ) -> None:
        self.plan = plan
        self.tally = Tally()
        self._proxy = proxy
        self._strikes: dict[Kind, Callable[[Fault], object]] = {
            CUT: self._cut,
            RESTART: lambda fault: restart(),
            PAUSE: lambda fault: pause(),
        }
        self._changed = threading.Condition()
        self._allowed = 0
        self._stop = threading.Event()
        self._all_consumed = threading.Event()
        self._seen: dict[bytes, str | None] = {}
        self._next = [0] * plan.producers
        self._overtaken: set[bytes] = set()
        self._errors: list[BaseException] = []
        self._give_up = time.monotonic() + plan.timeout
        self._last_taken = self._give_up

    def run(self) -> Tally:
        """Run to the end, and return what came of it.

        Raises:
            SoakError: it did not go as it must.
        """
        begin = time.monotonic()
        each = self.plan.messages // self.plan.producers
        producing = [self._thread(self._produce, number, each) for number in range(self.plan.producers)]
        consuming = [self._thread(self._consume) for _ in range(self.plan.consumers)]
        failing = self._thread(self._fail_by_plan)
        try:
            self._await([*producing, failing])
            self._await_consumption()
            self._await(consuming)
        finally:
            self._end_all()
            for thread in (*producing, *consuming, failing):
                thread.join(_ENDED_WITHIN)
        self.tally.seconds = time.monotonic() - begin
        self._check()
        return self.tally

    def _await_consumption(self) -> None:
        self._last_taken = time.monotonic()
        while not self._all_consumed.wait(0.05) and not self._stop.is_set():
            self._check_time()
            if time.monotonic() > self._last_taken + self.plan.patience:
                self._end_all()

    def _check(self) -> None:
        if self._errors:
            raise SoakError(f"{self._where()}: {self._errors[0]!r}") from self._errors[0]
        wanted = {b"%d %d" % (p, n) for p in range(self.plan.producers) for n in range(self._each)}
        lost = wanted - set(self._seen)
        if lost:
            raise SoakError(f"{self._where()}: {len(lost)} confirmed messages were never consumed: {sorted(lost)[:5]}")
        if self._overtaken:
            late = sorted(self._overtaken)
            raise SoakError(f"{self._where()}: came after later ones, and no lost session had them: {late[:5]}")

    @property
    def _each(self) -> int:
        return self.plan.messages // self.plan.producers

    def _where(self) -> str:
        return f"--seed={self.plan.seed}, {self.tally}"

    # Threads

    def _thread(self, target: Callable[..., None], *arguments: Any) -> threading.Thread:
        def run() -> None:
            try:
                target(*arguments)
            except BaseException as error:
                self._errors.append(error)
                self._end_all()

        thread = threading.Thread(target=run, name=f"soak-{target.__name__.strip('_')}", daemon=True)
        thread.start()
        return thread

    def _await(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.1)
                self._check_time()

    def _check_time(self) -> None:
        if time.monotonic() > self._give_up:
            self._end_all()
            raise SoakError(f"{self._where()}: not done within {self.plan.timeout:g} s; consumed {len(self._seen)}")

    def _end_all(self) -> None:
        self._stop.set()
        with self._changed:
            self._changed.notify_all()

    def _connect(self) -> stompy.Connection:
        options: dict[str, Any] = {"reconnect": QUICK, "heartbeat": (0, 0), **self.plan.options}
        if self.plan.resending == "connection":
            options["reconnect"] = replace(QUICK, resend_unconfirmed=True)
        while True:
            try:
                return stompy.connect(self._proxy.url, **options)
            except stompy.ConnectError:  # the first connect is not repeated, and its link may be cut as well
                self._check_time()
                time.sleep(0.01)

    # Producing

    def _produce(self, producer: int, each: int) -> None:
        with self._connect() as conn:
            in_flight: deque[tuple[int, stompy.Receipt]] = deque()
            for number in range(each):
                if number >= self._allowed:
                    self._settle_all(conn, producer, in_flight, leave=0)
                    self._await_turn(number)
                in_flight.append((number, self._send(conn, producer, number)))
                self._settle_all(conn, producer, in_flight, leave=self.plan.window)
                if self._stop.is_set():
                    return
            self._settle_all(conn, producer, in_flight, leave=0)
            self._count("reconnects", conn.stats().reconnects)

    def _send(self, conn: stompy.Connection, producer: int, number: int) -> stompy.Receipt:
        headers = dict(self.plan.headers)
        if self.plan.resending == "producer":
            headers[_ID] = f"{producer}-{number}"
        while True:
            try:
                body = b"%d %d" % (producer, number)
                receipt = conn.send_async(self.plan.destination, body, headers=headers)
            except stompy.SessionError:
                if self.plan.resending == "connection" or self._stop.is_set():
                    raise
            else:
                assert receipt is not None
                return receipt

    def _settle_all(
        self, conn: stompy.Connection, producer: int, in_flight: deque[tuple[int, stompy.Receipt]], *, leave: int
    ) -> None:
        """Wait for the oldest receipts; send again what ended as unknown, where that is the program's duty."""
        while len(in_flight) > leave and not self._stop.is_set():
            number, receipt = in_flight.popleft()
            try:
                receipt.result(self.plan.timeout)
            except stompy.SessionError:
                if self.plan.resending == "connection" or outcome_of(receipt) != "unknown":
                    raise
                in_flight.append((number, self._send(conn, producer, number)))
            else:
                self._count("confirmed")

    def _await_turn(self, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: number < self._allowed or self._stop.is_set())

    # Consuming

    def _consume(self) -> None:
        with self._connect() as conn:
            subscription = self._subscribe(conn)
            while not self._stop.is_set():
                try:
                    message = subscription.receive(timeout=_SILENCE)
                except stompy.ReceiveTimeoutError:
                    if self._all_consumed.is_set():
                        break
                    continue
                self._take(message)
                with contextlib.suppress(stompy.AckError, stompy.ConnectionLostError):
                    message.ack()  # if it does not get through, the message comes again
            self._count("reconnects", conn.stats().reconnects)

    def _subscribe(self, conn: stompy.Connection) -> stompy.Subscription:
        while True:
            try:
                return conn.subscribe(
                    self.plan.destination, ack="client-individual", prefetch=self.plan.prefetch or stompy.DEFAULT
                )
            except stompy.SessionError:
                if self._stop.is_set():
                    raise

    def _take(self, message: stompy.Message) -> None:
        name = _ID if self.plan.resending == "producer" else "stompy-dedupe-id"
        identity = message.headers.get(name)
        self._last_taken = time.monotonic()
        with self._changed:
            if message.redelivered:
                self._overtaken.discard(message.body)
            if message.body not in self._seen:
                self._note_overtaken(message.body)
                self._seen[message.body] = identity
                self.tally.consumed += 1
                if self.tally.consumed == self.plan.messages:
                    self._all_consumed.set()
            elif message.redelivered:
                self.tally.flagged += 1
            elif identity is not None and identity == self._seen[message.body]:
                self.tally.recognised += 1
            else:
                raise SoakError(f"{message.body!r} came twice, without a flag and as {identity!r}")

    def _note_overtaken(self, body: bytes) -> None:
        """Note which messages this first delivery overtakes, where the order of sending is guaranteed.

        A broker that does not know yet that a session is lost gives its successor the messages behind those that the
        lost one had. Each of these comes with a flag in the end.
        """
        # Several consumers may overtake each other, as may copies that the program resends after later messages.
        if self.plan.consumers > 1 or self.plan.resending == "producer":
            return
        producer, number = map(int, body.split())
        due = self._next[producer]
        self._overtaken.update(b"%d %d" % (producer, skipped) for skipped in range(due, number))
        self._next[producer] = max(due, number + 1)

    # Failing

    def _fail_by_plan(self) -> None:
        slack = 3 * self.plan.window * self.plan.producers  # so that there is traffic to cut into
        for fault in self.plan.faults():
            # The last message of each producer waits for the last fault, so that there is always a link to cut.
            self._allow(min(fault.after + slack, self.plan.messages - self.plan.producers))
            while self.tally.confirmed < fault.after and not self._stop.wait(_GLANCE):
                pass
            if self._stop.is_set():
                return
            self._strikes[fault.kind](fault)
            self._count(f"{fault.kind}s")
        self._allow(self.plan.messages)

    def _cut(self, fault: Fault) -> None:
        link = self._victim(fault)
        link.cut_after(fault.size, direction=fault.direction, ending=fault.ending)
        give_up = time.monotonic() + _CUT_WITHIN
        while link.running and time.monotonic() < give_up:
            time.sleep(_GLANCE)
        if link.running:
            self._count("idle")
            link.cut(fault.ending)

    def _victim(self, fault: Fault) -> ProxyLink:
        while True:
            running = self._proxy.running
            if running:
                return running[int(fault.which * len(running))]
            self._check_time()
            time.sleep(_GLANCE)

    # Counting

    def _allow(self, messages: int) -> None:
        with self._changed:
            self._allowed = -(-messages // self.plan.producers)
            self._changed.notify_all()

    def _count(self, name: str, by: int = 1) -> None:
        with self._changed:
            setattr(self.tally, name, getattr(self.tally, name) + by)
