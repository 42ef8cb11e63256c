"""Child processes: started again with the program's own command line, supervised, stopped together.

The parent runs no task and has no connection. A child knows that it is one by its environment, and takes orders from
its parent alone: a pipe, whose other end the parent closes when the child is to stop, and the system closes when the
parent dies. Signals that others send to a child (systemd to all processes of a service, a shell to a process group) are
ignored once it runs tasks, so that no child gets two of them for one stop.

Which messages a child was running when it died is known, so that a message that kills processes does not do so forever.
A child notes each message that it runs in a file that is mapped into its memory and outlives it. When a child has died,
the parent makes a record of each message in its notes, then starts another child in its place. The child that gets the
message again takes the record:

- If one message was running, it crashed the child. That is a failed attempt.
- If several were running, they are suspects. None has failed, but each is run alone: its child first finishes its
  running messages, and starts no other meanwhile. So if a suspect kills its child, no other message ran.

A record belongs to one delivery. A redelivered message is recognised by its content and its id. If the broker changes
the id, one of several messages with equal content takes the record, and the others are not affected.

A record that was taken is in the notes of its new child until the message is settled, so that it outlives that child.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import itertools
import logging
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stompy.connection.message import Message, delivery_of
from stompy.deadline import Deadline
from stompy.locks import Rank, SafeEvent, make_condition, make_lock
from stompy.worker.failure import ATTEMPT, CRASHED, fingerprint
from stompy.worker.service import Signals, TaskHealth, WorkerExit, WorkerHealth, stacks_on_request
from stompy.world import mmap, os, signal, subprocess, tempfile, time

_LOG = logging.getLogger("stompy.worker")

_CHILD = "STOMPY_WORKER_CHILD"
"""Environment of a child: its number, its end of the pipe, and the parent's folder."""

_POLL = 0.1
_QUICK = 10.0
"""Seconds: a child that lived shorter than this, and handled no message, did not get far."""

_MAX_FAILED_STARTS = 5
"""Deaths in a row of children that did not get far, of every child, after which the parent gives up."""

_LONGEST_DELAY = 10.0
_GRACE = 10.0
"""Seconds beyond `close_timeout` after which a child is killed."""

_SILENT = 10.0
"""Seconds without a report after which a child counts as hung."""

_HUNG = 60.0
"""Seconds without a report after which a child is killed and replaced."""

_STACKS = 5.0
"""Seconds that a child has to say that it has written its stacks: it cannot while its main thread hangs in C code."""

_TERMINATED = tuple(code for number in (signal.SIGTERM, signal.SIGINT) for code in (-number, 128 + number))
"""Exit codes of a child that a signal ended, before it ran tasks or after."""

_AFTER_START = (WorkerExit.OK, WorkerExit.UNFINISHED, WorkerExit.STUCK)
"""Exit codes of a child that has ended in order, with messages or without."""

_HOPELESS = (WorkerExit.USAGE, WorkerExit.BROKER)
"""Exit codes of a child that would only come again."""


# Messages that crash a process: the child's half.

_SIZE = 32
"""Bytes of a note: the state, the number of the attempt (two bytes), the mark of the message."""

_MARK = 3
"""The byte at which the mark begins."""

_PLACES = 1_024
"""More messages than these are not noted."""

_COLLECTING = 10.0
"""Seconds for a child to die after its session has ended, and for the parent to notice; or for it to report."""

_FORGOTTEN = 86_400.0
"""Seconds after which a message is not expected to be redelivered."""

_LOOK = 0.01
_TURN = 0.1
"""Seconds between two looks for a record; between two looks whether the worker stops."""


class NoteState(enum.IntEnum):
    """The state of a message, in a note or a record."""

    FREE = 0
    """The note is not used."""
    RUNNING = 1
    SUSPECT = 2
    """It was running beside others when a child died, and waits to be run alone."""
    CRASHED = 3
    """It was the only one that was running when a child died; the failed attempt is not settled yet."""


@dataclass(frozen=True, slots=True)
class CrashRecord:
    """The record of a message that a dead child had.

    Attributes:
        state: `SUSPECT` or `CRASHED`.
        attempt: the number of the attempt that crashed.
    """

    state: NoteState
    attempt: int


def identity(message: Message) -> bytes:
    """Return a hash of a message that is the same when it is redelivered, and its own if the broker keeps the id."""
    content = fingerprint(message)
    if not delivery_of(message).link.dialect.keeps_message_id:
        return content
    # Artemis begins the id with that of the consumer, which changes with the session.
    return hashlib.sha256(content + message.message_id.rpartition(",")[2].encode()).digest()


class Crashes:
    """The notes of this child, and its view of the records and of the notes of the other children.

    Args:
        folder: of the parent.
        child: number of this child.
    """

    def __init__(self, folder: Path, child: int) -> None:
        self.folder = folder
        own = _notes_path(folder, child)
        with own.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._others = {
            _report_path(folder, int(path.name.partition("-")[2])): _mapped(path)
            for path in folder.glob(_ALL_NOTES)
            if path != own
        }
        """The notes of the other children, by the path of their reports."""
        self.free = list(range(_PLACES))
        """The places for notes that are not used."""
        self.held: dict[bytes, CrashRecord] = {}
        """The records that this child has taken, by the marks of their messages."""
        self._lock = make_condition("crashes")
        self._running = 0
        self._alone = 0
        """Messages that are run alone or wait for that."""

    def close(self) -> None:
        """Note that no message runs, as this process ends in order and none of those that still do has crashed it."""
        for start in range(0, _PLACES * _SIZE, _SIZE):
            if self._map[start] == NoteState.RUNNING:
                mark = self._map[start + _MARK : start + _SIZE]
                record = self.held.get(mark)
                if record is None:
                    self.write(start // _SIZE, NoteState.FREE)
                else:
                    self.write(start // _SIZE, record.state, record.attempt, mark)

    def begin(self, given_up: Callable[[], bool], *, alone: bool) -> bool:
        """Wait until a message may run, and count it as running; return `False` if it is given up meanwhile."""
        with self._lock:
            # Counted before the wait: so no other message begins, and the running ones come to an end.
            self._alone += alone
            while not self._lock.wait_for(lambda: not (self._running if alone else self._alone), _TURN):
                if given_up():
                    self._alone -= alone
                    return False
            self._running += 1
            return True

    def finish(self, *, alone: bool) -> None:
        """Count a message as no longer running."""
        with self._lock:
            self._running -= 1
            if self._alone:
                self._alone -= alone
                self._lock.notify_all()

    def write(self, place: int, state: NoteState, attempt: int = 0, mark: bytes = b"") -> None:
        """Write a note, or clear it with `NoteState.FREE`."""
        start = place * _SIZE
        # The process may die at any byte: the state says last that there is a note, and first that there is none.
        if state is NoteState.FREE:
            self._map[start] = state
        self._map[start + 1 : start + _SIZE] = attempt.to_bytes(2, "big") + mark.ljust(_SIZE - _MARK, b"\0")
        self._map[start] = state

    def find(self, message: Message, mark: bytes, note: Callable[[CrashRecord], None]) -> CrashRecord | None:
        """Take the record of a message, if there is one; wait for the parent to make it if a child is dying.

        `note` notes it before it is taken, as this process may be killed in between.
        """
        dialect = delivery_of(message).link.dialect
        # A retry may have been copied twice, and the second copy is not redelivered.
        again = message.redelivered or ATTEMPT in message.headers
        # Of a topic's message, which each child has with the same id, only what is marked can be redelivered.
        if not again and (dialect.marks_redelivered or not message.destination.startswith("/queue/")):
            return None
        others = self._others if again or dialect.keeps_message_id else {}
        reports = {path: _version(path) for path in others}
        deadline = Deadline(_COLLECTING)
        while True:
            # First the reports, then the notes, then the records, as the parent makes the record before it clears the
            # note, and clears that before it starts another child, which reports.
            alive = {path for path, report in reports.items() if _version(path) != report}
            noted = any(
                path not in alive or note[0] != NoteState.RUNNING
                for path, notes in others.items()
                for note in _noted(notes[:], mark)
            )
            record = _take(self.folder, mark, note)
            # Another child has a message like this. It is dead or dying; or it has reported since this one came, so it
            # runs this one still, as only its session was lost, or another message. Or that child, or this one, has the
            # record for a message that waits, and gives it back if that message's session was lost; until then no other
            # message begins there anyway.
            if record is not None or not (noted or mark in self.held) or deadline.expired:
                return record
            time.sleep(_LOOK)


class Note:
    """One message in the notes of this child; used by one slot.

    Attributes:
        crashed: the number of the attempt that crashed a child, which is to be settled as failed; or `None`.
    """

    def __init__(self, crashes: Crashes, message: Message) -> None:
        self._crashes = crashes
        self._message = message
        self._mark = identity(message)[: _SIZE - _MARK]
        self._begun = False
        self._place: int | None = None
        with contextlib.suppress(IndexError):
            self._place = crashes.free.pop()  # a step that no other thread divides, as is `append`
        self._record = record = crashes.find(message, self._mark, self._write_record)
        self._alone = record is not None or CRASHED in message.headers
        self.crashed: int | None = None
        if record is None:
            self._write(NoteState.FREE)  # another child may have taken what was noted
        else:
            crashes.held[self._mark] = record
            self.crashed = record.attempt if record.state is NoteState.CRASHED else None

    def begin(self, attempt: int, hurried: SafeEvent) -> bool:
        """Wait until the message may run, and note that it does; return `False` if it need not run any more.

        It need not where it may not wait, or where its session has ended: the next copy needs its record.
        """

        def given_up() -> bool:
            return hurried.is_set() or self._message.session_ended

        self._begun = self._crashes.begin(given_up, alone=self._alone)
        if self._begun:
            self._write(NoteState.RUNNING, min(attempt, 65_535))
        return self._begun

    def pause(self) -> None:
        """Note that the message does not run, and may later."""
        if self._record is None:
            self._write(NoteState.FREE)
        else:
            self._write_record(self._record)
        self._finish()

    def end(self) -> None:
        """Note that this child is done with the message. If it may be redelivered, its record is kept."""
        if self._record is not None:
            if self._message.settled is None or self._message.session_ended:
                with contextlib.suppress(OSError):  # without it, the message is run as any other
                    _keep(self._crashes.folder, self._mark, self._record)
            self._crashes.held.pop(self._mark, None)
        if self._place is not None:
            self._write(NoteState.FREE)
            self._crashes.free.append(self._place)
        self._finish()

    def _finish(self) -> None:
        if self._begun:
            self._begun = False
            self._crashes.finish(alone=self._alone)

    def _write_record(self, record: CrashRecord) -> None:
        self._write(record.state, record.attempt)

    def _write(self, state: NoteState, attempt: int = 0) -> None:
        if self._place is not None:
            self._crashes.write(self._place, state, attempt, b"" if state is NoteState.FREE else self._mark)


# Messages that crash a process: the parent's half.

_ALL_NOTES = "running-*"
_numbers = itertools.count()


def collect(folder: Path, child: int) -> int:
    """Make records of a dead child's messages, clear its notes, and return the number of messages that it ran."""
    _forget(folder)
    with _notes_path(folder, child).open("r+b") as file:
        data = file.read()
        notes = _noted(data)
        running = sum(note[0] == NoteState.RUNNING for note in notes)
        for note in notes:
            state = NoteState(note[0])
            if state is NoteState.RUNNING:
                state = NoteState.CRASHED if running == 1 else NoteState.SUSPECT
            _keep(folder, note[_MARK:], CrashRecord(state, int.from_bytes(note[1:_MARK], "big")))
        file.seek(0)
        file.write(bytes(len(data)))
    return running


def _noted(data: bytes, mark: bytes = b"") -> list[bytes]:
    """Return the notes in the file of a child, or those with a mark."""
    notes = [data[start : start + _SIZE] for start in range(0, len(data), _SIZE)]
    return [note for note in notes if note[0] and note.endswith(mark)]


def _notes_path(folder: Path, child: int) -> Path:
    return folder / _ALL_NOTES.replace("*", str(child))


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


# Records are empty files: to remove one is to take it, which one process does.


def _keep(folder: Path, mark: bytes, record: CrashRecord) -> None:
    number = f"{os.getpid()}-{next(_numbers)}"
    (folder / f"{mark.hex()}.{record.state:d}.{record.attempt}.{number}").touch()


def _forget(folder: Path) -> None:
    """Remove old records, such as of a message that was acknowledged, but not yet cleared, when a child died."""
    for path in folder.glob("*.*.*.*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _FORGOTTEN:
                path.unlink()


def _take(folder: Path, mark: bytes, note: Callable[[CrashRecord], None]) -> CrashRecord | None:
    for name in os.listdir(folder):
        found, *rest = name.split(".")
        if found == mark.hex():
            record = CrashRecord(NoteState(int(rest[0])), int(rest[1]))
            note(record)
            with contextlib.suppress(FileNotFoundError):  # another child has taken it
                (folder / name).unlink()
                return record
    return None


# Supervision.


class ChildRole:
    """The parent, as a child process knows it.

    Args:
        number: from 1 on.
        orders: descriptor of the pipe from the parent.
        folder: of the parent.
    """

    def __init__(self, number: int, orders: int, folder: Path) -> None:
        self.number = number
        self._orders = orders
        self._folder = folder
        os.set_inheritable(orders, False)
        os.set_blocking(orders, False)

    @classmethod
    def of_environment(cls) -> ChildRole | None:
        """Return the role of this process, or `None` if it is no child; its own children are none."""
        value = os.environ.pop(_CHILD, None)
        if value is None:
            return None
        number, orders, folder = value.split(" ", 2)
        return cls(int(number), int(orders), Path(folder))

    def crashes(self) -> Crashes:
        """Return the notes about crashes."""
        return Crashes(self._folder, self.number)

    @property
    def told_to_stop(self) -> bool:
        """Whether the parent has closed its end of the pipe, or is dead."""
        try:
            return os.read(self._orders, 1) == b""
        except BlockingIOError:
            return False

    def report(self, health: WorkerHealth) -> None:
        """Tell the parent how this child is doing."""
        path = _report_path(self._folder, self.number)
        new = path.with_suffix(".new")
        try:
            new.write_text(health.as_json(), encoding="utf-8")
            os.replace(new, path)
        except OSError as error:
            _LOG.debug("health was not reported: %s", error)

    def wrote_stacks(self) -> None:
        """Tell the parent that the stacks of this child are written."""
        with contextlib.suppress(OSError):
            (self._folder / f"stacks-{self.number}").touch()


def _report_path(folder: Path, child: int) -> Path:
    return folder / f"health-{child}"


def _version(report: Path) -> tuple[int, int] | None:
    """Return what differs between two reports; `None` while the child is still being imported."""
    try:
        status = report.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


class _Child:
    """A place for a child process, which is started again when it dies.

    Attributes:
        process: `None` while there is none.
        not_before: when it may be started, by the monotonic clock.
        failed_starts: number of processes in a row that did not get far; see `got_far`.
        report: the last one of the process; `None` before the first.
        silence: seconds since then.
    """

    def __init__(self, number: int, name: str, folder: Path) -> None:
        self.name = f"{name}-{number}"
        self.process: subprocess.Popen[bytes] | None = None
        self.not_before = 0.0
        self.failed_starts = 0
        self.report: WorkerHealth | None = None
        self.silence = 0.0
        self._number = number
        self._folder = folder
        self._orders = -1
        self._started = 0.0
        self._version: object = None
        """Of the report that was read."""
        _notes_path(folder, number).write_bytes(bytes(_SIZE * _PLACES))

    def start(self) -> None:
        """Start a process, or try again later if the system cannot."""
        try:
            self._start()
        except OSError as error:
            _LOG.error("%s: not started: %s; tried again in %.1f s", self.name, error, self.put_off())

    def _start(self) -> None:
        _report_path(self._folder, self._number).unlink(missing_ok=True)
        orders, self._orders = os.pipe()
        try:
            # A session of its own, so that Ctrl-C in a terminal does not reach it while it is being imported.
            self.process = subprocess.Popen(  # noqa: S603 - our own command line
                [sys.executable, *sys.orig_argv[1:]],
                env={**os.environ, _CHILD: f"{self._number} {orders} {self._folder}"},
                pass_fds=(orders,),
                start_new_session=True,
            )
        except BaseException:
            self._close_orders()
            raise
        finally:
            os.close(orders)
        self._started = time.monotonic()
        _LOG.info("%s: started as process %d", self.name, self.process.pid)

    def look(self, elapsed: float = 0.0) -> None:
        """Read the report if there is a new one, else add `elapsed` seconds to the silence."""
        path = _report_path(self._folder, self._number)
        version = _version(path)
        if version == self._version or version is None:
            self.silence += elapsed if version else 0.0
        else:
            self.report = WorkerHealth.of_json(path.read_text(encoding="utf-8"))
            self.silence, self._version = 0.0, version

    def write_stacks(self) -> None:
        """Let the process write its stacks, and wait until it has: those of the next one would mix with them."""
        if self.process is None or self.report is None:
            return  # it may not handle the signal yet
        written = self._folder / f"stacks-{self._number}"
        written.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR1)
        deadline = Deadline(_STACKS)
        while not (written.exists() or self.process.poll() is not None or deadline.expired):
            time.sleep(_LOOK)

    def put_off(self) -> float:
        """Count a failed start; return the seconds until the next one."""
        self.failed_starts += 1
        delay = min(_LONGEST_DELAY, _POLL * 2.0**self.failed_starts)
        self.not_before = time.monotonic() + delay
        return delay

    def order_to_stop(self) -> None:
        """Close the pipe, and send a signal so that the child looks there now."""
        if self.process is not None:
            self._close_orders()
            self.process.terminate()  # ends it if it is still being imported

    def ended(self) -> tuple[int, int]:
        """Wait for the process; return its exit code and the number of messages that it was running."""
        assert self.process is not None
        code = self.process.wait()
        self.process = None
        self.look()
        self.silence = 0.0
        self._close_orders()
        return code, collect(self._folder, self._number)

    def kill(self) -> None:
        """Kill the process, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def got_far(self, code: int, running: int) -> bool:
        """Return whether the process that has ended was more than a start that failed.

        Args:
            code: its exit code.
            running: number of messages that it was running.
        """
        if self.report is None:
            return running > 0
        tasks = self.report.tasks.values()  # none without a session
        counted = any(any(task.counts.values()) for task in tasks)
        lived = bool(tasks) and time.monotonic() - self._started >= _QUICK
        return running > 0 or code in _AFTER_START or counted or lived

    def _close_orders(self) -> None:
        if self._orders >= 0:
            os.close(self._orders)
            self._orders = -1


class Supervisor:
    """Keeps child processes running.

    Args:
        name: of the worker.
        processes: number of children.
        close_timeout: seconds that the tasks of a child get to finish.
        on_poll: called several times per second.
        hung: seconds without a report after which a child is killed and replaced.
    """

    def __init__(
        self,
        name: str,
        processes: int,
        close_timeout: float,
        on_poll: Callable[[], None] = lambda: None,
        *,
        hung: float = _HUNG,
    ) -> None:
        self._name = name
        self._processes = processes
        self._close_timeout = close_timeout
        self._on_poll = on_poll
        self._hung = hung
        self._children: list[_Child] = []
        self._signals = Signals(raises=False)
        self._looked = time.monotonic()
        self._lock = make_lock(Rank.LEAF, "supervisor")
        """That a report is either of a process that runs or part of the past."""
        self._past: dict[str, TaskHealth] = {}
        """The counters of processes that have ended, by task."""

    def run(self) -> int:
        """Run the children until a signal comes or none can be kept running; return the exit code."""
        self._signals.install()
        try:
            with (
                tempfile.TemporaryDirectory(prefix="stompy-worker-") as folder,
                stacks_on_request(self._ask_for_stacks),
            ):
                self._children = [_Child(n, self._name, Path(folder)) for n in range(1, self._processes + 1)]
                try:
                    return self._stop(self._supervise())
                finally:
                    for child in self._children:
                        child.kill()
        finally:
            self._signals.restore()

    def health(self) -> WorkerHealth:
        """Return the sum of the children's reports; the counters include processes that have ended."""
        with self._lock:
            reports = [child.report for child in self._children if child.report is not None]
            past = self._past
        running = len(reports) == self._processes and all(report.state == "running" for report in reports)
        return WorkerHealth(
            state="stopping" if self._signals.received else "running" if running else "starting",
            connected=len(reports) == self._processes and all(report.connected for report in reports),
            parked=sum(report.parked for report in reports),
            overdue=sum(report.overdue for report in reports),
            tasks=_sum([past, *(report.tasks for report in reports)]),
            last_error=next((report.last_error for report in reports if report.last_error), None),
            outage=next((report.outage for report in reports if report.outage), None),
            processes=sum(child.process is not None for child in self._children),
            hung=sum(child.silence >= min(_SILENT, self._hung) for child in self._children),
        )

    def _ask_for_stacks(self) -> None:
        for child in self._children:
            child.write_stacks()

    def _supervise(self) -> WorkerExit | None:
        """Start and restart children; return the exit code, or `None` if a signal came."""
        while not self._signals.received:
            for child in self._children:
                if child.process is None:
                    if time.monotonic() >= child.not_before:
                        child.start()
                elif child.process.poll() is not None:
                    code = self._died(child)
                    if code in _HOPELESS:
                        return WorkerExit(code)
                elif child.silence >= self._hung:
                    _LOG.error("%s: killed, as nothing was heard from it for %.0f s", child.name, child.silence)
                    child.kill()
            if all(child.failed_starts >= _MAX_FAILED_STARTS for child in self._children):
                _LOG.error("%s: every process died %d times at its start", self._name, _MAX_FAILED_STARTS)
                return WorkerExit.FAILED
            self._wait()
        return None

    def _wait(self) -> None:
        """Wait a little, and read the reports."""
        self._on_poll()
        time.sleep(_POLL)
        now = time.monotonic()
        # While this process was stopped itself, it could not hear its children.
        elapsed, self._looked = min(now - self._looked, 2 * _POLL), now
        for child in self._children:
            if child.process is not None:
                child.look(elapsed)

    def _died(self, child: _Child) -> int:
        """Note the end of a child that was not asked to stop; return its exit code."""
        code, running = child.ended()
        got_far = child.got_far(code, running)
        with self._lock:
            if child.report is not None:
                ended = {name: replace(task, running=0, queued=0, stuck=0) for name, task in child.report.tasks.items()}
                self._past = _sum([self._past, ended])
                child.report = None
        if got_far:
            child.failed_starts = 0
            child.not_before = time.monotonic() + (0.0 if code == WorkerExit.OK else _POLL)
        if got_far and code == WorkerExit.OK:
            _LOG.info("%s: reached a limit in order, and is replaced", child.name)
        elif code not in _HOPELESS:
            delay = _POLL if got_far else child.put_off()
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            _LOG.error("%s: died by %s while it ran %d messages; restarted in %.1f s", child.name, how, running, delay)
        return code

    def _stop(self, code: WorkerExit | None) -> int:
        """Stop the children in order, and return the exit code."""
        for child in self._children:
            if child.process is not None and child.process.poll() is not None:
                self._died(child)  # before it was asked to stop
            child.order_to_stop()
        live = [child for child in self._children if child.process is not None]
        deadline = Deadline(self._close_timeout + _GRACE)
        while any(child.process and child.process.poll() is None for child in live):
            if deadline.expired or len(self._signals.received) >= 2:
                break
            self._wait()
        for child in live:
            assert child.process is not None
            killed = child.process.poll() is None
            child.kill()
            if killed:
                _LOG.error("%s: was killed, as it did not stop in time", child.name)
            code = code or _code_after_stop(child, child.ended()[0], killed=killed)
        if len(self._signals.received) >= 2:
            return 128 + self._signals.received[-1]
        return code or WorkerExit.OK


def _code_after_stop(child: _Child, code: int, *, killed: bool) -> WorkerExit:
    """Return how a child ended that was asked to stop: whether its tasks have finished."""
    if killed:
        return WorkerExit.UNFINISHED
    # One that did not report that it stops had not begun, or was dead already.
    if code in _TERMINATED or child.report is None or child.report.state != "stopping":
        return WorkerExit.OK
    if code in set(WorkerExit):
        return WorkerExit(code) if code in (WorkerExit.UNFINISHED, WorkerExit.STUCK) else WorkerExit.OK
    return WorkerExit.UNFINISHED


def _sum(reports: Sequence[Mapping[str, TaskHealth]]) -> dict[str, TaskHealth]:
    """Return the sum of reports about tasks, by task."""
    found: dict[str, list[TaskHealth]] = {}
    for report in reports:
        for name, task in report.items():
            found.setdefault(name, []).append(task)
    return {
        name: TaskHealth(
            running=sum(task.running for task in tasks),
            queued=sum(task.queued for task in tasks),
            stuck=sum(task.stuck for task in tasks),
            counts=dict(sum((Counter(task.counts) for task in tasks), Counter())),
        )
        for name, tasks in found.items()
    }
