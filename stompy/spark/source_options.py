"""The options of the source: `spark.readStream`, `spark.read` and `stompy spool`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from stompy.errors import ConfigurationError
from stompy.spark import options as kinds
from stompy.spark.broker_options import BROKER_OPTIONS, SparkBrokerOptions, refuse_secrets
from stompy.spark.options import option, parse, picked, table_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolOptions:
    """The options of receivers; picklable. Durations in seconds."""

    broker: SparkBrokerOptions
    # fmt: off
    destination: tuple[str, ...] = option(kinds.texts, None, "the destination to subscribe to, such as "
        "`/queue/orders`; several are separated by commas, and each receiver has a subscription to each", required=True)
    spool_dir: str = option(kinds.text, None, "the directory for received messages, as durable as the "
        "checkpoint, which every executor reaches under this name; NFS is experimental",
        required=True)
    subscribe_headers: Mapping[str, str] = option(kinds.headers, "{}", "further headers of SUBSCRIBE, as JSON")
    selector: str | None = option(kinds.text, None, "the `selector` header of SUBSCRIBE, if the broker has "
        "selectors")
    durable: str | None = option(kinds.text, None, "the name of a durable subscription of a topic, which stores "
        "messages while no receiver runs; with `clientId`, and one receiver")
    prefetch: int = option(kinds.count, "1000", "how many unacknowledged messages the broker may send ahead, and "
        "so how many may be delivered twice")
    receivers: int = option(kinds.number, "1", "how many connections fill the spool, each with a thread; 0 when "
        "another process does (`stompy spool`)")
    receiver_mode: str = option(kinds.choice("thread", "process"), "thread", "whether receivers are threads of the "
        "driver's Python, or of a separate process, which uses another core")
    segment_max_messages: int = option(kinds.count, "200", "the most messages that become durable, and are "
        "acknowledged, together; a segment ends at about 8 MiB too")
    max_spool_messages: int | None = option(kinds.count_or_none, "0", "the number of messages in the spool at "
        "which the receivers pause until some are processed; 0 for no limit")
    max_spool_bytes: int | None = option(kinds.size_or_none, "8g", "the same in bytes")
    broker_timeout: float = option(kinds.seconds, "60", "how long the broker may be unreachable before the query "
        "fails; with receivers=0, how long the process that fills the spool may send no heartbeat")
    dedup_header: str | None = option(kinds.text, None,
        "a header whose value identifies a message of a destination; by default the message id with brokers that "
        "deliver a message again under the same id: ActiveMQ, Artemis and the embedded broker")
    fail_on_data_loss: bool = option(kinds.flag, "true", "fail if segments are missing; otherwise continue "
        "without them, with a warning")
    lock_timeout: float = option(kinds.seconds, "30", "how long to wait until another query, or its receivers, "
        "release the spool")
    take_over_after: float = option(kinds.seconds, "20", "receivers, or a query, that hold the spool, and have shown "
        "no sign of life for so long while others wait for it, are taken over from; what they do later is not "
        "acknowledged")
    # fmt: on

    @property
    def origin(self) -> str:
        """All destinations as one text, sorted, so that their order does not matter."""
        return ",".join(sorted(self.destination))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOptions:
    """The options for the columns of a query; picklable."""

    # fmt: off
    body_as: str = option(kinds.choice("binary", "text"), "binary", "`text` adds a column with the body decoded "
        "from UTF-8; null if the body is not UTF-8")
    headers_as: str = option(kinds.choice("map", "array"), "map", "`array` makes the column `headers` that of Kafka's "
        "source, `array<struct<key: string, value: binary>>`; a repeated header is in it with each value, in a map "
        "with the first")
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of `spark.readStream`; picklable. Durations in seconds."""

    spool: SpoolOptions
    columns: ColumnOptions
    # fmt: off
    max_messages_per_trigger: int | None = option(kinds.count_or_none, "0", "the most messages in a micro-batch; 0 "
        "for no limit")
    max_bytes_per_trigger: int | None = option(kinds.size_or_none, "0", "about the most bytes in a micro-batch; "
        "0 for no limit")
    min_messages_per_trigger: int | None = option(kinds.count_or_none, "0", "wait until there are this many "
        "messages; 0 does not wait")
    max_trigger_delay: float = option(kinds.seconds, "15m", "the longest wait for minMessagesPerTrigger")
    num_partitions: int | None = option(kinds.count_or_none, "0", "the most tasks of a micro-batch; 0 makes one for "
        "about 10,000 messages or 32 MiB")
    idle_timeout: float = option(kinds.seconds, "5", "with Trigger.AvailableNow: how long no message may arrive "
        "until the queue counts as empty")
    available_now_timeout: float = option(kinds.seconds, "60", "with Trigger.AvailableNow: messages that arrive "
        "later than this after the subscription are left for the next run, so that the query ends although a "
        "producer continues")
    spool_retention: float = option(kinds.seconds, "0", "how long processed messages are kept in the spool")
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """The options of `spark.read`; picklable. Durations in seconds."""

    spool: SpoolOptions
    columns: ColumnOptions
    # fmt: off
    max_messages: int | None = option(kinds.count_or_none, "0", "receive at most this many messages; 0 for all")
    idle_timeout: float = option(kinds.seconds, "5", "how long no message may arrive until the queue counts as empty")
    num_partitions: int = option(kinds.count, "1", "the most tasks that read the result")
    read_id: str | None = option(kinds.text, None, "a name for the result of this read: a read with the same name and "
        "spoolDir gives the same rows again, after a failure of the job as well; without it each load() receives "
        "again")
    browse: bool = option(kinds.flag, "false", "read messages and leave them in the queue, if the broker "
        "supports it (ActiveMQ); otherwise it raises")
    # fmt: on


SPOOL_OPTIONS = table_of(SpoolOptions)
"""Options of the receivers."""
STREAM_OPTIONS = (*table_of(StreamOptions), *table_of(ColumnOptions))
"""Options of `spark.readStream` alone."""
BATCH_OPTIONS = (*table_of(BatchOptions), *table_of(ColumnOptions))
"""Options of `spark.read` alone."""

_OF_THE_BATCH_TOO = frozenset({
    "destination", "spoolDir", "subscribeHeaders", "selector", "prefetch", "segmentMaxMessages", "brokerTimeout",
    "dedupHeader", "receivers",
})  # fmt: skip
BATCH_TABLE = (*BROKER_OPTIONS, *(one for one in SPOOL_OPTIONS if one.name in _OF_THE_BATCH_TOO), *BATCH_OPTIONS)
STREAM_TABLE = (*BROKER_OPTIONS, *SPOOL_OPTIONS, *STREAM_OPTIONS)

_Read = TypeVar("_Read", StreamOptions, BatchOptions)


def spool_options(given: Mapping[str, str]) -> SpoolOptions:
    """Return the options of receivers; raises as `stream_options`."""
    refuse_secrets(given)
    values = parse((*BROKER_OPTIONS, *SPOOL_OPTIONS), given)
    _check(values)
    return _spool_of(values)


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Return the options of a streaming query.

    Raises:
        ConfigurationError: an option is unknown, missing or invalid.
    """
    refuse_secrets(given)
    values = parse(STREAM_TABLE, given, elsewhere=(BATCH_TABLE, "of spark.read, not of spark.readStream"))
    _check(values)
    least, most = values["min_messages_per_trigger"], values["max_spool_messages"]
    if least is not None and most is not None and least > most:
        raise ConfigurationError(
            f"option minMessagesPerTrigger ({least}) waits for more messages than maxSpoolMessages ({most}) "
            "allows in the spool"
        )
    return _made(StreamOptions, values)


def batch_options(given: Mapping[str, str]) -> BatchOptions:
    """Return the options of a batch read; raises as `stream_options`."""
    refuse_secrets(given)
    values = parse(BATCH_TABLE, given, elsewhere=(STREAM_TABLE, "of spark.readStream, not of spark.read"))
    _check(values)
    if not values["receivers"]:
        raise ConfigurationError("option receivers must be 1 or more for a table: no other process fills its spool")
    return _made(BatchOptions, values)


def column_options(given: Mapping[str, str]) -> ColumnOptions:
    """Return the column options of a stream or a table; raises as `stream_options` for options that fit neither."""
    try:
        return stream_options(given).columns
    except ConfigurationError as wrong:
        try:
            return batch_options(given).columns
        except ConfigurationError:
            raise wrong from None


def _spool_of(values: Mapping[str, Any]) -> SpoolOptions:
    return SpoolOptions(broker=SparkBrokerOptions.of(values), **picked(SpoolOptions, values))


def _made(kind: type[_Read], values: Mapping[str, Any]) -> _Read:
    columns = ColumnOptions(**picked(ColumnOptions, values))
    return kind(spool=_spool_of(values), columns=columns, **picked(kind, values))


def _check(values: Mapping[str, Any]) -> None:
    if values.get("durable") is not None and len(values["destination"]) > 1:
        raise ConfigurationError("option durable names one subscription, so it needs one destination")
    topic = next((one for one in values["destination"] if _is_topic(one, values)), None)
    if values["receivers"] > 1 and topic is not None:
        raise ConfigurationError(
            f"option receivers must be 1 for {topic}: each subscription of a topic gets every message"
        )


_TOPICS = ("/topic/", "/temp-topic/", "/exchange/", "topic://", "jms.topic.", "multicast://")
"""Prefixes of destinations of which every subscription gets every message, for the known brokers."""


def _is_topic(destination: str, values: Mapping[str, Any]) -> bool:
    """Return whether every subscription to a destination gets every message."""
    routing = {name.lower(): value.lower() for name, value in values["subscribe_headers"].items()}
    return (
        destination.lower().startswith(_TOPICS)
        or values.get("durable") is not None
        or routing.get("subscription-type") == "multicast"
    )
