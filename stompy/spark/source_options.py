"""The options of the source: `spark.readStream`, `spark.read` and `stompy spool`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from stompy.errors import ConfigurationError
from stompy.spark import options as kinds
from stompy.spark.broker_options import BROKER_OPTIONS, BrokerOptions, refuse_secrets
from stompy.spark.options import Option, parse

SPOOL_OPTIONS: tuple[Option, ...] = (
    Option("destination", kinds.text, None, "what is subscribed to, such as `/queue/orders`", required=True),
    Option("spoolDir", kinds.path, None, "the folder for what was received: a path or URL that is as durable as the "
           "checkpoint, and that every executor reaches under this name", required=True),
    Option("subscribeHeaders", kinds.headers, "{}", "further headers of SUBSCRIBE, as JSON"),
    Option("selector", kinds.text, None, "the `selector` header of SUBSCRIBE, where the broker has selectors"),
    Option("durable", kinds.text, None, "the name of a durable subscription of a topic, which goes on while no "
           "receiver runs; with `clientId`, and one receiver"),
    Option("prefetch", kinds.count, "1000", "how many unacknowledged messages the broker may send ahead; it bounds how "
           "many can come twice"),
    Option("receivers", kinds.number, "1", "how many connections fill the spool, each with a thread; 0 when another "
           "process does (`stompy spool`)"),
    Option("receiverMode", kinds.choice("thread", "process"), "thread", "whether receivers are threads of the driver's "
           "Python, or of a process of their own, which uses another core"),
    Option("segmentMaxMessages", kinds.count, "200", "the most messages that become durable, and are acknowledged, "
           "together"),
    Option("segmentMaxBytes", kinds.octets, "8m", "the same in octets"),
    Option("maxSpoolMessages", kinds.count_or_none, "0", "so many messages in the spool stop the receivers until some "
           "were processed; 0 for no limit"),
    Option("maxSpoolBytes", kinds.octets_or_none, "8g", "the same in octets"),
    Option("brokerTimeout", kinds.seconds, "60", "without a broker for so long, the query fails; with receivers=0, "
           "without a sign of life of the process that fills the spool"),
    Option("dedupHeader", kinds.text, None, "a header whose value tells one message from another; without it the "
           "message id does, where the broker's ids are stable"),
    Option("messageIds", kinds.choice("auto", "stable", "unstable"), "auto", "whether a message that is delivered "
           "again has the same message id: `auto` knows that those of ActiveMQ, Artemis and the embedded broker are"),
    Option("failOnDataLoss", kinds.flag, "true", "fail where segments are gone; else go on without them, with a "
           "warning"),
    Option("lockTimeout", kinds.seconds, "30", "how long to wait for another query's receiver to let the spool go"),
    Option("takeOverAfter", kinds.seconds, "20", "a receiver that holds the spool, and has shown no sign of life for "
           "so long while another waits for it, is taken over from; what it does later is not acknowledged"),
)  # fmt: skip
"""Options of the receivers."""

STREAM_OPTIONS: tuple[Option, ...] = (
    Option("maxMessagesPerTrigger", kinds.count_or_none, "0", "the most messages in a micro-batch; 0 for no limit"),
    Option("maxBytesPerTrigger", kinds.octets_or_none, "0", "about the most octets in a micro-batch; 0 for no limit"),
    Option("minMessagesPerTrigger", kinds.count_or_none, "0", "wait until there are so many messages; 0 does not wait"),
    Option("maxTriggerDelay", kinds.seconds, "15m", "the longest wait for minMessagesPerTrigger"),
    Option("numPartitions", kinds.count_or_none, "0", "the most tasks of a micro-batch; 0 makes one for about 10,000 "
           "messages or 32 MiB"),
    Option("idleTimeout", kinds.seconds, "5", "with Trigger.AvailableNow: after so long without a message the queue "
           "counts as empty"),
    Option("availableNowTimeout", kinds.seconds, "60", "with Trigger.AvailableNow: what comes later than this after "
           "the subscription is left for the next run, so that a producer that never rests does not keep the query"),
    Option("spoolRetention", kinds.seconds, "0", "how long processed messages are kept in the spool"),
    Option("spoolAccess", kinds.choice("executor", "driver"), "executor", "whether executors read the spool, or the "
           "driver sends them the messages (for few; at most 8 MiB a task)"),
    Option("bodyAs", kinds.choice("binary", "text"), "binary", "`text` adds a column with the body decoded from UTF-8"),
    Option("invalidText", kinds.choice("permissive", "fail"), "permissive", "a body that is not UTF-8 has a null text, "
           "or fails the query"),
)  # fmt: skip
"""Options of `spark.readStream` alone."""

BATCH_OPTIONS: tuple[Option, ...] = (
    Option("maxMessages", kinds.count_or_none, "0", "take at most so many messages; 0 for all"),
    Option("idleTimeout", kinds.seconds, "5", "after so long without a message the queue counts as empty"),
    Option("numPartitions", kinds.count, "1", "the most tasks that read what was taken"),
    Option("readId", kinds.text, None, "a name for what this read takes: a read with the same name and spoolDir gives "
           "the same rows again, after a failure of the job as well; without it each load() takes anew"),
    Option("browse", kinds.flag, "false", "look at messages and leave them in the queue, where the broker can "
           "(ActiveMQ); elsewhere it is refused"),
    Option("bodyAs", kinds.choice("binary", "text"), "binary", "`text` adds a column with the body decoded from UTF-8"),
    Option("invalidText", kinds.choice("permissive", "fail"), "permissive", "a body that is not UTF-8 has a null text, "
           "or fails the query"),
)  # fmt: skip
"""Options of `spark.read` alone."""

_OF_THE_BATCH_TOO = frozenset({
    "destination", "spoolDir", "subscribeHeaders", "selector", "prefetch", "segmentMaxMessages", "segmentMaxBytes",
    "brokerTimeout", "dedupHeader", "messageIds", "receivers",
})  # fmt: skip
BATCH_TABLE = (*BROKER_OPTIONS, *(one for one in SPOOL_OPTIONS if one.name in _OF_THE_BATCH_TOO), *BATCH_OPTIONS)
STREAM_TABLE = (*BROKER_OPTIONS, *SPOOL_OPTIONS, *STREAM_OPTIONS)


@dataclass(frozen=True, slots=True)
class SpoolOptions:
    """What receivers need to know; picklable. Durations in seconds; the fields are those of the table."""

    broker: BrokerOptions
    destination: str
    spool_dir: str
    subscribe_headers: Mapping[str, str]
    selector: str | None
    durable: str | None
    prefetch: int
    receivers: int
    receiver_mode: str
    segment_max_messages: int
    segment_max_bytes: int
    max_spool_messages: int | None
    max_spool_bytes: int | None
    broker_timeout: float
    dedup_header: str | None
    message_ids: str
    fail_on_data_loss: bool
    lock_timeout: float
    take_over_after: float


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What `spark.readStream` was told; picklable. Durations in seconds; the fields are those of the table."""

    spool: SpoolOptions
    max_messages_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_messages_per_trigger: int | None
    max_trigger_delay: float
    num_partitions: int | None
    idle_timeout: float
    available_now_timeout: float
    spool_retention: float
    spool_access: str
    body_as: str
    invalid_text: str


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """What `spark.read` was told; picklable. Durations in seconds; the fields are those of the table."""

    broker: BrokerOptions
    destination: str
    spool_dir: str
    subscribe_headers: Mapping[str, str]
    selector: str | None
    prefetch: int
    receivers: int
    segment_max_messages: int
    segment_max_bytes: int
    broker_timeout: float
    dedup_header: str | None
    message_ids: str
    max_messages: int | None
    idle_timeout: float
    num_partitions: int
    read_id: str | None
    browse: bool
    body_as: str
    invalid_text: str


def spool_options(given: Mapping[str, str]) -> SpoolOptions:
    """Return the options of receivers; raises as `stream_options`."""
    refuse_secrets(given)
    values = parse((*BROKER_OPTIONS, *SPOOL_OPTIONS), given)
    _check(values)
    return _spool_of(values)


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Return the options of a streaming query.

    Raises:
        ConfigurationError: one is unknown, missing or wrong.
    """
    refuse_secrets(given)
    values = parse(STREAM_TABLE, given, elsewhere=(BATCH_TABLE, "of spark.read, not of spark.readStream"))
    _check(values)
    least, most = values["min_messages_per_trigger"], values["max_spool_messages"]
    if least is not None and most is not None and least > most:
        raise ConfigurationError(
            f"option minMessagesPerTrigger ({least}) waits for more messages than maxSpoolMessages ({most}) lets into "
            "the spool"
        )
    return StreamOptions(spool=_spool_of(values), **_picked(StreamOptions, values))


def batch_options(given: Mapping[str, str]) -> BatchOptions:
    """Return the options of a batch read; raises as `stream_options`."""
    refuse_secrets(given)
    values = parse(BATCH_TABLE, given, elsewhere=(STREAM_TABLE, "of spark.readStream, not of spark.read"))
    _check(values)
    if not values["receivers"]:
        raise ConfigurationError("option receivers must be 1 or more for a table: nobody else fills its spool")
    return BatchOptions(broker=BrokerOptions.of(values), **_picked(BatchOptions, values))


def check_read_options(given: Mapping[str, str]) -> None:
    """Refuse options that fit neither a stream nor a table; raises as `stream_options`."""
    try:
        stream_options(given)
    except ConfigurationError as wrong:
        try:
            batch_options(given)
        except ConfigurationError:
            raise wrong from None


def _spool_of(values: Mapping[str, Any]) -> SpoolOptions:
    return SpoolOptions(broker=BrokerOptions.of(values), **_picked(SpoolOptions, values))


def _picked(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: values[field.name] for field in fields(kind) if field.name in values}


def _check(values: Mapping[str, Any]) -> None:
    if values["segment_max_bytes"] < 1:
        raise ConfigurationError("option segmentMaxBytes must be 1 or more")
    if values["receivers"] > 1 and _is_topic(values):
        raise ConfigurationError(
            f"option receivers must be 1 for {values['destination']}: each subscription of a topic gets every message"
        )


_TOPICS = ("/topic/", "/temp-topic/", "/exchange/", "topic://", "jms.topic.", "multicast://")
"""What the names of destinations begin with whose every subscription gets every message, at the brokers known."""


def _is_topic(values: Mapping[str, Any]) -> bool:
    """Whether several subscriptions would each get every message."""
    routing = {name.lower(): value.lower() for name, value in values["subscribe_headers"].items()}
    return (
        values["destination"].lower().startswith(_TOPICS)
        or values.get("durable") is not None
        or routing.get("subscription-type") == "multicast"
    )
