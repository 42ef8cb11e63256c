"""stompy: a synchronous, threaded STOMP 1.0, 1.1 and 1.2 client."""

from __future__ import annotations

__version__ = "0.1.0"
__distribution__ = "stompy-client"  # first, see `stompy.installed`

from stompy.exports import TYPE_CHECKING
from stompy.installed import check_alone  # noqa: F401 - has looked for another package of this name

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
    from stompy.dialects.options import OtherSendOptions, SendOptions
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
    from stompy.transport.websocket.handshake import HttpHeaders, WebSocketOptions
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
    "OtherSendOptions",
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
    "stompy.backoff": "Backoff",
    "stompy.connection.config": "Login Passcode",
    "stompy.connection.connecting": "ConnectOptions Telemetry connect",
    "stompy.connection.connection": "Connection ConnectionStats",
    "stompy.connection.encoding": "Body",
    "stompy.connection.listeners": (
        "ClosedEvent ConnectedEvent DisconnectedEvent HandlerErrorEvent HeartbeatTimeoutEvent Listener "
        "ReconnectingEvent"
    ),
    "stompy.connection.message": "AckMode Message",
    "stompy.connection.reconnect": "Order Reconnect ResendLimits",
    "stompy.connection.sending": "Batch",
    "stompy.connection.subscription": "Subscription",
    "stompy.connection.subscriptions": "Handler MessageListener OnException",
    "stompy.connection.transaction": "Transaction",
    "stompy.default": "DEFAULT Default",
    "stompy.dialects.brokers": "DialectName",
    "stompy.dialects.options": "OtherSendOptions SendOptions",
    "stompy.errors": (
        "AckError AllBrokersFailedError BodyDecodeError BrokerError ClientCertificateRefusedError ClientIdInUseError "
        "ConcurrencyError ConfigurationError ConnectError ConnectRefusedError ConnectTimeoutError ConnectionLostError "
        "FrameTooLargeError HeartbeatTimeoutError InsecureTlsWarning LimitExceededError LocalProtocolError "
        "MessageError NotConnectedError OutboxBusyError OutboxDamagedError OutboxError OutboxFullError Outcome "
        "ProtocolError ProxyError ProxyLoginRefusedError ReceiptTimeoutError ReceiveTimeoutError RemoteProtocolError "
        "SendTimeoutError SessionError StompError StompTimeoutError TlsError TransactionError UnconfirmedFullError "
        "VersionMismatchError WebSocketRefusedError"
    ),
    "stompy.frames.frame": "Frame Headers Pairs",
    "stompy.frames.grammar": "Leniency Version",
    "stompy.link.receipts": "Receipt",
    "stompy.link.settings": "Limits Timeouts",
    "stompy.outbox.outbox": "DeadLetter Outbox OutboxStats",
    "stompy.secret": "Secret",
    "stompy.telemetry.otel": "OpenTelemetry",
    "stompy.telemetry.prometheus": "PrometheusCollector",
    "stompy.transport.tcp": "TcpOptions",
    "stompy.transport.tls.options": "Tls TlsVersion",
    "stompy.transport.websocket.handshake": "HttpHeaders WebSocketOptions",
    "stompy.worker.service": "TaskHealth WorkerExit WorkerHealth",
    "stompy.worker.task": "Defer Reject Retry TaskContext TaskListener",
    "stompy.worker.worker": "Worker",
}
"""Imported on first use, to keep `import stompy` fast; type checkers read the imports above."""

if not TYPE_CHECKING:  # as type checkers would accept every name
    from stompy.exports import late

    __getattr__, __dir__ = late(__name__, _LAZY)
