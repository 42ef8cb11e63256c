"""Where brokers differ, as data and small functions; the values here are the embedded broker's own.

Those of others are in `brokers.json`, which has a section for each broker, with values under the names of the fields of
`Profile`. Here are first the rules by subject, then the requests in headers of SEND and SUBSCRIBE: each header that a
known broker has works, or is refused.
"""

from __future__ import annotations

import functools
import json
import operator
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stompy.broker.destinations import Names, Target
from stompy.broker.refusals import HEART_BEAT, Arrange, FrameOrigin, Refusal, arranged
from stompy.broker.selector import JMS, Evaluation, Selector, SelectorError, compiled
from stompy.errors import RemoteProtocolError
from stompy.frames.encoder import encode
from stompy.frames.grammar import DEFAULT_LIMITS, NEGOTIABLE, FrameLimits, Leniency, Version
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.rules import ACK_MODES, Fault, FaultyFrame, Lookup, parse_accept_version, shown

if TYPE_CHECKING:
    from stompy.frames.frame import Frame, Pairs
    from stompy.protocol.server import ServerProtocol

_HOLE = re.compile(r"\{([a-z-]+)\}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Declaration:
    """The queue that a SUBSCRIBE makes at RabbitMQ; a later SUBSCRIBE to it must declare it in the same way.

    Attributes:
        name: of a queue that is bound to a topic; `None` for the queue that the destination is.
        auto_delete: it ends with its last consumer.
        exclusive: it has consumers of one session only, and ends with it.
        letters: by which the broker keeps the destination of its dead letters; `None` drops them.
        max_length: messages that wait in it at most; the oldest gives way.
        lifetime: seconds after which a message in it expires.
        unused: seconds without a subscription after which it ends.
        max_priority: the highest priority in it; without one it has none.
        durable: it outlives a restart of the broker.
        arguments: the names of others that were declared, and what error messages call their values.
    """

    name: str | None = None
    auto_delete: bool = False
    exclusive: bool = False
    letters: str | None = None
    max_length: int | None = None
    lifetime: float | None = None
    unused: float | None = None
    max_priority: int | None = None
    durable: bool = True
    arguments: Pairs = ()

    def contradicts(self, other: Declaration, arguments: Mapping[str, str]) -> str | None:
        """Return in which of these arguments another declaration of the queue is not the same, in RabbitMQ's words."""
        current, received = (
            {name: f"'{str(getattr(each, name)).lower()}'" for name in ("durable", "auto_delete")}
            | dict(each.arguments)
            for each in (self, other)
        )
        for name, usual in arguments.items():
            has, asked = current.get(name, usual), received.get(name, usual)
            if has != asked:
                return f"{name}' for queue '%s' in vhost '/': received {asked} but current is {has}"
        return None


TOO_LONG = "the queue was too long"
"""Why a message that gave way to others is a dead letter."""

UNDECLARED = Declaration()
"""That of a queue which a SEND makes."""


Refuse: TypeAlias = "Callable[[Profile, Exception, Frame | None, Version | None], Refusal]"
"""Given the profile, the error (`stompy.protocol.rules.fault_of`), the frame and the version spoken, returns how it is
refused.
"""


def exact_versions(value: str | None) -> tuple[Version, ...]:
    """Return the known versions in an `accept-version` header, where a space belongs to an item."""
    if value is None:
        return (Version.V1_0,)
    return tuple(version for version in NEGOTIABLE if version.value in value.split(","))


NOT_PASSED_ON = frozenset(
    {"destination", "message-id", "subscription", "ack", "redelivered", "redelivery-count", "browser", "receipt"}
) | {"transaction", "content-length"}
"""The broker writes these itself, or they speak of the SEND alone, so that a sender's own must not show (SRV-07)."""


@dataclass(frozen=True)
class Profile(Names):
    """The ways of one broker, by subject."""

    name: str = "stompy"
    """Its name in `Broker(like=...)`."""
    server: str = "stompy-broker"
    """The header of that name in CONNECTED."""
    endings: tuple[bytes, bytes] = (b"", b"")
    """Bytes after the NUL of each frame, over TCP and over WebSocket."""

    # How CONNECT is read, and answered

    session_name: str = "%s"
    """The header of that name in CONNECTED; `%s` stands for the id."""
    leniency: Leniency = Leniency.NONE
    """Deviations that it tolerates beyond the settings."""
    frame_limits: FrameLimits = DEFAULT_LIMITS
    """Of a client's frame, unless the settings say otherwise."""
    offered_versions: Callable[[str | None], tuple[Version, ...]] = parse_accept_version
    """Returns the versions in an `accept-version` header."""
    heartbeat: Callable[[HeartbeatOffer], HeartbeatOffer] | None = None
    """Given the client's offer, returns the broker's; `None` for the settings' own."""
    mirrors_beats: bool = False
    """CONNECTED has those of the client, the other way round and as they were written."""
    beats_in_1_0: bool = False
    """The oldest version has heartbeats too."""
    sparing: bool = False
    """CONNECTED has `heart-beat` only if CONNECT has; in 1.0 it has no `server`, and a version only if CONNECT has
    `accept-version`.
    """
    client_is_session: bool = False
    """CONNECTED has the `client-id` as its session; that of a session without one is its own name."""
    echoes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Headers of CONNECTED, each with those of CONNECT of which it has the first."""
    wrong_beats: str = ""
    """An unreadable `heart-beat` gets an ERROR for CONNECTED, whose message begins so."""

    # How frames and clients are refused

    refuse: Refuse | None = None
    """See `Refuse`; `None` for an ERROR after which the connection is closed."""
    refusals: Mapping[tuple[str, Fault | None], Refusal] = field(default_factory=dict)
    """How frames are refused, by command and fault; `""` stands for every command, and `None` for every fault. The
    profile has words of its own for a command that is refused in another way at another moment.
    """
    unsaid: str = ""
    """What stands for a header that a frame lacks, where its refusal names it."""
    takes: frozenset[tuple[str, Fault]] = frozenset()
    """What is wrong and taken all the same: commands and faults."""
    one_of_a_client: bool = False
    """A session with the `client-id` of another one is refused."""
    refused_silence: Callable[[float], Refusal] | None = None
    """Given the seconds of silence, returns the refusal of a client that missed its heartbeats."""
    denied: Callable[[str, str, str | None], str] | None = None
    """Given a missing right, the destination and the login, returns the text of the refusal."""

    # How the headers of SEND and SUBSCRIBE are read

    hidden: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The headers that are ignored, by command."""
    meaning: Callable[[Lookup, str], str | None] = lambda header, name: header(name)
    """Given a lookup of the others and the name of one, returns a header in the words of the embedded broker."""
    queue_arguments: Mapping[str, str] = field(default_factory=dict)
    """The properties and arguments of a queue, in the order in which they are compared, and words for a missing one."""
    declares: Callable[[Lookup], Declaration | None] = lambda header: None
    """Given the headers of a SUBSCRIBE, returns the queue that it makes."""
    lacks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Headers that are refused, as they ask for something that the embedded broker cannot do, by command, and why."""
    tick: float = 0.0
    """Seconds at whose next multiple a schedule begins; then a message lives from its delivery. 0 for now."""
    also_read: frozenset[str] = frozenset()
    """Headers of a SEND that it looks at, beside those of the specification and of the embedded broker as itself."""
    refuses: Callable[[Profile, str, Lookup, FrameOrigin], Refusal | None] = lambda *frame: None
    """Given the profile, command, headers and session, returns how a frame is refused that others take."""
    selectors: Evaluation = JMS
    """How selectors are evaluated."""
    window: Callable[[Lookup], int] = lambda header: sys.maxsize
    """Given the headers of a SUBSCRIBE, returns how many bytes of frames may wait for their ACK, or in the mode `auto`
    are delivered at all; the frame that exceeds them still is."""

    # Where dead letters and expired messages go

    dead_letters: str | None = None
    """The queue of dead letters; `None` for that of the settings."""
    expired_letters: str | None = None
    """The same for expired messages."""
    letter_headers: Callable[[Pairs, SendRequest, str], Pairs] = lambda pairs, options, queue: pairs
    """Returns those of a dead letter, by its origin, deliveries and reason, its SEND's options and its queue."""
    letter_without: frozenset[str] = frozenset()
    """Headers of a SEND that its dead letter does not have."""
    keeps_letter: Callable[[SendRequest], bool] = lambda options: True
    """Whether a refused or expired message is kept at all, by its options."""
    letter_keeps_id: bool = False
    """A dead letter has the `message-id` of the message."""

    # The effects of ACK, NACK, UNSUBSCRIBE and the end of a session on deliveries

    nack: Literal["redelivered", "requeued", "dead letter", "discarded"] = "redelivered"
    """A refused message is delivered again a few times, or at once without a limit; a dead letter; discarded. A NACK
    that makes a dead letter is about its one message in the mode `client` too.
    """
    ack_of_connection: bool = False
    """An ACK needs no `subscription`, and that of another one is ignored; in the mode `client` it reaches the earlier
    messages of all subscriptions.
    """
    id_alone: frozenset[Version] = frozenset({Version.V1_0, Version.V1_2})
    """The versions in which the `subscription` of an ACK is ignored, as its id is enough."""
    unsubscribe_returns: bool = True
    """An UNSUBSCRIBE gives back unacknowledged messages."""
    returns_as_new: bool = False
    """Such a message does not say that it is delivered again; of what a session that ended by DISCONNECT or ERROR gives
    back, the first of each subscription alone does.
    """
    token_of: Callable[[str], str] = str
    """Given the id in an ACK, returns by what its delivery is known."""
    unreadable_token: Callable[[str], bool] = lambda token: False
    """Whether the id in an ACK is none; then the session ends, if it has the subscription."""
    max_deliveries: int | None = None
    """How often a message is delivered before it is a dead letter, over all connections."""

    # Which frames take part in transactions, and when errors are found

    waits_for_commit: frozenset[str] = frozenset({"ACK", "NACK"})
    """The acknowledgements that wait for COMMIT."""
    refused_in_transaction: Mapping[str, str] = field(default_factory=dict)
    """The acknowledgements that are refused in a transaction, with the message of that."""
    implied_begin: bool = False
    """A SEND adds to the transaction that it names, which is not open before its BEGIN."""
    found_at_commit: frozenset[Fault] = frozenset()
    """Faults of a SEND that only COMMIT finds, which takes effect up to there; then the session ends."""
    rollback_only: bool = False
    """A SEND in a transaction that is refused without a receipt makes COMMIT be refused."""
    late_receipts: bool = False
    """The receipt of a SEND in a transaction comes after that of COMMIT, and never after ABORT."""

    # How queues keep messages

    prioritized: bool = True
    """Messages are ordered by priority."""
    persistent_first: bool = False
    """Of messages that came while nobody was subscribed, persistent ones go before the others."""
    delayed_first: bool = False
    """A message whose delay has ended is delivered before those of its priority that wait."""
    keeps_by_default: bool = True
    """A message that does not say outlives a restart."""
    restored_as_redelivered: bool = False
    """After a restart messages say that they are delivered again."""
    browses_unacked: bool = False
    """Browsers see messages that were delivered too, and which are delivered again."""

    # How MESSAGE frames are written

    first_lines: bytes = b""
    """Header lines of each first delivery."""
    counts_redeliveries: bool = True
    """Whether a redelivery says how often it was one before."""
    added_headers: Callable[[SendRequest, str, float], Pairs] | None = None
    """Given the options of a SEND, the kind of its destination and the moment, returns further headers."""
    dropped_headers: frozenset[str] = NOT_PASSED_ON
    """Headers of a SEND that its MESSAGE does not have, or has as the broker writes them."""
    doubled_headers: frozenset[str] = frozenset()
    """Headers that the broker adds though the sender's own are passed on too; where there are any, in 1.0 a value of
    the sender takes the place of the broker's own.
    """
    repeated_headers: Literal["all", "first", "last before 1.2"] = "all"
    """Which of the headers of one name are passed on."""
    own_length: frozenset[Version] = frozenset()
    """The versions in which a MESSAGE has `content-length` only where its SEND had it; where there are such, one
    without a body has it too.
    """
    passed_value: Callable[[str, Version], str] | None = None
    """Given a header's value and its sender's version, returns it as it is passed on."""
    text_bodies: bool = False
    """A body without `content-length` is text: invalid UTF-8 in it is replaced."""
    arrange: Arrange | None = None
    """The order of the headers, in CONNECTED and ERROR too; see `Arrange`."""
    order: tuple[str, ...] = ()
    """The names of headers in the order in which the broker writes them, or first has them; see `in_order`."""
    one_id: bool = False
    """What an ACK names is the `message-id` in 1.2 too."""
    message_id: Callable[[str | None, str, str], str] | None = None
    """Given a subscription's id, destination and session, returns what precedes a delivery's number."""

    def translate(self, command: str, header: Lookup) -> Lookup:
        """Return a lookup of the headers of a SEND or SUBSCRIBE in the words of the embedded broker."""
        hidden = self.hidden.get(command, frozenset())
        return lambda name: None if name in hidden else self.meaning(header, name)

    def said(self, key: str, fault: Fault | None, header: Lookup, **values: str) -> Refusal:
        """Return how a frame is refused, in which headers and values stand for their names in braces.

        Args:
            key: the command, or the profile's words for it; see `refusals`.
            fault: what is wrong.
            header: looks up the headers of the frame.
            values: others; `message` is that of the refusal.
        """
        keys = ((key, fault), ("", fault), (key, None), ("", None))
        found = next(self.refusals[each] for each in keys if each in self.refusals)

        def value(hole: re.Match[str]) -> str:
            known = values.get(hole[1], header(hole[1]))
            return self.unsaid if known is None else known

        values["message"] = message = _HOLE.sub(value, found.message)
        return replace(found, message=message, detail=found.detail and _HOLE.sub(value, found.detail))

    def connected(self, session: str, protocol: ServerProtocol, header: Lookup) -> bytes:
        """Return CONNECTED as the broker writes it, in answer to a CONNECT with these headers."""
        version, receipt = protocol.version, header("receipt")
        assert version is not None
        client, beats = header("client-id") if self.client_is_session else None, header("heart-beat")
        if self.wrong_beats and version.has_heartbeats and beats and not HEART_BEAT.fullmatch(beats):
            named = () if receipt is None else (("receipt-id", receipt),)
            return encode("ERROR", (("message", self.wrong_beats + beats), *named), grammar=protocol.grammar)
        pairs = [("session", _CONTROL.sub(" ", client or session))]
        nameless = not version.has_heartbeats and self.sparing
        if not nameless or header("accept-version") is not None:
            pairs.append(("version", version.value))
        for name, asked in self.echoes.items():
            pairs += [(name, _CONTROL.sub(" ", value)) for value in map(header, asked) if value is not None][:1]
        if (version.has_heartbeats or self.beats_in_1_0) and (beats is not None or not self.sparing):
            mirrored = ",".join(reversed(beats.split(","))) if beats and self.mirrors_beats else str(protocol.offer)
            pairs.append(("heart-beat", mirrored))
        if not nameless:
            pairs.append(("server", self.server))
        lines = [f"{name}:{value}\n".encode() for name, value in arranged(pairs, self.arrange)]
        return b"".join([b"CONNECTED\n", *lines, b"\n\0"])


_DATA: dict[str, dict[str, Any]] = json.loads(pkgutil.get_data("stompy.broker", "brokers.json") or b"")


_READ: dict[str, Callable[[Any], Any]] = {
    "bytes": str.encode,
    "tuple[bytes, bytes]": lambda texts: tuple(map(str.encode, texts)),
    "tuple[str, ...]": tuple,
    "frozenset[str]": frozenset,
    "frozenset[Version]": lambda numbers: frozenset(map(Version, numbers)),
    "frozenset[Fault]": lambda names: frozenset(Fault[name] for name in names),
    "frozenset[tuple[str, Fault]]": lambda table: frozenset(
        (command, Fault[name]) for command, names in table.items() for name in names
    ),
    "Mapping[str, frozenset[str]]": lambda table: {command: frozenset(names) for command, names in table.items()},
    "Mapping[tuple[str, Fault | None], Refusal]": lambda table: {
        (command, Fault[name] if name else None): _refusal(table[""][""], one)
        for command, faults in table.items()
        for name, one in faults.items()
    },
    "tuple[tuple[str, str], ...]": lambda table: tuple(table.items()),
    "Leniency": lambda names: functools.reduce(operator.or_, (Leniency[name] for name in names)),
    "FrameLimits": lambda sizes: FrameLimits(**sizes),
    "Evaluation": lambda ways: Evaluation(**{**ways, "unknown": frozenset(ways.get("unknown", ()))}),
}
"""How a value in the file becomes that of its field, by the annotation of the field; others are the same."""


def described(name: str, base: Profile) -> Profile:
    """Return a profile with the values that `brokers.json` has for this name, and the others of `base`."""
    values = _values(Profile, _DATA[name])
    values["refusals"] = {**base.refusals, **values.get("refusals", {})}
    return replace(base, name=name, **values)


def _refusal(usual: dict[str, Any], one: str | dict[str, Any]) -> Refusal:
    """Return a refusal with the usual values and its own, or its message alone."""
    return Refusal(**_values(Refusal, {**usual, **({"message": one} if isinstance(one, str) else one)}))


def _values(kind: type[Profile | Refusal], section: dict[str, Any]) -> dict[str, Any]:
    kinds = {each.name: str(each.type) for each in fields(kind)}
    return {key: _READ[kinds[key]](value) if kinds[key] in _READ else value for key, value in section.items()}


OWN = described("stompy", Profile())
"""The embedded broker as itself."""

STAND_IN = replace(
    described("stand-in", Profile()),
    parts=lambda name: [name],
    offered_versions=exact_versions,
    refused_silence=lambda seconds: Refusal("it missed its heartbeats", silent=True),
)
"""What the real brokers have in common, or most of them."""


DEFAULT_PRIORITY = 4

PREFETCH = ("prefetch-count", "activemq.prefetchSize")
"""RabbitMQ's and ActiveMQ's names for the same wish; 0 is no bound at the one, and room for nothing at the other."""

DURABLE = ("activemq.subscriptionName", "durable-subscription-name", "durable-subscriber-name")
EXCLUSIVE = "activemq.exclusive"
NO_LOCAL = ("activemq.noLocal", "no-local")

_MOST_REPEATS = 1_000
_NUMBER = re.compile(r"-?0*[0-9]{1,9}")
_MILLISECONDS = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class SendRequest:
    """The requests of a SEND.

    Attributes:
        priority: 0 to 9.
        persistent: whether it outlives a restart of the broker; `None` where it does not say.
        expires: the moment after which it is not delivered, in seconds since the epoch.
        due: the moment before which it is not delivered.
        repeats: how often it is delivered after that.
        period: seconds between two of these deliveries.
        group: messages of one go to one consumer; with `group_ends` it may have another one after this message.
        group_ends: see `group`.
        dedupe_id: it is dropped where the same id was seen.
    """

    priority: int = DEFAULT_PRIORITY
    persistent: bool | None = None
    expires: float | None = None
    due: float | None = None
    repeats: int = 0
    period: float = 0.0
    group: str | None = None
    group_ends: bool = False
    dedupe_id: str | None = None

    @property
    def timeless(self) -> bool:
        """Whether the same SEND asks for the same at any time."""
        return self.expires is None and self.due is None


PLAIN = SendRequest()
"""Those of a SEND that asks for nothing."""


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """The requests of a SUBSCRIBE.

    Attributes:
        mode: `auto`, `client` or `client-individual`.
        prefetch: how many messages may wait for their ACK; with 0 or less nothing is ever delivered.
        window: see `Profile.window`.
        selector: which messages it gets.
        durable: the name under which the messages of a topic are kept without a subscriber.
        browse: look at the messages of a queue without taking them.
        exclusive: of several consumers only one gets messages, until it is gone.
        no_local: leave out messages of the same session.
        declares: the queue that it makes.
        transformation: the header of that name, of messages of text.
        priority: consumers with a higher one get messages first.
    """

    mode: str = "auto"
    prefetch: int = 1_000
    window: int = sys.maxsize
    selector: Selector | None = None
    durable: str | None = None
    browse: bool = False
    exclusive: bool = False
    no_local: bool = False
    declares: Declaration | None = None
    transformation: str | None = None
    priority: int = 0


ROUTING = {"SEND": "destination-type", "SUBSCRIBE": "subscription-type"}
"""By command: Artemis's header that says what a destination is, and must not say otherwise than its name here."""
KINDS_ROUTED: dict[str, Literal["queue", "topic"]] = {"ANYCAST": "queue", "MULTICAST": "topic"}


def check_routing(command: str, header: Lookup, targets: Sequence[Target], profile: Profile = OWN) -> None:
    """Refuse a routing type that is not that of a destination, where its name says that.

    Raises:
        RemoteProtocolError: it is not.
    """
    asked = header(ROUTING[command])
    if profile is OWN and asked is not None and any(target.kind != KINDS_ROUTED.get(asked) for target in targets):
        raise RemoteProtocolError(f"{ROUTING[command]} does not match the destination, whose name says what it is")


def check_supported(command: str, header: Lookup, profile: Profile = OWN) -> None:
    """Refuse a header that asks for a feature that the broker lacks.

    Raises:
        RemoteProtocolError: there is one.
    """
    for name, reason in profile.lacks.get(command, {}).items():
        if header(name) is not None:
            raise RemoteProtocolError(f"this broker has {reason} (header {name})")


def send_options(header: Lookup, now: float, profile: Profile = OWN) -> SendRequest:
    """Return the requests of a SEND.

    Args:
        header: looks up its headers.
        now: seconds since the epoch, by the broker's clock.
        profile: in whose words the headers are.

    Raises:
        RemoteProtocolError: a value is invalid, or not supported.
    """
    check_supported("SEND", header, profile)
    header = profile.translate("SEND", header)
    delay, moment = _milliseconds(header, "AMQ_SCHEDULED_DELAY"), _milliseconds(header, "AMQ_SCHEDULED_TIME")
    expires, lifetime = _milliseconds(header, "expires"), _milliseconds(header, "expiration")
    period, again = _milliseconds(header, "AMQ_SCHEDULED_PERIOD") or 0.0, header("AMQ_SCHEDULED_REPEAT") or "0"
    if not again.isdecimal() or int(again) > _MOST_REPEATS:
        message = f"AMQ_SCHEDULED_REPEAT must be up to {_MOST_REPEATS}, not {shown(again)}"
        raise FaultyFrame(Fault.INVALID_VALUE, message)
    tick = profile.tick
    begin = (now // tick + 1) * tick if tick else now
    due = begin + (delay or period) if delay or period else moment
    if tick and due is not None and due > now and expires:
        expires += due - now
    return SendRequest(
        priority=_priority(header),
        persistent=_boolean(header, "persistent"),
        expires=now + lifetime if lifetime is not None else expires or None,
        due=due if due is not None and due > now else None,
        repeats=int(again) if period or (tick and delay) else 0,
        period=period,
        group=header("JMSXGroupID") or None,
        group_ends=(header("JMSXGroupSeq") or "").startswith("-"),
        dedupe_id=header("_AMQ_DUPL_ID") or None,
    )


def subscribe_options(header: Lookup, *, prefetch: int, profile: Profile = OWN) -> SubscribeRequest:
    """Return the requests of a SUBSCRIBE.

    Args:
        header: looks up its headers.
        prefetch: where it does not say.
        profile: in whose words the headers are.

    Raises:
        RemoteProtocolError: a value is invalid, or not supported.
    """
    check_supported("SUBSCRIBE", header, profile)
    header = profile.translate("SUBSCRIBE", header)
    return SubscribeRequest(
        mode=mode if (mode := header("ack") or "auto") in ACK_MODES else "auto",
        prefetch=_prefetch(header, prefetch),
        window=profile.window(header),
        selector=_selector(header("selector"), profile.selectors),
        durable=durable_name(header),
        browse=bool(_boolean(header, "browser")),
        exclusive=bool(_boolean(header, EXCLUSIVE)),
        no_local=any(_boolean(header, name) for name in NO_LOCAL),
        declares=profile.declares(header),
        transformation=header("transformation"),
        priority=int(header("activemq.priority") or 0),
    )


def check_combination(options: SubscribeRequest, targets: Sequence[Target], profile: Profile = OWN) -> None:
    """Refuse options that make no sense together, or for a destination; other brokers ignore some of them.

    Raises:
        RemoteProtocolError: there are such.
    """
    topics = [target.kind == "topic" for target in targets]
    single = len(targets) == 1 and not targets[0].pattern
    own = profile is OWN
    if options.browse and (not single or any(topics) or (own and (options.durable is not None or options.exclusive))):
        raise RemoteProtocolError("a browser looks at one queue, and is neither durable nor exclusive")
    if options.durable is not None and len(targets) > 1:
        raise RemoteProtocolError("a durable subscription is one to a topic")
    if profile is not OWN:
        return
    if options.no_local and not all(topics):
        raise RemoteProtocolError("no-local is for topics: a message of a queue would never be taken")
    if options.exclusive and any(topics):
        raise RemoteProtocolError("an exclusive consumer is one of a queue")


def durable_name(header: Lookup) -> str | None:
    """Return the name of the durable subscription that a SUBSCRIBE or UNSUBSCRIBE is about."""
    return next((value for name in DURABLE if (value := header(name))), None)


def deletes_durable(frame: Frame) -> bool:
    """Whether a frame, wrong as it may be, is to delete an idle durable subscription."""
    return frame.command == "UNSUBSCRIBE" and durable_name(frame.headers.get) is not None


def number_in(header: Lookup, name: str, form: re.Pattern[str], what: str, *, least: int = -sys.maxsize) -> int | None:
    """Return the number in a header; `None` where there is none.

    Raises:
        FaultyFrame: it is not of that form, or less than the `least`.
    """
    value = header(name)
    if value is not None and not (form.fullmatch(value) and int(value) >= least):
        raise FaultyFrame(Fault.INVALID_VALUE, f"{name} must be {what}, not {shown(value)}")
    return None if value is None else int(value)


def _prefetch(header: Lookup, default: int) -> int:
    for name in PREFETCH:
        if (value := number_in(header, name, _NUMBER, "a number of at most nine digits")) is not None:
            return sys.maxsize if value == 0 and name == PREFETCH[0] else value
    return default


def _priority(header: Lookup) -> int:
    value = number_in(header, "priority", _NUMBER, "a number from 0 to 9")
    return DEFAULT_PRIORITY if value is None else min(max(value, 0), 9)


def _boolean(header: Lookup, name: str) -> bool | None:
    value = header(name)
    if value is None:
        return None
    if value.lower() not in ("true", "false"):
        raise RemoteProtocolError(f"{name} must be true or false, not {shown(value)}")
    return value.lower() == "true"


def _milliseconds(header: Lookup, name: str) -> float | None:
    """Return a duration, or a moment, in seconds."""
    value = number_in(header, name, _MILLISECONDS, "a number of milliseconds")
    return None if value is None else value / 1000


def _selector(text: str | None, ways: Evaluation) -> Selector | None:
    if text is None or not (ways.activemq or text.strip()):
        return None
    try:
        return compiled(text, ways)
    except SelectorError as error:
        raise FaultyFrame(Fault.INVALID_SELECTOR, f"the selector is invalid: {error}") from error
