"""Every exception that stompy raises.

::

    StompError (.safe_to_retry)
    ├── ConfigurationError (ValueError)      an address, an option or a combination of options is wrong; before any I/O
    ├── ConnectError (ConnectionError) (.address)   no session was established
    │   ├── ConnectTimeoutError (TimeoutError)    not before the timeout
    │   ├── ConnectRefusedError (.frame)          the broker answered ERROR instead of CONNECTED
    │   │   └── ClientIdInUseError                it already has a session with this client id
    │   ├── VersionMismatchError (.offered .supported)   no protocol version in common
    │   ├── TlsError (.reason)               the TLS handshake failed
    │   │   └── ClientCertificateRefusedError     the broker rejected the client certificate, or requires one
    │   ├── ProxyError (.proxy)              the proxy cannot be reached, or did not connect to the broker
    │   │   └── ProxyLoginRefusedError            the proxy rejected the login and passcode, or requires them
    │   ├── WebSocketRefusedError                 the server refused the WebSocket handshake, such as for the origin
    │   └── AllBrokersFailedError (.errors)       every address was tried
    ├── NotConnectedError                         the connection was not opened yet, or is closed
    ├── SessionError (.outcome .session_ended)     a call that had reached a session failed
    │   ├── ConnectionLostError (ConnectionError)     the connection broke during the call
    │   │   ├── HeartbeatTimeoutError (TimeoutError)      no bytes arrived for too long
    │   │   └── SendTimeoutError (TimeoutError)           the broker stopped reading
    │   └── BrokerError (.frame .receipt_id)          the broker sent ERROR
    ├── ProtocolError
    │   ├── LocalProtocolError               the call would break a rule of STOMP
    │   ├── RemoteProtocolError              the peer violated the protocol
    │   └── LimitExceededError (.limit_name .limit)   a configured limit was exceeded
    │       └── FrameTooLargeError                by a frame of the peer; also a RemoteProtocolError
    ├── MessageError (.message)              a message cannot be used as requested
    │   ├── AckError                         it was acknowledged before, needs no ACK, or its connection was lost
    │   └── BodyDecodeError (ValueError)     the body is not text in its declared charset, or not JSON
    ├── StompTimeoutError (TimeoutError) (.outcome)
    │   ├── ReceiptTimeoutError (.receipt_id)     the broker did not confirm in time
    │   ├── ReceiveTimeoutError                   no message, or no reply, arrived in time
    │   └── UnconfirmedFullError (.limit_name .limit)   too many sends wait for confirmation by the broker
    ├── TransactionError                     the transaction has ended, or is open already
    ├── OutboxError (.path)                  a store-and-forward outbox failed
    │   ├── OutboxDamagedError                    its file is corrupt
    │   ├── OutboxBusyError                       its file is open elsewhere
    │   └── OutboxFullError                       its limit is reached, or the disk is full
    ├── SpoolError (.path)                   a spool of the data pipeline failed
    │   ├── SpoolDamagedError                     one of its files is corrupt
    │   ├── SpoolMismatchError                    it belongs to another destination or checkpoint
    │   ├── SpoolDataLossError                    messages are missing from it
    │   ├── SpoolBusyError                        another live receiver writes to it
    │   ├── SpoolFencedError                      a later receiver has taken it over
    │   └── SpoolFullError                        the disk is full
    ├── PipelineError                        a query of the data pipeline failed
    ├── PublishError (.confirmed)            rows of the data pipeline could not be sent to the broker
    └── ConcurrencyError (RuntimeError)      the call is not allowed in this thread or process

Errors of the operating system and of TLS are mapped once, in `stompy.transport`; the original error is the `__cause__`,
and `errno` is set there only. Control characters in error messages are escaped, as a peer may have sent them.
"""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from stompy.installed import check_alone  # noqa: F401 - has looked for another package of this name
from stompy.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompy.frames.frame import Frame


Outcome = Literal["not-sent", "rejected", "unknown"]


class StompError(Exception):
    """Base class of all exceptions of stompy."""

    _passing: ClassVar[bool] = False

    def __init_subclass__(cls, *, passing: bool | None = None) -> None:
        if passing is not None:
            cls._passing = passing

    @property
    def safe_to_retry(self) -> bool:
        """Whether to make the same call again: it may succeed without any change, and can do nothing twice.

        `False` if the broker may have received the message of the failed call, which a second call could duplicate.
        """
        return self._passing and getattr(self, "outcome", "not-sent") == "not-sent"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(printable(argument) if isinstance(argument, str) else argument for argument in arguments))

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by __init__: `args` does not hold its keyword arguments.
        return copyreg.__newobj__, (type(self),), {**self.__dict__, "args": self.args}  # type: ignore[attr-defined]


def is_passing(error: BaseException | None) -> bool:
    """Return whether the cause may pass without any change by the caller, whatever became of this call."""
    return isinstance(error, StompError) and error._passing


class ConfigurationError(StompError, ValueError):
    """An address, an option or an argument is wrong; nothing was sent."""


class ConnectError(StompError, ConnectionError, passing=True):
    """No session with the broker was established.

    Attributes:
        address: the address that was tried, without credentials; empty if there is none.
    """

    def __init__(self, message: str, *, address: str = "") -> None:
        self.address = address
        super().__init__(f"{address}: {message}" if address else message)


class ConnectTimeoutError(ConnectError, TimeoutError):
    """The connect timeout passed before the broker answered CONNECTED."""


class ConnectRefusedError(ConnectError, passing=False):
    """The broker answered the CONNECT frame with ERROR.

    Attributes:
        frame: the ERROR frame.
    """

    def __init__(self, message: str, *, frame: Frame, address: str = "") -> None:
        self.frame = frame
        super().__init__(message, address=address)


class ClientIdInUseError(ConnectRefusedError, passing=True):
    """The broker already has a session with this client id: another client's, or a lost session that it keeps."""


class VersionMismatchError(ConnectError, passing=False):
    """Client and broker have no protocol version in common.

    Attributes:
        offered: the versions that this client offered.
        supported: the versions that the broker named; empty if it named none.
    """

    def __init__(self, message: str, *, offered: Sequence[str], supported: Sequence[str], address: str = "") -> None:
        self.offered = tuple(offered)
        self.supported = tuple(supported)
        super().__init__(message, address=address)


class TlsError(ConnectError):
    """The TLS handshake with the peer failed.

    Attributes:
        reason: a code: `"expired"`, `"not-yet-valid"`, `"wrong-host"`, `"self-signed"`, `"unknown-authority"`,
            `"revoked"`, `"no-revocation-list"`, `"bad-certificate"`, `"not-tls"`, `"needs-tls"`, `"no-common-version"`,
            `"client-certificate"`, `"closed"` or `"other"`.
    """

    def __init__(self, message: str, *, reason: str, address: str = "") -> None:
        self.reason = reason
        super().__init__(message, address=address)


class ClientCertificateRefusedError(TlsError, passing=False):
    """The broker rejected the client certificate, or requires one."""

    def __init__(self, message: str, *, address: str = "") -> None:
        super().__init__(message, reason="client-certificate", address=address)


class ProxyError(ConnectError):
    """The proxy cannot be reached, did not connect to the broker, or is not a proxy.

    Attributes:
        proxy: the address of the proxy, without credentials.
    """

    def __init__(self, message: str, *, proxy: str, address: str = "") -> None:
        self.proxy = proxy
        super().__init__(message, address=address)


class ProxyLoginRefusedError(ProxyError, passing=False):
    """The proxy rejected the login and passcode, or requires them."""


class WebSocketRefusedError(ConnectError, passing=False):
    """The server refused the WebSocket handshake for good: the path, the origin, a token; the text has its answer."""


class AllBrokersFailedError(ConnectError):
    """Every address was tried, and no session was established.

    Attributes:
        errors: one for each address, in the order of the attempts.
    """

    def __init__(self, errors: Sequence[ConnectError]) -> None:
        self.errors = tuple(errors)
        super().__init__("no broker could be reached: " + "; ".join(str(error) for error in self.errors))


class NotConnectedError(StompError):
    """The connection was not opened yet, or is closed."""


class SessionError(StompError):
    """A call that had reached a session with the broker failed, or the session ended first.

    Attributes:
        outcome: `"not-sent"` if no byte of the frame was written, `"rejected"` if the broker's ERROR names the frame,
            `"unknown"` if the broker may have received it; of a transaction, `"not-sent"` if nothing of it took effect.
        session_ended: whether the session is over: its transactions are aborted, and unacknowledged messages are
            redelivered. `False` only if the call failed before it could use the session.
    """

    def __init__(self, message: str, *, outcome: Outcome = "unknown", session_ended: bool = True) -> None:
        self.outcome: Outcome = outcome
        self.session_ended = session_ended
        super().__init__(message)


class ConnectionLostError(SessionError, ConnectionError, passing=True):
    """The connection to the broker was lost."""


class HeartbeatTimeoutError(ConnectionLostError, TimeoutError):
    """No bytes arrived from the broker for longer than the agreed heartbeat interval allows."""


class SendTimeoutError(ConnectionLostError, TimeoutError):
    """The broker did not accept the bytes in time; the session ends, unless they waited for another thread's bytes."""


class BrokerError(SessionError):
    """The broker sent an ERROR frame, which ended the session.

    It is about the frame of this call for sure if the outcome is `"rejected"`, and surely not if it is `"not-sent"`
    outside of a transaction.

    Attributes:
        frame: the ERROR frame.
        receipt_id: the receipt id of the client frame that it answers, or `None`.
    """

    def __init__(
        self, message: str, *, frame: Frame, receipt_id: str | None = None, outcome: Outcome = "unknown"
    ) -> None:
        self.frame = frame
        self.receipt_id = receipt_id
        super().__init__(message, outcome=outcome)


REFUSALS = (BrokerError, ConnectRefusedError, ClientCertificateRefusedError, VersionMismatchError)
"""The broker answered, and refused."""


class ProtocolError(StompError):
    """A rule of the STOMP specification was violated."""


class LocalProtocolError(ProtocolError):
    """The call would break a rule of STOMP; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer broke a rule of STOMP."""


class LimitExceededError(ProtocolError):
    """The peer or the caller exceeded a configured limit; the error message names it.

    Attributes:
        limit_name: the name of the setting.
        limit: its value.
    """

    def __init__(self, message: str, *, limit_name: str, limit: int) -> None:
        self.limit_name = limit_name
        self.limit = limit
        super().__init__(f"{message} (limit {limit_name}={limit})")


class FrameTooLargeError(LimitExceededError, RemoteProtocolError):
    """A frame of the peer exceeds a configured limit."""


class MessageError(StompError):
    """A message cannot be used as requested."""


class AckError(MessageError):
    """The message was acknowledged before, needs no acknowledgement, or its connection was lost."""


class BodyDecodeError(MessageError, ValueError):
    """The body is not text in its declared charset, or not JSON.

    Attributes:
        body: the bytes as received.
    """

    def __init__(self, message: str, *, body: bytes) -> None:
        self.body = body
        super().__init__(message)


class StompTimeoutError(StompError, TimeoutError, passing=True):
    """A wait timed out.

    Attributes:
        outcome: `"not-sent"` if the call sent nothing, or nothing took effect; else `"unknown"`.
    """

    def __init__(self, message: str, *, outcome: Outcome = "not-sent") -> None:
        self.outcome: Outcome = outcome
        super().__init__(message)


class ReceiptTimeoutError(StompTimeoutError):
    """The broker did not confirm a frame in time; it may or may not have processed the frame.

    Attributes:
        receipt_id: the value of the `receipt` header that was sent.
        outcome: `"unknown"`, or `"not-sent"` of a transaction whose COMMIT was therefore not sent.
    """

    def __init__(self, message: str, *, receipt_id: str, outcome: Outcome = "unknown") -> None:
        self.receipt_id = receipt_id
        super().__init__(message, outcome=outcome)


class ReceiveTimeoutError(StompTimeoutError):
    """No message arrived in time, or no reply to a request, which may have been processed: its outcome is unknown."""


class UnconfirmedFullError(StompTimeoutError):
    """Too many sends wait for confirmation by the broker, and none was confirmed in time; nothing was sent.

    Attributes:
        limit_name: the limit of `resend_unconfirmed` that is reached: `max_messages` or `max_bytes`.
        limit: its value.
    """

    def __init__(self, message: str, *, limit_name: str, limit: int) -> None:
        self.limit_name = limit_name
        self.limit = limit
        super().__init__(f"{message} (limit of resend_unconfirmed: {limit_name}={limit})")


class TransactionError(StompError):
    """The transaction has ended, or is open already."""


class OutboxError(StompError):
    """A store-and-forward outbox failed: it is closed, its disk fails, or the message is unknown.

    Attributes:
        path: the file of the outbox.
    """

    def __init__(self, message: str, *, path: str) -> None:
        self.path = path
        super().__init__(f"outbox {path}: {message}")


class OutboxDamagedError(OutboxError):
    """The file of an outbox, or a file beside it, is corrupt; the error message has the remedy."""


class OutboxBusyError(OutboxError, passing=True):
    """Another outbox, in this or another process, has the file open."""


class OutboxFullError(OutboxError, passing=True):
    """The message was not stored, as a limit of the outbox is reached or the disk is full; stored messages are kept."""


class SpoolError(StompError):
    """A spool of the data pipeline failed: its folder cannot be reached, read or written.

    Attributes:
        path: the folder of the spool, or the file in it that caused the error.
    """

    def __init__(self, message: str, *, path: str) -> None:
        self.path = path
        super().__init__(f"spool {path}: {message}")


class SpoolDamagedError(SpoolError):
    """A file of a spool is corrupt; the error message names the file and the remedy."""


class SpoolMismatchError(SpoolError):
    """The folder holds the spool of another destination or checkpoint, or an older copy of the checkpoint's spool."""


class SpoolDataLossError(SpoolError):
    """Messages that were acknowledged to the broker and not yet processed are missing from the spool."""


class SpoolBusyError(SpoolError, passing=True):
    """Another live query reads the spool, or another live receiver writes to it."""


class SpoolFencedError(SpoolError):
    """A later query or receiver has taken over the spool; this one must no longer use it or acknowledge messages."""


class SpoolFullError(SpoolError, passing=True):
    """The disk is full; messages that were not written were not acknowledged, and stored messages are kept."""


class PipelineError(StompError):
    """A query of the data pipeline failed; the error message says why, and the `__cause__` is Spark's own error."""


class PublishError(StompError):
    """Rows of the data pipeline could not be sent; the error message has the broker's answer and the remedy.

    Attributes:
        confirmed: the number of messages of this partition that the broker had confirmed before.
    """

    def __init__(self, message: str, *, confirmed: int) -> None:
        self.confirmed = confirmed
        super().__init__(f"{message} (the broker had confirmed {confirmed} messages of this partition)")


class InsecureTlsWarning(UserWarning):
    """Warning: TLS does not authenticate the broker, so that an attacker in the network can impersonate it."""


class ConcurrencyError(StompError, RuntimeError):
    """The call is not allowed in this thread or process."""
