"""Compares what two brokers did with one sequence: to the letter, and in meaning.

Equal to the letter are the same frames with the same header lines in the same order and the same body, after what a
broker generates is replaced: ids, times, sessions, the `server` header, the names of temporary queues, and the lines of
a Java stack trace. Equal in meaning are the same commands after the same steps, the same connections closed, the same
messages for each subscription in the same order, and the same headers with a meaning, whatever their order. The text of
an ERROR, `content-length` and the headers that only inform are not among them. Frames that answer and MESSAGE frames
are each compared in their order, and messages by subscription: which of two comes first is a matter of time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tests.comparison.play import STACK, Played, Reply
from tests.comparison.steps import DROP, Sequence

Level = Literal["meaning", "letter"]

_RACE = "AMQ339010 "
"""What Artemis says, or not, to a frame that arrives in the millisecond between its last ERROR and the end."""
_GENERATED = {
    "session",
    "server",
    "timestamp",
    "scheduledJobId",
    "_AMQ_ORIG_MESSAGE_ID",
    "_AMQ_ACTUAL_EXPIRY",
    "__AMQ_CID",
}
_INFORMS = {"message", "content-length", "content-type", "server", "session", "timestamp", "version", "JMSXUserID"}
_MASKS = (
    (re.compile(r"(ID(?::|\\c)|session-)[-\w.:\\/@+=]+"), r"\1*"),
    (re.compile(r"stomp-subscription-[-\w]+"), "stomp-subscription-*"),
    (re.compile(r"T_[^\s@]*@@\S+"), "T_*"),
    (re.compile(r"(amq\.gen-|/127\.0\.0\.1:|tcp://)[-\w.:]+"), r"\1*"),
    (re.compile(r"(/remote-temp-\w+/|/reply-queue/|/temp-queue/tempQueue)[-\w.:\\/*{}]+"), r"\1*"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "*"),
    (re.compile(r"\b\d{10,}\b"), "*"),
    # Artemis quotes all that it has received so far, and messages with an address in memory.
    (re.compile(r"(Invalid STOMP frame:? ).*", re.DOTALL), r"\1*"),
    (re.compile(r"CoreMessage\[.*", re.DOTALL), "CoreMessage[*"),
    # ActiveMQ shows an ACK with the counts and ids of its connection.
    (re.compile(r"MessageAck \{.*", re.DOTALL), "MessageAck {*"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that two brokers did differently.

    Attributes:
        level: in meaning, or to the letter only.
        signature: the same for all that differ in the same way.
        delivery: it is about which messages came.
    """

    level: Level
    signature: str
    delivery: bool = False


class _View:
    """What a broker did, with what it generates replaced."""

    def __init__(self, played: Played) -> None:
        self.played = played
        self.known: dict[str, str] = {}
        for _, reply in (each for replies in played.replies.values() for each in replies):
            if reply.command == "MESSAGE" and (identity := reply.get("message-id")):
                self.known.setdefault(identity, f"<id of {reply.body[:12]}>")
                self.known.setdefault(identity.replace("\\c", ":"), f"<id of {reply.body[:12]}>")
        self.answers: dict[int, dict[int, list[Reply]]] = {}
        self.deliveries: dict[tuple[int, str], list[Reply]] = {}
        for client, replies in played.replies.items():
            for step, reply in replies:
                if (reply.get("message") or "").startswith(_RACE):
                    continue
                clear = self._clear(reply)
                if reply.command == "MESSAGE":
                    self.deliveries.setdefault((client, clear.get("subscription") or ""), []).append(clear)
                else:
                    self.answers.setdefault(client, {}).setdefault(step, []).append(clear)

    def _clear(self, reply: Reply) -> Reply:
        headers = tuple((name, self._value(name, value, reply)) for name, value in reply.headers)
        body = self._text(reply.body)
        if reply.command == "ERROR":
            body = STACK.sub("", body)
            headers = tuple((name, "*" if name == "content-length" else value) for name, value in headers)
        return Reply(reply.command, headers, body)

    def _value(self, name: str, value: str, reply: Reply) -> str:
        if name == "ack" and reply.command == "MESSAGE" and value != "mine":
            return "<the message-id>" if value == reply.get("message-id") else "<an id>"
        if name == "message-id" and reply.command == "MESSAGE":
            return self.known.get(value, value)
        value = self._text(value)
        return "*" if name in _GENERATED and "{t}" not in value and value != "12345" else value

    def _text(self, text: str) -> str:
        text = text.replace(self.played.token, "{t}")
        for identity, name in self.known.items():
            if len(identity) > 2 and identity in text:
                text = text.replace(identity, name)
        for number, name in self.played.times.items():
            text = text.replace(number, name)
        for mask, to in _MASKS:
            text = mask.sub(to, text)
        return text


def differences(sequence: Sequence, real: Played, like: Played) -> list[Difference]:
    """Return in what the stand-in differed from the real broker, those of meaning first."""
    one, other = _View(real), _View(like)
    found: list[Difference] = []
    for client in sorted({*one.answers, *other.answers}):
        mine, its = one.answers.get(client, {}), other.answers.get(client, {})
        for step in sorted({*mine, *its}):
            cause = sequence[step].command if step < len(sequence) and sequence[step].client == client else "later"
            found += _answers(cause, mine.get(step, []), its.get(step, []))
    for key in sorted({*one.deliveries, *other.deliveries}):
        found += _deliveries(sequence, one.deliveries.get(key, []), other.deliveries.get(key, []))
    unique = {(each.level, each.signature): each for each in found}
    return sorted(unique.values(), key=lambda each: each.level != "meaning")


def _answers(cause: str, mine: list[Reply], its: list[Reply]) -> list[Difference]:
    if [reply.command for reply in mine] != [reply.command for reply in its]:
        one, other = _shown(mine), _shown(its)
        if {one, other} != {"nothing", "RECEIPT"}:
            one, other = ("taken" if shown in ("nothing", "RECEIPT") else shown for shown in (one, other))
        return [Difference("meaning", f"{cause}: {one} / {other}")]
    return [each for a, b in zip(mine, its, strict=True) for each in _frames(cause, a, b)]


def _shown(replies: list[Reply]) -> str:
    texts = [
        f"ERROR [{_masked(reply.get('message') or '')}]" if reply.command == "ERROR" else reply.command
        for reply in replies
    ]
    return " ".join(texts) or "nothing"


def _masked(text: str) -> str:
    return re.sub(r"\d+", "N", text)[:110]


def _frames(cause: str, a: Reply, b: Reply) -> list[Difference]:
    """Return the differences of two frames of one command."""
    found: list[Difference] = []
    label = a.command if a.command in ("MESSAGE", "CONNECTED") else f"{cause}: {a.command}"
    names = list(dict.fromkeys([name for name, _ in (*a.headers, *b.headers)]))
    for name in names:
        one, other = a.get(name), b.get(name)
        if one == other or (name == "redelivered" and {one, other} == {None, "false"}):
            if one != other:
                found.append(Difference("letter", f"{label} {name}: {one} / {other}"))
            continue
        informs = name in _INFORMS or (name in ("message-id", "ack") and None not in (one, other))
        shown = [None if value is None else _masked(value) for value in (one, other)]
        found.append(Difference("letter" if informs else "meaning", f"{label} {name}: {shown[0]} / {shown[1]}"))
    if not found and a.headers != b.headers:
        mine, its = ([name for name, _ in reply.headers] for reply in (a, b))
        detail = f"{','.join(mine)} / {','.join(its)}" if a.command != "MESSAGE" else "differs"
        found.append(Difference("letter", f"{label} order of headers: {detail}"))
    if a.body != b.body:
        level: Level = "letter" if a.command == "ERROR" else "meaning"
        found.append(Difference(level, f"{label} body: {_masked(a.body)!r} / {_masked(b.body)!r}"))
    return found


def _deliveries(sequence: Sequence, mine: list[Reply], its: list[Reply]) -> list[Difference]:
    one, other = [reply.body for reply in mine], [reply.body for reply in its]
    if one == other:
        return [each for a, b in zip(mine, its, strict=True) for each in _frames("", a, b)]
    if sorted(one) == sorted(other):
        how = "in another order"
    else:
        how = "missing" if len(one) > len(other) else "too many" if len(one) < len(other) else "others"
    return [Difference("meaning", f"messages {how}: {skeleton(sequence)}", delivery=True)]


def skeleton(sequence: Sequence) -> str:
    """Return a sequence without names and values that may be any."""
    words = []
    for step in sequence:
        if step.command in (DROP, "CONNECT", "STOMP"):
            words += ["drop"] if step.command == DROP else []
            continue
        kept = []
        for name, value in step.headers:
            if name in ("receipt", "seq", "id", "message-id", "subscription", "content-length"):
                continue
            plain = name in ("transaction", "selector", "x-queue-name") or "{now" in value
            kept.append(name if plain else f"{name}:{re.sub(r'[.][ab]$', '', value)}")
        words.append(" ".join([step.command, *sorted(kept)]))
    return "; ".join(words)
