"""The options of source and sink: `spark.readStream`, `spark.read`, `stompy spool fill`, `df.writeStream`, `df.write`.

The passcode is not an option, as options are pickled, sent to every executor and often printed. It is read from the
environment or a file by the process that connects: the driver for the source, each executor for the sink.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from stompy.connection.config import addresses_of
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from stompy.dialects.brokers import DialectName
from stompy.errors import ConfigurationError
from stompy.link.settings import Limits, Timeouts
from stompy.spark import options as kinds
from stompy.spark.options import NO_SECRETS, key_of, option, parse, table_of
from stompy.spark.sink.rows import DedupMode
from stompy.spark.spool.files import IDENTITY, Files
from stompy.transport.tls.options import Tls
from stompy.world import os

_CONNECT_TIMEOUT = 10.0
"""Seconds for each address, until CONNECTED, at most."""
_TOPICS = ("/topic/", "/temp-topic/", "/exchange/", "topic://", "jms.topic.", "multicast://")
"""Prefixes of destinations of which every subscription gets every message, for the known brokers."""
Transactions = Literal["auto", "true", "false"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBrokerOptions:
    """The connection options; picklable, and without secrets. Durations in seconds."""

    # fmt: off
    url: str = option(kinds.addresses, None, "the broker's address, several separated by commas, or a `failover:(...)` "
        "address; with the login, as in `stomp://login@host:61613`, and without a passcode", required=True)
    passcode_env: str | None = option(kinds.text, None, "the environment variable that holds the passcode, in the "
        "process that connects")
    passcode_file: str | None = option(kinds.text, None, "the file whose first line is the passcode, on the machine "
        "that connects")
    client_id: str | None = option(kinds.text, None, "the `client-id` of CONNECT, to which a durable subscription "
        "belongs")
    dialect: DialectName | None = option(kinds.choice(*get_args(DialectName)), None,
        "the kind of broker, if it does not report it")
    receipt_timeout: float = option(kinds.seconds, "30", "how long the broker may take to accept a frame, or to "
        "confirm it; to connect, 10 seconds at most")
    max_body_bytes: int = option(kinds.size, "128m", "the largest body that is accepted from the broker")
    tls_ca: str | None = option(kinds.text, None, "for `stomp+ssl://`: the file of authorities to trust instead of "
        "the system's")
    tls_cert: tuple[str, ...] | None = option(kinds.texts, None, "the file of the client's certificate, if the broker "
        "needs one; after a comma that of its key, if it is another one")
    # fmt: on

    def __post_init__(self) -> None:
        for address in addresses_of(self.url):
            if address.passcode is not None:
                raise ConfigurationError(f"option url must not contain a passcode ({address}): {NO_SECRETS}")
        if self.passcode_env is not None and self.passcode_file is not None:
            raise ConfigurationError("give passcodeEnv or passcodeFile, not both")
        if self.tls_cert is not None and len(self.tls_cert) > 2:
            raise ConfigurationError("option tlsCert must be one file, or two with a comma between")

    def connect(self, *, name: str) -> Connection:
        """Connect, in the process that has the passcode; raises as `stompy.connect`.

        It does not reconnect, as receivers and the sink must handle a lost connection themselves.

        Args:
            name: part of thread names.
        """
        timeout = self.receipt_timeout
        return connect(
            self.url,
            passcode=self.passcode(),
            client_id=self.client_id,
            dialect=self.dialect,
            timeouts=Timeouts(connect=min(_CONNECT_TIMEOUT, timeout), send=timeout, receipt=timeout),
            limits=Limits(max_body=self.max_body_bytes),
            reconnect=False,
            name=name,
            tls=self._tls(),
        )

    def passcode(self) -> str | None:
        """Return the passcode, or `None` if no option names its place.

        Raises:
            ConfigurationError: the environment variable or the file does not exist or cannot be read.
        """
        if self.passcode_env is not None:
            found = os.environ.get(self.passcode_env)
            if found is None:
                raise ConfigurationError(
                    f"option passcodeEnv: there is no environment variable {self.passcode_env!r} in the process that "
                    "connects. For the source that is the driver's Python, for the sink an executor's "
                    "(spark.executorEnv.NAME)"
                )
            return found
        if self.passcode_file is None:
            return None
        try:
            with open(self.passcode_file, encoding="utf-8") as file:
                return file.readline().removesuffix("\n")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ConfigurationError(f"option passcodeFile: {self.passcode_file!r} cannot be read: {why}") from None

    def _tls(self) -> Tls | None:
        """Return the TLS settings, or `None` if no option sets them."""
        if self.tls_ca is None and self.tls_cert is None:
            return None
        cert, key, *_ = (*map(Path, self.tls_cert or ()), None, None)
        return Tls(ca=None if self.tls_ca is None else Path(self.tls_ca), cert=cert, key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolOptions(SparkBrokerOptions):
    """The options of receivers; picklable. Durations in seconds."""

    # fmt: off
    destination: tuple[str, ...] = option(kinds.texts, None, "the destination to subscribe to, such as "
        "`/queue/orders`; several are separated by commas, and each receiver has a subscription to each", required=True)
    spool_dir: tuple[str, ...] = option(kinds.texts, None, "the directory for received messages, as durable as the "
        "checkpoint, which every executor reaches under this name; NFS is experimental. Several spools are one source: "
        "name all, or a pattern such as `/shared/spools/*`; receivers fill the first one", required=True)
    subscribe_headers: Mapping[str, str] = option(kinds.headers, "{}", "further headers of SUBSCRIBE, as JSON")
    selector: str | None = option(kinds.text, None, "the `selector` header of SUBSCRIBE, if the broker has "
        "selectors")
    durable: str | None = option(kinds.text, None, "the name of a durable subscription of a topic; with "
        "`clientId`, and one receiver")
    prefetch: int = option(kinds.count, "1000", "how many unacknowledged messages the broker may send ahead, and "
        "so how many may be delivered twice")
    receivers: int = option(kinds.number, "1", "how many connections fill the spool, each with a thread; 0 when "
        "another process does (`stompy spool fill`)")
    max_spool_bytes: int = option(kinds.size, "8g", "the size of the spool at which the receivers pause until some "
        "messages are processed")
    broker_timeout: float = option(kinds.seconds, "60", "how long the broker may be unreachable before the query "
        "fails; with receivers=0, how long the process that fills the spool may send no heartbeat")
    dedup_header: str | None = option(kinds.text, None,
        "a header whose value identifies a message of a destination; by default the message id, if the broker's is "
        "stable: ActiveMQ, Artemis, the embedded broker")
    fail_on_data_loss: bool = option(kinds.flag, "true", "fail if segments are missing; otherwise continue "
        "without them, with a warning")
    lock_timeout: float = option(kinds.seconds, "30", "how long to wait until another query, or its receivers, "
        "release the spool")
    take_over_after: float = option(kinds.seconds, "20", "how long a process that holds the spool may show no sign "
        "of life until one that waits for it takes over")
    # fmt: on

    def __post_init__(self) -> None:
        SparkBrokerOptions.__post_init__(self)
        if self.durable is not None and len(self.destination) > 1:
            raise ConfigurationError("option durable names one subscription, so it needs one destination")
        topic = next(filter(self._is_topic, self.destination), None)
        if (self.receivers > 1 or self.has_peers) and topic is not None:
            raise ConfigurationError(
                f"option receivers must be 1 for {topic}, and spoolDir one folder: each subscription of "
                "a topic gets every message"
            )
        if self.receivers and glob.has_magic(self.spool_dir[0]):
            raise ConfigurationError(
                f"option spoolDir begins with the spool that the receivers fill, and {self.spool_dir[0]} is a pattern: "
                "name that spool first, then the pattern; or read the spools with receivers=0"
            )

    def _is_topic(self, destination: str) -> bool:
        """Return whether every subscription to a destination gets every message."""
        routing = {name.lower(): value.lower() for name, value in self.subscribe_headers.items()}
        return (
            destination.lower().startswith(_TOPICS)
            or self.durable is not None
            or routing.get("subscription-type") == "multicast"
        )

    @property
    def has_peers(self) -> bool:
        """Whether the source has several spools, or may get them."""
        return len(self.spool_dir) > 1 or glob.has_magic(self.spool_dir[0])

    def folders(self) -> list[str]:
        """Return the folders of the spools that are there now, and of those that are named, without repetitions."""
        found: dict[str, None] = {}
        for part in self.spool_dir:
            path = part.removeprefix("file://")
            matches = map(Files, sorted(glob.glob(path)) if glob.has_magic(part) else [part])
            found.update((one.url, None) for one in matches if not glob.has_magic(part) or one.state(IDENTITY))
        return list(found)

    @property
    def origin(self) -> str:
        """All destinations as one text, sorted, so that their order does not matter."""
        return ",".join(sorted(self.destination))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(SpoolOptions):
    """The options that streams and tables share; picklable. Durations in seconds."""

    # fmt: off
    idle_timeout: float = option(kinds.seconds, "5", "how long no message may arrive until the queue counts as empty; "
        "of a stream, with Trigger.AvailableNow")
    num_partitions: int | None = option(kinds.count, None, "the most tasks of a micro-batch or a table; by default "
        "one for about 30,000 messages or 32 MiB")
    headers_as: str = option(kinds.choice("map", "array"), "map", "`array` gives the column `headers` the type of "
        "Kafka's source, `array<struct<key: string, value: binary>>`, which keeps repeated headers")
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions(ReadOptions):
    """The options of `spark.readStream`; picklable. Durations in seconds."""

    # fmt: off
    starting_offsets: Mapping[str, int] = option(kinds.positions, "earliest", "where a query without a checkpoint "
        "begins in its spools: `earliest`, `latest`, or the sequence number of a message by folder, as JSON, where -2 "
        "is the oldest message and -1 the end; a spool that is not named begins with its oldest message")
    starting_timestamp: int | None = option(kinds.number, None, "instead of startingOffsets: begin in each spool with "
        "the first message that was received at this time, in milliseconds since 1970, or later")
    max_offsets_per_trigger: int | None = option(kinds.count, None, "the most messages in a micro-batch; by default "
        "no limit")
    max_bytes_per_trigger: int | None = option(kinds.size, None, "about the most bytes in a micro-batch; by default "
        "no limit")
    min_offsets_per_trigger: int | None = option(kinds.count, None, "wait until there are this many messages; by "
        "default it does not wait")
    max_trigger_delay: float = option(kinds.seconds, "15m", "the longest wait for minOffsetsPerTrigger")
    available_now_timeout: float = option(kinds.seconds, "60", "with Trigger.AvailableNow: how long after the "
        "subscription messages are received, if a producer does not pause")
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions(ReadOptions):
    """The options of `spark.read`; picklable. Durations in seconds."""

    # fmt: off
    max_messages: int | None = option(kinds.count, None, "receive at most this many messages; by default all")
    read_id: str | None = option(kinds.text, None, "a name for this read: another one with the same name and "
        "spoolDir gives the same rows; by default each load() receives again")
    browse: bool = option(kinds.flag, "false", "read messages and leave them in the queue, if the broker "
        "supports it (ActiveMQ); otherwise it raises")
    # fmt: on

    def __post_init__(self) -> None:
        SpoolOptions.__post_init__(self)
        if not self.receivers:
            raise ConfigurationError("option receivers must be 1 or more for a table: no other process fills its spool")
        if self.has_peers:
            raise ConfigurationError("option spoolDir must be one folder for a table, which makes its spools in it")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(SparkBrokerOptions):
    """Options of the sink; picklable, and without a secret. Durations in seconds."""

    # fmt: off
    destination: str | None = option(kinds.text, None, "the destination of rows without a column `destination`")
    dedup: DedupMode = option(kinds.choice("content", "position", "none"), "content", "how the id in the header "
        "`stompy-dedupe-id` is made, by which a consumer recognises duplicates")
    job_id: str | None = option(kinds.text, None, "part of those ids in a batch job, so that a second run of the "
        "job has the same ids; by default new for each write")
    transactions: Transactions = option(kinds.choice("auto", "true", "false"), "auto",
        "send in transactions, or confirm each message separately; `auto` uses transactions unless the broker drops "
        "duplicates by their ids (Artemis), which it does reliably only outside of them")
    transaction_size: int = option(kinds.count, "1000", "messages in one transaction, at most, or sent before their "
        "confirmations are awaited; about 4 MiB at most")
    rate_limit: int | None = option(kinds.count, None, "messages per second and task, at most; by default no limit")
    broker_timeout: float = option(kinds.seconds, "60", "seconds without a broker before the task fails")
    # fmt: on

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SinkOptions:
        """Return the options that Spark passed.

        Raises:
            ConfigurationError: an option is unknown, invalid or missing; its value is never shown.
        """
        # Spark adds its own option to those of a streaming query.
        return parse(cls, {name: text for name, text in given.items() if name.lower() != "checkpointlocation"})


NOT_OF_A_TABLE = ("durable", "maxSpoolBytes", "failOnDataLoss", "lockTimeout", "takeOverAfter")
"""Options of the receivers that `spark.read` does not have, as each of its spools is read completely and once."""


def spool_options(given: Mapping[str, str]) -> SpoolOptions:
    """Return the options of receivers; raises as `stream_options`."""
    return parse(SpoolOptions, given)


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Return the options of a streaming query.

    Raises:
        ConfigurationError: an option is unknown, missing or invalid.
    """
    return parse(StreamOptions, given, elsewhere=(table_of(BatchOptions), "of spark.read, not of spark.readStream"))


def batch_options(given: Mapping[str, str]) -> BatchOptions:
    """Return the options of a batch read; raises as `stream_options`."""
    elsewhere = table_of(StreamOptions), "of spark.readStream, not of spark.read"
    return parse(BatchOptions, given, without=NOT_OF_A_TABLE, elsewhere=elsewhere)


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a stream or a table; raises as `stream_options` for options that fit neither."""
    try:
        return stream_options(given)
    except ConfigurationError as wrong:
        try:
            return batch_options(given)
        except ConfigurationError:
            raise wrong from None


def of_use(kind: Any, given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a table of the catalog for a use, without options that only other uses have."""
    names = {use: {key_of(each.name) for each in table_of(use)} for use in (BatchOptions, StreamOptions, SinkOptions)}
    others = set().union(*names.values()) - names[kind]
    found = {name: text for name, text in given.items() if key_of(name) not in others}
    if kind is SinkOptions and "," in found.get("destination", ""):
        del found["destination"]  # each row has to say to which of them
    return found
