"""What the embedded broker does where brokers differ, as data and small functions; the values here are its own ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from stompy.broker.destinations import Names
from stompy.broker.selector import JMS, Evaluation
from stompy.frames.encoder import encode
from stompy.frames.grammar import DEFAULT_LIMITS, NEGOTIABLE, FrameLimits, Leniency, Version
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.rules import Fault, parse_accept_version

if TYPE_CHECKING:
    from stompy.broker.options import SendRequest
    from stompy.frames.frame import Frame, Pairs
    from stompy.frames.grammar import Grammar
    from stompy.protocol.rules import Lookup
    from stompy.protocol.server import ServerProtocol


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Refusal:
    """How a frame is refused.

    Attributes:
        message: the header of that name.
        detail: the body.
        headers: more headers.
        named: the ERROR has the `receipt-id` of the frame.
        closes: the connection ends.
        silent: it ends without an ERROR.
        last: the connection stays, and the next frame ends it with another ERROR.
        length: the ERROR has a `content-length`.
        confirmed: the frame gets its RECEIPT too, before or after the ERROR.
        ignored: nothing is answered, and the connection stays.
    """

    message: str
    detail: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    named: bool = True
    closes: bool = True
    silent: bool = False
    last: bool = False
    length: bool = True
    confirmed: Literal["", "before", "after"] = ""
    ignored: bool = False


def refusal_frames(refusal: Refusal, offender: Frame | None, grammar: Grammar) -> tuple[bytes, ...]:
    """Return the ERROR frame that refuses a frame, and the RECEIPT that it gets all the same."""
    error = _error_frame(refusal, offender, grammar)
    receipt = offender.headers._peek("receipt") if offender is not None and refusal.confirmed else None
    if receipt is None:
        return (error,)
    confirmation = encode("RECEIPT", [("receipt-id", receipt)], grammar=grammar)
    return (confirmation, error) if refusal.confirmed == "before" else (error, confirmation)


def _error_frame(refusal: Refusal, offender: Frame | None, grammar: Grammar) -> bytes:
    pairs = [("message", _CONTROL.sub(" ", refusal.message)), *refusal.headers, ("content-type", "text/plain")]
    receipt = offender.headers._peek("receipt") if offender is not None and refusal.named else None
    if receipt is not None:
        pairs.append(("receipt-id", receipt))
    body = (refusal.detail or refusal.message).encode("utf-8", "replace")
    return encode("ERROR", pairs, body, grammar=grammar, content_length=refusal.length)


@dataclass(frozen=True, slots=True)
class Declaration:
    """The queue that a SUBSCRIBE makes at RabbitMQ; who names it again must declare it in the same way.

    Attributes:
        name: of a queue that is bound to a topic; `None` for the queue that the destination is.
        auto_delete: it ends with its last consumer.
        exclusive: it has consumers of one session only, and ends with it.
        letters: by which the broker keeps the destination of its dead letters; `None` drops them.
        max_length: messages that wait in it at most; the oldest gives way.
        lifetime: seconds after which a message in it expires.
        unused: seconds after which it ends where nobody is subscribed.
        max_priority: the highest priority in it; without one it has none.
    """

    name: str | None = None
    auto_delete: bool = False
    exclusive: bool = False
    letters: str | None = None
    max_length: int | None = None
    lifetime: float | None = None
    unused: float | None = None
    max_priority: int | None = None


TOO_LONG = "the queue was too long"
"""Why a message that gave way to others is a dead letter."""

UNDECLARED = Declaration()
"""That of a queue which a SEND makes."""


Refuse: TypeAlias = "Callable[[Exception, Frame | None, Version | None], Refusal]"
"""Given the error (`stompy.protocol.rules.fault_of`), the frame and the version spoken, returns how it is refused."""


def as_is(command: str, header: Lookup) -> Lookup:
    """Return the lookup of headers as it is."""
    return header


def exact_versions(value: str | None) -> tuple[Version, ...]:
    """Return the known versions in an `accept-version` header, where a space belongs to an item."""
    if value is None:
        return (Version.V1_0,)
    return tuple(version for version in NEGOTIABLE if version.value in value.split(","))


@dataclass(frozen=True, slots=True)
class Profile:
    """The ways of one broker.

    Attributes:
        name: what `Broker(like=...)` calls it.
        server: the header of that name in CONNECTED.
        session: the header of that name; `%s` stands for the id.
        leniency: what it tolerates beyond the settings.
        limits: of a client's frame, unless the settings say otherwise.
        offered: returns the versions in an `accept-version` header.
        names: how destinations are read.
        heartbeat: given what the client offers, returns what the broker does; `None` for the settings' own.
        beats_in_1_0: the oldest version has heartbeats too.
        nameless_in_1_0: CONNECTED has no `server` there.
        hosts: the `host` headers that are taken; `None` for all.
        refused_login: given the login, returns the refusal of a wrong one.
        refused_host: given the `host` header, returns the refusal of one that is not taken.
        selectors: how they are evaluated.
        refuse: see `Refuse`; `None` for an ERROR after which the connection is closed.
        takes: whether a frame that is wrong is taken all the same; given the error and the frame.
        translate: returns a lookup of the headers of a SEND or SUBSCRIBE in the words of this broker.
        declares: given the headers of a SUBSCRIBE, returns the queue that it makes, where the broker has such.
        supported: headers that are refused without a profile, and not with it.
        dead_letter: the queue of dead letters; `None` for that of the settings.
        expired: the same for expired messages.
        letter: given the headers of a dead letter (where it was, how often it was delivered, why it is one), the
            options of its SEND and the name of its queue, returns those that this broker writes.
        keeps_letter: whether a refused or expired message is kept at all, by its options.
        nack: what becomes of a refused message: delivered again a few times, or at once and without a limit; a dead
            letter at once; discarded.
        nack_alone: a NACK is about its one message in the mode `client` too.
        ack_reaches_connection: an ACK in the mode `client` reaches the earlier messages of all subscriptions.
        unsubscribe_returns: an UNSUBSCRIBE gives back what was not acknowledged.
        returns_as_new: such a message does not say that it is delivered again.
        first_as_redelivered: of the messages that a lost session gives back, the first of each subscription alone says
            that it is delivered again.
        transacted: the acknowledgements that wait for COMMIT.
        refuses_transacted: those that are refused in a transaction, with the message of that.
        implied_begin: a SEND begins the transaction that it names.
        found_at_commit: what is wrong with a SEND in a transaction and only found at COMMIT, which takes effect up to
            there and is confirmed; then the session is ended.
        rollback_only: a SEND in a transaction that is refused without a receipt makes COMMIT be refused.
        late_receipts: the receipt of a SEND in a transaction comes after that of COMMIT, and never after ABORT.
        max_deliveries: how often a message is delivered before it is a dead letter, whatever its connections do.
        prioritized: messages are ordered by priority.
        keeps_by_default: a message that does not say outlives a restart.
        restored_as_redelivered: after a restart messages say that they are delivered again.
        first: header lines of each first delivery.
        counts: whether a redelivery says how often it was one before.
        added: given the options of a SEND and the moment, returns further headers of its MESSAGE.
        own_headers: headers of a SEND that are passed on, though the broker writes some of that name itself.
        repeated: which of the headers of one name are passed on.
        own_length: the versions in which a MESSAGE has `content-length` only where its SEND had it; else always.
        value: given the value of a header and the version of its sender, returns it as it is passed on.
        text: a body without `content-length` is text: what is not UTF-8 in it is replaced.
        deaf: given the seconds of silence, returns the refusal of a client that missed its heartbeats.
        ends_late_replies: a message to a temporary queue whose owner is gone is refused.
    """

    name: str = "stompy"
    server: str = "stompy-broker"
    session: str = "%s"
    leniency: Leniency = Leniency.NONE
    limits: FrameLimits = DEFAULT_LIMITS
    offered: Callable[[str | None], tuple[Version, ...]] = parse_accept_version
    names: Names = field(default_factory=Names)
    heartbeat: Callable[[HeartbeatOffer], HeartbeatOffer] | None = None
    beats_in_1_0: bool = False
    nameless_in_1_0: bool = False
    hosts: frozenset[str] | None = None
    refused_login: Callable[[str | None], Refusal] | None = None
    refused_host: Callable[[str], Refusal] | None = None
    refuse: Refuse | None = None
    takes: Callable[[Exception, Frame], bool] = lambda error, frame: False
    translate: Callable[[str, Lookup], Lookup] = as_is
    declares: Callable[[Lookup], Declaration | None] = lambda header: None
    supported: frozenset[str] = frozenset()
    selectors: Evaluation = JMS
    dead_letter: str | None = None
    expired: str | None = None
    letter: Callable[[Pairs, SendRequest, str], Pairs] = lambda pairs, options, queue: pairs
    keeps_letter: Callable[[SendRequest], bool] = lambda options: True
    nack: Literal["redelivered", "requeued", "dead letter", "discarded"] = "redelivered"
    nack_alone: bool = False
    ack_reaches_connection: bool = False
    unsubscribe_returns: bool = True
    returns_as_new: bool = False
    first_as_redelivered: bool = False
    transacted: frozenset[str] = frozenset({"ACK", "NACK"})
    refuses_transacted: Mapping[str, str] = field(default_factory=dict)
    implied_begin: bool = False
    found_at_commit: frozenset[Fault] = frozenset()
    rollback_only: bool = False
    late_receipts: bool = False
    max_deliveries: int | None = None
    prioritized: bool = True
    keeps_by_default: bool = True
    restored_as_redelivered: bool = False
    first: bytes = b""
    counts: bool = True
    added: Callable[[SendRequest, float], tuple[tuple[str, str], ...]] = lambda options, now: ()
    own_headers: frozenset[str] = frozenset()
    repeated: Literal["all", "first", "last before 1.2"] = "all"
    own_length: frozenset[Version] = frozenset()
    value: Callable[[str, Version], str] | None = None
    text: bool = False
    deaf: Callable[[float], Refusal] | None = None
    ends_late_replies: bool = False

    def connected(self, session: str, protocol: ServerProtocol) -> bytes:
        """Return CONNECTED as the broker writes it."""
        version = protocol.version
        assert version is not None
        pairs = [("session", session), ("version", version.value)]
        if version.has_heartbeats or self.beats_in_1_0:
            pairs.append(("heart-beat", str(protocol.offer)))
        if version.has_heartbeats or not self.nameless_in_1_0:
            pairs.append(("server", self.server))
        return b"".join([b"CONNECTED\n", *(f"{name}:{value}\n".encode() for name, value in pairs), b"\n\0"])


OWN = Profile()
"""The embedded broker as itself."""
