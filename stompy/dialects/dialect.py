"""A dialect: what one broker makes of the things that the specification leaves open, and how to ask for them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from stompy.dialects.options import SendOptions, SubscribeOptions
from stompy.errors import ConfigurationError
from stompy.frames.grammar import Leniency, Version
from stompy.protocol.rules import Lookup

DEDUPE_HEADER = "stompy-dedupe-id"
"""SEND header that is the same each time a message is sent again, for consumers to know a duplicate by."""

NOT_DURABLE = ("/queue/", "/temp-queue/", "/temp-topic/")
"""Destinations that are no topics at any broker that has durable subscriptions."""

_QUEUES = ("/queue/", "/temp-queue/", "/remote-temp-queue/")

_WORDS = {
    "persistent": "persistence by message",
    "priority": "priorities",
    "expires": "expiry",
    "delay": "a delayed delivery",
    "group": "message groups",
    "dedupe_id": "the dropping of duplicates",
    "prefetch": "a prefetch by messages",
    "selector": "a selector",
    "durable": "a durable subscription",
    "browse": "browsing",
    "exclusive": "an exclusive consumer",
}


@dataclass(frozen=True, slots=True)
class Trap:
    """A header, written by hand, that this broker takes in another way than its name says.

    Attributes:
        command: of the frame.
        header: its name.
        why: what happens, and what to do instead.
        value: the one value that is a trap; `None` for every value.
    """

    command: str
    header: str
    why: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """The facts about one broker.

    Attributes:
        name: what `connect(dialect=...)` calls it.
        product: what messages call it.
        headers: the header that asks for an option of `SendOptions` or `SubscribeOptions`; one that is missing cannot
            be asked for.
        without: why an option cannot be had, in words, and what to do instead.
        not_in_1_0: options that cannot be had in the oldest version.
        traps: headers written by hand that would do harm in silence.
        host: the `host` header where nobody names another; `None` for the host name of the address.
        leniency: what the broker needs to be borne with, and how CONNECT is written.
        relative_expiry: the expiry is in milliseconds to live, not the moment in milliseconds since the epoch.
        omits_transient: a message that is not persistent must go without the header that says so.
        prefetch_as_window: the prefetch is a window of octets, where only the empty one counts messages: one.
        routes: what a destination is, by how it begins, where the broker must be told in a header; by command.
        subscribe_defaults: headers of every SUBSCRIBE that does not say otherwise.
        durable_extra: further headers of a durable SUBSCRIBE.
        durable_as_queue: a durable subscription is a named queue, not a name below a client id.
        subscribes_temporary: a reply queue is subscribed to (RabbitMQ does it by itself).
        ack_reaches: what an ACK in mode `client` settles: the earlier messages of its subscription, as the
            specification says, or those of every subscription of the connection.
        ack_after_unsubscribe: an ACK is still taken when its subscription has ended.
        nack: what becomes of a message that is refused: nobody knows; delivered again a few times, then a dead letter;
            delivered again at once and without a limit; a dead letter; discarded.
        nack_alone: in mode `client` too, a NACK is about its one message, other than an ACK.
        transacted: the acknowledgements that wait for the COMMIT of their transaction.
    """

    name: str
    product: str
    headers: Mapping[str, str] = field(default_factory=dict)
    without: Mapping[str, str] = field(default_factory=dict)
    not_in_1_0: frozenset[str] = frozenset()
    traps: Sequence[Trap] = ()
    host: str | None = None
    leniency: Leniency = Leniency.NONE
    relative_expiry: bool = False
    omits_transient: bool = False
    prefetch_as_window: bool = False
    routes: Mapping[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)
    subscribe_defaults: Mapping[str, str] = field(default_factory=dict)
    durable_extra: Mapping[str, str] = field(default_factory=dict)
    durable_as_queue: bool = False
    subscribes_temporary: bool = True
    ack_reaches: Literal["subscription", "connection"] = "subscription"
    ack_after_unsubscribe: bool = True
    nack: Literal["its own choice", "redelivered", "requeued", "dead letter", "discarded"] = "its own choice"
    nack_alone: bool = False
    transacted: frozenset[str] = frozenset({"ACK", "NACK"})

    def defaults(self, command: str, destination: str) -> dict[str, str]:
        """Return the headers that a SEND or SUBSCRIBE has unless it says otherwise."""
        made = dict(self.subscribe_defaults) if command == "SUBSCRIBE" else {}
        for start, (name, value) in self.routes.get(command, {}).items():
            if destination.startswith(start):
                made[name] = value
        return made

    # SEND.

    def can(self, option: str) -> bool:
        """Whether there is a way to ask for an option."""
        return option in self.headers

    def dedupe_headers(self, identity: str) -> dict[str, str]:
        """Return the SEND headers of a message that may have to be sent again; any broker will do."""
        own = self.headers.get("dedupe_id")
        return {name: identity for name in (DEDUPE_HEADER, own) if name is not None}

    def send_headers(self, options: SendOptions) -> dict[str, str]:
        """Return the SEND headers that ask for `options`.

        Raises:
            ConfigurationError: the broker cannot do it.
        """
        made = {}
        for option, value in options.asked().items():
            name = self._header(option)
            if value is not False or not self.omits_transient:
                made[name] = self._written(option, value)
        return made

    def _written(self, option: str, value: object) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if option in ("expires", "delay"):
            assert isinstance(value, (int, float))
            # The broker compares with its own clock, so this is the one place where ours is the wall clock.
            start = time.time() if option == "expires" and not self.relative_expiry else 0.0
            return str(max(1, round((start + value) * 1000)))
        return value if isinstance(value, str) else f"{value:d}"

    # SUBSCRIBE and UNSUBSCRIBE.

    def subscribe_headers(
        self, options: SubscribeOptions, *, destination: str, ack: str, client_id: str | None, version: Version
    ) -> dict[str, str]:
        """Return the SUBSCRIBE headers that ask for `options`.

        Raises:
            ConfigurationError: the broker cannot do it, at all or in this combination.
        """
        asked = options.asked()
        late = [option for option in asked if option in self.not_in_1_0]
        if late and not version.has_heartbeats:
            raise ConfigurationError(f"{self.product} has {_WORDS[late[0]]} ({late[0]}=) from STOMP 1.1 on only")
        made = {self._header(option): self._written(option, value) for option, value in asked.items()}
        if options.browse and ack != "auto":
            raise ConfigurationError("browsing takes no message, so there is none to acknowledge: ack must be 'auto'")
        if options.prefetch is not None and self.prefetch_as_window:
            made[self._header("prefetch")] = self._window(options.prefetch, ack)
        if options.durable is not None:
            made.update(self._durable_headers(options.durable, destination, client_id))
        return made

    def _window(self, prefetch: int, ack: str) -> str:
        if prefetch != 1 or ack == "auto":
            raise ConfigurationError(
                f"{self.product} bounds what it sends ahead in octets: in the client modes prefetch can be 1 there, and"
                f" nothing else (headers={{{self._header('prefetch')!r}: ...}} sets the octets)"
            )
        return "0"

    def _durable_headers(self, name: str, destination: str, client_id: str | None) -> dict[str, str]:
        if destination.startswith(NOT_DURABLE):
            raise ConfigurationError(f"only a topic needs a durable subscription, {destination!r} is none")
        if self.durable_as_queue:
            return {**self.durable_extra, self._header("durable"): f"{client_id}.{name}" if client_id else name}
        if client_id is None:
            raise ConfigurationError(
                f"a durable subscription of {self.product} belongs to a client id: connect(client_id=...)"
            )
        return {**self.durable_extra, self._header("durable"): name}

    def unsubscribe_headers(
        self, identity: str, options: SubscribeOptions, *, delete: bool, client_id: str | None, version: Version
    ) -> list[dict[str, str]]:
        """Return the headers of the UNSUBSCRIBE frames that end a subscription, in order.

        Args:
            identity: of the subscription.
            options: as subscribed.
            delete: give up the durable subscription too.
            client_id: as connected.
            version: of the session.

        Raises:
            ConfigurationError: there is nothing durable to delete, or no way to in this version.
        """
        plain = {"id": identity}
        if not delete:
            return [plain]
        if options.durable is None:
            raise ConfigurationError("only a durable subscription can be deleted; this one ends with its UNSUBSCRIBE")
        durable = self._durable_headers(options.durable, "", client_id)
        if self.durable_as_queue:
            return [{**plain, **durable}]
        if self.name == "activemq" and not version.has_heartbeats and client_id != options.durable:
            raise ConfigurationError(
                f"{self.product} takes the name of the subscription for the client id in STOMP {version}: a durable"
                " subscription is deleted in 1.1 or later, or must be named like the client id"
            )
        return [plain, {**plain, **durable}]

    # ACK and NACK.

    def nack_headers(self, requeue: bool | None) -> dict[str, str]:
        """Return the further headers of a NACK.

        Raises:
            ConfigurationError: the broker would do another thing than was asked.
        """
        if self.nack == "requeued":
            return {} if requeue is None else {"requeue": "true" if requeue else "false"}
        if requeue:
            raise ConfigurationError(f"{self.product} has no way to refuse a message and have it delivered again")
        if requeue is None and self.nack == "discarded":
            raise ConfigurationError(
                f"{self.product} takes a NACK for an ACK: the message would be gone. Say requeue=False if that is"
                " meant; an unacknowledged message is delivered again when its connection ends"
            )
        if requeue is False and self.nack == "redelivered":
            raise ConfigurationError(f"{self.product} itself counts how often it delivers a refused message again")
        if requeue is False and self.nack == "its own choice":
            raise ConfigurationError(f"stompy does not know what {self.product} does with a refused message")
        return {}

    def loses_refused(self, header: Lookup) -> str | None:
        """Return why a message must not be refused if it is to be worked on later, or `None` where the broker keeps it.

        Args:
            header: looks up the headers of the MESSAGE.
        """
        if self.nack == "discarded":
            return f"{self.product} takes a NACK for an ACK"
        if self.nack == "its own choice":
            return f"stompy does not know what {self.product} does with a refused message"
        if self.nack == "requeued":
            again = (header("redelivered") or "").lower() == "true"
            return f"{self.product} would deliver it again at once and without end" if again else None
        if header("original-destination") is not None:
            # A dead letter, or a copy of a message of which ActiveMQ makes one dead letter at most.
            return f"{self.product} drops a dead letter, or a further copy of a message, that is refused"
        if self.nack == "dead letter":
            if header("persistent") != "true":
                return (
                    f"{self.product} keeps no dead letter of a message that is not persistent, unless it is set up to"
                )
            if not (header("destination") or "").startswith(_QUEUES):
                return f"{self.product} keeps no dead letter of a topic's message, or one for all its subscribers"
        return None

    def check_transacted(self, command: str) -> None:
        """Refuse an ACK or NACK that would not wait for its transaction.

        Raises:
            ConfigurationError: it would not.
        """
        if command not in self.transacted:
            raise ConfigurationError(f"{self.product} cannot take an {command} as part of a transaction")

    # Headers by hand.

    def check_by_hand(self, command: str, headers: Mapping[str, str]) -> None:
        """Refuse a header that this broker would take in another way than its name says.

        Raises:
            ConfigurationError: there is one; nothing was sent.
        """
        for trap in self.traps:
            if trap.command == command and trap.header in headers and trap.value in (None, headers[trap.header]):
                raise ConfigurationError(
                    f"header {trap.header!r} of a {command} frame to {self.product}: {trap.why}"
                    " (connect(dialect='generic') sends every header as it is)"
                )

    def _header(self, option: str) -> str:
        header = self.headers.get(option)
        if header is not None:
            return header
        what = f"{_WORDS[option]} ({option}=)"
        if option in self.without:
            raise ConfigurationError(f"{self.product} has no way to be asked for {what}: {self.without[option]}")
        raise ConfigurationError(
            f"stompy knows no way to ask {self.product} for {what}; if there is one, set its headers by hand"
            " (headers={...}), and if it speaks like a broker that stompy knows, say so: connect(dialect=...)"
        )
