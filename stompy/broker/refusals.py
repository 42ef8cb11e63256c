"""How a broker refuses frames, and in which order it writes headers."""

from __future__ import annotations

import array
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from stompy.errors import RemoteProtocolError
from stompy.frames.encoder import encode
from stompy.frames.grammar import Grammar, Version, grammar_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stompy.frames.frame import Frame
    from stompy.protocol.server import ServerProtocol

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CONTROL_BUT_CR = re.compile(r"[\x00-\x0c\x0e-\x1f\x7f]")

HEART_BEAT = re.compile(r"-?[0-9]{1,9},-?[0-9]{1,9}")
"""What brokers take for that header."""
TOKEN = re.compile(r"[0-9a-f]+-[0-9]+-([0-9]+)")
"""What an ACK names, where that is the id of a message; one of this form was delivered some time."""


class FrameOrigin(Protocol):
    """What a refusal may depend on of the session that sent a frame.

    Attributes:
        protocol: knows the version.
        login: of its user.
        declared: the queues that it has declared.
    """

    protocol: ServerProtocol
    login: str | None
    declared: set[str]


Arrange: TypeAlias = "Callable[[Sequence[str], bool], Sequence[int]]"
"""Given the names of a frame's headers, and whether its SEND had a `content-length`, returns the names' places in the
order in which a broker writes them."""


def arranged(pairs: Sequence[tuple[str, str]], arrange: Arrange | None) -> Sequence[tuple[str, str]]:
    """Return headers in a broker's order."""
    return pairs if arrange is None else [pairs[place] for place in arrange([name for name, _ in pairs], False)]


def in_order(order: Sequence[str], others: Callable[[Sequence[str]], Iterable[int]]) -> Arrange:
    """Return the arrangement by a list of names.

    Args:
        order: in it, `*` stands for all others, and `content-length?` for that of a SEND which had it.
        others: given the names, returns their places in the order of those others.
    """
    ranks = {name: rank for rank, name in enumerate(order)}

    def arrange(names: Sequence[str], sized: bool) -> list[int]:
        known = [names[at] + "?" if sized and names[at] + "?" in ranks else names[at] for at in range(len(names))]
        if len(set(names)) < len(names):
            known = [known[at] if at == _own(names, at) else "*" for at in range(len(names))]
        return sorted(others(names), key=lambda at: ranks.get(known[at], ranks["*"]))

    return arrange


def _own(names: Sequence[str], at: int) -> int:
    """Return the place of the broker's own header of a name that may stand there twice: at the start, or the end."""
    first = names.index(names[at])
    return first if first < names.index("destination") else len(names) - 1 - names[::-1].index(names[at])


def in_hash_map(
    names: Sequence[str], places: Iterable[int], unit: Literal["H", "b"], size: int, held: int
) -> list[int]:
    """Return the places of names as Java's `HashMap` orders them.

    Args:
        names: the keys.
        places: of those that are wanted, in the order in which they were inserted.
        unit: of a string's hash: two bytes, or one with a sign.
        size: of the map at its beginning.
        held: entries that it holds.
    """
    while held > size * 3 // 4:
        size *= 2

    def bucket(place: int) -> int:
        value = 0
        for each in array.array(unit, names[place].encode("utf-16-le")):
            value = (31 * value + each) & 0xFFFFFFFF
        return (value ^ value >> 16) & (size - 1)

    return sorted(places, key=bucket)


@dataclass(frozen=True, slots=True)
class Refusal:
    """How a frame is refused.

    Attributes:
        message: the header of that name.
        detail: the body; `None` for the message.
        headers: more headers.
        named: the ERROR has the `receipt-id` of the frame.
        closes: the connection ends.
        silent: it ends without an ERROR.
        last: the connection ends a few milliseconds later; of the frames that are on their way one gets another ERROR.
        length: the ERROR has a `content-length`.
        bare: it has no `content-type`.
        raw: its headers are written without escape sequences.
        confirmed: the frame gets its RECEIPT too, before or after the ERROR.
        ignored: nothing is answered, and the connection stays.
    """

    message: str
    detail: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    named: bool = True
    closes: bool = True
    silent: bool = False
    last: bool = False
    length: bool = True
    bare: bool = False
    raw: bool = False
    confirmed: Literal["", "before", "after"] = ""
    ignored: bool = False


class RefusedError(RemoteProtocolError):
    """A frame that a profile refuses in its own words.

    Attributes:
        refusal: how.
    """

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.message)


def refusal_frames(
    refusal: Refusal, offender: Frame | None, grammar: Grammar, arrange: Arrange | None = None
) -> tuple[bytes, ...]:
    """Return the ERROR frame that refuses a frame, and the RECEIPT that it gets all the same."""
    receipt = None if offender is None else offender.headers.get("receipt")
    written = grammar_of(Version.V1_0) if refusal.raw else grammar
    pairs = [("message", (_CONTROL if written.crlf else _CONTROL_BUT_CR).sub(" ", refusal.message))]
    if not refusal.bare:
        pairs.append(("content-type", "text/plain"))
    pairs += refusal.headers
    if receipt is not None and refusal.named:
        pairs.append(("receipt-id", receipt))
    body = (refusal.message if refusal.detail is None else refusal.detail).encode("utf-8", "replace")
    error = encode("ERROR", arranged(pairs, arrange), body, grammar=written, content_length=refusal.length)
    if receipt is None or not refusal.confirmed:
        return (error,)
    confirmation = encode("RECEIPT", [("receipt-id", receipt)], grammar=grammar)
    return (confirmation, error) if refusal.confirmed == "before" else (error, confirmation)
