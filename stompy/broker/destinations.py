"""How destinations are named: queues and topics, one or several, one's own, or all that fit a pattern."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stompy.errors import RemoteProtocolError
from stompy.protocol.rules import Fault, FaultyFrame, shown

TOPIC = "/topic/"
TEMPORARY = ("/temp-queue/", "/temp-topic/")
"""How a client names a destination of its own, which ends with its session."""
REMOTE = ("/remote-temp-queue/", "/remote-temp-topic/")
"""How others name it; its owner's session stands between."""

KINDS = ("/queue/", TOPIC, *TEMPORARY, *REMOTE)

MAX_PARTS = 100
"""Destinations in one composite destination, and words in one name that has wildcards."""

ONE, REST = "*", ("#", ">")


class Target(NamedTuple):
    """One destination.

    Attributes:
        kind: whether each message goes to one consumer or to all.
        name: by which the broker keeps it.
        shown: as the MESSAGE frames of it name it.
        pattern: it stands for every destination that fits: `*` for one word, `>` or `#` at the end for the rest.
        owner: the session that it ends with; no other may subscribe to it.
    """

    kind: Literal["queue", "topic"]
    name: str
    shown: str
    pattern: bool = False
    owner: str | None = None


@dataclass(frozen=True)
class Names:
    """How a broker reads names.

    Attributes:
        rest_words: the words that stand for the rest of a name, at its end.
        pattern_queues: queues can be subscribed to by patterns too.
        read_name: given a name, returns that by which the broker keeps the destination, which is a topic where it
            begins so, and that by which MESSAGE frames name it.
        parts: given a header with a comma, returns the names in it; by default a comma before a slash parts two.
        first_kind: a subscription to several is one to those that are of the kind of the first.
        temporary: one's own; the same for all; or one's own in `reply-to` alone, where it is a subscription's id too.
        refuses_late_replies: a message to a temporary queue whose owner is gone is refused.
        implied_id: given the destination of a subscription without an id, returns the id that its messages name.
        must_exist: whether a destination is no queue that a SUBSCRIBE or SEND makes.
        reply_name: given the name of a temporary queue in the broker, returns its name for other clients.
        reply_to: given a `reply-to` that is no temporary queue, returns it as MESSAGE frames have it.
        sends_to_patterns: a SEND to a pattern is one to a destination of that name.
        original_part: given one of several names in a header, but for the first, returns it as `original-destination`
            shows it.
        virtual_topic: given the name of a queue, returns the topic whose messages it gets too, where it is one of
            those.
        addressed: a queue and a topic of one name share an address, which is no topic once there is the queue; there is
            one without a name.
        durable_alone: an UNSUBSCRIBE that names a durable one ends no other; in 1.0 that of the client of its name.
    """

    rest_words: tuple[str, ...] = ("#", ">")
    pattern_queues: bool = True
    read_name: Callable[[str], tuple[str, str]] = lambda name: (name, name)
    parts: Callable[[str], list[str]] = lambda name: name.replace(",/", "\n/").split("\n")
    first_kind: bool = False
    temporary: Literal["own", "shared", "in reply-to"] = "own"
    refuses_late_replies: bool = False
    reply_name: Callable[[str], str] = lambda name: name
    reply_to: Callable[[str], str] = lambda name: name
    sends_to_patterns: bool = False
    implied_id: Callable[[str], str | None] = lambda destination: None
    must_exist: Callable[[str], bool] = lambda destination: False
    original_part: Callable[[str], str] = lambda name: name
    virtual_topic: Callable[[str], str | None] = lambda name: None
    addressed: bool = False
    durable_alone: bool = False


OWN_NAMES = Names()


def below_queue(name: str) -> tuple[str, str]:
    """Return a name below `/queue/` unless it has another prefix, without spaces around it and options after a `?`.

    Raises:
        FaultyFrame: there is nothing after the prefix.
    """
    name = name.strip().partition("?")[0]
    if name in ("", *KINDS):
        raise FaultyFrame(Fault.EMPTY_DESTINATION, f"{shown(name)} is not a valid destination")
    kept = name if name.startswith(KINDS) else "/queue/" + name
    return kept, kept


def targets_of(destination: str, session: str, names: Names = OWN_NAMES) -> tuple[Target, ...]:
    """Return the destinations of a header, several if it has commas that part names.

    Args:
        destination: as in the header.
        session: the name of the session that says it, by which its temporary destinations are known.
        names: how the broker reads names.

    Raises:
        RemoteProtocolError: it names too many, or the same one twice.
    """
    parts = names.parts(destination) if "," in destination else [destination]
    if len(parts) > MAX_PARTS:
        raise RemoteProtocolError(f"a composite destination has at most {MAX_PARTS} parts, not {len(parts)}")
    found = {target.name: target for target in (_target(part, session, names) for part in parts)}
    if len(found) < len(parts):
        raise RemoteProtocolError("a composite destination names the same destination twice")
    return tuple(found.values())


def _target(destination: str, session: str, names: Names) -> Target:
    if names.temporary == "own" and (temporary := reply_target(destination, session)) is not None:
        return temporary
    name, shown = names.read_name(destination)
    kind: Literal["queue", "topic"] = "topic" if is_topic(name) else "queue"
    if name.startswith(REMOTE):
        owner, _, rest = name.split("/", 2)[2].partition("/")
        return Target(kind, name, f"/temp-{kind}/{rest}" if shown == name else shown, owner=owner)
    pattern = (kind == "topic" or names.pattern_queues) and has_wildcards(name, names.rest_words)
    return Target(kind, name, shown, pattern=pattern)


def reply_target(destination: str, session: str) -> Target | None:
    """Return a temporary destination of a session's own; `None` for any other name."""
    if not destination.startswith(TEMPORARY):
        return None
    _, own, rest = destination.split("/", 2)
    name = f"/remote-{own}/{session}/{rest}"
    return Target("topic" if is_topic(name) else "queue", name, destination, owner=session)


def is_topic(name: str) -> bool:
    """Whether a destination, as the broker keeps it, is a topic; else it is a queue."""
    return name.startswith((TOPIC, REMOTE[1]))


def has_wildcards(name: str, rest: tuple[str, ...] = OWN_NAMES.rest_words) -> bool:
    """Whether a name stands for others; `rest` are the words for the rest of one."""
    if "*" not in name and ">" not in name and "#" not in name:
        return False
    words = words_of(name)
    return ONE in words or words[-1] in rest


def least_of(pattern: str) -> str:
    """Return the shortest name that fits a pattern: `/topic/a` for `/topic/a.>`, but itself without such an end."""
    words = words_of(pattern)
    return words[0] + ".".join(words[1:-1]) if words[-1] in REST else pattern


def words_of(name: str) -> list[str]:
    """Return the words of a name; `/queue/a.b` has `/queue/`, `a` and `b`."""
    slash = name.rfind("/") + 1
    return [name[:slash], *name[slash:].split(".")]
