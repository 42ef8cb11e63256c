"""Programs for stomp.py, on the drop-in, in a simulated world: how a seed draws one, and how it runs.

They are written as programs for stomp.py are: listeners, receipts by `WaitingListener`, transactions by their ids, and
after the end of a session another `connect`, in `on_disconnected` or in a loop. `docs/reference/compat.md` says what
such a program may rely on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from random import Random
from typing import Literal

import stompy.compat as stomp
from stompy.compat.exception import StompException
from stompy.testing.world import Event, SimulatedLock, Thread, current_world
from tests.simulation.seen import Handled, HandlerError, Seen, Sent

DropInOp = Literal["send", "confirm", "transaction", "abort", "pause"]
Mode = Literal["auto", "client", "client-individual"]
OPS: tuple[DropInOp, ...] = ("send", "confirm", "confirm", "transaction", "abort", "pause")
LIMIT = 4.0
"""Seconds that waits of the drop-in take at most, in place of its own."""
CONNECT = 3.0
"""Seconds that an attempt to connect may take."""
HANDOVER = 5.0
"""Seconds that a session waits for the callbacks of the one before."""
WRITE = 30.0
"""Seconds that a write may take."""
LOOK = 0.1
"""Seconds between two looks whether the session has ended: its callbacks may take longer."""
_ATTEMPTS = 3


@dataclass(frozen=True)
class DropInProgram:
    """A process that is written for stomp.py.

    Attributes:
        mode: of its subscription, if it has one.
        in_callback: whether it connects again in `on_disconnected`, and not in a loop.
    """

    queue: str
    threads: tuple[tuple[DropInOp, ...], ...]
    mode: Mode | None
    version: Literal["1.1", "1.2"]
    in_callback: bool
    fails: float
    slow: float
    killed_at: float | None

    @classmethod
    def drawn(cls, random: Random, queue: str, *, receives: bool, faults: bool) -> DropInProgram:
        """Return the program of a queue."""
        modes: tuple[Mode | None, ...] = (None, "auto", "client", "client-individual", "client-individual")
        return cls(
            queue,
            threads=tuple(
                tuple(random.choice(OPS) for _ in range(random.randint(1, 4))) for _ in range(random.choice((1, 2)))
            ),
            mode=random.choice(modes) if receives else None,
            version=random.choice(("1.1", "1.2")),
            in_callback=random.random() < 0.5,
            fails=random.choice((0.0, 0.0, 0.3)),
            slow=random.choice((0.0, 0.1, 0.5)),
            killed_at=random.uniform(0.0, 3.0) if faults and random.random() < 0.2 else None,
        )

    def smaller(self) -> Iterator[DropInProgram]:
        """Yield programs with one thing less."""
        for number, ops in enumerate(self.threads):
            before, after = self.threads[:number], self.threads[number + 1 :]
            if before or after:
                yield replace(self, threads=before + after)
            for at in range(len(ops)):
                yield replace(self, threads=(*before, ops[:at] + ops[at + 1 :], *after))
        for changed in (
            replace(self, mode=None),
            replace(self, killed_at=None),
            replace(self, fails=0.0),
            replace(self, slow=0.0),
            replace(self, in_callback=False),
        ):
            if changed != self:
                yield changed


class Order(stomp.ConnectionListener):
    """Looks at the order of callbacks.

    Args:
        report: called with what is wrong.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._open = 0
        """Open sessions: two where the callbacks of the first take too long."""
        self.connects_since = 0.0
        """When the last `connect` was called."""
        self.begun = self.ended = 0
        self.messages = 0

    def on_connecting(self, host_and_port: tuple[str, int]) -> None:
        """Count a session."""
        self.begun += 1

    def on_connected(self, frame: stomp.utils.Frame) -> None:
        """Look that the session before has ended, unless its callbacks took too long."""
        if self._open and current_world().now < self.connects_since + HANDOVER:
            self._report("on_connected was called before on_disconnected of the session before")
        self._open += 1

    def on_before_message(self, frame: stomp.utils.Frame) -> None:
        """Look that the session is open."""
        if not self._open:
            self._report(f"on_before_message was called with {frame.body} outside of a session")
        self.messages += 1

    def on_disconnected(self) -> None:
        """Count the end of a session."""
        self._open = max(0, self._open - 1)  # it may end before on_connected was called
        self.ended += 1
        if self.ended > self.begun + 1:  # it may end before on_connecting was called
            self._report(f"on_disconnected was called {self.ended} times in {self.begun} sessions")


class Last(stomp.ConnectionListener):
    """Is called after the listener that may raise, and looks that it is.

    Args:
        connect_again: called at the end of a session.
    """

    def __init__(self, connect_again: Callable[[], None]) -> None:
        self._connect_again = connect_again
        self.messages = 0

    def on_message(self, frame: stomp.utils.Frame) -> None:
        """Count a message."""
        self.messages += 1

    def on_disconnected(self) -> None:
        """Connect again."""
        self._connect_again()


class DropIn:
    """Runs a program until all is over.

    Args:
        program: drawn.
        name: of its process.
        seen: what the world sees.
    """

    def __init__(self, program: DropInProgram, name: str, seen: Seen) -> None:
        self._program, self._name, self._seen = program, name, seen
        self._ids = count(1)
        self._acks: dict[str, str] = {}
        """By the id of a receipt, the body of the message whose ACK asked for it."""
        self._connecting = SimulatedLock(name="connecting")
        self._over = False
        self.order = Order(self._report)
        self.last = Last(self._connect_again)

    def _report(self, breach: str) -> None:
        self._seen.breaches.append(f"{self._name}: {breach}")

    def run(self, port: int, over: Event, *, web: bool) -> None:
        """Connect, send and receive; disconnect when all is over."""
        program, seen = self._program, self._seen
        kind = stomp.WSConnection if web else stomp.Connection12 if program.version == "1.2" else stomp.Connection11
        conn = self._conn = kind(
            [("127.0.0.1", port)],
            heartbeats=(1000, 1000),
            timeout=CONNECT,
            vhost="/",
            reconnect_sleep_initial=0.05,
            reconnect_sleep_max=1.0,
            reconnect_attempts_max=_ATTEMPTS,
        )
        current_world().kept.append(conn)
        conn.set_listener("a", self.order)
        conn.set_listener("b", self)
        conn.set_listener("c", self.last)
        seen.opened += 1
        while not self._connected() and not over.wait(0.5):
            pass
        threads = [
            Thread(partial(self._send_all, f"{self._name}.{index}", ops), f"{self._name}.{index}")
            for index, ops in enumerate(program.threads)
        ]
        for thread in threads:
            thread.start()
        while not over.wait(0.5):
            if not any(thread.is_alive() for thread in threads):
                seen.unsent.discard(self._name)
            if not program.in_callback:
                self._connected()
        for thread in threads:
            thread.join()
        with self._connecting:
            self._over = True
        with seen.call("disconnect", LIMIT + WRITE):
            conn.disconnect(receipt="bye")
        current_world().switch(lambda: self.order.ended == self.order.begun, HANDOVER, "the last callbacks")
        if self.order.ended != self.order.begun:
            self._report(f"on_disconnected was called {self.order.ended} times in {self.order.begun} sessions")
        if self.last.messages != self.order.messages:
            self._report(f"the last listener got {self.last.messages} of {self.order.messages} messages")

    def _connect_again(self) -> None:
        if self._program.in_callback:
            current_world().switch(lambda: False, 0.2, "a pause")
            while not self._connected():
                current_world().switch(lambda: False, 0.5, "a pause")

    def _connected(self) -> bool:
        """Connect if there is no session; return whether that is done, or no longer wanted."""
        program, conn = self._program, self._conn
        with self._connecting:
            if self._over or conn.is_connected():
                return True
            self.order.connects_since = current_world().now
            try:
                with self._seen.call("connect", HANDOVER + _ATTEMPTS * (CONNECT + 1.0) + LIMIT):
                    conn.connect("user", "pass", wait=True)
                if program.mode is not None:
                    with self._seen.call(f"subscribe {program.queue}", WRITE):
                        conn.subscribe(program.queue, id="1", ack=program.mode)
            except StompException:
                return False
            return True

    def _send_all(self, sender: str, ops: tuple[DropInOp, ...]) -> None:
        for number, op in enumerate(ops):
            with suppress(StompException, HandlerError):
                self._do(sender, op, f"{sender}.{number}")

    def _do(self, sender: str, op: DropInOp, body: str) -> None:
        seen, conn, queue = self._seen, self._conn, self._program.queue
        if op == "pause":
            current_world().switch(lambda: False, 1.0, "a pause")
        elif op in ("send", "confirm"):
            sent = seen.sent[body] = Sent(body, queue, sender)
            confirm = op == "confirm"
            with seen.outcome([sent], "confirmed" if confirm else "written"), seen.call(f"{op} {body}", LIMIT + WRITE):
                if confirm:
                    self._confirmed(partial(conn.send, queue, body, persistent="true"))
                else:
                    conn.send(queue, body, persistent="true")
        else:
            block = [Sent(f"{body}.{index}", queue, sender, block=body) for index in range(3)]
            seen.sent.update((sent.body, sent) for sent in block)
            with seen.call(f"{op} {body}", LIMIT + 5 * WRITE):
                # Without its COMMIT nothing takes effect, whatever the error.
                with seen.outcome(block, "not-sent" if op == "abort" else "sending"):
                    try:
                        transaction = conn.begin()
                        for sent in block:
                            conn.send(queue, sent.body, transaction=transaction, persistent="true")
                        if op == "abort":
                            conn.abort(transaction)
                    except StompException as error:
                        raise HandlerError from error
                if op == "transaction":
                    with seen.outcome(block, "confirmed"):
                        self._confirmed(partial(conn.commit, transaction))

    def _confirmed(self, call: Callable[..., object]) -> None:
        receipt = f"{self._name}-{next(self._ids)}"
        waiting = stomp.WaitingListener(receipt)
        self._conn.set_listener(receipt, waiting)
        try:
            call(receipt=receipt)
            waiting.wait_on_receipt()
        finally:
            self._conn.remove_listener(receipt)

    # Callbacks

    def on_message(self, frame: stomp.utils.Frame) -> None:
        """Handle a message, and acknowledge it."""
        world, program, seen = current_world(), self._program, self._seen
        got_at, headers = world.now, frame.headers
        world.switch(lambda: False, program.slow * world.random.random(), "work")
        if program.mode != "client" and world.random.random() < program.fails:
            seen.note(f"fails at {frame.body}")
            raise HandlerError
        again = headers.get("redelivered") == "true"
        seen.note(f"handled {frame.body}{' (redelivered)' if again else ''}")
        dedupe_id = headers.get("stompy-dedupe-id")
        seen.handled.append(Handled(got_at, program.queue, frame.body, self._name, again, dedupe_id))
        if program.mode == "auto":
            return
        receipt = {}
        if world.random.random() < 0.5:
            receipt["receipt"] = f"{self._name}-{next(self._ids)}"
            self._acks[receipt["receipt"]] = frame.body
        of = (headers["ack"],) if program.version == "1.2" else (headers["message-id"], headers["subscription"])
        with suppress(StompException), seen.call(f"ack of {frame.body}", WRITE):  # without it, the message comes again
            self._conn.ack(*of, **receipt)

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        """Note that an ACK was confirmed."""
        body = self._acks.pop(frame.headers["receipt-id"], None)
        if body is not None and self._program.mode == "client-individual":
            self._seen.acknowledged[body] = current_world().now
