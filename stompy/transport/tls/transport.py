"""TLS over another transport: an SSL object between two memory buffers, not a wrapped socket.

An SSL object is not thread-safe, and with a wrapped socket a waiting reader blocks the writer. Here the object only
works on memory, under a lock, and the underlying transport waits, without the lock.

| thread | may call | blocks on |
|---|---|---|
| the reader (owner) | `recv`, then `close` | the underlying transport, until its deadline or `shutdown` |
| one writer at a time | `sendall`, `shutdown_write` | the underlying transport, until its deadline or `shutdown` |
| any | `shutdown` | nothing |

Lock (rank 5, a leaf): `TlsTransport._lock` guards the SSL object, its buffers and the flags; never held during I/O.

After the handshake the reader never writes. Messages that TLS itself has to send (in TLS 1.3 the answer to KeyUpdate,
"prior to sending its next Application Data record", RFC 8446, 4.6.3) go out with the next bytes of the writer.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from typing import TYPE_CHECKING

from stompy.deadline import Budget, Deadline, deadline_of
from stompy.errors import (
    ClientCertificateRefusedError,
    ConfigurationError,
    ConnectionLostError,
    SendTimeoutError,
    TlsError,
)
from stompy.forks import free_when_forked
from stompy.transport.base import RECV_SIZE, LayerListener, with_handshake
from stompy.transport.diagnosis import (
    GREETING_SIZE,
    explain_tls,
    openssl_message,
    own_certificate_refused,
    peer_chain,
)
from stompy.transport.tls.context import client_context
from stompy.transport.tls.options import Tls
from stompy.world import threading

if TYPE_CHECKING:
    from stompy.errors import Outcome
    from stompy.transport.base import UnderlyingDialer, UnderlyingListener, UnderlyingTransport

_LOG = logging.getLogger("stompy.transport")

_RECORD = 16_384
"""The maximum size in bytes of the plain text of a TLS record; OpenSSL reads and writes one record at a time."""

_VERSION_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
"""A fatal alert (protocol_version) for peers that do not speak TLS, to which OpenSSL sends nothing."""

_CHUNK = 16 * _RECORD
"""Bytes of plain text that are encrypted at a time."""


class TlsTransport:
    """One end of a TLS connection; see `stompy.transport.base.Transport`.

    The end of the underlying stream is the end of this one, even without the closing alert of TLS, which many brokers
    do not send. This is safe: STOMP frames have an explicit end, and a session without the RECEIPT for its DISCONNECT
    counts as lost.

    A `SendTimeoutError` may leave an incomplete record; the next `sendall` first writes the rest of it.

    Args:
        underlying: the transport below TLS, which this one then owns.
        context: the settings.
        server_side: whether this is the server. The first calls of `recv` then do the handshake.
        server_name: the expected name of the server, for a client.
    """

    def __init__(
        self,
        underlying: UnderlyingTransport,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_name: str | None = None,
    ) -> None:
        self._underlying = underlying
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name
        )
        """The SSL object, for `version()`, `cipher()` and `getpeercert()`."""
        self.peer = underlying.peer
        """The name of the peer."""
        self._server_side = server_side
        self._lock = threading.Lock()
        free_when_forked(self._lock)
        self._unsent: memoryview | bytes = b""  # encrypted; used by the writer only
        self._plain: list[bytes] = []  # decrypted, not yet returned
        self._ended = False  # the stream of the peer
        self._error: ssl.SSLError | None = None
        self.start = b""  # the first bytes of the peer
        self._handshake_done = False
        self._failed = False
        self._received_any = False  # whether a byte of plain text was received
        self._writing = False
        self._write_ended = False
        self._shut = False

    # The handshake

    def do_handshake(self, deadline: Deadline) -> None:
        """Do the handshake; may be called again after a `StompTimeoutError`.

        Raises:
            ssl.SSLError: the handshake failed; an alert was sent to the peer.
            StompTimeoutError: the deadline passed first.
            ConnectionLostError: the underlying stream broke; `SendTimeoutError` if the peer does not read.
        """
        while not self._handshake_done:
            with self._lock:
                try:
                    self.tls.do_handshake()
                    self._handshake_done = True
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError:
                    self._failed = True
                    self._try_send(self._outgoing.read() or _VERSION_ALERT)
                    raise
                data = self._outgoing.read()
            if data:
                self._underlying.sendall(data, deadline)
            if not self._handshake_done:
                received = self._underlying.recv(deadline)
                with self._lock:
                    self.start = (self.start + received)[:GREETING_SIZE]
                    if received:
                        self._incoming.write(received)
                    else:
                        self._incoming.write_eof()
        _LOG.debug("%s: %s, %s", self.peer, self.tls.version(), (self.tls.cipher() or ("?",))[0])

    # Reading

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Return the next bytes; `b""` at the end of the stream or after `shutdown`.

        Raises:
            StompTimeoutError: the deadline passed.
            ConnectionLostError: the stream broke, or the peer sent invalid TLS; on a server, also if that failed.
            ClientCertificateRefusedError: on a client, before the first byte: with TLS 1.3 the server checks the client
                certificate after the client has completed its handshake. `TlsError` if it then closed the connection
                without an alert.
        """
        if not self._handshake_done and not self._shut:
            if self._failed:
                # To the end, as closing with unread bytes could destroy the alert.
                while self._underlying.recv(deadline):
                    pass
                return b""
            self._accept_handshake(deadline)
        while True:
            with self._lock:
                data = self._decrypted()
                self._received_any = self._received_any or bool(data)
            if data is not None:
                return data
            received = self._receive(deadline)
            with self._lock:
                if received:
                    self._incoming.write(received)
                elif not self._shut:
                    # OpenSSL is not informed: it would treat this as an attack, and stop writing too.
                    self._ended = True
                    _LOG.debug("%s: the stream ended without a closing alert of TLS", self.peer)

    def _receive(self, deadline: Deadline | None) -> bytes:
        if self._received_any or self._server_side:
            return self._underlying.recv(deadline)
        lost: ConnectionLostError | None = None
        try:
            received = self._underlying.recv(deadline)
        except ConnectionLostError as error:
            received, lost = b"", error
        if received or self._shut:
            return received
        # ActiveMQ's nio sends no alert when it rejects a client.
        message = (
            "the peer closed the connection right after the TLS handshake; it may require a client certificate, or have"
            " rejected this one"
        )
        raise TlsError(message, reason="closed", address=self.peer) from lost

    def _accept_handshake(self, deadline: Deadline | None) -> None:
        """Do the handshake of a server; after a `StompTimeoutError` the next call continues it."""
        try:
            self.do_handshake(deadline or Deadline(None))
        except ssl.SSLError as error:
            _, message = explain_tls(error, wanted="us", chain=peer_chain(self.tls), start=self.start)
            _LOG.info("%s: the TLS handshake failed: %s", self.peer, message)
            self._underlying.shutdown_write()  # after the alert
            raise ConnectionLostError(
                f"the TLS handshake with {self.peer} failed: {message}", outcome="not-sent"
            ) from error

    def _decrypted(self) -> bytes | None:
        """Return the plain text so far, `b""` at the end, `None` if more bytes are needed; with the lock held."""
        if self._shut:
            return b""
        self._decrypt(RECV_SIZE)
        if self._plain:
            data = b"".join(self._plain)
            self._plain = [data[RECV_SIZE:]] if len(data) > RECV_SIZE else []
            return data[:RECV_SIZE]
        if self._error is not None:
            refused = None if self._received_any or self._server_side else own_certificate_refused(self._error)
            if refused is not None:
                raise ClientCertificateRefusedError(refused, address=self.peer) from self._error
            raise self._broken(self._error, "unknown") from self._error
        return b"" if self._ended else None

    def _decrypt(self, limit: int) -> None:
        """Decrypt the received bytes, up to about `limit` bytes of plain text; with the lock held."""
        size = 0
        while size < limit and not self._ended and self._error is None:
            try:
                part = self.tls.read(_RECORD)
            except ssl.SSLWantReadError:
                return
            except ssl.SSLZeroReturnError:
                part = b""
            except ssl.SSLError as error:
                self._error = error
                return
            self._ended = not part
            if part:
                self._plain.append(part)
                size += len(part)
                if not (self._incoming.pending or self.tls.pending()):
                    return  # faster than the exception of another read

    def _broken(self, error: ssl.SSLError, outcome: Outcome) -> ConnectionLostError:
        message = f"connection to {self.peer} lost: TLS failed ({openssl_message(error)})"
        return ConnectionLostError(message, outcome=outcome)

    # Writing

    def sendall(self, data: bytes, deadline: Budget) -> None:
        """Encrypt all of `data` and write it to the underlying transport.

        Raises:
            SendTimeoutError: the deadline passed first.
            ConnectionLostError: the stream broke or was shut down, or the handshake is not done.
        """
        deadline = deadline_of(deadline)
        with self._lock:
            self._check_open("not-sent")
            self._writing = True
        try:
            self._flush(deadline, late="not-sent", lost="not-sent")  # the rest of an earlier write
            at, view = 0, memoryview(data)
            while at < len(view):
                if at and deadline.expired:  # a peer that reads slowly must not extend it
                    raise self._late("unknown")
                part = view[at : at + _CHUNK]
                self._encrypt(part, "unknown" if at else "not-sent")
                self._flush(deadline, late="unknown", lost="unknown" if at else "not-sent")
                at += len(part)
        finally:
            with self._lock:
                self._writing = False

    def send(self, data: bytes | memoryview, deadline: Budget) -> int:
        """Take a part of `data` and return its size; what is not written yet goes out with the next bytes.

        Raises:
            SendTimeoutError: the deadline passed first; nothing was taken.
            ConnectionLostError: the stream broke or was shut down.
        """
        part = bytes(data[:_CHUNK])
        try:
            self.sendall(part, deadline)
        except SendTimeoutError as error:
            if error.outcome == "not-sent":
                raise
        return len(part)

    def _check_open(self, outcome: Outcome) -> None:
        if self._shut or self._write_ended:
            raise ConnectionLostError(f"connection to {self.peer} was shut down", outcome=outcome)
        if not self._handshake_done:
            raise ConnectionLostError(f"the TLS handshake with {self.peer} is not done", outcome=outcome)

    def _encrypt(self, part: memoryview, outcome: Outcome) -> None:
        with self._lock:
            self._check_open(outcome)
            try:
                while part:
                    part = part[self.tls.write(part) :]
            except ssl.SSLError as error:
                raise self._broken(error, outcome) from error
            self._unsent = memoryview(self._outgoing.read())

    def _flush(self, deadline: Deadline, *, late: Outcome, lost: Outcome) -> None:
        """Write the encrypted bytes; `late` is the outcome of a timeout, `lost` of a loss before the first byte."""
        written = False
        while self._unsent:
            try:
                sent = self._underlying.send(self._unsent, deadline)
            except SendTimeoutError as error:
                raise SendTimeoutError(str(error), outcome=late) from error
            except ConnectionLostError as error:
                raise ConnectionLostError(str(error), outcome="unknown" if written else lost) from error
            written = True
            self._unsent = self._unsent[sent:]
            if self._unsent and deadline.expired:
                raise self._late(late)

    def _late(self, outcome: Outcome) -> SendTimeoutError:
        return SendTimeoutError(f"{self.peer} did not accept the bytes in time", outcome=outcome)

    # Closing

    def shutdown(self) -> None:
        """End both directions and wake waiting threads; from any thread."""
        with self._lock:
            alert = b"" if self._shut else self._closing_alert()
            self._shut = True
        self._try_send(alert)
        self._underlying.shutdown()

    def shutdown_write(self) -> None:
        """End the outgoing direction: the peer reads all that was written, then the end."""
        with self._lock:
            if self._handshake_done and not self._shut:
                self._decrypt(2 * RECV_SIZE)  # OpenSSL would reject bytes after our closing alert
            alert = self._closing_alert()
            self._write_ended = True
        self._try_send(alert)
        self._underlying.shutdown_write()

    def _closing_alert(self) -> bytes:
        """Return the closing alert, or `b""` if it was sent or would split a record; with the lock held."""
        if not self._handshake_done or self._writing or self._unsent or self._write_ended:
            return b""
        with contextlib.suppress(ssl.SSLError):  # it asks for the alert of the peer, which may never come
            self.tls.unwrap()
        return self._outgoing.read()

    def _try_send(self, data: bytes) -> None:
        if data:
            with contextlib.suppress(ConnectionLostError):
                self._underlying.sendall(data, Deadline(0))

    def close(self) -> None:
        """Shut down, and close the underlying transport."""
        self.shutdown()
        self._underlying.close()

    def __repr__(self) -> str:
        state = "shut down" if self._shut else "open" if self._handshake_done else "in the handshake"
        return f"<TlsTransport {self.tls.version() or 'TLS'} over {self._underlying!r}, {state}>"


class TlsDialer:
    """Connects with TLS.

    Args:
        dialer: makes the connections below TLS.
        tls: the settings; an `ssl.SSLContext` is used unchanged, except that renegotiation is switched off.
    """

    def __init__(self, dialer: UnderlyingDialer, tls: Tls | ssl.SSLContext) -> None:
        self._dialer = dialer
        self._tls = tls
        self.address = dialer.address
        """The host and the port."""
        self.host = dialer.host
        """The host as given."""

    def dial(self, deadline: Deadline) -> TlsTransport:
        """Return a new session.

        Raises:
            ConfigurationError: a file of the settings cannot be used; nothing was sent.
            ConnectError: the address cannot be reached; `TlsError` if the TLS handshake failed.
            ConnectTimeoutError: the deadline passed first.
        """
        context = client_context(self._tls)
        if not context.check_hostname:
            what = "host name" if context.verify_mode else "certificate"
            _LOG.warning(
                "%s: TLS does not check the broker's %s; an attacker in the network can impersonate it",
                self.address,
                what,
            )
        underlying = self._dialer.dial(deadline)
        return with_handshake(
            underlying,
            lambda: self._handshake(underlying, context, deadline),
            address=self.address,
            late="the peer did not finish the TLS handshake in time; does it speak TLS on this port?",
            lost=lambda error: TlsError(f"in the TLS handshake: {error}", reason="closed", address=self.address),
        )

    def _handshake(self, underlying: UnderlyingTransport, context: ssl.SSLContext, deadline: Deadline) -> TlsTransport:
        own = self._tls.server_name if isinstance(self._tls, Tls) else None
        # Certificates and SNI have neither the trailing dot of a name nor the zone of an IPv6 address.
        name = own or self.host.partition("%")[0].removesuffix(".")
        try:
            transport = TlsTransport(underlying, context, server_name=name)
        except ValueError as error:
            raise ConfigurationError(f"not a valid name of a TLS server: {name!r}") from error
        try:
            transport.do_handshake(deadline)
        except ssl.SSLError as error:
            refused = own_certificate_refused(error)
            if refused is not None:
                raise ClientCertificateRefusedError(refused, address=self.address) from error
            reason, message = explain_tls(error, wanted=name, chain=peer_chain(transport.tls), start=transport.start)
            raise TlsError(message, reason=reason, address=self.address) from error
        return transport

    def __repr__(self) -> str:
        return f"<TlsDialer {self.address}>"


class TlsListener(LayerListener[TlsTransport]):
    """Accepts TLS connections; the first calls of `recv` on each do its handshake.

    Args:
        listener: accepts the connections below TLS; the `TlsListener` then owns it.
        context: the result of `stompy.transport.tls.context.server_context`.
    """

    def __init__(self, listener: UnderlyingListener, context: ssl.SSLContext) -> None:
        super().__init__(listener, lambda underlying: TlsTransport(underlying, context, server_side=True))
