"""Every exception that stompy raises.

::

    StompError (.retryable)
    ├── ConfigurationError (ValueError)      before any I/O: a wrong address, option or combination of them
    ├── ConnectError (ConnectionError) (.address)   no session came about
    │   ├── ConnectTimeout (TimeoutError)    the budget ran out first
    │   ├── ConnectRefused (.frame)          the broker answered ERROR instead of CONNECTED
    │   │   └── ClientIdInUse                because it has a session with this client id
    │   ├── VersionMismatch (.offered .supported)   no protocol version in common
    │   ├── TlsError (.reason)               no TLS with this peer: its certificate, its versions, or it speaks none
    │   │   └── ClientCertificateRefused     the broker does not take ours, or wants one
    │   ├── ProxyError (.proxy)              the way to the broker failed, not the broker
    │   │   └── ProxyLoginRefused            the proxy does not know us
    │   └── AllBrokersFailed (.attempts)     every address was tried
    ├── NotConnected                         never opened, or closed by you
    ├── ConnectionLost (ConnectionError) (.outcome)   the link died under the call
    │   ├── HeartBeatTimeout                 the peer fell silent
    │   ├── BrokerError (.frame .receipt_id) the broker sent ERROR
    │   └── SendTimeout                      the peer stopped reading
    ├── ProtocolError
    │   ├── LocalProtocolError               you asked for what STOMP does not allow
    │   ├── RemoteProtocolError              the peer broke the protocol
    │   └── LimitExceeded (.limit_name .limit)   a configured limit was passed
    │       └── FrameTooLarge                by one frame of the peer; a RemoteProtocolError too
    ├── MessageError (.message)              a message that cannot be used as asked
    │   ├── AckError                         acknowledged twice, in auto mode, or on a link that is gone
    │   └── BodyDecodeError (ValueError)     the body is not text in its declared charset, or not JSON
    ├── StompTimeout (TimeoutError)
    │   ├── ReceiptTimeout (.receipt_id)     the broker did not confirm in time
    │   ├── ReceiveTimeout                   no message came in time
    │   └── UnconfirmedFull (.limit_name .limit)   too much waits for the broker's confirmation
    ├── TransactionError                     the transaction is over
    ├── OutboxError (.path)                  a store-and-forward outbox cannot do it
    │   ├── OutboxDamaged                    its file is not what was written to it
    │   ├── OutboxBusy                       somebody has it open already
    │   └── OutboxFull                       its limit is reached, or the disk is full
    ├── SpoolError (.path)                   a spool of the data pipeline cannot do it
    │   ├── SpoolDamaged                     a file of it is not what was written
    │   ├── SpoolMismatch                    it is a sound spool, but not the one that is meant
    │   ├── SpoolDataLoss                    messages that were in it are gone
    │   ├── SpoolBusy                        another receiver that is alive fills it
    │   ├── SpoolFenced                      a later receiver has taken it over
    │   └── SpoolFull                        the disk is full
    ├── PipelineError                        a query of the data pipeline failed
    ├── PublishError (.confirmed)            rows of the data pipeline could not be handed to the broker
    └── ConcurrencyError (RuntimeError)      a call that this thread or process must not make

Operating-system and TLS errors are mapped once, in `stompy.transport`, and travel as the `__cause__`; `errno` is set
there alone. Control characters, which a peer may have sent, are escaped in every text.
"""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from stompy.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompy.frames.frame import Frame

Outcome = Literal["not-sent", "unknown"]


class StompError(Exception):
    """Base of everything that stompy raises."""

    retryable: ClassVar[bool] = False
    """Whether the same call may succeed later without a change by the caller."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(printable(argument) if isinstance(argument, str) else argument for argument in arguments))

    def __reduce__(self) -> tuple[Any, ...]:
        # Not through __init__, whose keywords are not among `args`.
        state = {**self.__dict__, "args": self.args}
        return copyreg.__newobj__, (type(self),), state  # type: ignore[attr-defined]


class ConfigurationError(StompError, ValueError):
    """An address, option or argument is wrong; nothing was sent."""


class ConnectError(StompError, ConnectionError):
    """No session with the broker came about.

    Attributes:
        address: the address that was tried, without credentials; empty where there is none.
    """

    retryable = True

    def __init__(self, message: str, *, address: str = "") -> None:
        self.address = address
        super().__init__(f"{address}: {message}" if address else message)


class ConnectTimeout(ConnectError, TimeoutError):
    """The connect deadline passed before the broker answered CONNECTED."""


class ConnectRefused(ConnectError):
    """The broker answered the CONNECT frame with ERROR.

    Attributes:
        frame: the ERROR frame, whole.
    """

    retryable = False

    def __init__(self, message: str, *, frame: Frame, address: str = "") -> None:
        self.frame = frame
        super().__init__(message, address=address)


class ClientIdInUse(ConnectRefused):
    """The broker has a session with this client id: another client's, or a lost one of ours that it believes in."""

    retryable = True


class VersionMismatch(ConnectError):
    """Client and broker have no protocol version in common.

    Attributes:
        offered: the versions this client offered.
        supported: what the broker named; empty where it named nothing.
    """

    retryable = False

    def __init__(self, message: str, *, offered: Sequence[str], supported: Sequence[str], address: str = "") -> None:
        self.offered = tuple(offered)
        self.supported = tuple(supported)
        super().__init__(message, address=address)


class TlsError(ConnectError):
    """There is no TLS with this peer.

    Attributes:
        reason: for programs: `"expired"`, `"not-yet-valid"`, `"wrong-host"`, `"self-signed"`, `"unknown-authority"`,
            `"revoked"`, `"no-revocation-list"`, `"bad-certificate"`, `"not-tls"`, `"needs-tls"`, `"no-common-version"`,
            `"client-certificate"`, `"closed"` or `"other"`.
    """

    def __init__(self, message: str, *, reason: str, address: str = "") -> None:
        self.reason = reason
        super().__init__(message, address=address)


class ClientCertificateRefused(TlsError):
    """The broker does not take our certificate, or wants one and got none."""

    retryable = False

    def __init__(self, message: str, *, address: str = "") -> None:
        super().__init__(message, reason="client-certificate", address=address)


class ProxyError(ConnectError):
    """The proxy cannot be reached, does not connect us, or is none.

    Attributes:
        proxy: its address, without credentials.
    """

    def __init__(self, message: str, *, proxy: str, address: str = "") -> None:
        self.proxy = proxy
        super().__init__(message, address=address)


class ProxyLoginRefused(ProxyError):
    """The proxy wants a login and a passcode, or others."""

    retryable = False


class AllBrokersFailed(ConnectError):
    """Every address was tried and none gave a session.

    Attributes:
        attempts: one error an address, in the order tried.
    """

    def __init__(self, attempts: Sequence[ConnectError]) -> None:
        self.attempts = tuple(attempts)
        super().__init__("no broker could be reached: " + "; ".join(str(error) for error in self.attempts))


class NotConnected(StompError):
    """The connection was never opened, or was closed by its owner."""


class ConnectionLost(StompError, ConnectionError):
    """The link to the broker died.

    Attributes:
        outcome: `"not-sent"` where nothing of the frame left this process, `"unknown"` where the broker may have
            taken it.
    """

    retryable = True

    def __init__(self, message: str, *, outcome: Outcome = "unknown") -> None:
        self.outcome: Outcome = outcome
        super().__init__(message)


class HeartBeatTimeout(ConnectionLost):
    """Nothing came from the broker for longer than the agreed heart-beat allows."""


class SendTimeout(ConnectionLost):
    """The peer did not take our bytes within the send timeout; the link cannot be used any more."""


class BrokerError(ConnectionLost):
    """The broker sent an ERROR frame.

    Attributes:
        frame: the ERROR frame, whole.
        receipt_id: the receipt of the client frame that it answers, or `None`.
    """

    retryable = False

    def __init__(
        self, message: str, *, frame: Frame, receipt_id: str | None = None, outcome: Outcome = "unknown"
    ) -> None:
        self.frame = frame
        self.receipt_id = receipt_id
        super().__init__(message, outcome=outcome)


class ProtocolError(StompError):
    """A rule of the STOMP specification was broken."""


class LocalProtocolError(ProtocolError):
    """This side asked for something that STOMP does not allow; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that STOMP does not allow."""


class LimitExceeded(ProtocolError):
    """A configured limit was passed, by the peer or by this side; its name stands in the text too.

    Attributes:
        limit_name: the name of the setting.
        limit: its value.
    """

    def __init__(self, message: str, *, limit_name: str, limit: int) -> None:
        self.limit_name = limit_name
        self.limit = limit
        super().__init__(f"{message} (limit {limit_name}={limit})")


class FrameTooLarge(LimitExceeded, RemoteProtocolError):
    """One frame of the peer is larger than a configured limit allows."""


class MessageError(StompError):
    """A message cannot be used as asked."""


class AckError(MessageError):
    """The message cannot be acknowledged: already done, not needed, or its link is gone."""


class BodyDecodeError(MessageError, ValueError):
    """The body is not what was asked for; `.body` keeps the bytes.

    Attributes:
        body: the octets as received.
    """

    def __init__(self, message: str, *, body: bytes) -> None:
        self.body = body
        super().__init__(message)


class StompTimeout(StompError, TimeoutError):
    """A wait ended without its event."""

    retryable = True


class ReceiptTimeout(StompTimeout):
    """The broker did not confirm a frame in time; whether it took the frame is not known.

    Attributes:
        receipt_id: the `receipt` header that was sent.
    """

    def __init__(self, message: str, *, receipt_id: str) -> None:
        self.receipt_id = receipt_id
        super().__init__(message)


class ReceiveTimeout(StompTimeout):
    """No message came in time."""


class UnconfirmedFull(StompTimeout):
    """Too many sends wait for the broker's confirmation, and none came in time; nothing was sent.

    Attributes:
        limit_name: the bound of `resend_unconfirmed` that is reached: `max_messages` or `max_bytes`.
        limit: its value.
    """

    def __init__(self, message: str, *, limit_name: str, limit: int) -> None:
        self.limit_name = limit_name
        self.limit = limit
        super().__init__(f"{message} (bound of resend_unconfirmed {limit_name}={limit})")


class TransactionError(StompError):
    """The transaction is over or belongs to a link that is gone."""


class OutboxError(StompError):
    """A store-and-forward outbox cannot do what was asked: it is closed, its disk fails, the message is unknown.

    Attributes:
        path: the outbox's file.
    """

    def __init__(self, message: str, *, path: str) -> None:
        self.path = path
        super().__init__(f"outbox {path}: {message}")


class OutboxDamaged(OutboxError):
    """The file of an outbox, or one that belongs to it, is not what was written to it; the text says what to do."""


class OutboxBusy(OutboxError):
    """Another outbox, in this process or another, has the file open."""

    retryable = True


class OutboxFull(OutboxError):
    """The message was not taken: a limit of the outbox is reached, or the disk is full. What was there is kept."""

    retryable = True


class SpoolError(StompError):
    """A spool of the data pipeline cannot do what was asked: its folder cannot be reached, read or written.

    Attributes:
        path: the spool's folder, or the file in it that is meant.
    """

    def __init__(self, message: str, *, path: str) -> None:
        self.path = path
        super().__init__(f"spool {path}: {message}")


class SpoolDamaged(SpoolError):
    """A file of a spool is not what was written to it; the text names it and says what to do."""


class SpoolMismatch(SpoolError):
    """The folder holds another spool than the one that is meant: of another destination, or of another checkpoint."""


class SpoolDataLoss(SpoolError):
    """Messages that were acknowledged to the broker and not yet processed are not in the spool any more."""


class SpoolBusy(SpoolError):
    """Another receiver that is alive fills the spool."""

    retryable = True


class SpoolFenced(SpoolError):
    """A later receiver has taken the spool over; this one must not write to it or acknowledge any more."""


class SpoolFull(SpoolError):
    """The disk is full; what was not written was not acknowledged, and what was there is kept."""

    retryable = True


class PipelineError(StompError):
    """A query of the data pipeline failed; the text says why, and the cause is Spark's own error."""


class PublishError(StompError):
    """Rows of the data pipeline could not be handed to the broker; the text says what the broker did and what to do.

    Attributes:
        confirmed: how many messages of this partition the broker had confirmed before.
    """

    def __init__(self, message: str, *, confirmed: int) -> None:
        self.confirmed = confirmed
        super().__init__(f"{message} (confirmed before it: {confirmed} messages of this partition)")


class InsecureTls(UserWarning):
    """TLS without knowing who is at the other end was asked for: anybody on the way can pose as the broker."""


class ConcurrencyError(StompError, RuntimeError):
    """The call must not be made from this thread or process."""
