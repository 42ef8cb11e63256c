"""Some messages that become durable and are acknowledged together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stompy.connection.message import Message
from stompy.spark.spool.lane import LaneWriter
from stompy.spark.spool.record import Record, now_us, record_of


@dataclass(slots=True)
class Group:
    """What to do with some messages, in the order of their delivery.

    Attributes:
        last: the message whose ACK covers all of them.
        records: the rows to write.
        again: ids of those that are in the spool already; acknowledged, and not written.
    """

    last: Message
    records: list[Record] = field(default_factory=list)
    again: list[str] = field(default_factory=list)


def group_of(messages: Iterable[Message], writer: LaneWriter, *, broker: str, identified: bool) -> Group:
    """Sort messages into new ones and those that are in the spool already.

    Args:
        messages: at least one.
        writer: knows what may come again.
        broker: the address, without credentials.
        identified: whether a message that is delivered again can be known by its identity. Where it cannot, those that
            the broker calls redelivered are flagged as long as there is anything that may come again.
    """
    now = now_us()
    group: Group | None = None
    in_doubt = len(writer.suspects) > 0
    for message in messages:
        if group is None:
            group = Group(message)
        group.last = message
        record = record_of(message, broker=broker, received_at=now)
        if in_doubt:
            identity = writer.identity(record) if identified else None
            if identity is not None and identity in writer.suspects:
                group.again.append(identity[0])
                continue
            if identity is None and record.redelivered:
                record = record_of(message, broker=broker, received_at=now, possible_duplicate=True)
        group.records.append(record)
    assert group is not None, "a group has a message"
    return group


def knows_again(server: str | None, *, message_ids: str, dedup_header: str | None) -> bool:
    """Whether a message that this broker delivers again can be known by its identity.

    RabbitMQ and the embedded broker name deliveries, not messages; a broker that numbers the deliveries of a session
    would even give another message the id of an earlier one.

    Args:
        server: the `server` header of CONNECTED.
        message_ids: the option: `stable`, `unstable`, or `auto`.
        dedup_header: the option; with it the ids do not matter.
    """
    if dedup_header is not None or message_ids == "stable":
        return True
    name = (server or "").lower()
    return message_ids == "auto" and ("activemq" in name or "artemis" in name)
