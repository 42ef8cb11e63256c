"""What type checkers and editors know of `building.py`.

Made from the tables of options: `python -m tests.documentation.spark_building`.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Literal

def options_for_stream(
    *,
    url: str,
    destination: str | Sequence[str],
    spool_dir: str | PathLike[str],
    login: str | None = None,
    passcode_env: str | None = None,
    passcode_file: str | PathLike[str] | None = None,
    vhost: str | None = None,
    client_id: str | None = None,
    dialect: Literal["activemq", "artemis", "rabbitmq", "stompy", "generic"] | None = None,
    versions: str | None = None,
    heartbeat: tuple[float, float] | None = None,
    connect_timeout: float | None = None,
    receipt_timeout: float | None = None,
    send_timeout: float | None = None,
    max_body_bytes: int | str | None = None,
    tls_ca: str | PathLike[str] | None = None,
    tls_cert: str | PathLike[str] | None = None,
    tls_key: str | PathLike[str] | None = None,
    tls_password_file: str | PathLike[str] | None = None,
    tls_server_name: str | None = None,
    connect_headers: Mapping[str, str] | None = None,
    subscribe_headers: Mapping[str, str] | None = None,
    selector: str | None = None,
    durable: str | None = None,
    prefetch: int | None = None,
    receivers: int | None = None,
    receiver_mode: Literal["thread", "process"] | None = None,
    segment_max_messages: int | None = None,
    max_spool_messages: int | None = None,
    max_spool_bytes: int | str | None = None,
    broker_timeout: float | None = None,
    dedup_header: str | None = None,
    fail_on_data_loss: bool | None = None,
    lock_timeout: float | None = None,
    take_over_after: float | None = None,
    max_messages_per_trigger: int | None = None,
    max_bytes_per_trigger: int | str | None = None,
    min_messages_per_trigger: int | None = None,
    max_trigger_delay: float | None = None,
    num_partitions: int | None = None,
    idle_timeout: float | None = None,
    available_now_timeout: float | None = None,
    spool_retention: float | None = None,
    body_as: Literal["binary", "text"] | None = None,
    headers_as: Literal["map", "array"] | None = None,
) -> dict[str, str]:
    """Return options for `spark.readStream`.

    For example::

        spark.readStream.format("stomp").options(**options_for_stream(url=..., destination=..., spool_dir=...)).load()

    Durations are seconds; sizes are bytes, or text such as `"8m"`. What is not given is left to its default. A
    passcode is no option, since options travel and are printed: name its place.

    Args:
        url: the broker's address, several separated by commas, or a `failover:(...)` address; without a passcode.
        destination: the destination to subscribe to, such as `/queue/orders`; several are separated by commas, and each
            receiver has a subscription to each.
        spool_dir: the directory for received messages, as durable as the checkpoint, which every executor reaches under
            this name; NFS is experimental.
        login: the login, instead of the one in the address.
        passcode_env: the environment variable that holds the passcode, in the process that connects.
        passcode_file: the file whose first line is the passcode, on the machine that connects.
        vhost: the `host` header of CONNECT; by default from the address.
        client_id: the `client-id` of CONNECT, to which a durable subscription belongs.
        dialect: the kind of broker, if it does not report it.
        versions: the STOMP versions to offer (default: 1.0,1.1,1.2).
        heartbeat: seconds between heartbeats: the client's, and those requested of the broker (default: 10,10).
        connect_timeout: seconds for each address, until CONNECTED (default: 10).
        receipt_timeout: seconds that the broker may take to confirm (default: 30).
        send_timeout: seconds that one write may take (default: 30).
        max_body_bytes: the largest body that is accepted from the broker (default: 128m).
        tls_ca: for `stomp+ssl://`: the file of authorities to trust instead of the system's.
        tls_cert: the file of the client's certificate, if the broker needs one.
        tls_key: the file with its key, if it is not in the same file.
        tls_password_file: the file whose first line is the password of that key.
        tls_server_name: the name to find in the broker's certificate, instead of the host's.
        connect_headers: further headers of CONNECT: `{"x-tenant": "a"}`.
        subscribe_headers: further headers of SUBSCRIBE.
        selector: the `selector` header of SUBSCRIBE, if the broker has selectors.
        durable: the name of a durable subscription of a topic, which stores messages while no receiver runs; with
            `client_id`, and one receiver.
        prefetch: how many unacknowledged messages the broker may send ahead, and so how many may be delivered twice
            (default: 1000).
        receivers: how many connections fill the spool, each with a thread; 0 when another process does (`stompy spool`)
            (default: 1).
        receiver_mode: whether receivers are threads of the driver's Python, or of a separate process, which uses
            another core (default: thread).
        segment_max_messages: the most messages that become durable, and are acknowledged, together; a segment ends at
            about 8 MiB too (default: 200).
        max_spool_messages: the number of messages in the spool at which the receivers pause until some are processed; 0
            for no limit (default: 0).
        max_spool_bytes: the same in bytes (default: 8g).
        broker_timeout: how long the broker may be unreachable before the query fails; with receivers=0, how long the
            process that fills the spool may send no heartbeat (default: 60).
        dedup_header: a header whose value identifies a message of a destination; by default the message id with brokers
            that deliver a message again under the same id: ActiveMQ, Artemis and the embedded broker.
        fail_on_data_loss: fail if segments are missing; otherwise continue without them, with a warning (default:
            true).
        lock_timeout: how long to wait until another query, or its receivers, release the spool (default: 30).
        take_over_after: receivers, or a query, that hold the spool, and have shown no sign of life for so long while
            others wait for it, are taken over from; what they do later is not acknowledged (default: 20).
        max_messages_per_trigger: the most messages in a micro-batch; 0 for no limit (default: 0).
        max_bytes_per_trigger: about the most bytes in a micro-batch; 0 for no limit (default: 0).
        min_messages_per_trigger: wait until there are this many messages; 0 does not wait (default: 0).
        max_trigger_delay: the longest wait for min_messages_per_trigger (default: 15m).
        num_partitions: the most tasks of a micro-batch; 0 makes one for about 10,000 messages or 32 MiB (default: 0).
        idle_timeout: with Trigger.AvailableNow: how long no message may arrive until the queue counts as empty
            (default: 5).
        available_now_timeout: with Trigger.AvailableNow: messages that arrive later than this after the subscription
            are left for the next run, so that the query ends although a producer continues (default: 60).
        spool_retention: how long processed messages are kept in the spool (default: 0).
        body_as: `text` adds a column with the body decoded from UTF-8; null if the body is not UTF-8 (default: binary).
        headers_as: `array` makes the column `headers` that of Kafka's source, `array<struct<key: string, value:
            binary>>`; a repeated header is in it with each value, in a map with the first (default: map).

    Raises:
        ConfigurationError: an option is unknown, missing or wrong; its value is not shown.
    """

def options_for_read(
    *,
    url: str,
    destination: str | Sequence[str],
    spool_dir: str | PathLike[str],
    login: str | None = None,
    passcode_env: str | None = None,
    passcode_file: str | PathLike[str] | None = None,
    vhost: str | None = None,
    client_id: str | None = None,
    dialect: Literal["activemq", "artemis", "rabbitmq", "stompy", "generic"] | None = None,
    versions: str | None = None,
    heartbeat: tuple[float, float] | None = None,
    connect_timeout: float | None = None,
    receipt_timeout: float | None = None,
    send_timeout: float | None = None,
    max_body_bytes: int | str | None = None,
    tls_ca: str | PathLike[str] | None = None,
    tls_cert: str | PathLike[str] | None = None,
    tls_key: str | PathLike[str] | None = None,
    tls_password_file: str | PathLike[str] | None = None,
    tls_server_name: str | None = None,
    connect_headers: Mapping[str, str] | None = None,
    subscribe_headers: Mapping[str, str] | None = None,
    selector: str | None = None,
    prefetch: int | None = None,
    receivers: int | None = None,
    segment_max_messages: int | None = None,
    broker_timeout: float | None = None,
    dedup_header: str | None = None,
    max_messages: int | None = None,
    idle_timeout: float | None = None,
    num_partitions: int | None = None,
    read_id: str | None = None,
    browse: bool | None = None,
    body_as: Literal["binary", "text"] | None = None,
    headers_as: Literal["map", "array"] | None = None,
) -> dict[str, str]:
    """Return options for `spark.read`, which takes messages out of a queue as a table.

    For example::

        spark.read.format("stomp").options(**options_for_read(url=..., destination=..., spool_dir=...)).load()

    Durations are seconds; sizes are bytes, or text such as `"8m"`. What is not given is left to its default. A
    passcode is no option, since options travel and are printed: name its place.

    Args:
        url: the broker's address, several separated by commas, or a `failover:(...)` address; without a passcode.
        destination: the destination to subscribe to, such as `/queue/orders`; several are separated by commas, and each
            receiver has a subscription to each.
        spool_dir: the directory for received messages, as durable as the checkpoint, which every executor reaches under
            this name; NFS is experimental.
        login: the login, instead of the one in the address.
        passcode_env: the environment variable that holds the passcode, in the process that connects.
        passcode_file: the file whose first line is the passcode, on the machine that connects.
        vhost: the `host` header of CONNECT; by default from the address.
        client_id: the `client-id` of CONNECT, to which a durable subscription belongs.
        dialect: the kind of broker, if it does not report it.
        versions: the STOMP versions to offer (default: 1.0,1.1,1.2).
        heartbeat: seconds between heartbeats: the client's, and those requested of the broker (default: 10,10).
        connect_timeout: seconds for each address, until CONNECTED (default: 10).
        receipt_timeout: seconds that the broker may take to confirm (default: 30).
        send_timeout: seconds that one write may take (default: 30).
        max_body_bytes: the largest body that is accepted from the broker (default: 128m).
        tls_ca: for `stomp+ssl://`: the file of authorities to trust instead of the system's.
        tls_cert: the file of the client's certificate, if the broker needs one.
        tls_key: the file with its key, if it is not in the same file.
        tls_password_file: the file whose first line is the password of that key.
        tls_server_name: the name to find in the broker's certificate, instead of the host's.
        connect_headers: further headers of CONNECT: `{"x-tenant": "a"}`.
        subscribe_headers: further headers of SUBSCRIBE.
        selector: the `selector` header of SUBSCRIBE, if the broker has selectors.
        prefetch: how many unacknowledged messages the broker may send ahead, and so how many may be delivered twice
            (default: 1000).
        receivers: how many connections fill the spool, each with a thread; 0 when another process does (`stompy spool`)
            (default: 1).
        segment_max_messages: the most messages that become durable, and are acknowledged, together; a segment ends at
            about 8 MiB too (default: 200).
        broker_timeout: how long the broker may be unreachable before the query fails; with receivers=0, how long the
            process that fills the spool may send no heartbeat (default: 60).
        dedup_header: a header whose value identifies a message of a destination; by default the message id with brokers
            that deliver a message again under the same id: ActiveMQ, Artemis and the embedded broker.
        max_messages: receive at most this many messages; 0 for all (default: 0).
        idle_timeout: how long no message may arrive until the queue counts as empty (default: 5).
        num_partitions: the most tasks that read the result (default: 1).
        read_id: a name for the result of this read: a read with the same name and spool_dir gives the same rows again,
            after a failure of the job as well; without it each load() receives again.
        browse: read messages and leave them in the queue, if the broker supports it (ActiveMQ); otherwise it raises
            (default: false).
        body_as: `text` adds a column with the body decoded from UTF-8; null if the body is not UTF-8 (default: binary).
        headers_as: `array` makes the column `headers` that of Kafka's source, `array<struct<key: string, value:
            binary>>`; a repeated header is in it with each value, in a map with the first (default: map).

    Raises:
        ConfigurationError: an option is unknown, missing or wrong; its value is not shown.
    """

def options_for_write(
    *,
    url: str,
    login: str | None = None,
    passcode_env: str | None = None,
    passcode_file: str | PathLike[str] | None = None,
    vhost: str | None = None,
    client_id: str | None = None,
    dialect: Literal["activemq", "artemis", "rabbitmq", "stompy", "generic"] | None = None,
    versions: str | None = None,
    heartbeat: tuple[float, float] | None = None,
    connect_timeout: float | None = None,
    receipt_timeout: float | None = None,
    send_timeout: float | None = None,
    max_body_bytes: int | str | None = None,
    tls_ca: str | PathLike[str] | None = None,
    tls_cert: str | PathLike[str] | None = None,
    tls_key: str | PathLike[str] | None = None,
    tls_password_file: str | PathLike[str] | None = None,
    tls_server_name: str | None = None,
    connect_headers: Mapping[str, str] | None = None,
    destination: str | None = None,
    dedup: Literal["content", "position", "none"] | None = None,
    job_id: str | None = None,
    transactions: Literal["auto", "true", "false"] | None = None,
    transaction_size: int | None = None,
    persistent: Literal["auto", "true", "false"] | None = None,
    rate_limit: int | None = None,
    broker_timeout: float | None = None,
    allow_complete_mode: bool | None = None,
) -> dict[str, str]:
    """Return options for `df.write` and `df.writeStream`.

    For example::

        df.write.format("stomp").mode("append").options(**options_for_write(url=..., destination=...)).save()

    Durations are seconds; sizes are bytes, or text such as `"8m"`. What is not given is left to its default. A
    passcode is no option, since options travel and are printed: name its place.

    Args:
        url: the broker's address, several separated by commas, or a `failover:(...)` address; without a passcode.
        login: the login, instead of the one in the address.
        passcode_env: the environment variable that holds the passcode, in the process that connects.
        passcode_file: the file whose first line is the passcode, on the machine that connects.
        vhost: the `host` header of CONNECT; by default from the address.
        client_id: the `client-id` of CONNECT, to which a durable subscription belongs.
        dialect: the kind of broker, if it does not report it.
        versions: the STOMP versions to offer (default: 1.0,1.1,1.2).
        heartbeat: seconds between heartbeats: the client's, and those requested of the broker (default: 10,10).
        connect_timeout: seconds for each address, until CONNECTED (default: 10).
        receipt_timeout: seconds that the broker may take to confirm (default: 30).
        send_timeout: seconds that one write may take (default: 30).
        max_body_bytes: the largest body that is accepted from the broker (default: 128m).
        tls_ca: for `stomp+ssl://`: the file of authorities to trust instead of the system's.
        tls_cert: the file of the client's certificate, if the broker needs one.
        tls_key: the file with its key, if it is not in the same file.
        tls_password_file: the file whose first line is the password of that key.
        tls_server_name: the name to find in the broker's certificate, instead of the host's.
        connect_headers: further headers of CONNECT: `{"x-tenant": "a"}`.
        destination: the destination of rows without a column `destination`.
        dedup: how the id in the header `stompy-dedupe-id` is made, by which a consumer recognises duplicates (default:
            content).
        job_id: part of those ids in a batch job, so that a second run of the job has the same ids; by default new for
            each write.
        transactions: send in transactions, or confirm each message separately, for brokers without transactions; `auto`
            uses them unless the broker drops duplicates by their ids (Artemis), which it does reliably only outside of
            them (default: auto).
        transaction_size: messages in one transaction, at most, or sent before their confirmations are awaited; about 4
            MiB at most (default: 1000).
        persistent: whether messages without a column `persistent` survive a restart of the broker; `auto` requests it
            if the broker supports it (default: auto).
        rate_limit: messages per second and task, at most; 0 for no limit (default: 0).
        broker_timeout: seconds without a broker before the task fails (default: 60).
        allow_complete_mode: allow `outputMode('complete')`, which sends every row of the result again in each batch
            (default: false).

    Raises:
        ConfigurationError: an option is unknown, missing or wrong; its value is not shown.
    """
