"""TLS over another byte stream: an SSL object between two memory buffers, never a wrapped socket.

An SSL object is not for two threads at once, and a wrapped socket makes the reader's waiting the writer's. So here the
object works on memory under a lock, and the stream below does the waiting, without it.

| thread | may call | blocks on |
|---|---|---|
| the reader (owner) | `recv`, then `close` | the stream below, until its deadline or `shutdown` |
| one writer at a time | `sendall`, `shutdown_write` | the stream below, until its deadline or `shutdown` |
| any | `shutdown` | nothing |

Locks (rank 5, a leaf): `TlsTransport._lock` guards the SSL object, its buffers and the flags; never held over I/O.

The reader never writes once the handshake is done. What TLS wants to say by itself (TLS 1.3, KeyUpdate: an answer
"prior to sending its next Application Data record", RFC 8446, 4.6.3) goes out with the next bytes of the writer.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
from typing import TYPE_CHECKING, Protocol

from stompy.deadline import Budget, Deadline, deadline_of
from stompy.errors import (
    ClientCertificateRefused,
    ConnectionLost,
    SendTimeout,
    TlsError,
)
from stompy.transport.base import RECV_SIZE, Transport
from stompy.transport.diagnosis import GREETING_SIZE
from stompy.transport.tls.diagnosis import explain, in_short, own_certificate_refused, peer_chain

if TYPE_CHECKING:
    from stompy.errors import Outcome

_LOG = logging.getLogger("stompy.transport")

_RECORD = 16_384
"""The most plain bytes of one TLS record; OpenSSL reads and writes one at a time."""

_NOT_FOR_YOU = b"\x15\x03\x01\x00\x02\x02\x46"
"""A fatal alert (protocol_version): for peers that speak no TLS, and to whom OpenSSL says nothing."""

_CHUNK = 16 * _RECORD
"""Plain bytes that are encrypted before they are handed on."""


class Carrier(Transport, Protocol):
    """A stream that TLS can run over: one that tells how much of a write it took."""

    def send(self, data: bytes | memoryview, deadline: Deadline) -> int:
        """Return how many bytes were taken, at least one; see `stompy.transport.sockets.SocketTransport.send`."""
        ...


class TlsTransport:
    """One end of a TLS session; see `stompy.transport.base.Transport` for what each method promises.

    The end of the stream is the end, with a closing alert of TLS or without one, which many brokers leave out. Nothing
    is lost by that: STOMP frames tell their own ends, and a session that ends without the RECEIPT for its DISCONNECT
    counts as lost anyhow.

    A `SendTimeout` may leave half a record behind; the next `sendall` begins with the rest of it.

    Args:
        carrier: the stream below, owned by this one from here on.
        context: the settings.
        server_side: whether this end is the server's. Its handshake is done by the first calls of `recv`.
        server_name: whom the client expects.
    """

    def __init__(
        self, carrier: Carrier, context: ssl.SSLContext, *, server_side: bool = False, server_name: str | None = None
    ) -> None:
        self._carrier = carrier
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name
        )
        self._server_side = server_side
        self._lock = threading.Lock()
        self._rest: memoryview | bytes = b""  # encrypted, and not yet taken by the carrier; the writer's
        self._plain: list[bytes] = []  # decrypted, and not yet read
        self._ended = False  # the peer's stream
        self._error: ssl.SSLError | None = None
        self.start = b""  # of the handshake, as it came
        self._shaken = False
        self._failed = False
        self._heard = False  # a byte of the peer's own
        self._writing = False
        self._write_ended = False
        self._shut = False

    @property
    def peer(self) -> str:
        """The other end."""
        return self._carrier.peer

    @property
    def tls(self) -> ssl.SSLObject:
        """What was agreed on: `version()`, `cipher()`, `getpeercert()`."""
        return self._tls

    # The handshake

    def shake_hands(self, deadline: Deadline) -> None:
        """Agree on a session; may be called again after a `StompTimeout`.

        Raises:
            ssl.SSLError: there is none; the peer has been told why.
            StompTimeout: the deadline passed first.
            ConnectionLost: the stream below broke; `SendTimeout` if the peer does not read.
        """
        while not self._shaken:
            with self._lock:
                try:
                    self._tls.do_handshake()
                    self._shaken = True
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError:
                    self._failed = True
                    self._say(self._outgoing.read() or _NOT_FOR_YOU)  # an alert
                    raise
                hello = self._outgoing.read()
            if hello:
                self._carrier.sendall(hello, deadline)
            if not self._shaken:
                received = self._carrier.recv(deadline)
                with self._lock:
                    self.start = (self.start + received)[:GREETING_SIZE]
                    if received:
                        self._incoming.write(received)
                    else:
                        self._incoming.write_eof()
        _LOG.debug("%s: %s, %s", self.peer, self._tls.version(), (self._tls.cipher() or ("?",))[0])

    # Bytes in

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Return the next bytes; `b""` at the end of the stream or after `shutdown`.

        Raises:
            StompTimeout: the deadline passed.
            ConnectionLost: the stream broke, or what came is not TLS; at a server, the handshake failed.
            ClientCertificateRefused: at a client, before the first byte. With TLS 1.3 the peer judges our certificate
                when the handshake is over for us. `TlsError` if it hung up then without a word.
        """
        if not self._shaken and not self._shut:
            if self._failed:
                return self._discard(deadline)
            self._admit(deadline)
        while True:
            with self._lock:
                data = self._decrypted()
                self._heard = self._heard or bool(data)
            if data is not None:
                return data
            received = self._receive(deadline)
            with self._lock:
                if received:
                    self._incoming.write(received)
                elif not self._shut:
                    # OpenSSL is not told: it would take this for an attack, and not write any more either.
                    self._ended = True
                    _LOG.debug("%s: the stream ended without a closing alert of TLS", self.peer)

    def _receive(self, deadline: Deadline | None) -> bytes:
        lost: ConnectionLost | None = None
        try:
            received = self._carrier.recv(deadline)
        except ConnectionLost as error:
            if self._heard or self._server_side:
                raise
            received, lost = b"", error
        if received or self._shut or self._heard or self._server_side:
            return received
        # ActiveMQ's nio does not even send an alert to whom it does not like.
        message = (
            "the peer hung up right after the TLS handshake; it may want a certificate of ours, or not take this one"
        )
        raise TlsError(message, reason="closed", address=self.peer) from lost

    def _admit(self, deadline: Deadline | None) -> None:
        """Do a server's handshake; a `StompTimeout` leaves it to the next call."""
        try:
            self.shake_hands(deadline or Deadline(None))
        except ssl.SSLError as error:
            _, words = explain(error, wanted="us", chain=peer_chain(self._tls), start=self.start)
            _LOG.info("%s: no TLS session: %s", self.peer, words)
            self._carrier.shutdown_write()  # behind the alert
            raise ConnectionLost(f"no TLS session with {self.peer}: {words}", outcome="not-sent") from error

    def _discard(self, deadline: Deadline | None) -> bytes:
        """Read to the end of a stream without a session: closing with bytes unread could destroy the alert."""
        while self._carrier.recv(deadline):
            pass
        return b""

    def _decrypted(self) -> bytes | None:
        """Return what can be read now, `b""` at the end, `None` if more must come first; under the lock."""
        if self._shut:
            return b""
        self._decrypt(RECV_SIZE)
        if self._plain:
            data = b"".join(self._plain)
            self._plain = [data[RECV_SIZE:]] if len(data) > RECV_SIZE else []
            return data[:RECV_SIZE]
        if self._error is not None:
            raise self._mapped(self._error)
        return b"" if self._ended else None

    def _decrypt(self, most: int) -> None:
        """Decrypt what is there, up to about `most` bytes; under the lock."""
        size = 0
        while size < most and not self._ended and self._error is None:
            try:
                part = self._tls.read(_RECORD)
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
                if not (self._incoming.pending or self._tls.pending()):
                    return  # cheaper to know than to be told by an exception

    def _mapped(self, error: ssl.SSLError) -> ConnectionLost | ClientCertificateRefused:
        refused = None if self._heard or self._server_side else own_certificate_refused(error)
        mapped = (
            ConnectionLost(f"connection to {self.peer} lost: TLS failed ({in_short(error)})")
            if refused is None
            else ClientCertificateRefused(refused, address=self.peer)
        )
        mapped.__cause__ = error
        return mapped

    # Bytes out

    def sendall(self, data: bytes, deadline: Budget) -> None:
        """Return when the carrier has all of `data`, encrypted.

        Raises:
            SendTimeout: the deadline passed first.
            ConnectionLost: the stream broke or was shut down, or there is no session yet.
        """
        deadline = deadline_of(deadline)
        with self._lock:
            self._check_open("not-sent")
            self._writing = True
        try:
            self._hand_on(deadline, late="not-sent", lost="not-sent")  # what an earlier write left
            at, view = 0, memoryview(data)
            while at < len(view):
                if at and deadline.expired:  # a peer that reads drop by drop must not stretch it
                    raise self._late("unknown")
                part = view[at : at + _CHUNK]
                self._encrypt(part, "unknown" if at else "not-sent")
                self._hand_on(deadline, late="unknown", lost="unknown" if at else "not-sent")
                at += len(part)
        finally:
            with self._lock:
                self._writing = False

    def _check_open(self, outcome: Outcome) -> None:
        if self._shut or self._write_ended:
            raise ConnectionLost(f"connection to {self.peer} was shut down", outcome=outcome)
        if not self._shaken:
            raise ConnectionLost(f"there is no TLS session with {self.peer}", outcome=outcome)

    def _encrypt(self, part: memoryview, outcome: Outcome) -> None:
        with self._lock:
            self._check_open(outcome)
            try:
                while part:
                    part = part[self._tls.write(part) :]
            except ssl.SSLError as error:
                raise ConnectionLost(
                    f"connection to {self.peer} lost: TLS failed ({in_short(error)})", outcome=outcome
                ) from error
            self._rest = memoryview(self._outgoing.read())

    def _hand_on(self, deadline: Deadline, *, late: Outcome, lost: Outcome) -> None:
        """Give the carrier what is encrypted; `late` and `lost` are the outcomes if it takes none of it."""
        taken = False
        while self._rest:
            try:
                sent = self._carrier.send(self._rest, deadline)
            except SendTimeout as error:
                raise SendTimeout(str(error), outcome=late) from error
            except ConnectionLost as error:
                raise ConnectionLost(str(error), outcome="unknown" if taken else lost) from error
            taken = True
            self._rest = self._rest[sent:]
            if self._rest and deadline.expired:
                raise self._late(late)

    def _late(self, outcome: Outcome) -> SendTimeout:
        return SendTimeout(f"{self.peer} did not take our bytes in time", outcome=outcome)

    # The end

    def shutdown(self) -> None:
        """End both directions and wake whoever waits; from any thread."""
        with self._lock:
            goodbye = b"" if self._shut else self._goodbye()
            self._shut = True
        self._say(goodbye)
        self._carrier.shutdown()

    def shutdown_write(self) -> None:
        """End the outgoing direction: the peer reads what was sent, then the end."""
        with self._lock:
            if self._shaken and not self._shut:
                self._decrypt(2 * RECV_SIZE)  # bytes behind our goodbye would be an offence to OpenSSL
            goodbye = self._goodbye()
            self._write_ended = True
        self._say(goodbye)
        self._carrier.shutdown_write()

    def _goodbye(self) -> bytes:
        """Return the closing alert, unless it was said or would break into a record; under the lock."""
        if not self._shaken or self._writing or self._rest or self._write_ended:
            return b""
        with contextlib.suppress(ssl.SSLError):  # it wants to wait for the peer's, and the peer may be gone
            self._tls.unwrap()
        return self._outgoing.read()

    def _say(self, octets: bytes) -> None:
        if octets:
            with contextlib.suppress(ConnectionLost):
                self._carrier.sendall(octets, Deadline(0))

    def close(self) -> None:
        """Shut down and release what is below."""
        self.shutdown()
        self._carrier.close()

    def __repr__(self) -> str:
        state = "shut down" if self._shut else "open" if self._shaken else "shaking hands"
        return f"<TlsTransport {self._tls.version() or 'TLS'} over {self._carrier!r}, {state}>"
