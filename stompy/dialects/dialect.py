"""A dialect: a broker's answers to the open questions of the specification, and the headers that control them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Literal, NamedTuple

from stompy.dialects.options import BROKER_OPTIONS, SUBSCRIBE_FEATURES, SubscribeOptions
from stompy.errors import ConfigurationError
from stompy.frames.grammar import Leniency, Version
from stompy.protocol.rules import Lookup
from stompy.values import Value
from stompy.world import time

DEDUPE_HEADER = "stompy-dedupe-id"
"""SEND header with the same value whenever a message is resent, so that consumers can detect duplicates."""

NOT_DURABLE = ("/queue/", "/temp-queue/", "/temp-topic/")
"""Prefixes of destinations that are not topics at any broker with durable subscriptions."""

_QUEUES = ("/queue/", "/temp-queue/", "/remote-temp-queue/")


class HeaderPitfall(NamedTuple):
    """An explicit header that a broker does not treat as its name suggests.

    Attributes:
        command: the command of the frame.
        header: the name of the header.
        why: the broker's behaviour, and the remedy.
        value: the only value that is a pitfall; `None` means every value.
    """

    command: str
    header: str
    why: str
    value: str | None = None


class Dialect(Value):
    """How one broker behaves, as data.

    Attributes:
        name: the name for `connect(dialect=...)`.
        product: the name for error messages.
        headers: the header for each of `BROKER_OPTIONS` and `SubscribeOptions` that the broker supports.
        unsupported: for an option that it does not support, the reason and the alternative, for error messages.
        not_in_1_0: the options that it does not support in STOMP 1.0.
        pitfalls: the explicit headers that would silently do harm.
        host: the default of the `host` header; `None` means the host name of the address.
        leniency: the deviations to tolerate, and how to write CONNECT.
        relative_expiry: whether the expiry header holds a lifetime in milliseconds, not milliseconds since the epoch.
        omits_transient: whether a non-persistent message must not have the header for persistence.
        prefetch_as_window: whether the prefetch header holds bytes; 0 then means one message at a time.
        routes: by command and destination prefix, the header that tells the broker the type of the destination.
        subscribe_defaults: headers of every SUBSCRIBE that does not set them.
        durable_extra: further headers of a durable SUBSCRIBE.
        durable_as_queue: whether a durable subscription is a named queue, and does not belong to a client id.
        subscribes_temporary: whether a client has to subscribe to its reply queue (RabbitMQ does that by itself).
        ack_reaches: the messages that an ACK in mode `client` settles: the earlier ones of its subscription, as the
            specification says, or those of all subscriptions of the connection.
        slashed: whether the names of destinations usually begin with a slash.
        ack_after_unsubscribe: whether an ACK is still accepted after its subscription has ended.
        nack: what the broker does with a message after a NACK: unknown; redelivers it a few times, then dead-letters
            it; redelivers it at once, without a limit; dead-letters it; discards it.
        nack_is_individual: whether a NACK in mode `client` settles its own message only, unlike an ACK.
        transacted: the commands, of ACK and NACK, that can be part of a transaction.
        drops_idle: seconds after which the broker, by default, ends a session that is idle and has no heartbeats.
        transacted_receipts: which receipts show, in a transaction, that the broker has taken its frames: that of a
            later frame; those of the frames, which come at once; those of the frames, which may come after that of
            COMMIT.
        atomic_commit: whether COMMIT takes effect as a whole, on disk too; else acknowledgements wait until the broker
            has confirmed every message.
        max_transaction_frames: the frames of one transaction that the broker takes.
        max_open_transactions: the open transactions of one session that the broker takes.
        durable_delay: whether a delayed message does.
        keeps_message_id: whether a redelivered message has the message-id of before.
        marks_redelivered: whether every redelivered message says `redelivered:true`.
        invalid_destination: how the `message` of an ERROR begins if no message can ever be sent to its
            destination, existing or not.
        missed_heartbeats: how the `message` of an ERROR begins if the client missed its heartbeats.
    """

    name: str
    product: str
    headers: Mapping[str, str] = {}
    unsupported: Mapping[str, str] = {}
    not_in_1_0: frozenset[str] = frozenset()
    pitfalls: Sequence[HeaderPitfall] = ()
    host: str | None = None
    leniency: Leniency = Leniency.NONE
    relative_expiry: bool = False
    omits_transient: bool = False
    prefetch_as_window: bool = False
    routes: Mapping[str, Mapping[str, tuple[str, str]]] = {}
    subscribe_defaults: Mapping[str, str] = {}
    durable_extra: Mapping[str, str] = {}
    durable_as_queue: bool = False
    subscribes_temporary: bool = True
    ack_reaches: Literal["subscription", "connection"] = "subscription"
    slashed: bool = False
    ack_after_unsubscribe: bool = True
    nack: Literal["unknown", "redelivered", "requeued", "dead letter", "discarded"] = "unknown"
    nack_is_individual: bool = False
    transacted: frozenset[str] = frozenset({"ACK", "NACK"})
    drops_idle: float | None = None
    transacted_receipts: Literal["later", "at once", "after commit"] = "after commit"
    atomic_commit: bool = True
    max_transaction_frames: int | None = None
    max_open_transactions: int | None = None
    durable_delay: bool = True
    keeps_message_id: bool = False
    marks_redelivered: bool = False
    invalid_destination: tuple[str, ...] = ()
    missed_heartbeats: tuple[str, ...] = ()

    def defaults(self, command: str, destination: str) -> dict[str, str]:
        """Return the default headers of a SEND or SUBSCRIBE."""
        made = dict(self.subscribe_defaults) if command == "SUBSCRIBE" else {}
        for start, (name, value) in self.routes.get(command, {}).items():
            if destination.startswith(start):
                made[name] = value
        return made

    # SEND.

    def supports(self, option: str) -> bool:
        """Return whether the broker supports an option."""
        return option in self.headers

    def defaults_to(self, option: str, explicit: Container[str]) -> bool:
        """Return whether an option can be set by default: the broker supports it, and its header is not given."""
        header = self.headers.get(option)
        return header is not None and header not in explicit

    def dedupe_headers(self, identity: str) -> dict[str, str]:
        """Return the SEND headers that identify a message which may be resent; they work with every broker."""
        own = self.headers.get("dedupe_id")
        return {name: identity for name in (DEDUPE_HEADER, own) if name is not None}

    def send_headers(self, options: Mapping[str, object], explicit: Container[str] = ()) -> dict[str, str]:
        """Return the SEND headers of the `BROKER_OPTIONS` among `options`.

        Args:
            options: of a message.
            explicit: the names of its explicit headers.

        Raises:
            ConfigurationError: the broker does not support one of them, or its header is given explicitly too.
        """
        made = {}
        for option, header in self.headers_of(options).items():
            value = options[option]
            if header in explicit:
                raise ConfigurationError(
                    f"{option}= and header {header!r} in headers= are the same for {self.product}: give one of them"
                )
            if value is not False or not self.omits_transient:
                made[header] = self._written(option, value)
        return made

    def headers_of(self, options: Mapping[str, object]) -> dict[str, str]:
        """Return the header for each given one of `options` that is a broker's; raises as `send_headers`."""
        return {
            option: self._header(option)
            for option, value in options.items()
            if value is not None and option in BROKER_OPTIONS
        }

    def _written(self, option: str, value: object) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if option in ("expires", "delay"):
            assert isinstance(value, (int, float))
            # An absolute expiry is compared with the wall clock of the broker.
            start = time.time() if option == "expires" and not self.relative_expiry else 0.0
            return str(max(1, round((start + value) * 1000)))
        return value if isinstance(value, str) else f"{value:d}"

    # SUBSCRIBE and UNSUBSCRIBE.

    def subscribe_headers(
        self, options: SubscribeOptions, *, destination: str, ack: str, client_id: str | None, version: Version
    ) -> dict[str, str]:
        """Return the SUBSCRIBE headers for `options`.

        Raises:
            ConfigurationError: the broker does not support one of them, or this combination.
        """
        asked = options.asked()
        late = [option for option in asked if option in self.not_in_1_0]
        if late and not version.has_heartbeats:
            raise ConfigurationError(
                f"{self.product} supports {SUBSCRIBE_FEATURES[late[0]]} ({late[0]}=) only from STOMP 1.1 on"
            )
        made = {self._header(option): self._written(option, value) for option, value in asked.items()}
        if options.browse and ack != "auto":
            raise ConfigurationError(
                "browsing does not consume messages, so there is nothing to acknowledge: ack must be 'auto'"
            )
        if options.prefetch is not None and self.prefetch_as_window:
            made[self._header("prefetch")] = self._window(options.prefetch, ack)
        if options.durable is not None:
            made.update(self._durable_headers(options.durable, destination, client_id))
        return made

    def _window(self, prefetch: int, ack: str) -> str:
        if prefetch != 1 or ack == "auto":
            raise ConfigurationError(
                f"{self.product} limits prefetching in bytes: prefetch can only be 1, in the client modes"
                f" (headers={{{self._header('prefetch')!r}: ...}} sets the limit in bytes)"
            )
        return "0"

    def _durable_headers(self, name: str, destination: str, client_id: str | None) -> dict[str, str]:
        if destination.startswith(NOT_DURABLE):
            raise ConfigurationError(
                f"only a topic can have a durable subscription, and {destination!r} is not a topic"
            )
        if self.durable_as_queue:
            return {**self.durable_extra, self._header("durable"): f"{client_id}.{name}" if client_id else name}
        if client_id is None:
            raise ConfigurationError(
                f"a durable subscription of {self.product} needs a client id: connect(client_id=...)"
            )
        return {**self.durable_extra, self._header("durable"): name}

    def unsubscribe_headers(
        self, identity: str, options: SubscribeOptions, *, delete: bool, client_id: str | None, version: Version
    ) -> list[dict[str, str]]:
        """Return the headers of the UNSUBSCRIBE frames that end a subscription, in order.

        Args:
            identity: the id of the subscription.
            options: the options that it was made with.
            delete: whether to delete the durable subscription too.
            client_id: the client id of the connection.
            version: the version of the session.

        Raises:
            ConfigurationError: the subscription is not durable, or cannot be deleted in this version.
        """
        plain = {"id": identity}
        if not delete:
            return [plain]
        if options.durable is None:
            raise ConfigurationError("only a durable subscription can be deleted; this one is not durable")
        durable = self._durable_headers(options.durable, "", client_id)
        if self.durable_as_queue:
            return [{**plain, **durable}]
        if self.name == "activemq" and not version.has_heartbeats and client_id != options.durable:
            raise ConfigurationError(
                f"in STOMP {version}, {self.product} can delete a durable subscription only if its name is the client"
                " id; use STOMP 1.1 or later"
            )
        return [plain, {**plain, **durable}]

    # ACK and NACK.

    def nack_headers(self, requeue: bool | None) -> dict[str, str]:
        """Return the broker's own headers of a NACK.

        Args:
            requeue: whether the broker is to redeliver the message; `None` leaves it to the broker.

        Raises:
            ConfigurationError: the broker would behave differently.
        """
        if self.nack == "requeued":
            return {} if requeue is None else {"requeue": "true" if requeue else "false"}
        if requeue:
            raise ConfigurationError(f"{self.product} cannot redeliver a message after a NACK")
        if requeue is None and self.nack == "discarded":
            raise ConfigurationError(
                f"{self.product} treats a NACK like an ACK: the message would be lost. requeue=False discards it;"
                " without ACK or NACK it is redelivered when the connection ends"
            )
        if requeue is False and self.nack == "redelivered":
            raise ConfigurationError(f"{self.product} itself decides how often it redelivers a message after a NACK")
        if requeue is False and self.nack == "unknown":
            raise ConfigurationError(f"stompy does not know what {self.product} does with a message after a NACK")
        return {}

    def why_nack_loses(self, header: Lookup) -> str | None:
        """Return why a NACK would lose a message, or `None` if the broker keeps the message for later.

        Args:
            header: looks up a header of the MESSAGE.
        """
        if self.nack == "discarded":
            return f"{self.product} treats a NACK like an ACK"
        if self.nack == "unknown":
            return f"stompy does not know what {self.product} does with a message after a NACK"
        if self.nack == "requeued":
            again = (header("redelivered") or "").lower() == "true"
            return f"{self.product} would redeliver it at once, without a limit" if again else None
        if header("original-destination") is not None:
            # A dead letter, or one of several copies of a message, of which ActiveMQ makes at most one dead letter.
            return f"{self.product} drops a dead letter, or a further copy of a message, after a NACK"
        if self.nack == "dead letter":
            if header("persistent") != "true":
                return f"{self.product} makes no dead letter of a non-persistent message, unless it is configured to"
            if not (header("destination") or "").startswith(_QUEUES):
                return f"{self.product} makes no dead letter of a message of a topic, or only one for all subscribers"
        return None

    def check_transacted(self, command: str) -> None:
        """Check that an ACK or NACK can be part of a transaction.

        Raises:
            ConfigurationError: it cannot.
        """
        if command not in self.transacted:
            raise ConfigurationError(f"{self.product} cannot take an {command} as part of a transaction")

    # Explicit headers.

    def check_explicit_headers(self, command: str, headers: Mapping[str, str]) -> None:
        """Refuse explicit headers that this broker does not treat as their names suggest.

        Raises:
            ConfigurationError: there is one.
        """
        for pitfall in self.pitfalls:
            if (
                pitfall.command == command
                and pitfall.header in headers
                and pitfall.value in (None, headers[pitfall.header])
            ):
                raise ConfigurationError(
                    f"header {pitfall.header!r} of a {command} frame to {self.product}: {pitfall.why}"
                    " (connect(dialect='generic') sends every header unchanged)"
                )

    def has_pitfall(self, command: str, header: str) -> bool:
        """Return whether an explicit header of this name has to be checked each time."""
        return any(pitfall.command == command and pitfall.header == header for pitfall in self.pitfalls)

    def _header(self, option: str) -> str:
        header = self.headers.get(option)
        if header is not None:
            return header
        sent = BROKER_OPTIONS.get(option)
        what = f"{SUBSCRIBE_FEATURES[option] if sent is None else sent.feature} ({option}=)"
        if option in self.unsupported:
            raise ConfigurationError(f"{self.product} does not support {what}: {self.unsupported[option]}")
        raise ConfigurationError(
            f"stompy does not know how {self.product} supports {what}; set the broker's own headers"
            " (headers={...}), or name a broker with the same headers: connect(dialect=...)"
        )
