"""RabbitMQ with its STOMP plugin, which the embedded broker can stand in for."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.broker import destinations, profile
from stompy.broker.profile import Profile
from stompy.broker.refusals import HEART_BEAT, FrameOrigin, Refusal, in_order
from stompy.frames.grammar import Version
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.rules import Fault, FaultyFrame, Lookup, fault_of, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stompy.frames.frame import Frame, Pairs

_REPLY, _GENERATED, _TOPICS = "/reply-queue/", "amq.gen-", ("/topic/", "/exchange/")
_KINDS = {"/queue/": "queue", "/amq/queue/": "amqqueue", "/topic/": "topic", "/temp-queue/": "temp_queue"}
"""What RabbitMQ calls destinations, by the beginnings of their names."""

_UNMADE = ("/amq/queue/", _REPLY)
"""Queues that no frame makes."""
_KNOWN = (*_TOPICS, *_UNMADE, "/queue/")
_TRUTHS = (None, "true", "True", "false", "False")

_NUMBER = re.compile(r"[0-9]{1,10}")
_REASONS = {"expired": "expired", profile.TOO_LONG: "maxlen"}
"""RabbitMQ's words for why a message is a dead letter."""


def _refuse(rules: Profile, error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Return an ERROR that names no frame and leaves the connection open; unreadable frames end it silently."""
    message, fault = str(error), fault_of(error)
    repeated = version is not None and frame is not None and frame.command == "STOMP" and fault is not Fault.WRONG_LOGIN
    if frame is None or repeated or (version is not None and fault is Fault.COMMAND_NOT_ALLOWED):
        return Refusal(message, silent=True)
    header, command = frame.headers.get, frame.command
    if version is None and fault is Fault.UNKNOWN_COMMAND:
        fault = Fault.COMMAND_NOT_ALLOWED
    acknowledged = "id" if version is Version.V1_2 else "message-id"
    if version is not None and (first := _wrong_at_once(command, header)) is not None:
        return rules.said(first, None, header)
    if version is None:
        fault = fault or Fault.INVALID_VALUE
    elif command in ("ACK", "NACK") and header(acknowledged) is None:
        fault = Fault.NO_OTHER_HEADER
    elif command == "UNSUBSCRIBE" and header("destination") is not None:
        fault = Fault.UNKNOWN_SUBSCRIPTION
    elif fault in (Fault.SUBSCRIPTION_EXISTS, Fault.UNKNOWN_ACK_MODE):
        try:
            read(header("destination") or "")
        except FaultyFrame as worse:
            fault, message = worse.fault, str(worse)
    if fault is Fault.SUBSCRIPTION_EXISTS:
        tag = f"Q_{header('destination')}" if header("id") is None else f"T_{header('id')}"
        message = f"A subscription identified by '{tag}' already exists."
    token = header(acknowledged) or ""
    given = _number_of(token)
    if fault is Fault.UNKNOWN_TRANSACTION and command in ("ACK", "NACK") and not given:
        fault = Fault.UNKNOWN_MESSAGE
    key = "an ACK of an unknown number" if fault is Fault.UNKNOWN_MESSAGE and given else command
    name = "id" if "id" in frame.headers else "destination"
    values = {"acknowledged": acknowledged, "token": token, "subscription": f"{name}='{header(name)}'", "given": given}
    values |= {"command": command, "error": message.replace("{command}", command), "user": header("login", "guest")}
    refusal = rules.said(key, None if key != command else fault, header, **values)
    return replace(refusal, confirmed="after") if refusal.closes and command == "SUBSCRIBE" else refusal


def _refuses(rules: Profile, command: str, header: Lookup, session: FrameOrigin) -> Refusal | None:
    """Return how RabbitMQ refuses a frame that the embedded broker takes."""
    if command == "CONNECT" and header("host") not in (None, "/"):
        return rules.said("CONNECT to another host", None, header)
    if command == "CONNECT":
        beats = header("heart-beat")
        return None if beats is None or HEART_BEAT.fullmatch(beats) else rules.said("", Fault.INVALID_VALUE, header)
    if (first := _wrong_at_once(command, header)) is not None:
        return rules.said(first, None, header)
    send, destination = command == "SEND", header("destination") or ""
    bound = destination.startswith(_TOPICS)
    if not ((send and bound) or destination.startswith(_UNMADE) or read(destination)[0] in session.declared):
        if any(header(name) not in _TRUTHS for name in ("durable", "persistent")):
            return rules.said("", Fault.INVALID_VALUE, header)
        named = (header("x-queue-name") or "stomp-subscription-1") if bound else destination.removeprefix("/queue/")
        wrong = next(_undeclarable(header, f"for queue '{named}' in vhost '/'", bound=bound), None)
        if wrong is not None:
            raise FaultyFrame(Fault.DECLARED_OTHERWISE, f"PRECONDITION_FAILED - {wrong}")
    expiration, user = header("expiration"), header("user-id")
    if send and expiration is not None and not _NUMBER.fullmatch(expiration):
        raise FaultyFrame(Fault.NOT_PUBLISHED, f"PRECONDITION_FAILED - invalid expiration '{expiration}': no_integer")
    if send and session.login is not None and user not in (None, session.login):
        text = f"PRECONDITION_FAILED - user_id property set to '{user}' but authenticated user was '{session.login}'"
        raise FaultyFrame(Fault.NOT_PUBLISHED, text)
    return None


def _denied(right: str, name: str, login: str | None, *, named: bool = True) -> str:
    """Return the text by which a missing right is refused; RabbitMQ 3 does not name the right."""
    kind, rest = name[1:].split("/", 1)
    place = f"topic '{rest}' in exchange 'amq.topic'" if kind == "topic" else f"queue '{rest}'"
    if (kind, right) == ("queue", "write"):
        place = "exchange 'amq.default'"
    access = right.replace("admin", "configure") + " access" if named else "access"
    text = f"{access} to {place} in vhost '/' refused for user '{login}'"
    return text if (kind, right) == ("topic", "read") else f"ACCESS_REFUSED - {text}"


def _wrong_at_once(command: str, header: Lookup) -> str | None:
    """Return for what a frame is refused before anything else is looked at."""
    if command == "SEND" and header("message-id") is not None:
        return "SEND of a message-id"
    lasts = "true" in (header("durable"), header("persistent"))
    if command in ("SUBSCRIBE", "UNSUBSCRIBE") and lasts and header("id") is None:
        return "a durable SUBSCRIBE without an id"
    return None


def _undeclarable(header: Lookup, place: str, *, bound: bool) -> Iterator[str]:
    """Yield what is wrong with the queue that a frame makes."""
    if header("x-dead-letter-routing-key") is not None and header("x-dead-letter-exchange") is None:
        yield f"invalid arg 'x-dead-letter-routing-key' {place}: routing_key_but_no_dlx_defined"
    if header("x-stream-offset") is not None:
        yield f"invalid arg 'x-stream-offset' {place} of queue type rabbit_{header('x-queue-type') or 'classic'}_queue"
    for name in ("x-max-length", "x-message-ttl", "x-expires"):
        if re.fullmatch("-[1-9][0-9]{0,9}", value := header(name) or ""):
            yield f"invalid arg '{name}' {place}: {{value_negative,{value}}}"
    if header("x-queue-type") == "quorum":
        if header("x-max-priority") is not None:
            yield f"invalid arg 'x-max-priority' {place} of queue type rabbit_quorum_queue"
        if header("auto-delete") == "true" or (bound and header("durable") != "true"):
            yield f"invalid property 'auto-delete' {place}"


def read(name: str) -> tuple[str, str]:
    """Return a name's meaning for RabbitMQ: the queue or the topic of an exchange, and its name in MESSAGE frames.

    Raises:
        FaultyFrame: there is no such kind of destination, or no such exchange.
    """
    if name and "/" not in name:
        return f"/queue/{name}", f"/queue/{name}"
    if name.startswith(_REPLY):
        return _reply_queue(name)
    if name == "/exchange" or name.startswith("/exchange/"):
        rest = name[len("/exchange") :]
        exchange, _, key = rest[1:].partition("/")
        if not exchange or "/" in key:
            raise FaultyFrame(Fault.INVALID_DESTINATION, f"'{rest}' is not a valid exchange destination")
        return _of_exchange(exchange, key)
    for prefix, kind in _KINDS.items():
        if name == prefix[:-1]:
            raise FaultyFrame(Fault.INVALID_DESTINATION, f"'' is not a valid {kind} destination")
        if name.startswith(prefix):
            rest, kept = name[len(prefix) :], name.removeprefix("/amq")
            whole = rest and "/" not in rest
            if whole and kind != "temp_queue":
                return kept, kept
            text, what = (name, "destination for '{command}'") if whole else (f"/{rest}", f"{kind} destination")
            raise FaultyFrame(Fault.INVALID_DESTINATION, f"'{text}' is not a valid {what}")
    raise FaultyFrame(Fault.UNKNOWN_DESTINATION, f"{shown(name)} is not a valid destination")


def _of_exchange(exchange: str, key: str) -> tuple[str, str]:
    if exchange == "amq.topic":
        return f"/topic/{key}", f"/topic/{key}"
    if exchange not in ("amq.direct", "amq.fanout", "amq.headers"):
        raise FaultyFrame(Fault.UNKNOWN_EXCHANGE, f"NOT_FOUND - no exchange '{exchange}' in vhost '/'")
    visible = f"/exchange/{exchange}/{key}" if key else f"/exchange/{exchange}"
    # In the name that the broker keeps, a dot or a wildcard of a key of `amq.direct` would be one.
    return f"/topic//{exchange}/" + ("=" + key.replace(".", "\0") if exchange == "amq.direct" else ""), visible


def reply_name(name: str) -> str:
    """Return the name of a temporary queue that other clients see."""
    return _REPLY + _GENERATED + name.removeprefix(destinations.REMOTE[0]).encode().hex()


def _reply_to(name: str) -> str:
    if "/" in name and not name.startswith(_KNOWN):
        raise FaultyFrame(Fault.INVALID_VALUE, f"{shown(name)} is not a valid destination")
    return name if name.startswith(_KNOWN) else _REPLY + name


def _reply_queue(name: str) -> tuple[str, str]:
    queue = name[len(_REPLY) :]
    try:
        return destinations.REMOTE[0] + bytes.fromhex(queue.removeprefix(_GENERATED)).decode(), f"/queue/{queue}"
    except ValueError:
        return f"/queue/{queue}", f"/queue/{queue}"


def declares(header: Lookup) -> profile.Declaration | None:
    """Return the queue that a SUBSCRIBE or SEND makes: that of its name, or a queue bound to a topic."""
    destination, asked = header("destination") or "", (header("durable") or "").lower()
    exclusive, auto_delete = ((header(name) or "").lower() or None for name in ("exclusive", "auto-delete"))
    durable = asked == "true"
    exchange, key = header("x-dead-letter-exchange"), header("x-dead-letter-routing-key") or ""
    lifetime, unused = _number(header, "x-message-ttl"), _number(header, "x-expires", least=1)
    if (kind := header("x-queue-type") or "classic") not in ("classic", "quorum", "stream"):
        raise FaultyFrame(Fault.INVALID_VALUE, f"there is no type of queues {shown(kind)}")
    arguments = profile.Declaration(
        letters=None if exchange is None else _of_exchange(exchange, key)[0] if exchange else f"/queue/{key}",
        max_length=_number(header, "x-max-length"),
        lifetime=lifetime and lifetime / 1000,
        unused=unused and unused / 1000,
        max_priority=_number(header, "x-max-priority"),
        arguments=tuple(
            (name, f"'{value}'" if name == "x-queue-type" else f"the value '{value}' of type '{_type_of(value)}'")
            for name in _RABBITMQ.queue_arguments
            if (value := header(name)) is not None and name[:2] == "x-" and value != "classic"
        ),
    )
    if not destination.startswith(_TOPICS):
        if destination.startswith(_UNMADE):
            return None
        # What is not durable is for one connection.
        lasts = durable if asked else (header("persistent") or "").lower() != "false"
        made = replace(
            arguments,
            auto_delete=not lasts if auto_delete is None else auto_delete == "true",
            exclusive=not lasts if exclusive is None else exclusive == "true",
            durable=lasts,
        )
        return profile.UNDECLARED if made == profile.UNDECLARED else made
    name = header("x-queue-name")
    if name is None and durable:
        name = "stomp-subscription-" + hashlib.sha256(f"{header('id')} {destination}".encode()).hexdigest()[:22]
    if name is None:
        return None
    lasts = durable and auto_delete == "false"
    own = exclusive == "true" if durable else exclusive != "false"
    return replace(arguments, name=name, auto_delete=not lasts, exclusive=own)


def _type_of(value: str) -> str:
    return "long" if value.isdecimal() else "longstr"


def _number(header: Lookup, name: str, *, least: int = 0) -> int | None:
    return profile.number_in(header, name, _NUMBER, f"a number of {least} or more", least=least)


def _letter(pairs: Pairs, options: profile.SendRequest, queue: str) -> Pairs:
    """Return the headers of a dead letter."""
    reason = _REASONS.get(dict(pairs)["dead-letter-reason"], "rejected")
    queue = queue.removeprefix("/queue/")
    values = (("exchange", ""), ("queue", queue), ("reason", reason))
    return tuple((f"x-{which}-death-{name}", value) for which in ("first", "last") for name, value in values)


def _meaning(header: Lookup, name: str) -> str | None:
    """Return what a header means to RabbitMQ."""
    value = header(name)
    return value if name != "persistent" or value is None else str(value.lower() == "true").lower()


def _message_id(identity: str | None, destination: str, session: str) -> str:
    """Return how the `message-id`s of a subscription begin."""
    tag = f"Q_{destination}" if identity is None else f"T_{identity}"
    return f"{tag.removeprefix('T_') if tag.startswith('T_/temp-queue/') else tag}@@{session}@@"


def _number_of(token: str) -> str:
    """Return the number of a delivery in its session, or nothing if a `message-id` is malformed."""
    parts = token.split("@@")
    return parts[2] if len(parts) == 3 and _NUMBER.fullmatch(parts[2]) else ""


def whole_seconds(asked: HeartbeatOffer) -> HeartbeatOffer:
    """Return the client's offer, the other way round and in whole seconds."""
    send, receive = (-(-value // 1000) * 1000 for value in (asked.receive_ms, asked.send_ms))
    return HeartbeatOffer(send, receive)


_RABBITMQ = profile.described("rabbitmq", profile.STAND_IN)

RABBITMQ = replace(
    _RABBITMQ,
    read_name=read,
    must_exist=lambda destination: destination.startswith(_UNMADE),
    reply_name=reply_name,
    reply_to=_reply_to,
    heartbeat=whole_seconds,
    refuse=_refuse,
    denied=_denied,
    meaning=_meaning,
    declares=declares,
    refuses=_refuses,
    letter_headers=_letter,
    keeps_letter=lambda options: False,
    token_of=_number_of,
    added_headers=lambda options, kind, now: (("persistent", "true"),) if options.persistent else (),
    arrange=in_order(_RABBITMQ.order, lambda names: sorted(range(len(names)), key=names.__getitem__)),
    message_id=_message_id,
)

RABBITMQ_3 = replace(
    profile.described("rabbitmq3", RABBITMQ),
    denied=functools.partial(_denied, named=False),
    letter_headers=lambda pairs, options, queue: _letter(pairs, options, queue)[2::-1],
    arrange=in_order(_RABBITMQ.order, lambda names: range(len(names))[::-1]),
)
