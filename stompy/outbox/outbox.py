"""`Outbox`, the public class."""

from __future__ import annotations

import atexit
import inspect
import logging
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from stompy.arguments import check_arguments, check_counts
from stompy.backoff import DEFAULT_BACKOFF, Backoff, check_attempts
from stompy.closable import Closable
from stompy.connection.connecting import ConnectOptions, config_of, connect
from stompy.connection.connection import Connection
from stompy.connection.encoding import Body, check_destination, encode_body, user_headers
from stompy.connection.listeners import Listener
from stompy.deadline import Deadline, check_seconds
from stompy.default import DEFAULT, Default, check_names, given
from stompy.dialects.brokers import check_given_once, dialect_named
from stompy.dialects.options import SendOptions, check_send_options
from stompy.errors import ConfigurationError, OutboxError, StompError, StompTimeoutError
from stompy.forks import Owner
from stompy.frames.encoder import encode
from stompy.frames.grammar import Version, grammar_of
from stompy.link.settings import Timeouts
from stompy.locks import make_condition
from stompy.outbox.forwarder import Forwarder
from stompy.outbox.record import OutboxLedger, Row, as_json
from stompy.outbox.store import KEEP_FREE, Room, Store, now_ms
from stompy.secret import Secret, without_traceback
from stompy.world import os, secrets

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from stompy.connection.connecting import show_connect_options
    from stompy.dialects.options import show_send_options

_LOG = logging.getLogger("stompy.outbox")

_EXIT_TIMEOUT = 2.0
_CLOSE_TIMEOUT = 10.0
_GRACE = 1.0
"""Seconds after the deadline of `close` for a thread whose connection was ended."""

_POLL_INTERVAL = 0.2
"""Seconds between checks of `flush` whether the forwarder has ended."""

_NUMBERS = count(1)
_GRAMMAR = grammar_of(Version.V1_2)
_open: weakref.WeakSet[Outbox] = weakref.WeakSet()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxStats:
    """Counters and gauges of an outbox.

    Attributes:
        waiting: messages on disk that the broker has not confirmed, including those in flight.
        oldest_age: seconds since the `put` of the oldest of them, by the wall clock; 0 if there is none.
        in_flight: messages sent and not confirmed.
        dead_letters: messages that were rejected too often or cannot be sent.
        bytes: bytes of bodies, headers and destinations of all messages on disk.
        sent: messages confirmed since the outbox was opened.
        connected: whether a session with the broker is open.
        last_error: the last error; `None` if a message was confirmed since.
    """

    waiting: int
    oldest_age: float
    in_flight: int
    dead_letters: int
    bytes: int
    sent: int
    connected: bool
    last_error: StompError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that the broker rejected too often, or that cannot be sent to it at all.

    Attributes:
        id: the id that `put` returned.
        destination: as given to `put`.
        headers: as given to `put`, and the content type.
        body: the encoded body.
        age: seconds since `put` or `retry`, by the wall clock.
        attempts: how often it was rejected.
        error_message: the last error message, usually the broker's.
    """

    id: str
    destination: str
    headers: Mapping[str, str]
    body: bytes
    age: float
    attempts: int
    error_message: str


class Outbox(Closable):
    """Messages that wait on disk until the broker has confirmed them.

    `put` returns when the message is on disk; a thread of the outbox sends it, now or when the broker is reachable
    again. Messages of one destination arrive in the order of their `put`. If a confirmation is lost, the message may
    arrive twice: each copy has the same header `stompy-dedupe-id` (and `_AMQ_DUPL_ID` for Artemis, which drops the
    duplicate).

    Thread-safe. Use it as a context manager, or call `close`; unconfirmed messages stay on disk until the outbox is
    opened again. Only one outbox at a time can open the file.

    Args:
        path: the file, on a local disk; `<path>-lock` and `<path>-wal` next to it belong to it.
        url: as for `stompy.connect`.
        attempts: how often a message may be rejected by ERROR, after which it is a dead letter; `None` for no limit.
        max_messages: limit of stored messages, including dead letters; `None` for no limit.
        max_bytes: limit of stored bytes of bodies, headers and destinations; `None` for no limit.
        keep_free: bytes of the disk that must stay free; a `put` that would need them raises `OutboxFullError`.
        batch: limit of messages in flight.
        backoff: the delays between connections while nothing is confirmed.
        connect_options: settings of `stompy.connect`, such as `login`, `passcode` and `timeouts`; neither they
            nor the address are written to the file.

    Raises:
        ConfigurationError: an argument is invalid.
        OutboxBusyError: the file is already open, in this process or another.
        OutboxDamagedError: the file is corrupt; the whole file is read and checked here.
        OutboxError: the file cannot be used.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        url: str | Sequence[str],
        *,
        attempts: int | None = 5,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        keep_free: int = KEEP_FREE,
        batch: int = 200,
        backoff: Backoff = DEFAULT_BACKOFF,
        **connect_options: Unpack[ConnectOptions],
    ) -> None:
        if TYPE_CHECKING:
            show_connect_options(**connect_options)
        # From here on, no local variable shows a credential in a traceback.
        arguments, url = Secret((url, {**connect_options})), ""
        self._telemetry = connect_options.get("telemetry")
        dialect_name = connect_options.get("dialect")
        del connect_options
        check_arguments(Outbox.__init__, locals(), skip=("path", "url"))
        check_attempts(attempts)
        check_counts(max_messages=max_messages, max_bytes=max_bytes, batch=batch)
        check_counts(least=0, keep_free=keep_free)
        # Now, not in the forwarder, where a wrong argument would fail repeatedly.
        self._timeouts = waits = without_traceback(lambda: _checked(*arguments.reveal()))
        name = f"outbox-{next(_NUMBERS)}"

        def open_connection(listener: Listener) -> Connection:
            # The forwarder must know which session confirmed which message, so it reconnects itself.
            own = {"timeouts": waits, "listeners": [listener], "name": name, "reconnect": False}
            return without_traceback(lambda: _connected(*arguments.reveal(), own))

        self._dialect = None if dialect_name is None else dialect_named(dialect_name)
        self._path = os.path.realpath(_path_of(path))
        self._owner = Owner("outbox", "only that process may use its file")
        self._changes = _Changes()
        room = Room(max_messages, max_bytes, keep_free)
        self._store = Store(self._path, room=room, name=f"stompy-{name}", on_commit=self._changes.notify)
        self._forwarder = self._changes.forwarder = Forwarder(
            self._store,
            open_connection,
            batch=batch,
            attempts=attempts,
            backoff=backoff,
            receipt_timeout=waits.receipt,
            name=f"stompy-{name}",
        )
        self._forwarder.start()
        self._closed = False
        _open.add(self)

    def put(self, destination: str, body: Body = b"", **options: Unpack[SendOptions]) -> str:
        """Write a message to disk; return its id when the message would survive a power cut.

        Concurrent calls share one sync of the disk.

        Args:
            destination: as in `Connection.send`.
            body: as in `Connection.send`.
            options: those of `Connection.send`; stored with the message. By default it is persistent, and its dedupe id
                is the returned one. `expires` and `delay` count from this call.

        Returns:
            The id for `retry` and `discard`.

        Raises:
            LocalProtocolError: the message cannot be sent in STOMP 1.2; nothing was written.
            ConfigurationError: an option is wrong, or known not to be supported by the broker: the one given by
                `dialect=`, or that of the last session; nothing was written. If it turns out later, the message becomes
                a dead letter.
            OutboxFullError: a limit is reached, or the disk is full; nothing was written.
            OutboxError: the outbox is closed or corrupt, or the disk failed.
            ConcurrencyError: called in a forked child.
        """
        if TYPE_CHECKING:
            show_send_options(**options)
        self._owner.check()
        check_destination(destination)
        check_send_options(options)
        encoded, kind = encode_body(body, options.pop("content_type", None))
        given_headers = options.pop("headers", None)
        if self._telemetry is not None:
            given_headers = self._telemetry.inject(given_headers)
        fields = {"content-type": kind} if kind is not None else {}
        fields.update(user_headers(given_headers))
        given = {name: value for name, value in options.items() if value is not None}
        broker = self._forwarder.dialect or self._dialect
        if given and broker is not None:
            broker.send_headers({**given, "dedupe_id": None}, fields)  # the outbox has a header for any broker
        check_given_once(given, fields)
        # A message that cannot be encoded must fail here, in the caller.
        encode("SEND", [("destination", destination), *fields.items()], grammar=_GRAMMAR)
        identity = secrets.token_hex(16)
        stored = as_json(given) if given else ""
        self._store.put(Row(0, identity, destination, as_json(fields), encoded, now_ms(), options=stored))
        return identity

    def stats(self) -> OutboxStats:
        """Return counters and gauges of the outbox.

        Raises:
            OutboxError: the outbox is closed or corrupt.
        """
        self._owner.check()
        since = self._store.oldest_ms()
        ledger, forwarder = self._store.ledger, self._forwarder
        return OutboxStats(
            waiting=self._waiting(),
            oldest_age=0.0 if since is None else _age(since),
            in_flight=forwarder.in_flight,
            dead_letters=ledger.dead_letters,
            bytes=ledger.size,
            sent=forwarder.sent,
            connected=forwarder.connected,
            last_error=forwarder.last_error,
        )

    def dead_letters(self, *, limit: int = 1_000) -> list[DeadLetter]:
        """Return the oldest `limit` messages that were rejected too often or cannot be sent.

        Raises:
            OutboxError: the outbox is closed or corrupt.
        """
        self._owner.check()
        check_arguments(Outbox.dead_letters, {"limit": limit})
        return [
            DeadLetter(
                id=row.id,
                destination=row.destination,
                headers=row.header_map(),
                body=row.body,
                age=_age(row.put_ms),
                attempts=row.tries,
                error_message=row.error_message,
            )
            for row in self._store.dead_letters(limit=limit)
        ]

    def retry(self, id: str) -> None:
        """Queue a dead letter again, after all other messages and with the same id.

        Raises:
            OutboxError: there is no such dead letter, or as for `put`.
        """
        self._owner.check()
        self._store.retry(id)

    def discard(self, id: str) -> None:
        """Delete a dead letter.

        Raises:
            OutboxError: there is no such dead letter, or as for `put`.
        """
        self._owner.check()
        self._store.discard(id)

    def flush(self, *, timeout: float | Default | None = DEFAULT) -> None:
        """Wait until the broker has confirmed all messages; dead letters do not count.

        Args:
            timeout: seconds; by default the receipt timeout.

        Raises:
            StompTimeoutError: there are still unconfirmed messages.
            OutboxError: the outbox is closed or corrupt, so that nothing more is sent.
        """
        self._owner.check()
        seconds = given(timeout, self._timeouts.receipt)
        store, forwarder = self._store, self._forwarder
        self._changes.wait(lambda: not self._waiting(), lambda: forwarder.ended, Deadline(seconds))
        if not self._waiting():
            return
        if forwarder.ended:
            why = "it is closed" if self._closed else f"sending has stopped: {forwarder.last_error}"
            raise store.writer.failure or OutboxError(why, path=self._path)
        why = f"; last: {forwarder.last_error}" if forwarder.last_error is not None else ""
        raise StompTimeoutError(f"{self._waiting()} messages of {self!r} still wait after {seconds:g} s{why}")

    def close(self, *, timeout: float | Default | None = DEFAULT) -> None:
        """Stop sending, process the receipts that arrive in time, and close the file. Idempotent.

        Unconfirmed messages stay on disk. To wait until they are sent, call `flush` first.

        Args:
            timeout: seconds in total, by default the close timeout; a `put` in progress in another thread completes
                first in any case.

        Raises:
            ConfigurationError: the timeout is invalid; nothing was done. Other errors are logged.
        """
        check_seconds(given(timeout, None))
        if self._owner.forked:
            return
        self._closed = True
        deadline = Deadline(given(timeout, given(self._timeouts.close, _CLOSE_TIMEOUT)))
        self._forwarder.stop(deadline)
        if not self._forwarder.join_until(deadline):
            self._forwarder.cut()
            if not self._forwarder.join_until(Deadline(_GRACE)):
                _LOG.warning("the forwarder of %s is still connecting at the close deadline", self._path)
        if not self._store.close(deadline.sooner(None)) and not self._store.close(Deadline(_GRACE)):
            _LOG.warning("the disk of %s is still busy at the close deadline", self._path)
        self._changes.notify(self._store.ledger)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def _waiting(self) -> int:
        return max(0, self._store.ledger.waiting - self._forwarder.unremoved)

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not self._owner.forked:
            warnings.warn(f"an outbox was not closed: {self!r}", ResourceWarning, source=self, stacklevel=2)
            self._forwarder.abandon()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("an Outbox cannot be pickled: only one may have its file open")

    def __repr__(self) -> str:
        if not hasattr(self, "_store"):  # in a traceback of the constructor
            return "<Outbox not open>"
        ledger = self._store.ledger
        state = "closed" if self._closed else "connected" if self._forwarder.connected else "not connected"
        return f"<Outbox {self._path!r} waiting={ledger.waiting} dead_letters={ledger.dead_letters} {state}>"


class _Changes:
    """Reports changes on disk to the forwarder and to callers of `flush`.

    Separate from the outbox, so that the threads do not keep an unused outbox from being garbage-collected.
    """

    def __init__(self) -> None:
        self.forwarder: Forwarder | None = None
        self._condition = make_condition("outbox changes")

    def notify(self, ledger: OutboxLedger) -> None:
        """Wake the forwarder and all waiting callers; usually on the writer thread."""
        if self.forwarder is not None:
            self.forwarder.wake()
        with self._condition:
            self._condition.notify_all()

    def wait(self, changed: Callable[[], object], over: Callable[[], bool], deadline: Deadline) -> None:
        """Wait until `changed()` or `over()` is true, or the deadline has passed."""
        with self._condition:
            # `over` is polled, as the end of the forwarder is not a change on disk.
            while not self._condition.wait_for(changed, deadline.sooner(_POLL_INTERVAL).remaining()):
                if over() or deadline.expired:
                    return


def _age(since_ms: int) -> float:
    return max(0.0, (now_ms() - since_ms) / 1000)


def _path_of(path: str | os.PathLike[str]) -> str:
    text: object = os.fspath(path)
    if not isinstance(text, str) or not text or text.endswith(os.sep):
        raise ConfigurationError(f"an outbox needs the path of a file, not {path!r}")
    return text


def _connected(url: str | Sequence[str], options: dict[str, Any], own: dict[str, Any]) -> Connection:
    return connect(url, **{**options, **own})


def _checked(url: str | Sequence[str], options: dict[str, Any]) -> Timeouts:
    check_names("an outbox", options, ConnectOptions.__annotations__, inspect.signature(Outbox).parameters)
    options["versions"] = config_of(Secret({"url": url, **options})).versions  # which may have been an iterator
    timeouts: Timeouts | Default = options.get("timeouts", DEFAULT)
    # The forwarder tries again by itself, and looks meanwhile whether the outbox is being closed.
    return replace(given(timeouts, Timeouts()), start=0.0)


@atexit.register
def _close_all() -> None:
    """Close outboxes that the program left open; their messages are already on disk."""
    for outbox in list(_open):
        outbox.close(timeout=_EXIT_TIMEOUT)
