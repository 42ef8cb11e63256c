"""One client's stay: the thread that reads its frames, and how it ends.

| thread | owns | may block on |
|---|---|---|
| `stompy-broker-<n>-reader` | parser, order of frames in, the end of both | `recv`; answers not fetched; linger |

Locks: the router's, once for all frames of a read; never over I/O.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from stompy.broker.profile import OWN, deletes_durable
from stompy.broker.refusals import Refusal, RefusedError
from stompy.broker.session_state import SessionState
from stompy.broker.settings import FrameHook, SessionBudget, Settings
from stompy.broker.write_queue import WriterThread
from stompy.deadline import Deadline
from stompy.errors import ConnectionLostError, LimitExceededError, ProtocolError, RemoteProtocolError, StompTimeoutError
from stompy.forks import ChildEnds
from stompy.frames.frame import Frame
from stompy.frames.grammar import Version
from stompy.frames.heads import Run, frames_of
from stompy.frames.parser import Parser
from stompy.protocol.heartbeat import HeartbeatRateLimit, Heartbeats, HeartbeatTimer
from stompy.protocol.rules import Fault, FaultyFrame, fault_of, version_of
from stompy.protocol.server import ServerProtocol
from stompy.protocol.state import subscription_key
from stompy.secret import Secret
from stompy.world import threading, time

if TYPE_CHECKING:
    from stompy.broker.commands import Commands
    from stompy.broker.router import BrokerRouter
    from stompy.broker.users import Admission, ClientSlot, User
    from stompy.transport.base import Transport

_LOG = logging.getLogger("stompy.broker")

_NEVER = Deadline(None)

_UNACKED_COST = 512
"""About how many bytes a delivery takes while it waits for its ACK."""

_LAST_READ = 0.01
"""Seconds after the last ERROR of a session, in which frames that were on their way are refused once more."""

_TOPIC_CHECK_INTERVAL = 1.0
"""Seconds between two checks by a reader whose session a publisher may have ended."""


class ClientSession:
    """Serves one client from its CONNECT to the end of the stream.

    Args:
        transport: owned by the session from here on.
        router: where messages go.
        commands: the effects of frames.
        settings: limits, users, times.
        admission: counts clients; called when this one is connected and when it is gone.
        slot: its place there; a refused client gets an ERROR and is disconnected.
        name: unique among the sessions of the broker.
        number: for the names of the threads.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        router: BrokerRouter,
        commands: Commands,
        settings: Settings,
        admission: Admission,
        slot: ClientSlot,
        name: str,
        number: int,
    ) -> None:
        self._transport = transport
        self._router = router
        self._commands = commands
        self._settings = settings
        self._admission, self._slot = admission, slot
        self._profile = profile = settings.profile
        self._objection: RemoteProtocolError | None = None  # to the current frame, which does not end the session
        self._protocol = ServerProtocol(
            versions=settings.versions,
            heartbeat=profile.heartbeat or settings.heartbeat,
            server=profile.server if profile is OWN else None,
            leniency=settings.leniency | profile.leniency,
            limits=settings.frame_limits,
            require_host=settings.require_host,
            tolerates=self._tolerates,
            offered=profile.offered_versions,
            any_heartbeat=bool(profile.wrong_beats),
        )
        self._turn = router.turn()  # of the reader
        self._write_queue = router.write_queue()
        self._budget = SessionBudget(router.budget, settings.session_state_bytes)
        self._name = name
        self._state = SessionState(
            profile.session_name % name,
            peer=transport.peer,
            protocol=self._protocol,
            write_queue=self._write_queue,
            budget=self._budget,
            max_unacked=max(1, settings.session_state_bytes // _UNACKED_COST),
            abort=self.abort,
            watch=self._watch,
        )
        self._connect_by = Deadline(settings.connect_timeout)
        self._pulse: HeartbeatTimer | None = None
        self._meter = HeartbeatRateLimit(settings.max_eol_rate, time.monotonic())
        self._over, self._aborted = threading.Event(), threading.Event()
        self._writer = WriterThread(
            self._write_queue,
            transport,
            on_room=self._refill,
            stalled=settings.send_timeout,
            name=f"stompy-broker-{number}-writer",
        )
        self._watch()
        self._reader = threading.Thread(target=self._run, name=f"stompy-broker-{number}-reader", daemon=True)

    def start(self) -> None:
        """Start both threads; where the system gives none, the transport is closed.

        Raises:
            RuntimeError: the system gives no more threads.
        """
        try:
            self._writer.start()
            self._reader.start()
        except RuntimeError:
            with self._router.turn():
                self._router.hang_up(self._state)
            self._transport.close()
            self._budget.close()
            self._admission.leave(self._slot)
            self._over.set()
            raise

    @property
    def ended(self) -> bool:
        """Whether it was started, or could not be, and its threads have ended."""
        return self._over.is_set() and not self._reader.is_alive()

    @property
    def state(self) -> SessionState:
        """The broker's state of the session."""
        return self._state

    def abort(self) -> None:
        """Wake its threads from all waits, to end. From any thread."""
        self._aborted.set()
        self._transport.shutdown()

    def _watch(self, *watching: FrameHook) -> None:
        """Call these hooks, and that of the settings, with every frame from now on; from any thread."""
        self._hooks = [*filter(None, [self._settings.on_frame]), *watching]
        self._writer.watch(self._show_sent if self._hooks else None)

    def _show_sent(self, data: bytes) -> None:
        self._show("sent", Parser(self._protocol.grammar).feed(data))

    def _show(self, direction: Literal["received", "sent"], frames: Iterable[Frame]) -> None:
        hooks = self._hooks  # which another thread may change
        for frame, hook in itertools.product(frames, hooks):
            try:
                with ChildEnds():
                    hook(direction, self._name, frame)
            except Exception:
                _LOG.exception("the hook of the broker's frames failed")

    def join(self, timeout: float | None) -> None:
        """Wait until both threads have ended; also if they are only about to be started."""
        if self._over.wait(timeout) and self._reader.ident is not None:
            self._reader.join()  # its last act was to say so

    # The reader

    def _run(self) -> None:
        try:
            self._converse()
        except ConnectionLostError as error:
            _LOG.debug("%s: %s", self._transport.peer, error)
        except BaseException:
            _LOG.exception("%s: the session failed", self._transport.peer)
            self._fail("internal error of the broker")
        finally:
            self._end()

    def _converse(self) -> None:
        if self._slot.refusal is not None:
            self._fail(str(self._slot.refusal))
            return
        while not self._state.ended and self._read_and_process():
            self._write_queue.wait_for_answers()

    def _read_and_process(self) -> bool:
        """Process the client's next bytes; return whether it may send more."""
        if not (data := self._read()):
            return False
        parser = self._protocol.parser
        if parser.error is not None or self._state.ignored:
            return True  # it cannot be read any more, and the connection stays
        if self._pulse is None:
            self._protocol.prefer(version_of(self._transport))
            self._write_queue.ending = self._settings.profile.endings[getattr(self._transport, "keeps_messages", False)]
        items = self._parse(data)
        if items and self._pulse is not None:
            self._state.last_frame = items[-1].command, self._pulse.last_heard
        del data  # the first one holds a passcode, which no traceback of what follows must show
        self._process(items)
        try:
            if parser.line_ends != self._meter.seen:
                count = sum(len(item) if isinstance(item, Run) else 1 for item in items)
                self._meter.check(parser.line_ends, frames=count, now=time.monotonic())
            self._budget.take_frame(parser.pending)
        except LimitExceededError as error:
            self._fail(str(error))
        return True

    def _parse(self, data: bytes) -> Sequence[Frame | Run]:
        items = self._protocol.parser.read(data)
        if self._hooks:
            self._show("received", frames_of(items))
        return items

    def _read(self) -> bytes:
        """Return the client's next bytes; none if it ended its stream, or the session was ended meanwhile."""
        while not self._state.ended:
            if self._pulse is None and self._connect_by.expired:
                seconds = f"{self._settings.connect_timeout:g}"
                self._fail(f"no CONNECT frame within {seconds} s (limit connect_timeout={seconds})")
                break
            try:
                data = self._transport.recv(self._next_check())
            except StompTimeoutError:
                self._check_silence()
                continue
            if self._pulse is not None:
                self._pulse.heard(time.monotonic())
            return data
        return b""

    def _next_check(self) -> Deadline:
        if self._pulse is None:
            return self._connect_by
        if self._state.refused:
            return Deadline(_LAST_READ)
        seconds = self._pulse.next_check(time.monotonic())
        check = _NEVER if seconds is None else Deadline(seconds)
        # Somebody who publishes may have ended this session as too slow; the reader must see to it that it really ends.
        return check.sooner(_TOPIC_CHECK_INTERVAL) if self._state.follows_topics else check

    def _check_silence(self) -> None:
        if self._state.refused:
            with self._router.turn():
                self._router.detach(self._state)
            return
        if self._pulse is None or not self._pulse.dead(time.monotonic()):
            return
        seconds = self._protocol.heartbeats.silence_allowed(self._settings.heartbeat_tolerance)
        deaf, text = self._profile.refused_silence, f"nothing was received for {seconds:g} s despite heartbeats"
        self._fail(RefusedError(deaf(seconds or 0.0)) if deaf else text)

    def _process(self, items: Sequence[Frame | Run]) -> None:
        while items and self._pulse is None:
            self._greet(list(frames_of(items)))  # CONNECT alone; what came with it is read by the version agreed on
            if self._state.ended:
                return
            if self._pulse is None:
                self._protocol.await_another_connect()
            items = self._parse(b"")
        self._process_batch(items)

    def _process_batch(self, items: Sequence[Frame | Run]) -> None:
        state, protocol, work, turn = self._state, self._protocol, self._router.work, self._turn
        at, row, over = 0, 0, False
        while not over:
            with turn:
                while at < len(items) and not (state.ended or protocol.error or work.left <= 0 or turn.steps):
                    item = items[at]
                    row = self._process_next(item, row)
                    if not isinstance(item, Run) or row == len(item.rows):
                        at, row = at + 1, 0
                if protocol.parser.error is not None and at == len(items) and not state.ended:
                    protocol.accept(())  # what the parser found after these frames
                if protocol.error is not None:
                    self._router.fail(state, protocol.error, protocol.offender)
            over = at == len(items) or state.ended or protocol.error is not None
        while state.calls:
            state.calls.pop(0)()

    def _process_next(self, item: Frame | Run, row: int) -> int:
        """Process a frame, and as a SEND of a run perhaps some after it; return the place in the run that follows."""
        state, after = self._state, row
        self._router.work.left -= 1
        try:
            if isinstance(item, Run) and item.command == "SEND" and not state.refused:
                after = self._commands.process_again(state, item, row)
            if after == row:
                self._process_frame(item, row)
        except ProtocolError as error:
            self._refuse(item, row, error)
        if self._turn.steps:
            self._turn.refuse = functools.partial(self._refuse, item, row)
        return after if after > row else row + 1

    def _refuse(self, item: Frame | Run, row: int, error: ProtocolError) -> None:
        refused, state = _frame_at(item, row), self._state
        if refused.command == "SUBSCRIBE" and (key := subscription_key(refused.headers.get)) not in state.consumers:
            self._protocol.subscriptions.pop(key, None)  # it was recorded, and there is none
        self._router.fail(state, error, refused)

    def _process_frame(self, item: Frame | Run, row: int) -> None:
        state, frame, self._objection = self._state, _frame_at(item, row), None
        known = frame.headers.get("transaction") is None and isinstance(item, Run) and self._protocol.admits_run(item)
        if not known and not self._protocol.admits(frame):
            return
        if state.refused:
            raise RefusedError(Refusal("AMQ339010 Connection is not valid.", "", bare=True))
        if self._objection is not None:
            raise self._objection
        if frame.command in ("CONNECT", "STOMP"):  # a second one, where the profile takes it
            state.write_queue.answer(self._profile.connected(state.name, self._protocol, frame.headers.get))
        else:
            self._commands.process(state, frame)

    def _tolerates(self, frame: Frame, error: RemoteProtocolError) -> bool:
        """Whether a frame that is wrong goes on: to be taken all the same, or refused without ending the session."""
        if deletes_durable(frame) or (frame.command, fault_of(error)) in self._profile.takes:
            self._protocol.record(frame, begins=self._profile.implied_begin)
            return True
        refuse = self._profile.refuse
        if refuse is None or refuse(self._profile, error, frame, self._protocol.version).closes:
            return False
        self._objection = error
        return True

    def _greet(self, frames: Sequence[Frame]) -> None:
        """Answer CONNECT. The user is looked up without the router's lock, as that takes time."""
        protocol = self._protocol
        with self._router.turn():
            accepted = [] if self._state.ended else protocol.accept(frames)
            if protocol.error is not None:
                self._router.fail(self._state, protocol.error, protocol.offender)
        if not accepted or self._state.ended:
            return
        headers = accepted[0].headers
        refusal = self._profile.refuses(self._profile, "CONNECT", headers.get, self._state)
        if refusal is not None:
            self._fail(RefusedError(refusal), accepted[0])
            return
        users = self._settings.users
        passcode = Secret(headers.get("passcode", ""))
        user = None if users is None else users.admit(self._login(headers), passcode, self._connect_by)
        if users is not None and user is None:
            # The same message and the same wait, whether there is such a user or not.
            self._aborted.wait(self._settings.login_delay)
            error = FaultyFrame(Fault.WRONG_LOGIN, "access refused: wrong login or passcode")
            self._fail(error, None if self._profile is OWN else accepted[0])
            return
        with self._router.turn():
            client = headers.get("client-id") if self._profile.one_of_a_client else None
            if client is not None and (other := self._router.peer_of(client)) is not None:
                self._router.fail(self._state, FaultyFrame(Fault.CLIENT_CONNECTED, other), accepted[0])
            elif not self._state.ended:
                self._connected(user, headers)

    def _login(self, headers: Mapping[str, str]) -> str:
        return headers.get("username" if self._protocol.version is Version.DRAFT else "login", "")

    def _connected(self, user: User | None, headers: Mapping[str, str]) -> None:
        self._state.user = user
        named = self._state.name if self._profile.client_is_session else None
        self._state.client_id = headers.get("client-id", named)
        self._state.login = None if user is None else self._login(headers)
        self._admission.greeted(self._slot)
        heartbeats, now, tolerance = self._protocol.heartbeats, time.monotonic(), self._settings.heartbeat_tolerance
        connected = self._protocol.connected(self._name)
        if self._profile is not OWN:
            connected = self._profile.connected(self._state.name, self._protocol, headers.get)
        # One for each thread, as each has its own next look.
        self._pulse = self._state.pulse = HeartbeatTimer(Heartbeats(receive=heartbeats.receive), now, tolerance)
        self._writer.beat(HeartbeatTimer(Heartbeats(send=heartbeats.send), now))
        self._write_queue.answer(connected)
        self._router.attach(self._state)

    def _refill(self) -> None:
        with self._router.turn():
            self._router.refill(self._state)

    def _fail(self, why: str | RemoteProtocolError, offender: Frame | None = None) -> None:
        """Refuse a frame or a client in the words of the profile, or end the session with an ERROR that says why."""
        error = RemoteProtocolError(why) if isinstance(why, str) else why
        with self._router.turn():
            self._router.fail(self._state, error, offender)

    # The end

    def _end(self) -> None:
        """Let the last frames reach the client, in the linger time; then close (STOMP 1.2, Connection Lingering)."""
        with self._router.turn():
            self._router.hang_up(self._state)
        deadline = Deadline(self._settings.linger)
        self._discard(deadline)
        self._writer.join(deadline.remaining())
        self._transport.shutdown()
        self._writer.join()
        self._transport.close()
        self._protocol.end()  # who wants to join this session may keep it for long
        self._write_queue.withdraw(lambda delivery: True)
        self._budget.close()
        self._admission.leave(self._slot)
        self._over.set()

    def _discard(self, deadline: Deadline) -> None:
        """Read to the end of the stream: closing with bytes unread would destroy an ERROR that is still in flight."""
        with contextlib.suppress(StompTimeoutError, ConnectionLostError):
            while not deadline.expired and self._transport.recv(deadline):
                pass


def _frame_at(item: Frame | Run, row: int) -> Frame:
    return item.frame(item.rows[row]) if isinstance(item, Run) else item
