"""The limits of the broker, its other settings, and its statistics.

Messages count from their making to their end, whichever queue, backlog, ledger or transaction has them. State is all
else that a client can make large: unfinished frames, ids of subscriptions and transactions, names of queues, long heads
of messages. Usual amounts are not counted, as other limits bound them: the first KiB of a name or a head, and the first
`ALLOWANCE` bytes of a session, which so always has room.

| thread | does here | lock |
|---|---|---|
| any | counts messages and state | `MemoryBudget._lock`, taken by readers, also while they hold the router's lock |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

from stompy.arguments import check_counts, check_fields
from stompy.backoff import check_attempts
from stompy.broker.destinations import targets_of
from stompy.broker.profile import OWN, Profile
from stompy.broker.users import Users
from stompy.deadline import check_seconds
from stompy.default import DEFAULT, Default, given
from stompy.errors import ConfigurationError, LimitExceededError
from stompy.forks import free_when_forked
from stompy.frames.frame import Frame
from stompy.frames.grammar import NEGOTIABLE, FrameLimits, Leniency, Version
from stompy.locks import Rank, make_lock
from stompy.protocol.heartbeat import DEFAULT_EOL_RATE, DEFAULT_TOLERANCE, HeartbeatOffer
from stompy.protocol.state import MAX_SUBSCRIPTIONS, MAX_TRANSACTIONS
from stompy.world import threading

ALLOWANCE = 64 * 1024

_USUAL = 1024


def excess(size: int) -> int:
    """Return how much of a name or a head counts, of so many bytes."""
    return max(0, size - _USUAL)


class MemoryBudget:
    """Counts the bytes of messages and of state. Any thread.

    Args:
        limit: bytes of messages at most.
        state_limit: bytes of state at most.
    """

    def __init__(self, limit: int, state_limit: int) -> None:
        self._limit = limit
        self._state_limit = state_limit
        # Messages end where their last reference goes, which may be anywhere, also inside of these methods, or with any
        # other lock held. So this lock has no rank; nothing is called while it is held.
        self._lock = threading.RLock()
        free_when_forked(self._lock)
        self.held = 0
        """Bytes of all messages there are."""
        self.state = 0
        """Bytes of state."""

    def take(self, size: int, state: int = 0, *, force: bool = False) -> None:
        """Count a new message, or state; `force` where it takes the place of another.

        Raises:
            LimitExceededError: there is no room for it; it was not counted.
        """
        with self._lock:
            if not force:
                if size and self.held + size > self._limit:
                    raise LimitExceededError("the broker is full", limit_name="max_store_bytes", limit=self._limit)
                if state and self.state + state > self._state_limit:
                    what = "the broker keeps too much beside messages"
                    raise LimitExceededError(what, limit_name="max_state_bytes", limit=self._state_limit)
            self.held += size
            self.state += state

    def give_back(self, size: int, state: int = 0) -> None:
        """Count a message, or state, no more."""
        with self._lock:
            self.held -= size
            self.state -= state


class SessionBudget:
    """The state of one session beside messages. Any thread.

    Args:
        budget: counts it for all sessions.
        limit: bytes at most.
    """

    def __init__(self, budget: MemoryBudget, limit: int) -> None:
        self._budget = budget
        self._limit = limit
        self._lock = make_lock(Rank.BROKER_LEAF, "session budget")
        self.held = 0
        """Bytes of state."""
        self._frame = 0

    def take(self, size: int) -> None:
        """Count state; a negative number gives some back.

        Raises:
            LimitExceededError: it is too much for one session, or for all of them; it was not counted.
        """
        with self._lock:
            held = self.held + size
            if size > 0 and held > self._limit:
                what = "the broker keeps too much for this client beside messages"
                raise LimitExceededError(what, limit_name="max_session_state_bytes", limit=self._limit)
            self._budget.take(0, _counted(held) - _counted(self.held), force=size < 0)
            self.held = held

    def take_frame(self, size: int) -> None:
        """Count the frame that is not whole yet, in the place of its former size; raises as `take` does."""
        if size != self._frame:
            self.take(size - self._frame)
            self._frame = size

    def close(self) -> None:
        """Give everything back, as the session is over."""
        self.take(-self.held)
        self._frame = 0


def _counted(held: int) -> int:
    """Return how much of a session's state counts for all sessions."""
    return max(0, held - ALLOWANCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """How many messages a queue holds.

    Attributes:
        ready: wait for a consumer.
        unacked: were delivered and wait for their ACK, or for the COMMIT of it.
        consumers: live subscriptions.
    """

    ready: int
    unacked: int
    consumers: int

    @property
    def total(self) -> int:
        """All of the messages."""
        return self.ready + self.unacked


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStats:
    """A snapshot of one moment; the counters run since the broker was made.

    Attributes:
        sessions: clients that are connected, counted from their CONNECTED.
        sessions_total: sessions opened so far.
        queues: by name; an empty queue without consumers is forgotten.
        topics: live subscriptions by name, or pattern.
        durables: the messages kept for durable subscriptions, by client id and name with a slash between.
        scheduled: messages that are to be delivered later.
        subscriptions: live subscriptions in all.
        transactions: open transactions.
        messages_in: messages published.
        messages_out: MESSAGE frames handed to sessions, redeliveries included.
        redelivered: messages that went back to their queue, by NACK or because their session ended.
        dead_lettered: messages moved to the dead-letter queue.
        expired: messages whose time was over before they were delivered.
        duplicates: messages dropped as their `dedupe_id` was seen before.
        discarded: messages given up, as no queue keeps them, or they were refused as dead letters too.
        errors: ERROR frames written.
        longest_turn: the most messages, subscriptions and queues that were looked at for one client before others had
            their turn.
    """

    sessions: int
    sessions_total: int
    queues: Mapping[str, QueueDepth]
    topics: Mapping[str, int]
    durables: Mapping[str, QueueDepth]
    scheduled: int
    subscriptions: int
    transactions: int
    messages_in: int
    messages_out: int
    redelivered: int
    dead_lettered: int
    expired: int
    duplicates: int
    discarded: int
    errors: int
    longest_turn: int


@dataclass(slots=True)
class Counters:
    """The counters behind `BrokerStats`; guarded by the router's lock."""

    sessions_total: int = 0
    messages_in: int = 0
    messages_out: int = 0
    redelivered: int = 0
    dead_lettered: int = 0
    expired: int = 0
    duplicates: int = 0
    discarded: int = 0
    errors: int = 0


FrameHook = Callable[[Literal["received", "sent"], str, Frame], object]
"""Called with the direction, seen from the broker, the id of the session, and the frame."""

_OF_FRAMES = tuple(limit.name for limit in fields(FrameLimits))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits:
    """The limits of an embedded broker for its clients; times in seconds.

    Attributes:
        max_headers: header lines of a client's frame. This and the next four have the defaults of the broker that
            `Broker(like=...)` stands in for, else of `stompy.Limits`.
        max_header_line: bytes of one header line, without its line end.
        max_header_block: bytes of all header lines of a frame, with their line ends.
        max_body: bytes of a body.
        max_first_body: bytes of the body of a client's first frame.
        prefetch: messages of a subscription that wait for their ACK, unless its SUBSCRIBE says otherwise.
        max_queue_messages: ready messages in one queue.
        max_queue_bytes: the same in bytes of headers and bodies.
        max_backlog_messages: messages that wait for one subscription of a topic.
        max_backlog_bytes: the same in bytes.
        max_outbox_bytes: bytes that wait to be written to one client.
        max_transaction_frames: frames in all open transactions of one client.
        max_transaction_bytes: the same in bytes of messages.
        max_session_subscriptions: live subscriptions of one client.
        max_session_transactions: open transactions of one client.
        max_sessions: clients at one time; one more gets an ERROR and is disconnected.
        max_handshakes: clients among them that are not connected yet.
        max_handshakes_per_address: clients among these from one IP address, or one /64 of IPv6; by default half
            of them.
        max_queues: queues that exist, as they hold messages or have subscriptions.
        max_store_bytes: bytes of all messages that the broker holds, wherever they wait.
        max_state_bytes: bytes of all else that clients make it keep: unfinished frames, ids, names of queues, long
            headers of messages; by default 256 MiB, or twice `max_body` if that is more.
        max_session_state_bytes: the same for one client; by default `max_body` and 32 MiB.
        max_eol_rate: bytes of line ends a second that a client may send between frames.
        connect_timeout: time within which CONNECT must come.
        heartbeat_tolerance: intervals without a byte after which a client is disconnected.
        login_delay: time that the answer to a wrong login or passcode takes.
        send_timeout: time within which a client must take the next 256 KiB that wait for it; `None` for no limit.
        linger: time in which a client may read the last frames, after an ERROR or DISCONNECT.
        leniency: deviations of clients to tolerate; by default a deviation that ActiveMQ and RabbitMQ tolerate too.

    Raises:
        ConfigurationError: a value is out of range.
    """

    max_headers: int | Default = DEFAULT
    max_header_line: int | Default = DEFAULT
    max_header_block: int | Default = DEFAULT
    max_body: int | Default = DEFAULT
    max_first_body: int | Default = DEFAULT
    prefetch: int = 1_000
    max_queue_messages: int = 1_000_000
    max_queue_bytes: int = 512 * 1024 * 1024
    max_backlog_messages: int = 100_000
    max_backlog_bytes: int = 64 * 1024 * 1024
    max_outbox_bytes: int = 1024 * 1024
    max_transaction_frames: int = 100_000
    max_transaction_bytes: int = 64 * 1024 * 1024
    max_session_subscriptions: int = MAX_SUBSCRIPTIONS
    max_session_transactions: int = MAX_TRANSACTIONS
    max_sessions: int = 1_000
    max_handshakes: int = 100
    max_handshakes_per_address: int | Default = DEFAULT
    max_queues: int = 10_000
    max_store_bytes: int = 1024 * 1024 * 1024
    max_state_bytes: int | Default = DEFAULT
    max_session_state_bytes: int | Default = DEFAULT
    max_eol_rate: int = DEFAULT_EOL_RATE
    connect_timeout: float = 10.0
    heartbeat_tolerance: float = DEFAULT_TOLERANCE
    login_delay: float = 1.0
    send_timeout: float | None = 600.0
    linger: float = 2.0
    leniency: Leniency = Leniency.NUL_BETWEEN_FRAMES

    def __post_init__(self) -> None:
        check_fields(self, BrokerLimits)
        for setting in fields(BrokerLimits):
            value = getattr(self, setting.name)
            if (setting.name.startswith("max_") or setting.name == "prefetch") and value is not DEFAULT:
                check_counts(least=0 if setting.name in _OF_FRAMES else 1, **{setting.name: value})
        for name in ("connect_timeout", "login_delay", "linger"):
            check_seconds(getattr(self, name), name, finite=True, optional=False)
        check_seconds(self.send_timeout, "send_timeout", positive=True, finite=True)
        if not 1 <= self.heartbeat_tolerance < math.inf:
            raise ConfigurationError(f"heartbeat_tolerance must be at least 1, not {self.heartbeat_tolerance!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(BrokerLimits):
    """The settings of one broker; `stompy.broker.Broker` and `BrokerLimits` explain most of them.

    Attributes:
        users: the users and their rights; `None` admits every client.
        max_outbox_frames: like `max_outbox_bytes`, in frames.
    """

    versions: tuple[Version, ...] = NEGOTIABLE
    users: Users | None = None
    heartbeat: HeartbeatOffer = field(default_factory=HeartbeatOffer)
    require_host: bool = False
    attempts: int | None = 7
    dead_letter: str = "/queue/DLQ"
    expired: str | None = None
    max_outbox_frames: int = 1_000
    on_frame: FrameHook | None = None
    profile: Profile = OWN

    def exceeded(self, name: str, what: str) -> LimitExceededError:
        """Return the error that says that a limit of this name was passed."""
        return LimitExceededError(what, limit_name=name, limit=getattr(self, name))

    @property
    def frame_limits(self) -> FrameLimits:
        """The limits of a client's frame."""
        own = self.profile.frame_limits
        return FrameLimits(**{name: given(getattr(self, name), getattr(own, name)) for name in _OF_FRAMES})

    @property
    def dead_letters(self) -> str:
        """The queue of dead letters."""
        return self.profile.dead_letters or self.dead_letter

    @property
    def expired_letters(self) -> str | None:
        """The queue of expired messages, if they are kept."""
        return self.profile.expired_letters or self.expired

    @property
    def state_bytes(self) -> int:
        """The limit `max_state_bytes`: where it is not given, two bodies of the largest size may be incomplete."""
        return given(self.max_state_bytes, max(256 * 1024 * 1024, 2 * self.frame_limits.max_body))

    @property
    def session_state_bytes(self) -> int:
        """The limit `max_session_state_bytes`: where it is not given, the largest body and 32 MiB."""
        return given(self.max_session_state_bytes, self.frame_limits.max_body + 32 * 1024 * 1024)

    def __post_init__(self) -> None:
        BrokerLimits.__post_init__(self)  # `super()` does not work here, as `slots=True` recreates the class
        check_attempts(self.attempts)
        check_counts(max_outbox_frames=self.max_outbox_frames)
        if not self.versions or (Version.DRAFT in self.versions and len(self.versions) > 1):
            raise ConfigurationError("a broker needs at least one version; the 1.0-draft only by itself")
        for name in ("dead_letter", "expired"):
            destination = getattr(self, name)
            if destination is not None and not _is_queue(destination):
                raise ConfigurationError(f"{name} must be a queue, not {destination!r}")


def _is_queue(destination: str) -> bool:
    target, *others = targets_of(destination, "")
    return bool(destination) and not others and target.kind == "queue" and not target.pattern and target.owner is None
