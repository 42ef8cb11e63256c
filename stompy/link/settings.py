"""Settings and credentials of a link."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from stompy.arguments import check_fields
from stompy.deadline import check_seconds
from stompy.default import DEFAULT, Default, given
from stompy.errors import ConfigurationError
from stompy.frames.grammar import NEGOTIABLE, FrameLimits, Leniency, Version
from stompy.protocol.heartbeat import DEFAULT_EOL_RATE, DEFAULT_TOLERANCE, HeartbeatOffer
from stompy.protocol.state import MAX_SUBSCRIPTIONS, MAX_TRANSACTIONS
from stompy.secret import Secret
from stompy.values import Value

DEFAULT_HEARTBEAT = (10.0, 10.0)
"""Seconds between heartbeats: those we can send, those we want to receive."""

MAX_RECEIPTS = 100_000
"""Pending receipts of one link, at most by default, so that a broker that never confirms cannot exhaust memory."""


class Credentials(NamedTuple):
    """Login and passcode for one connect.

    Attributes:
        login: `None` sends none.
        passcode: `None` sends none.
    """

    login: str | None = None
    passcode: Secret[str] | None = None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Timeouts(Value):
    """How long the operations of a connection may take, in seconds.

    Attributes:
        connect: for one address, up to CONNECTED.
        start: for all attempts at the first session; failures that may be temporary (connection refused, unknown host
            name, no answer) are retried meanwhile. 0 makes one attempt, `None` has no limit. By default 0, for a
            `Worker` `None`.
        send: for writing one frame, and for the next session if there is none.
        receipt: default for confirmations of the broker, messages and replies.
        close: default of `close`, in all; by default 10, for a `Worker` 20, which running tasks get to finish.
        heartbeat_tolerance: negotiated heartbeat intervals without a byte after which the broker counts as dead.

    Raises:
        ConfigurationError: a value is out of range.
    """

    connect: float = 10.0
    start: float | Default | None = DEFAULT
    send: float = 30.0
    receipt: float = 30.0
    close: float | Default = DEFAULT
    heartbeat_tolerance: float = DEFAULT_TOLERANCE

    def __post_init__(self) -> None:
        for name in ("connect", "send", "receipt", "close"):
            value = given(getattr(self, name), 1.0)
            check_seconds(value, f"timeouts.{name}", positive=True, finite=True, optional=False)
        check_seconds(given(self.start, None), "timeouts.start", finite=True)
        if not _is_number(self.heartbeat_tolerance) or not 1 <= self.heartbeat_tolerance < math.inf:
            raise ConfigurationError(
                f"timeouts.heartbeat_tolerance must be at least 1, not {self.heartbeat_tolerance!r}"
            )


class Limits(FrameLimits):
    """Limits of the frames that a connection accepts, and of the messages, receipts and ids that it keeps.

    The `max_inbox_...` limit the messages that wait for user code. At the first or the second of them reading from the
    broker pauses, which is logged after five seconds, and it resumes at half of both. They are soft: one read has many
    frames, and all of them are queued.

    Attributes:
        max_headers: header lines of a frame; a frame beyond this or one of the next four ends the session by
            `FrameTooLargeError`.
        max_header_line: bytes of one header line, without its line end.
        max_header_block: bytes of all header lines of a frame, with their line ends.
        max_body: bytes of a body.
        max_first_body: bytes of the body of the broker's first frame.
        max_inbox_messages: messages that wait.
        max_inbox_bytes: bytes of their headers and bodies, plus `inbox_overhead` for each.
        hard_max_inbox_bytes: while a caller waits for a receipt, reading goes on up to this many bytes.
        inbox_overhead: bytes added for each message, about what Python needs to store it, so that empty ones count too.
        max_receipts: pending receipts; exceeding this or the next two raises `LimitExceededError`.
        max_subscriptions: active subscriptions.
        max_transactions: open transactions.
        max_eol_rate: bytes of line ends per second that the broker may send between frames.
        leniency: deviations from STOMP to tolerate; by default those that the broker is known to need.

    Raises:
        ConfigurationError: a value is out of range.
    """

    max_inbox_messages: int = 10_000
    max_inbox_bytes: int = 64 * 1024 * 1024
    hard_max_inbox_bytes: int = 256 * 1024 * 1024
    inbox_overhead: int = 1024
    max_receipts: int = MAX_RECEIPTS
    max_subscriptions: int = MAX_SUBSCRIPTIONS
    max_transactions: int = MAX_TRANSACTIONS
    max_eol_rate: int = DEFAULT_EOL_RATE
    leniency: Leniency | Default = DEFAULT

    def __post_init__(self) -> None:
        check_fields(self)
        super().__post_init__()
        for name in (
            *("max_inbox_messages", "max_inbox_bytes", "hard_max_inbox_bytes"),
            *("max_receipts", "max_subscriptions", "max_transactions", "max_eol_rate"),
        ):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ConfigurationError(f"{name} must be a whole number of 1 or more, not {count!r}")
        if self.max_inbox_bytes > self.hard_max_inbox_bytes or self.inbox_overhead < 0:
            raise ConfigurationError(
                f"hard_max_inbox_bytes must be at least max_inbox_bytes, and inbox_overhead 0 or more: {self}"
            )


class LinkSettings(Value):
    """Settings of one session.

    Attributes:
        vhost: the `host` header; `None` uses the host name of the address.
        versions: offered to the broker.
        heartbeat: intervals in seconds that we can send and want to receive, 0 for none.
        timeouts: how long operations may take.
        limits: sizes and counts that are accepted and kept.
        headers: added to CONNECT.

    Raises:
        ConfigurationError: a value is out of range.
    """

    vhost: str | None = None
    versions: tuple[Version, ...] = NEGOTIABLE
    heartbeat: tuple[float, float] = DEFAULT_HEARTBEAT
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    headers: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        pair: object = self.heartbeat
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(map(_is_number, pair))):
            raise ConfigurationError(f"heartbeat must be two numbers of seconds (send, receive), not {pair!r}")
        HeartbeatOffer.from_seconds(*self.heartbeat)

    __repr__ = object.__repr__  # without login, passcode and headers
