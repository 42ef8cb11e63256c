"""The options of the sink, besides those of the broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stompy.spark import options as kinds
from stompy.spark.broker_options import BROKER_OPTIONS, SparkBrokerOptions, refuse_secrets
from stompy.spark.options import option, parse, picked, table_of
from stompy.spark.sink.identity import DedupMode, Identify
from stompy.spark.sink.publisher import Chunk, Persistence, Publisher, RateLimiter, Transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Options of the sink; picklable, and without a secret. Durations in seconds."""

    broker: SparkBrokerOptions
    # fmt: off
    destination: str | None = option(kinds.text, None, "the destination of rows without a column `destination`")
    dedup: DedupMode = option(kinds.choice("content", "position", "none"), "content", "how the id in the header "
        "`stompy-dedupe-id` is made, by which a consumer recognises duplicates")
    job_id: str | None = option(kinds.text, None, "part of those ids in a batch job, so that a second run of the "
        "job has the same ids; by default new for each write")
    transactions: Transactions = option(kinds.choice("auto", "true", "false"), "auto",
        "send in transactions, or confirm each message separately, for brokers without transactions; "
        "`auto` uses them unless the broker drops duplicates by their ids (Artemis), which it does reliably only "
        "outside of them")
    transaction_size: int = option(kinds.count, "1000", "messages in one transaction, at most, or sent before their "
        "confirmations are awaited; about 4 MiB at most")
    persistent: Persistence = option(kinds.choice("auto", "true", "false"), "auto",
        "whether messages without a column `persistent` survive a restart of the broker; `auto` requests it if "
        "the broker supports it")
    rate_limit: int = option(kinds.number, "0", "messages per second and task, at most; 0 for no limit")
    broker_timeout: float = option(kinds.seconds, "60", "seconds without a broker before the task fails")
    allow_complete_mode: bool = option(kinds.flag, "false", "allow `outputMode('complete')`, which sends every row "
        "of the result again in each batch")
    # fmt: on

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SinkOptions:
        """Return the options that Spark passed.

        Raises:
            ConfigurationError: an option is unknown, invalid or missing; its value is never shown.
        """
        refuse_secrets(given)
        values = parse(SINK_TABLE, given, ignored=("checkpointLocation",))
        return cls(broker=SparkBrokerOptions.of(values), **picked(cls, values))

    def publisher(self, *, name: str, identify: Identify) -> Publisher:
        """Return a publisher with these options.

        Args:
            name: part of thread names.
            identify: returns the id of each message.
        """
        return Publisher(
            lambda: self.broker.connect(name=name),
            identify=identify,
            chunk=Chunk(self.transaction_size),
            transactions=self.transactions,
            persistent=self.persistent,
            retry_timeout=self.broker_timeout,
            rate_limiter=RateLimiter(self.rate_limit or None),
        )


SINK_OPTIONS = table_of(SinkOptions)
"""Options of the sink alone."""
SINK_TABLE = (*BROKER_OPTIONS, *SINK_OPTIONS)
