"""What destinations name: queues and topics, one or several of them, one's own, or all that fit a pattern. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from stompy.errors import RemoteProtocolError

T = TypeVar("T")

TOPIC = "/topic/"
TEMPORARY = ("/temp-queue/", "/temp-topic/")
"""How a client names a destination of its own, which ends with its session."""
REMOTE = ("/remote-temp-queue/", "/remote-temp-topic/")
"""How others name it; its owner's session stands between."""

_KINDS = ("/queue/", TOPIC, *TEMPORARY, *REMOTE)

MAX_PARTS = 100
"""Destinations in one composite destination, and words in one name that has wildcards."""

_ONE, _REST = "*", ("#", ">")


@dataclass(frozen=True, slots=True)
class Target:
    """One destination.

    Attributes:
        kind: whether each message goes to one consumer or to all.
        name: by which the broker keeps it.
        shown: as the MESSAGE frames of it name it.
        pattern: it stands for every destination that fits: `*` for one word, `>` or `#` at the end for the rest.
        owner: the session that it ends with, and the only one that may subscribe to it.
    """

    kind: Literal["queue", "topic"]
    name: str
    shown: str
    pattern: bool = False
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Names:
    """How a broker reads names.

    Attributes:
        rest: the words that stand for the rest of a name, at its end.
        pattern_queues: queues can be subscribed to by patterns too.
        read: given a name, returns that by which the broker keeps the destination, which is a topic where it begins so,
            and that by which MESSAGE frames name it.
        composite: a name may be several, with commas before slashes.
        nameless: there is a queue without a name.
        temporary: what is a temporary destination: one's own, which `reply-to` tells others in another way; the same
            for everybody; or one's own in `reply-to` alone, where it is the id of a subscription too.
        reply_name: given the name of a temporary queue in the broker, returns the one that other clients see.
    """

    rest: tuple[str, ...] = ("#", ">")
    pattern_queues: bool = True
    read: Callable[[str], tuple[str, str]] = lambda name: (name, name)
    composite: bool = True
    nameless: bool = False
    temporary: Literal["own", "shared", "in reply-to"] = "own"
    reply_name: Callable[[str], str] = lambda name: name


OWN_NAMES = Names()


def below_queue(name: str) -> tuple[str, str]:
    """Return a name that is below `/queue/` unless it says what it is."""
    kept = name if name.startswith(_KINDS) else "/queue/" + name
    return kept, kept


def targets_of(destination: str, session: str, names: Names = OWN_NAMES) -> tuple[Target, ...]:
    """Return what a destination names, of which there are several where it has commas before slashes.

    Args:
        destination: as in the header.
        session: the name of the session that says it, by which its temporary destinations are known.
        names: how the broker reads names.

    Raises:
        RemoteProtocolError: it names too many, or the same one twice.
    """
    if ",/" not in destination or not names.composite:
        return (_target(destination, session, names),)
    parts = destination.replace(",/", "\n/").split("\n")
    if len(parts) > MAX_PARTS:
        raise RemoteProtocolError(f"a composite destination has at most {MAX_PARTS} parts, not {len(parts)}")
    found = {target.name: target for target in (_target(part, session, names) for part in parts)}
    if len(found) < len(parts):
        raise RemoteProtocolError("a composite destination names the same destination twice")
    return tuple(found.values())


def _target(destination: str, session: str, names: Names) -> Target:
    if names.temporary == "own":
        temporary = reply_target(destination, session)
        if temporary is not None:
            return temporary
    name, shown = names.read(destination)
    for own, remote in zip(TEMPORARY, REMOTE, strict=True):
        if name.startswith(remote):
            owner, _, rest = name[len(remote) :].partition("/")
            kind: Literal["queue", "topic"] = "queue" if own == TEMPORARY[0] else "topic"
            return Target(kind, name, own + rest if shown == name else shown, owner=owner)
    kind = "topic" if is_topic(name) else "queue"
    pattern = (kind == "topic" or names.pattern_queues) and has_wildcards(name, names.rest)
    return Target(kind, name, shown, pattern=pattern)


def reply_target(destination: str, session: str) -> Target | None:
    """Return a temporary destination of a session's own; `None` for any other name."""
    for own, remote in zip(TEMPORARY, REMOTE, strict=True):
        if destination.startswith(own):
            kind: Literal["queue", "topic"] = "queue" if own == TEMPORARY[0] else "topic"
            return Target(kind, f"{remote}{session}/{destination[len(own) :]}", destination, owner=session)
    return None


def is_topic(name: str) -> bool:
    """Whether a destination, as the broker keeps it, is a topic; else it is a queue."""
    return name.startswith((TOPIC, REMOTE[1]))


def has_wildcards(name: str, rest: tuple[str, ...] = OWN_NAMES.rest) -> bool:
    """Whether a name stands for others; `rest` are the words for the rest of one."""
    if "*" not in name and ">" not in name and "#" not in name:
        return False
    words = _words(name)
    return _ONE in words or words[-1] in rest


def least_of(pattern: str) -> str:
    """Return the shortest name that fits a pattern: `/topic/a` for `/topic/a.>`, but itself without such an end."""
    words = _words(pattern)
    return words[0] + ".".join(words[1:-1]) if words[-1] in _REST else pattern


def _words(name: str) -> list[str]:
    """Return the words of a name; `/queue/a.b` has `/queue/`, `a` and `b`."""
    slash = name.rfind("/") + 1
    return [name[:slash], *name[slash:].split(".")]


class Patterns(Generic[T]):
    """Values by pattern, found by the names that fit, in time that does not grow with the number of patterns."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, pattern: str, value: T) -> None:
        """Add a value.

        Raises:
            RemoteProtocolError: the pattern has too many words.
        """
        node = self._root
        words = _words(pattern)
        if len(words) > MAX_PARTS:
            raise RemoteProtocolError(f"a destination with wildcards has at most {MAX_PARTS} words")
        for word in _normal(words):
            node = node.below.setdefault(word, _Node())
        node.values[value] = None
        self._count += 1

    def remove(self, pattern: str, value: T) -> None:
        """Take a value out."""
        path = [self._root]
        words = _normal(_words(pattern))
        for word in words:
            path.append(path[-1].below[word])
        del path[-1].values[value]
        self._count -= 1
        for parent, word, node in zip(reversed(path[:-1]), reversed(words), reversed(path[1:]), strict=True):
            if node.values or node.below:
                break
            del parent.below[word]

    def matching(self, name: str) -> Iterator[T]:
        """Yield the values of every pattern that fits a name."""
        if not self._count:
            return
        nodes = [self._root]
        for word in _words(name):
            following = []
            for node in nodes:
                rest = node.below.get(_REST[0])
                if rest is not None:
                    yield from rest.values
                following += [found for key in (word, _ONE) if (found := node.below.get(key)) is not None]
            nodes = following
        for node in nodes:
            yield from node.values
            rest = node.below.get(_REST[0])
            if rest is not None:
                yield from rest.values


class _Node(Generic[T]):
    __slots__ = ("below", "values")

    def __init__(self) -> None:
        self.below: dict[str, _Node[T]] = {}
        self.values: dict[T, None] = {}


def _normal(words: list[str]) -> list[str]:
    return [*words[:-1], _REST[0]] if words[-1] in _REST else words
