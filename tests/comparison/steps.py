"""Sequences of frames, which a seed chooses: what each of one or two clients sends, valid or nearly so.

A header's value and a destination may hold what only the moment of sending knows, in braces: `{t}`, fresh for each run
of a sequence; `{now:-5}`, milliseconds since the epoch; `{ack:0}`, `{id:0}`, `{sub:0}` and `{reply:0}`, the headers of
a MESSAGE, counted from the first that its client received.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from itertools import count

from tests.support.candidates import LOGIN, PASSCODE

Headers = tuple[tuple[str, str], ...]

DROP = "(drop)"
"""Instead of a command: the client closes its connection without a DISCONNECT."""
AUDITOR = 2
"""The client that looks at what is left at the end."""


@dataclass(frozen=True, slots=True)
class Step:
    """A frame that a client sends.

    Attributes:
        client: by number; its connection is opened by its first frame.
        command: of the frame, or `DROP`.
        headers: lines as they are sent, escapes included.
        body: text; a `content-length` is among the headers or left out.
        raw: how the frame is spoilt: `crlf`, or a line without a colon.
    """

    client: int
    command: str
    headers: Headers = ()
    body: str = ""
    raw: str = ""

    def __str__(self) -> str:
        lines = " ".join(f"{name}:{value}" for name, value in self.headers)
        return f"{self.client} {self.command} {lines}" + (f" | {self.body}" if self.body else "") + self.raw

    def dumped(self) -> list[object]:
        """Return it as JSON has it."""
        return [self.client, self.command, [list(pair) for pair in self.headers], self.body, self.raw]

    @classmethod
    def loaded(cls, client: int, command: str, headers: list[list[str]], body: str = "", raw: str = "") -> Step:
        """Return what `dumped` returned."""
        return cls(client, command, tuple((name, value) for name, value in headers), body, raw)


Sequence = tuple[Step, ...]


def dumps(sequence: Sequence) -> str:
    """Return a sequence as one line."""
    return json.dumps([step.dumped() for step in sequence], ensure_ascii=False)


def family_of(kind: str) -> str:
    """Return whose headers a broker of this kind knows: `activemq`, `artemis` or `rabbitmq`."""
    return kind.rstrip("0123456789")


# Headers from the documentation of each broker.

_TEXTS = ("a", "b", "1", "2", "10", "1.5", "true", "False", "red", "x y", " lead", "a\\cb", "a\\nb", "a\\\\b", "é", "")
_SEND: dict[str, dict[str, tuple[str, ...]]] = {
    "": {
        "n": ("1", "2", "10", "1.5", "-3", "abc"),
        "color": ("red", "blue", "it's", "RED"),
        "content-type": ("text/plain", "application/json"),
        "persistent": ("true", "false", "True", "yes"),
        "priority": ("0", "4", "9", "7", "12", "x"),
        "correlation-id": ("c1",),
        "reply-to": ("/temp-queue/{t}r", "/queue/{t}.r", "foo"),
        "type": ("order",),
        "expires": ("0", "{now:600000}", "{now:-1000}", "x"),
    },
    "activemq": {
        "JMSXGroupID": ("g1", "g2"),
        "JMSXGroupSeq": ("1", "-1"),
        "amq-msg-type": ("text", "bytes", "map"),
        "AMQ_SCHEDULED_DELAY": ("600000", "0"),
        "AMQ_SCHEDULED_REPEAT": ("2",),
        "AMQ_SCHEDULED_PERIOD": ("600000",),
        "transformation": ("jms-byte",),
        "message-id": ("mine",),
        "timestamp": ("12345",),
        "JMSXUserID": ("me",),
    },
    "artemis": {
        "destination-type": ("ANYCAST", "MULTICAST", "anycast"),
        "JMSXGroupID": ("g1", "g2"),
        "_AMQ_DUPL_ID": ("{t}d1", "{t}d2"),
        "AMQ_SCHEDULED_DELAY": ("600000",),
        "AMQ_SCHEDULED_TIME": ("{now:600000}",),
        "message-id": ("mine",),
        "timestamp": ("12345",),
    },
    "rabbitmq": {
        "expiration": ("600000", "0", "x"),
        "durable": ("true", "false", "True"),
        "auto-delete": ("true", "false"),
        "exclusive": ("true", "false"),
        "x-message-ttl": ("600000", "0"),
        "x-max-length": ("1", "2"),
        "x-max-priority": ("5",),
        "x-expires": ("600000",),
        "message-id": ("mine",),
        "amqp-message-id": ("mine",),
        "app-id": ("app",),
        "user-id": (LOGIN, "other"),
        "timestamp": ("12345",),
        "content-encoding": ("gzip",),
        "cluster-id": ("c",),
        "delivery-mode": ("2",),
    },
}
_SUBSCRIBE: dict[str, dict[str, tuple[str, ...]]] = {
    "": {},
    "activemq": {
        "activemq.prefetchSize": ("1", "2", "0"),
        "activemq.exclusive": ("true",),
        "activemq.noLocal": ("true",),
        "activemq.priority": ("5",),
        "activemq.retroactive": ("true",),
        "activemq.dispatchAsync": ("true", "false"),
        "activemq.maximumPendingMessageLimit": ("10",),
        "activemq.subscriptionName": ("{t}s",),
        "browser": ("true",),
        "no-local": ("true",),
        "transformation": ("jms-xml",),
    },
    "artemis": {
        "subscription-type": ("ANYCAST", "MULTICAST"),
        "durable-subscription-name": ("{t}s",),
        "durable-subscriber-name": ("{t}s",),
        "consumer-window-size": ("0", "-1", "1024"),
        "no-local": ("true",),
        "activemq.prefetchSize": ("1",),
        "browser": ("true",),
    },
    "rabbitmq": {
        "prefetch-count": ("1", "2", "0"),
        "durable": ("true", "false", "True"),
        "auto-delete": ("true", "false"),
        "exclusive": ("true", "false"),
        "x-queue-name": ("{t}.named",),
        "x-message-ttl": ("600000",),
        "x-max-length": ("1", "2"),
        "x-max-priority": ("5",),
        "x-expires": ("600000",),
        "x-dead-letter-exchange": ("", "amq.topic"),
        "x-dead-letter-routing-key": ("{t}.dead",),
        "x-overflow": ("reject-publish", "drop-head"),
        "x-single-active-consumer": ("true",),
        "x-queue-type": ("classic", "quorum"),
        "persistent": ("true", "false"),
    },
}
_SELECTORS = (
    "n = 1",
    "n = '1'",
    "n > 1",
    "n BETWEEN 1 AND 5",
    "n + 1 = 2",
    "n * 2 > 3",
    "color = 'red'",
    "color IN ('red','blue')",
    "color LIKE 'r%'",
    "color LIKE 'it''s'",
    "color IS NULL",
    "NOT (color = 'red')",
    "n = 1 OR color = 'blue'",
    "JMSPriority > 4",
    "JMSPriority = 4 AND color IS NOT NULL",
    "JMSMessageID LIKE 'ID%'",
    "JMSType = 'order'",
    "JMSCorrelationID = 'c1'",
    "JMSDeliveryMode = 'PERSISTENT'",
    "color <> 'red'",
    "n",
    "TRUE",
    "n = ",
    "color = red",
    "1 = 1",
    "XPATH 'a'",
    "n - 1 = 0 AND n / 2 < 1",
)
_WRONG_NAMES = (
    "foo{t}",
    "/foo/{t}",
    "/queue/",
    "/queue/{t}/a",
    "",
    "/topic/",
    "queue/{t}",
    "/QUEUE/{t}",
    "/temp-queue/",
)
_NAMES: dict[str, tuple[str, ...]] = {
    "activemq": (
        "/topic/{t}.a.*",
        "/topic/{t}.>",
        "/queue/{t}.*",
        "/queue/{t}.a,/queue/{t}.b",
        "/queue/{t}.a,/topic/{t}.a",
        "/topic/VirtualTopic.{t}",
        "/queue/Consumer.A.VirtualTopic.{t}",
        "/queue/Consumer.B.VirtualTopic.{t}",
        "/temp-queue/{t}",
        "/temp-topic/{t}",
        "/remote-temp-queue/{t}",
        "/queue/{t}.a?consumer.prefetchSize=1",
        "/queue/{t}.a?consumer.exclusive=true",
    ),
    "artemis": ("/topic/{t}.*", "/topic/{t}.#", "/queue/{t}.*", "/temp-queue/{t}", "/topic/{t}.a.b", "{t}.plain"),
    "rabbitmq": (
        "/topic/{t}.*",
        "/topic/{t}.#",
        "/topic/#.{t}",
        "/exchange/amq.topic/{t}.a",
        "/exchange/amq.topic/{t}.*",
        "/exchange/amq.direct/{t}",
        "/exchange/amq.fanout",
        "/exchange/{t}-none/k",
        "/exchange/",
        "/amq/queue/{t}.a",
        "/amq/queue/{t}.none",
        "/temp-queue/{t}",
        "/reply-queue/{t}",
        "{t}.plain",
        "/queue/{t}%2Fa",
    ),
}
_VERSIONS = ("1.0", "1.1", "1.2")


class _Writer:
    """Writes one sequence."""

    def __init__(self, seed: int, family: str) -> None:
        self.random = random.Random(f"{family} {seed}")
        self.family = family
        self.steps: list[Step] = []
        self.numbers = count(1)
        self.versions: dict[int, str] = {}
        self.subscribed: dict[int, list[tuple[str, str]]] = {}
        self.open: list[str] = []
        basic = ["/queue/{t}.a", "/queue/{t}.a", "/queue/{t}.b", "/topic/{t}.a"]
        chosen = [self.pick(basic), self.pick(basic)]
        if self.chance(0.35):
            chosen.append(self.pick(_NAMES[family]))
        if self.chance(0.12):
            chosen.append(self.pick(_WRONG_NAMES))
        self.names = chosen

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, choices: object) -> str:
        return str(self.random.choice(list(choices)))  # type: ignore[call-overload]

    def say(
        self, client: int, command: str, headers: list[tuple[str, str]], body: str = "", *, spoil: bool = True
    ) -> None:
        """Add a frame, one in twelve of them spoilt."""
        raw = ""
        if spoil and self.chance(0.08):
            headers, body, raw, command = self.spoilt(headers, body, command)
        self.steps.append(Step(client, command, tuple(headers), body, raw))

    def spoilt(
        self, headers: list[tuple[str, str]], body: str, command: str
    ) -> tuple[list[tuple[str, str]], str, str, str]:
        """Return a frame with something wrong, or odd, about it."""
        headers, raw = list(headers), ""
        what = self.random.randrange(9)
        at = self.random.randrange(len(headers)) if headers else None
        if what in (0, 1) and at is not None:
            del headers[at]
        elif what == 2 and at is not None:
            headers[at] = (headers[at][0], self.pick(("", "x", " ", "-1", "{t}")))
        elif what == 3 and at is not None:
            headers.append((headers[at][0], self.pick(_TEXTS)))
        elif what == 4:
            headers.append(
                (self.pick(("x", "foo", "receipt", "id", "destination", "é", "transaction")), self.pick(_TEXTS))
            )
        elif what == 5:
            headers.append(("x", self.pick(("a\\tb", "end\\", "a:b", "a\\rb"))))
        elif what == 6:
            command = self.pick((command.lower(), "FOO", "MESSAGE", "RECEIPT", "CONNECT", command + " "))
        elif what == 7:
            raw = self.pick(("crlf", "crlf", "no colon"))
        else:
            headers.append(("content-length", self.pick((str(len(body.encode())), "0", "x", "-1"))))
        return headers, body, raw, command

    def receipt(self, share: float = 0.4) -> list[tuple[str, str]]:
        return [("receipt", f"r{next(self.numbers)}")] if self.chance(share) else []

    def extra(self, table: dict[str, dict[str, tuple[str, ...]]], most: int) -> list[tuple[str, str]]:
        """Return some headers of the broker's documentation; of all brokers' one time in ten."""
        families = table if self.chance(0.1) else ("", self.family)
        known = {name: values for family in families for name, values in table[family].items()}
        names = self.random.sample(sorted(known), min(len(known), self.random.choice([0, 0, 0, 1, 1, most])))
        return [(name, self.pick(known[name])) for name in names]

    # The frames.

    def connect(self, client: int) -> None:
        version = self.versions[client] = self.pick(_VERSIONS)
        host = "/" if self.family == "rabbitmq" else "localhost"
        offered = [("accept-version", self.pick((version, version, ",".join(v for v in _VERSIONS if v <= version))))]
        headers = [("login", LOGIN), ("passcode", PASSCODE)]
        headers = ([*offered, ("host", host)] if version != "1.0" or self.chance(0.2) else []) + headers
        if self.chance(0.2):
            headers.append(("heart-beat", self.pick(("0,0", "10000,10000", "0,20000", "30000,0"))))
        if self.chance(0.12):
            headers.append(("client-id", "{t}c" + self.pick((str(client), "0"))))
        if self.chance(0.05):
            headers += self.receipt(1.0)
        if self.chance(0.08):
            name, value = self.random.choice(
                [
                    ("passcode", "wrong"),
                    ("login", "nobody"),
                    ("login", ""),
                    ("accept-version", "9.9"),
                    ("accept-version", ""),
                    ("accept-version", "1.0, 1.1, 1.2"),
                    ("accept-version", "1.3,1.1"),
                    ("host", "nowhere"),
                    ("heart-beat", "abc"),
                    ("heart-beat", "0, 0"),
                    ("heart-beat", "-1,-1"),
                    ("heart-beat", "1"),
                    ("foo", "bar"),
                ]
            )
            headers = [*((n, v) for n, v in headers if n != name), (name, value)]
        if self.chance(0.03):
            headers = [
                pair for pair in headers if pair[0] != self.pick(("login", "passcode", "host", "accept-version"))
            ]
        if self.chance(0.02):
            self.send(client)
        self.say(
            client, "STOMP" if version != "1.0" and self.chance(0.15) else "CONNECT", headers, spoil=self.chance(0.2)
        )

    def subscribe(self, client: int) -> None:
        identity = self.pick(("1", "2", "s\\c1" if self.versions[client] != "1.0" else "s1"))
        destination = self.pick(self.names)
        headers = [("destination", destination)]
        if self.versions[client] != "1.0" or self.chance(0.6):
            headers.append(("id", identity))
        if self.chance(0.8):
            headers.append(("ack", self.pick(("auto", "client", "client-individual", "client", "client-individual"))))
        if self.chance(0.02):
            headers.append(("ack", "banana"))
        if self.family != "rabbitmq" and self.chance(0.15):
            headers.append(("selector", self.pick(_SELECTORS)))
        headers += self.extra(_SUBSCRIBE, 3) + self.receipt()
        self.subscribed.setdefault(client, []).append((identity, destination))
        self.say(client, "SUBSCRIBE", headers)

    def send(self, client: int) -> None:
        destination = self.pick(self.names)
        extra = self.extra(_SEND, 4)
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            body = f"m{next(self.numbers)}" + self.pick(("", "", "", " é", " a\nb"))
            headers = [
                ("destination", destination),
                ("seq", "{t}"),
                *extra,
                *self.receipt(0.25),
                *self.transaction(0.7),
            ]
            if self.chance(0.25):
                headers.append(("content-length", str(len(body.encode()))))
            if self.chance(0.15):
                headers.append((self.pick(("k", "with-dash", "K")), self.pick(_TEXTS)))
            self.say(client, "SEND", headers, body)

    def transaction(self, share: float) -> list[tuple[str, str]]:
        if self.open and self.chance(share):
            return [("transaction", self.pick(self.open))]
        return [("transaction", "none")] if self.chance(0.02) else []

    def settle(self, client: int) -> None:
        at = self.random.choice((0, 0, 0, 1, 1, 2))
        version = self.versions[client]
        headers = [("id", f"{{ack:{at}}}")] if version == "1.2" else [("message-id", f"{{id:{at}}}")]
        if version == "1.1" or (version == "1.0" and self.chance(0.3)):
            headers.append(("subscription", f"{{sub:{at}}}"))
        if self.chance(0.04):
            headers[0] = (headers[0][0], "nothing")
        command = "ACK" if self.chance(0.65) else "NACK"
        if command == "NACK" and self.family == "rabbitmq" and self.chance(0.75):
            headers.append(("requeue", self.pick(("false", "true", "False", "no"))))
        self.say(client, command, [*headers, *self.transaction(0.4), *self.receipt()])

    def bracket(self, client: int) -> None:
        if self.open and self.chance(0.7):
            name = self.pick(self.open)
            self.open.remove(name)
            self.say(client, self.pick(("COMMIT", "COMMIT", "ABORT")), [("transaction", name), *self.receipt()])
        else:
            name = self.pick(("t1", "t2"))
            self.open.append(name)
            self.say(client, "BEGIN", [("transaction", name), *self.receipt()])

    def unsubscribe(self, client: int) -> None:
        identity, destination = self.random.choice(self.subscribed.get(client, []) or [("9", "/queue/{t}.z")])
        headers = (
            [("id", identity)] if self.versions[client] != "1.0" or self.chance(0.5) else [("destination", destination)]
        )
        if self.chance(0.1):
            name = {"activemq": "activemq.subscriptionName", "artemis": "durable-subscription-name"}.get(self.family)
            headers.append((name, "{t}s") if name else ("durable", "true"))
        self.say(client, "UNSUBSCRIBE", [*headers, *self.receipt()])

    def end(self, client: int) -> None:
        if self.chance(0.5):
            self.say(client, "DISCONNECT", self.receipt(0.8))
        else:
            self.steps.append(Step(client, DROP))
        if self.chance(0.6):
            self.connect(client)

    def audit(self) -> None:
        """Let a client of its own see what is left in the queues, and among the dead letters."""
        connect = [("accept-version", "1.2"), ("host", "/" if self.family == "rabbitmq" else "localhost")]
        self.say(AUDITOR, "CONNECT", [*connect, ("login", LOGIN), ("passcode", PASSCODE)], spoil=False)
        queues = sorted({name for name in self.names if name in ("/queue/{t}.a", "/queue/{t}.b")})
        for number, queue in enumerate(queues):
            self.say(AUDITOR, "SUBSCRIBE", [("destination", queue), ("id", f"a{number}")], spoil=False)
        letters = {"activemq": ("/queue/ActiveMQ.DLQ",), "artemis": ("/queue/DLQ", "/queue/ExpiryQueue")}.get(
            self.family, ()
        )
        for number, queue in enumerate(letters):
            selector = ("selector", "seq = '{t}'")
            self.say(AUDITOR, "SUBSCRIBE", [("destination", queue), ("id", f"d{number}"), selector], spoil=False)

    def write(self) -> Sequence:
        clients = [0] if self.chance(0.6) else [0, 1]
        for client in clients:
            self.connect(client)
        actions = (self.send, self.subscribe, self.settle, self.bracket, self.unsubscribe, self.end)
        for _ in range(self.random.randrange(2, 10)):
            client = self.random.choice(clients)
            self.random.choices(actions, weights=(34, 26, 22, 10, 5, 3))[0](client)
        if self.chance(0.7):
            for client in clients:
                if self.chance(0.5):
                    self.steps.append(Step(client, DROP))
            self.audit()
        return tuple(self.steps)


def written(seed: int, kind: str) -> Sequence:
    """Return the sequence of a seed for a kind of broker."""
    return _Writer(seed, family_of(kind)).write()
