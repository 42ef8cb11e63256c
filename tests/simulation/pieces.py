"""Small programs on the parts of stompy where threads meet, each with the fault that its exploration has to find.

A program gets the module under test, as it is or with a fault planted. None of its waits may end by its limit: time
stands still in the world unless all threads wait, so the clock at the end shows one that did.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, Literal, TypeAlias

from stompy import forks
from stompy.broker import write_queue
from stompy.compat import listener
from stompy.compat.exception import ConnectionClosedException
from stompy.compat.utils import Frame
from stompy.connection import message, routing, sending
from stompy.deadline import Deadline
from stompy.dialects.brokers import EMBEDDED
from stompy.errors import ConnectionLostError, LimitExceededError, StompError
from stompy.link import flow, receipts
from stompy.link.settings import Limits
from stompy.protocol.heartbeat import Heartbeats, HeartbeatTimer
from stompy.testing.replaced import installed
from stompy.testing.world import Event, Thread, World, current_world
from stompy.transport import sockets
from stompy.transport.websocket import transport as websocket
from stompy.transport.websocket.frames import BINARY, CLOSE, NORMAL, PING, PONG, Decoder, close_payload, encode
from stompy.worker import processes
from tests.simulation.schedules import Schedules
from tests.support.receipts import outcome_of

LONG = 1000.0
"""Seconds, as the limit of what must not need it."""

LOST = ConnectionLostError("planted")


COUNTED_LATE = (
    "            receipt._error = error\n        # Before",
    "            receipt._error, receipt._resolved = error, True\n"
    "            if receipt._event is not None:\n                receipt._event.set()\n        # Before",
)
"""The outcome of a receipt is known before it counts as failed."""


def with_fault(module: ModuleType, old: str, new: str) -> ModuleType:
    """Return a copy of a module in which a text that occurs once is another one."""
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{module.__name__} has {source.count(old)} times {old!r}"
    copy = types.ModuleType(f"{module.__name__}_planted")
    copy.__file__ = module.__file__
    sys.modules[copy.__name__] = copy  # dataclasses and the world look there
    exec(compile(source.replace(old, new), str(module.__file__), "exec"), vars(copy))
    return copy


def together(*functions: Callable[[], object]) -> None:
    """Run functions side by side, and wait for all."""
    threads = [Thread(function, f"call-{number}") for number, function in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def flow_of(module: ModuleType, messages: int = 2) -> Any:
    """Return flow control that pauses at so many messages."""
    timer = HeartbeatTimer(Heartbeats(), current_world().now)
    return module.FlowControl(Limits(max_inbox_messages=messages), timer)


def receipts_of(module: ModuleType) -> tuple[Any, list[Callable[[], object]]]:
    """Return the receipts of a link that is nothing else, and what the dispatcher would call."""
    soon: list[Callable[[], object]] = []

    def check_open() -> None:
        raise LOST

    link = SimpleNamespace(
        receipt_timeout=LONG,
        flow=flow_of(flow),
        owner=SimpleNamespace(call_soon=soon.append),
        check_open=check_open,
    )
    found = module.Receipts("r", link, limit=2)
    return found, soon


def confirmed_while_waited_for(module: ModuleType) -> None:
    """A receipt resolves once, and wakes all that wait for it, whenever its RECEIPT is read."""
    found, _ = receipts_of(module)
    receipt = found.make()
    found.register(receipt)
    together(receipt.result, lambda: found.confirm(receipt.id))
    assert (outcome_of(receipt), len(found)) == ("confirmed", 0)


def forgotten_while_waited_for(module: ModuleType) -> None:
    """A receipt that is dropped, as its call has failed, wakes those that wait for it beside that call."""
    found, _ = receipts_of(module)
    receipt = found.make()
    found.register(receipt)
    together(lambda: module.await_outcome(receipt, Deadline(LONG), LONG), lambda: found.forget(receipt))
    assert receipt.done()


def confirmed_while_it_gets_a_callback(module: ModuleType) -> None:
    """A callback is called once, whether the RECEIPT is read before or after it was added."""
    found, soon = receipts_of(module)
    receipt = found.make()
    found.register(receipt)
    called: list[object] = []
    together(lambda: receipt.add_done_callback(called.append), lambda: found.confirm(receipt.id))
    for call in soon:
        call()
    assert called == [receipt]


def confirmed_while_the_link_ends(module: ModuleType) -> None:
    """What is registered while the link ends is refused, or resolved by its end; nothing stays pending."""
    found, _ = receipts_of(module)
    first, second = found.make(), found.make()
    found.register(first)

    def send() -> None:
        try:
            found.register(second)
        except (StompError, LimitExceededError):
            return
        try:
            second.result()
        except ConnectionLostError:
            assert second.done()

    together(send, lambda: found.fail_all(LOST), lambda: found.confirm(first.id))
    assert first.done()
    assert len(found) == 0


def flush_beside(module: ModuleType, answer: Callable[[Any, str], object], expected: object) -> None:
    """Run a flush of the thread whose frame is answered meanwhile."""
    found, _ = receipts_of(module)
    failed, raised = module.FailedFrames(), []
    receipt = found.make()
    found.register(receipt)

    def flush() -> None:
        failed.watch(receipt)
        for each in found.outstanding():
            module.await_outcome(each, Deadline(LONG), LONG)
        assert receipt.done()
        raised.append(failed.take())

    together(flush, lambda: answer(found, receipt.id))
    assert (raised, len(found), found.outstanding()) == ([expected], 0, [])


def flushed_while_a_frame_is_confirmed(module: ModuleType) -> None:
    """When a flush returns, each receipt is done, whenever the RECEIPT is read."""
    flush_beside(module, lambda found, receipt_id: found.confirm(receipt_id), None)


def flushed_while_a_frame_is_refused(module: ModuleType) -> None:
    """A flush raises what the broker refused, whenever the ERROR is read."""
    flush_beside(module, lambda found, receipt_id: found.reject(receipt_id, LOST), LOST)


def flushed_while_the_link_ends(module: ModuleType) -> None:
    """A flush raises that a frame was lost, whenever the link ends."""
    flush_beside(module, lambda found, _: found.fail_all(LOST), LOST)


def paused_and_resumed(module: ModuleType) -> None:
    """Reading resumes when the inbox is half empty, whichever call took the message that made it so."""
    control = flow_of(module)
    messages = [SimpleNamespace(_counted=True, size=1) for _ in range(2)]
    control.added(2, 2)
    together(control.wait_while_paused, *(lambda message=message: control.taken(message) for message in messages))
    assert (control.paused, control.waiting()) == (False, (0, 0))


def paused_and_held(module: ModuleType) -> None:
    """Reading goes on for a caller that waits for a receipt, and at the end of the link."""
    control = flow_of(module)
    control.added(2, 2)
    together(control.wait_while_paused, lambda: control.hold(control))
    assert not control.paused
    control.holders.discard(control)
    together(control.wait_while_paused, control.disable)
    assert not control.paused


def queued_until_idle(module: ModuleType) -> None:
    """Who waits until all callbacks have run goes on when they have."""
    dispatched = module.Dispatcher("dispatcher")
    ran: list[int] = []
    dispatched.start()
    dispatched.put(lambda: ran.append(1))
    assert dispatched.wait_idle(Deadline(LONG))
    assert ran == [1]
    dispatched.stop()
    assert dispatched.join_until(Deadline(LONG))


def queued_while_it_stops(module: ModuleType) -> None:
    """What `put` accepted runs, and nothing else."""
    dispatched = module.Dispatcher("dispatcher")
    ran: list[int] = []
    accepted: list[bool] = []
    dispatched.start()
    together(lambda: accepted.append(dispatched.put(lambda: ran.append(1))), dispatched.stop)
    assert dispatched.join_until(Deadline(LONG))
    assert [bool(ran)] == accepted


def looked_at_while_others_write(module: ModuleType) -> None:
    """The writer comes out to look when its next heartbeat is due, however many others write at once meanwhile."""
    queue = module.WriteQueue(max_bytes=100, max_frames=100, touched={})
    written: list[bytes] = []
    looked = Event()
    queue.write_at_once(written.extend)

    def write() -> None:
        while (taken := queue.take(LONG)) is not None:
            written.extend(taken[0])
            looked.set()

    def answer() -> None:
        for frame in (b"a", b"b", b"c"):
            queue.answer(frame)
            queue.wake()

    def recheck_and_finish() -> None:
        queue.recheck()
        looked.wait()
        queue.finish()
        queue.wake()

    together(write, answer, recheck_and_finish)
    assert b"abc".startswith(b"".join(written))


def ended_while_a_receipt_is_waited_for(module: ModuleType) -> None:
    """A session that begins after the end of another one confirms none of its receipts."""
    waiting = module.WaitingListener("7")
    outcomes: list[str] = []
    begun = Event()

    def wait() -> None:
        try:
            waiting.wait_on_receipt()
        except ConnectionClosedException:
            outcomes.append("ended")
        else:
            outcomes.append("confirmed")

    def end_and_begin() -> None:
        waiting.on_disconnected()
        waiting.on_connected(Frame("CONNECTED"))
        begun.set()

    def end_again() -> None:
        begun.wait()
        waiting.on_disconnected()

    together(wait, end_and_begin, end_again)
    assert outcomes == ["ended"]


@dataclass(frozen=True)
class Piece:
    """A program, the module that it tries, and faults: texts of the module, and what stands in their place."""

    program: Callable[[ModuleType], None]
    module: ModuleType
    faults: dict[str, tuple[str, str]]


Depths: TypeAlias = tuple[tuple[int, Literal["line", "opcode"] | None], ...]

DEPTHS: Depths = ((2, None), (1, "line"))
"""Preemptions of a schedule; before what a thread may lose its turn, if not only where it waits."""
EACH_STEP: Depths = ((1, "opcode"),)
TWO_LINES: Depths = (*EACH_STEP, (2, "line"))
BEGAN = 1000.0
"""The time at which each world begins; it only passes where all threads wait."""


def explore(piece: Piece, module: ModuleType, depths: Depths = DEPTHS) -> int:
    """Run every schedule; return how many there were."""
    count = 0
    for preemptions, event in depths:
        schedules = Schedules(preemptions)
        with installed():
            for choose in schedules:
                world = World(choose, traced=[str(module.__file__)] if event else [], event=event or "line")
                world.run(lambda: piece.program(module))
                assert world.now == BEGAN, "a wait ended by its limit"
        count += schedules.count
    return count


PIECES = [
    Piece(
        ended_while_a_receipt_is_waited_for,
        listener,
        {
            "the failure is forgotten by the next session": (
                "            self._failed = False\n\n    def on_receipt",
                "            self._failed, self._failure = False, None\n\n    def on_receipt",
            )
        },
    ),
    Piece(
        confirmed_while_waited_for,
        receipts,
        {
            "the event is not set": (
                "        receipt._callbacks = None\n    if event is not None:\n        event.set()",
                "        receipt._callbacks = None",
            ),
            "looked at outside of its lock": (
                "        with receipt._lock:\n            if receipt._resolved:\n                return\n"
                "            if receipt._event is None:",
                "        if receipt._resolved:\n            return\n        with receipt._lock:\n"
                "            if receipt._event is None:",
            ),
        },
    ),
    Piece(
        forgotten_while_waited_for,
        receipts,
        {
            "it wakes nobody": (
                '            resolve(receipt, StompError("the call that asked for this receipt has failed"))\n',
                "            pass\n",
            ),
        },
    ),
    Piece(
        confirmed_while_it_gets_a_callback,
        receipts,
        {
            "looked at outside of its lock": (
                "        with self._lock:\n            if not self._resolved:\n                self._callbacks",
                "        if not self._resolved:\n            with self._lock:\n                self._callbacks",
            ),
        },
    ),
    Piece(
        confirmed_while_the_link_ends,
        receipts,
        {
            "registered after the end": ("            if self._closed:\n                self._link.check_open()\n", ""),
            "closed after the list is taken": (
                "            self._closed = True\n        for receipt in self._pending.copy().values():",
                "            left = [*self._pending.values()]\n        self._closed = True\n"
                "        for receipt in left:",
            ),
        },
    ),
    Piece(
        flushed_while_a_frame_is_confirmed,
        receipts,
        {
            "taken out first": (
                "if (receipt := self._pending.get(receipt_id)) is None:",
                "if (receipt := self._pending.pop(receipt_id, None)) is None:",
            ),
        },
    ),
    Piece(
        flushed_while_a_frame_is_refused,
        receipts,
        {
            "counted after its outcome is known": COUNTED_LATE,
            "taken out first": (
                "if (receipt := self._pending.get(receipt_id)) is not None:",
                "if (receipt := self._pending.pop(receipt_id, None)) is not None:",
            ),
        },
    ),
    Piece(
        flushed_while_the_link_ends,
        receipts,
        {
            "counted after its outcome is known": COUNTED_LATE,
            "taken out first": (
                "        for receipt in self._pending.copy().values():",
                "        left = [*self._pending.values()]\n        self._pending.clear()\n        for receipt in left:",
            ),
        },
    ),
    Piece(
        paused_and_resumed,
        flow,
        {
            "nobody wakes the reader": (
                "        if self.paused and not self._blocked():\n            self._condition.notify_all()",
                "",
            ),
            "looked at outside of its lock": (
                "            with self._condition:\n                self._count_taken()",
                "            self._count_taken()",
            ),
        },
    ),
    Piece(
        paused_and_held,
        flow,
        {
            "a holder does not wake the reader": (
                "            self.holders.add(holder)\n            self._condition.notify_all()",
                "            self.holders.add(holder)",
            ),
            "the end does not wake the reader": (
                "            self._disabled = True\n            self._condition.notify_all()",
                "            self._disabled = True",
            ),
        },
    ),
    Piece(
        queued_until_idle,
        routing,
        {
            "who waits is not woken": (
                "                if not self._jobs:\n                    self._condition.notify_all()\n",
                "                if not self._jobs:\n",
            ),
            "a job wakes nobody": (
                "            self._jobs.append(job)\n            self._condition.notify()",
                "            self._jobs.append(job)",
            ),
        },
    ),
    Piece(
        queued_while_it_stops,
        routing,
        {
            "stop wakes nobody": (
                "            self._stopping = True\n            self._condition.notify_all()",
                "            self._stopping = True",
            ),
            "accepted after the end": ("            if self._stopping:\n                return False\n", ""),
        },
    ),
    Piece(
        looked_at_while_others_write,
        write_queue,
        {
            "who writes at once does not wake the writer": (" or not self._waiting:", ":"),
            "the next writes at once before the writer": (
                "            self._waiting = False  # from here",
                "            self._lock.wait_for(lambda: not self._at_once_runs)\n"
                "            self._waiting = False  # from here",
            ),
            "a change of its time does not wake the writer": (
                "            self._due = True\n            self._lock.notify_all()",
                "            self._due = True",
            ),
        },
    ),
]


# What takes no lock, as one operation of a container or counter is one step. Each fault divides it.


def numbered_side_by_side(module: ModuleType) -> None:
    """No two receipts have one id."""
    found, _ = receipts_of(module)
    made: list[Any] = []
    together(lambda: made.append(found.make()), lambda: made.append(found.make()))
    assert len({receipt.id for receipt in made}) == len(made) == 2


def confirmed_twice_side_by_side(module: ModuleType) -> None:
    """Of two RECEIPTs with one id, one confirms."""
    found, _ = receipts_of(module)
    receipt = found.make()
    found.register(receipt)
    taken: list[bool] = []
    together(lambda: taken.append(found.confirm(receipt.id)), lambda: taken.append(found.confirm(receipt.id)))
    assert sorted(taken) == [False, True]


def forgotten_while_the_link_ends(module: ModuleType) -> None:
    """A receipt whose frame was not written is dropped, whatever becomes of its link."""
    found, _ = receipts_of(module)
    receipt = found.make()
    found.register(receipt)
    together(lambda: found.forget(receipt), lambda: found.fail_all(LOST))
    assert len(found) == 0


def held_while_another_lets_go(module: ModuleType) -> None:
    """Reading is kept enabled by the callers that still wait, whoever ends its wait meanwhile."""
    control = flow_of(module)
    control.hold("first")
    together(lambda: control.hold("second"), lambda: control.holders.discard("first"))
    assert control.holders == {"second"}


def closed_while_it_is_used(module: ModuleType) -> None:
    """A descriptor is released once, when nobody uses it."""
    using: list[object] = []
    released: list[list[object]] = []
    descriptor = module.DescriptorUse(lambda: released.append(list(using)))

    def use() -> None:
        using.append(None)
        current_world().switch()
        using.pop()

    together(lambda: descriptor.during(use), lambda: descriptor.during(use), descriptor.close)
    assert released == [[]]


def closed_while_it_writes(module: ModuleType) -> None:
    """A socket is closed once, and not while a thread writes to it."""
    _closed_while(module, lambda transport: transport.sendall(b"x", None))


def closed_while_it_writes_in_parts(module: ModuleType) -> None:
    """The same of a thread that writes a part."""
    _closed_while(module, lambda transport: transport.send(b"x", None))


def _closed_while(module: ModuleType, write_to: Callable[[Any], object]) -> None:
    sent: list[bytes] = []
    closed: list[bool] = []
    busy: list[bytes] = []

    def send(data: bytes, flags: int) -> int:
        assert not closed, "written after it was closed"
        busy.append(data)
        current_world().switch()
        sent.append(busy.pop())
        return len(data)

    def write() -> None:
        with contextlib.suppress(ConnectionLostError):
            write_to(transport)

    sock = SimpleNamespace(
        fileno=lambda: 0,
        setblocking=lambda on: None,
        shutdown=lambda how: None,
        send=send,
        close=lambda: closed.append(not busy),
    )
    transport = module.SocketTransport(sock, peer="peer")
    together(write, transport.close)
    assert closed == [True]


def left_to_the_thread_that_writes(module: ModuleType) -> None:
    """An ACK that is left to another thread is written once."""
    written: list[bytes] = []
    writer = SimpleNamespace(write=lambda data, **_: written.extend(data))
    delivery = module.Delivery(SimpleNamespace(writer=writer), None, None)
    together(lambda: delivery.write_shared(b"a"), lambda: delivery.write_shared(b"b"))
    assert sorted(written) == [b"a", b"b"]


def asked_while_the_inbox_ends(module: ModuleType) -> None:
    """A request beside the end of its inbox gets the reason or finds it closed, while another one is given up."""
    inbox = module.ReplyInbox(SimpleNamespace(), name="/temp-queue/r")
    inbox.pending["given up"] = SimpleNamespace(set=bool)
    asked = SimpleNamespace(answer=None, set=bool, closed=False)

    def ask() -> None:
        inbox.pending["asked"] = asked
        asked.closed = inbox.closed

    together(lambda: inbox.pending.pop("given up", None), ask, lambda: inbox.end(LOST))
    assert asked.closed or asked.answer is LOST


def received_of_embedded(**headers: str) -> message.Message:
    """Return a message that looks received, as far as a worker's children look at it: at the broker's dialect."""
    found = message.detached(b"", destination="/queue/a", headers=headers, content_type=None, ack="client", sender=None)
    message.delivery_of(found).link = SimpleNamespace(dialect=EMBEDDED)  # type: ignore[assignment]  # no session is used
    return found


def noted_side_by_side(module: ModuleType) -> None:
    """Each message has its place in the notes of a child."""
    crashes = SimpleNamespace(free=[0, 1, 2], find=lambda *_: None, write=lambda *_: None)
    received = received_of_embedded()
    notes: list[Any] = []
    together(*[lambda: notes.append(module.Note(crashes, received))] * 2)
    for note in notes:
        note.end()
    assert sorted(crashes.free) == [0, 1, 2]


def answered_while_a_message_is_written(module: ModuleType) -> None:
    """A message and the answer to a ping leave whole, each written in parts by whichever thread."""
    wire = Halves()
    arrived = encode(PING, b"ping", bytes(4)) + encode(BINARY, b"y", bytes(4))
    transport = module.WebSocketTransport(wire, client=False, received=arrived)
    together(lambda: transport.sendall(b"message", Deadline(LONG)), transport.recv)
    decoder = Decoder(masks=False)
    assert sorted(decoder.receive(bytes(wire.data))) == [(BINARY, b"message", True), (PONG, b"ping", True)]
    assert decoder.error is None


def closed_while_a_message_is_written(module: ModuleType) -> None:
    """Nothing follows a Close frame, and a message is written whole before it or not at all."""
    wire = Halves()
    transport = module.WebSocketTransport(wire, client=False)
    outcomes = []

    def write() -> None:
        try:
            transport.sendall(b"message", Deadline(LONG))
            outcomes.append("sent")
        except ConnectionLostError as error:
            outcomes.append(error.outcome)

    together(write, transport.shutdown_write)
    close = encode(CLOSE, close_payload(NORMAL))
    message = encode(BINARY, b"message") if outcomes == ["sent"] else b""
    assert outcomes in (["sent"], ["not-sent"])
    assert wire.data == message + close


class Halves:
    """A transport that takes half of what is written."""

    peer = "peer"

    def __init__(self) -> None:
        self.data = bytearray()

    def send(self, data: bytes, deadline: object) -> int:
        """Take half of it."""
        part = data[: (len(data) + 1) // 2]
        self.data += part
        return len(part)


class Thing:
    """An object whose `after_fork` a forked child calls."""

    def after_fork(self) -> None:
        """Do nothing."""


def tracked_side_by_side(module: ModuleType) -> None:
    """An object that is gone is looked for once, although two threads find it gone."""
    things = [Thing() for _ in range(3)]
    module.when_forked(things.pop())
    together(*[lambda thing=thing: module.when_forked(thing) for thing in things])


ATOMS = [
    Piece(
        numbered_side_by_side,
        receipts,
        {
            "the number is read and then raised": (
                "{next(self._numbers)}",
                "{(setattr(self, '_last', getattr(self, '_last', 0) + 1), self._last)[1]}",
            )
        },
    ),
    Piece(
        confirmed_twice_side_by_side,
        receipts,
        {
            "the second one is the first as well": ("        return first\n", "        return True\n"),
        },
    ),
    Piece(
        forgotten_while_the_link_ends,
        receipts,
        {
            "looked up and then taken out": (
                "        if self._pending.pop(receipt.id, None) is not None and receipt._store is None:",
                "        if receipt.id in self._pending:\n            del self._pending[receipt.id]",
            )
        },
    ),
    Piece(
        held_while_another_lets_go,
        flow,
        {
            "the holders are read and then replaced": (
                "self.holders.add(holder)",
                "self.holders = self.holders | {holder}",
            )
        },
    ),
    Piece(
        closed_while_it_is_used,
        sockets,
        {"the users are read and then replaced": ("self.users.add(user)", "self.users = self.users | {user}")},
    ),
    Piece(
        closed_while_it_writes,
        sockets,
        {
            "looked whether it is closed, and then noted as a user": (
                "            use.writing = True\n            if self._shut:",
                "            shut = self._shut\n            use.writing = True\n            if shut:",
            )
        },
    ),
    Piece(
        closed_while_it_writes_in_parts,
        sockets,
        {
            "looked whether it is closed, and then noted as a user": (
                "            use.sending = True\n            if self._shut:",
                "            shut = self._shut\n            use.sending = True\n            if shut:",
            )
        },
    ),
    Piece(
        left_to_the_thread_that_writes,
        message,
        {
            "copied and then emptied": (
                "frames = [shared.popleft() for _ in range(len(shared))]",
                "frames = list(shared)\n                shared.clear()",
            )
        },
    ),
    Piece(
        asked_while_the_inbox_ends,
        sending,
        {
            "closed behind the last request": (
                "        super().end(reason)\n        while self.pending:\n",
                "        super().end(reason)\n        self.closed = False\n        while self.pending:\n",
            ),
            "nobody else is expected to take one out": (
                "            with contextlib.suppress(KeyError):  # its caller",
                "            if True:  # its caller",
            ),
        },
    ),
    Piece(
        noted_side_by_side,
        processes,
        {"looked up and then taken out": ("crashes.free.pop()", "crashes.free[-1]; del crashes.free[-1]")},
    ),
    Piece(
        tracked_side_by_side,
        forks,
        {
            "nobody else is expected to be first": (
                "        try:\n            freed = _freed.popleft()\n        except IndexError:\n            return"
                "  # another thread was first",
                "        freed = _freed.popleft()",
            )
        },
    ),
]

WRITTEN = [
    Piece(
        answered_while_a_message_is_written,
        websocket,
        {
            "the end of a frame that another thread writes is not waited for": (
                "                with self._lock:\n                    pass  # a thread that has begun",
                "                # a thread that has begun",
            ),
            "taken out and then kept": (
                "            frame = self._unsent = self._control[0]  # in one of both all the time, for the look of a "
                "writer\n            self._control.popleft()\n",
                "            frame = self._control.popleft()\n            self._unsent = frame\n",
            ),
        },
    ),
    Piece(
        closed_while_a_message_is_written,
        websocket,
        {
            "a message follows a Close frame": ("if self._close_sent:  # looked", "if False:  # looked"),
            "the rest of a Close frame is left": (
                "if self._interrupted:\n                raise",
                "if self._interrupted or self._close_sent:\n                raise",
            ),
        },
    ),
]
