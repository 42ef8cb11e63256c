"""stompy: a synchronous, threaded STOMP 1.0, 1.1 and 1.2 client."""

from __future__ import annotations

__version__ = "0.1.0"
__distribution__ = "stompy-client"  # first, see `stompy.installed`

from typing import TYPE_CHECKING

from stompy.errors import (
    AckError,
    AllBrokersFailedError,
    BodyDecodeError,
    BrokerError,
    ClientCertificateRefusedError,
    ClientIdInUseError,
    ConcurrencyError,
    ConfigurationError,
    ConnectError,
    ConnectionLostError,
    ConnectRefusedError,
    ConnectTimeoutError,
    FrameTooLargeError,
    HeartbeatTimeoutError,
    InsecureTlsWarning,
    LimitExceededError,
    LocalProtocolError,
    MessageError,
    NotConnectedError,
    OutboxBusyError,
    OutboxDamagedError,
    OutboxError,
    OutboxFullError,
    Outcome,
    ProtocolError,
    ProxyError,
    ProxyLoginRefusedError,
    ReceiptTimeoutError,
    ReceiveTimeoutError,
    RemoteProtocolError,
    SendTimeoutError,
    SessionError,
    StompError,
    StompTimeoutError,
    TlsError,
    TransactionError,
    UnconfirmedFullError,
    VersionMismatchError,
    WebSocketRefusedError,
)

if TYPE_CHECKING:
    from stompy.backoff import Backoff
    from stompy.connection.config import Login, Passcode
    from stompy.connection.connecting import ConnectOptions, Telemetry, connect
    from stompy.connection.connection import Connection, ConnectionStats
    from stompy.connection.encoding import Body
    from stompy.connection.listeners import (
        ClosedEvent,
        ConnectedEvent,
        DisconnectedEvent,
        HandlerErrorEvent,
        HeartbeatTimeoutEvent,
        Listener,
        ReconnectingEvent,
    )
    from stompy.connection.message import AckMode, Message
    from stompy.connection.reconnect import Order, Reconnect, ResendLimits
    from stompy.connection.sending import Batch
    from stompy.connection.subscription import Subscription
    from stompy.connection.subscriptions import Handler, MessageListener, OnException
    from stompy.connection.transaction import Transaction
    from stompy.default import DEFAULT, Default
    from stompy.dialects.brokers import DialectName
    from stompy.dialects.options import SendOptions
    from stompy.frames.frame import Frame, Headers, Pairs
    from stompy.frames.grammar import Leniency, Version
    from stompy.link.receipts import Receipt
    from stompy.link.settings import Limits, Timeouts
    from stompy.outbox.outbox import DeadLetter, Outbox, OutboxStats
    from stompy.secret import Secret
    from stompy.telemetry.otel import OpenTelemetry
    from stompy.telemetry.prometheus import PrometheusCollector
    from stompy.transport.tcp import TcpOptions
    from stompy.transport.tls.options import Tls, TlsVersion
    from stompy.transport.websocket.options import HttpHeaders, WebSocketOptions
    from stompy.worker.service import TaskHealth, WorkerExit, WorkerHealth
    from stompy.worker.task import Defer, Reject, Retry, TaskContext, TaskListener
    from stompy.worker.worker import Worker

__all__ = [
    "DEFAULT",
    "AckError",
    "AckMode",
    "AllBrokersFailedError",
    "Backoff",
    "Batch",
    "Body",
    "BodyDecodeError",
    "BrokerError",
    "ClientCertificateRefusedError",
    "ClientIdInUseError",
    "ClosedEvent",
    "ConcurrencyError",
    "ConfigurationError",
    "ConnectError",
    "ConnectOptions",
    "ConnectRefusedError",
    "ConnectTimeoutError",
    "ConnectedEvent",
    "Connection",
    "ConnectionLostError",
    "ConnectionStats",
    "DeadLetter",
    "Default",
    "Defer",
    "DialectName",
    "DisconnectedEvent",
    "Frame",
    "FrameTooLargeError",
    "Handler",
    "HandlerErrorEvent",
    "Headers",
    "HeartbeatTimeoutError",
    "HeartbeatTimeoutEvent",
    "HttpHeaders",
    "InsecureTlsWarning",
    "Leniency",
    "LimitExceededError",
    "Limits",
    "Listener",
    "LocalProtocolError",
    "Login",
    "Message",
    "MessageError",
    "MessageListener",
    "NotConnectedError",
    "OnException",
    "OpenTelemetry",
    "Order",
    "Outbox",
    "OutboxBusyError",
    "OutboxDamagedError",
    "OutboxError",
    "OutboxFullError",
    "OutboxStats",
    "Outcome",
    "Pairs",
    "Passcode",
    "PrometheusCollector",
    "ProtocolError",
    "ProxyError",
    "ProxyLoginRefusedError",
    "Receipt",
    "ReceiptTimeoutError",
    "ReceiveTimeoutError",
    "Reconnect",
    "ReconnectingEvent",
    "Reject",
    "RemoteProtocolError",
    "ResendLimits",
    "Retry",
    "Secret",
    "SendOptions",
    "SendTimeoutError",
    "SessionError",
    "StompError",
    "StompTimeoutError",
    "Subscription",
    "TaskContext",
    "TaskHealth",
    "TaskListener",
    "TcpOptions",
    "Telemetry",
    "Timeouts",
    "Tls",
    "TlsError",
    "TlsVersion",
    "Transaction",
    "TransactionError",
    "UnconfirmedFullError",
    "Version",
    "VersionMismatchError",
    "WebSocketOptions",
    "WebSocketRefusedError",
    "Worker",
    "WorkerExit",
    "WorkerHealth",
    "__version__",
    "connect",
]

_LAZY = {
    "TlsVersion": "stompy.transport.tls.options",
    "Telemetry": "stompy.connection.connecting",
    "Secret": "stompy.secret",
    "Pairs": "stompy.frames.frame",
    "Passcode": "stompy.connection.config",
    "Order": "stompy.connection.reconnect",
    "OnException": "stompy.connection.subscriptions",
    "MessageListener": "stompy.connection.subscriptions",
    "Login": "stompy.connection.config",
    "Handler": "stompy.connection.subscriptions",
    "DialectName": "stompy.dialects.brokers",
    "Default": "stompy.default",
    "DEFAULT": "stompy.default",
    "ConnectOptions": "stompy.connection.connecting",
    "Body": "stompy.connection.encoding",
    "Batch": "stompy.connection.sending",
    "AckMode": "stompy.connection.message",
    "Backoff": "stompy.backoff",
    "Connection": "stompy.connection.connection",
    "ClosedEvent": "stompy.connection.listeners",
    "ConnectedEvent": "stompy.connection.listeners",
    "DisconnectedEvent": "stompy.connection.listeners",
    "HandlerErrorEvent": "stompy.connection.listeners",
    "HeartbeatTimeoutEvent": "stompy.connection.listeners",
    "Listener": "stompy.connection.listeners",
    "ReconnectingEvent": "stompy.connection.listeners",
    "ConnectionStats": "stompy.connection.connection",
    "DeadLetter": "stompy.outbox.outbox",
    "Frame": "stompy.frames.frame",
    "Headers": "stompy.frames.frame",
    "HttpHeaders": "stompy.transport.websocket.options",
    "Leniency": "stompy.frames.grammar",
    "Limits": "stompy.link.settings",
    "Timeouts": "stompy.link.settings",
    "Message": "stompy.connection.message",
    "OpenTelemetry": "stompy.telemetry.otel",
    "Outbox": "stompy.outbox.outbox",
    "OutboxStats": "stompy.outbox.outbox",
    "PrometheusCollector": "stompy.telemetry.prometheus",
    "Receipt": "stompy.link.receipts",
    "Reconnect": "stompy.connection.reconnect",
    "ResendLimits": "stompy.connection.reconnect",
    "SendOptions": "stompy.dialects.options",
    "Subscription": "stompy.connection.subscription",
    "TcpOptions": "stompy.transport.tcp",
    "Tls": "stompy.transport.tls.options",
    "WebSocketOptions": "stompy.transport.websocket.options",
    "Transaction": "stompy.connection.transaction",
    "Version": "stompy.frames.grammar",
    "Defer": "stompy.worker.task",
    "Reject": "stompy.worker.task",
    "Retry": "stompy.worker.task",
    "TaskContext": "stompy.worker.task",
    "TaskHealth": "stompy.worker.service",
    "TaskListener": "stompy.worker.task",
    "Worker": "stompy.worker.worker",
    "WorkerExit": "stompy.worker.service",
    "WorkerHealth": "stompy.worker.service",
    "connect": "stompy.connection.connecting",
}
"""Imported on first use, to keep `import stompy` fast; type checkers read the imports above."""

if not TYPE_CHECKING:  # as type checkers would accept every name
    from stompy.exports import late

    __getattr__, __dir__ = late(__name__, _LAZY)
