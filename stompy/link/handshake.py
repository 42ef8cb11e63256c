"""The handshake: dial, CONNECT, CONNECTED, in the caller's thread and within one deadline."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from stompy.deadline import Deadline
from stompy.default import DEFAULT, given
from stompy.dialects.brokers import leniency_of
from stompy.errors import (
    ConnectError,
    ConnectionLostError,
    ConnectRefusedError,
    ConnectTimeoutError,
    ProtocolError,
    SendTimeoutError,
    StompTimeoutError,
    TlsError,
    VersionMismatchError,
)
from stompy.frames.frame import Frame
from stompy.frames.grammar import Leniency, Version
from stompy.link.settings import Credentials, LinkSettings
from stompy.protocol.client import ClientProtocol, explain_refusal
from stompy.protocol.heartbeat import HeartbeatOffer, HeartbeatRateLimit
from stompy.protocol.rules import version_of
from stompy.secret import Secret, revealed, without_traceback
from stompy.transport.base import Dialer, Transport
from stompy.transport.diagnosis import GREETING_SIZE, detect_protocol
from stompy.values import replace
from stompy.world import time

_LOG = logging.getLogger("stompy.link")

_NO_CREDENTIALS = Credentials()

_REASON_TIMEOUT = 1.0
"""Seconds to wait for the broker's reason if CONNECT could not be sent."""


class OpenedSession(NamedTuple):
    """The result of a handshake.

    Attributes:
        transport: open.
        protocol: in the state CONNECTED.
        connected: the CONNECTED frame.
        early: frames after it in the same read.
        address: of the broker, for error messages.
    """

    transport: Transport
    protocol: ClientProtocol
    connected: Frame
    early: list[Frame]
    address: str


def open_session(
    dialer: Dialer,
    settings: LinkSettings,
    deadline: Deadline,
    credentials: Credentials = _NO_CREDENTIALS,
    *,
    dialled: Callable[[Transport], object] | None = None,
) -> OpenedSession:
    """Dial and open a session.

    Args:
        dialer: of the broker.
        settings: of the session.
        deadline: for all of it.
        credentials: for CONNECT.
        dialled: called with the open transport, whose `shutdown` ends the handshake.

    Raises:
        ConnectError: the broker is unreachable, or the stream ended before CONNECTED.
        ConnectTimeoutError: the deadline passed.
        ConnectRefusedError: the broker answered ERROR.
        TlsError: only one side uses TLS, or the TLS handshake failed.
        VersionMismatchError: no common version.
        LocalProtocolError: CONNECT cannot be encoded, such as a line end in the login; nothing was sent.
    """
    host = settings.vhost if settings.vhost is not None else dialer.host
    protocol, request = _first_frame(settings, host, credentials)
    transport = dialer.dial(deadline)
    try:
        if dialled is not None:
            dialled(transport)
        agreed = version_of(transport)
        if agreed is not None and settings.versions != (agreed,):
            settings = replace(settings, versions=(agreed,))
            protocol, request = _first_frame(settings, host, credentials)
        handshake = _Handshake(transport, protocol, settings, dialer.address)
        handshake.send(request, deadline)
        _LOG.debug("> CONNECT to %s", dialer.address)
        frames = handshake.first_frames(deadline)
    except BaseException as error:
        transport.close()
        if isinstance(error, ConnectError):
            raise
        if isinstance(error, (StompTimeoutError, SendTimeoutError)):
            raise ConnectTimeoutError("the broker did not answer CONNECT in time", address=dialer.address) from error
        if isinstance(error, (ConnectionLostError, ProtocolError)):
            raise ConnectError(f"before CONNECTED: {error}", address=dialer.address) from error
        raise
    _LOG.debug("< %r", frames[0])
    return OpenedSession(transport, protocol, frames[0], frames[1:], dialer.address)


def _first_frame(settings: LinkSettings, host: str, credentials: Credentials) -> tuple[ClientProtocol, Secret[bytes]]:
    """Return a new protocol object, and its CONNECT frame."""
    limits, login, passcode = settings.limits, credentials.login, credentials.passcode
    protocol = ClientProtocol(
        versions=settings.versions,
        heartbeat=HeartbeatOffer.from_seconds(*settings.heartbeat),
        leniency=given(limits.leniency, Leniency.NONE),
        leniency_for=leniency_of if limits.leniency is DEFAULT else None,
        limits=limits,
        max_subscriptions=limits.max_subscriptions,
        max_transactions=limits.max_transactions,
    )
    request = without_traceback(
        lambda: Secret(protocol.connect(host=host, login=login, passcode=revealed(passcode), headers=settings.headers))
    )
    return protocol, request


class _Handshake(NamedTuple):
    """Sends CONNECT and reads the answer."""

    transport: Transport
    protocol: ClientProtocol
    settings: LinkSettings
    address: str

    def send(self, request: Secret[bytes], deadline: Deadline) -> None:
        """Write CONNECT; raise the broker's reason if it closes the stream meanwhile."""
        try:
            without_traceback(lambda: self.transport.sendall(request.reveal(), deadline))
        except SendTimeoutError:
            raise
        except ConnectionLostError:
            # A peer that rejects us sends the reason, then closes (TLS 1.3: the client certificate).
            with contextlib.suppress(StompTimeoutError, ConnectionLostError, ProtocolError):
                self.first_frames(deadline.sooner(_REASON_TIMEOUT))
            raise

    def first_frames(self, deadline: Deadline) -> list[Frame]:
        """Return CONNECTED and the frames that came with it."""
        protocol, start = self.protocol, b""
        rate_limit = HeartbeatRateLimit(self.settings.limits.max_eol_rate, time.monotonic())
        while True:
            data = self.transport.recv(deadline)
            if not data:
                hint = "" if start else "; is this the right port, with or without TLS?"
                raise ConnectError(f"the broker closed the connection before CONNECTED{hint}", address=self.address)
            if len(start) < GREETING_SIZE:
                start += data[: GREETING_SIZE - len(start)]
                self._check_greeting(detect_protocol(start))
            frames = protocol.receive(data)
            rate_limit.check(protocol.parser.line_ends, frames=len(frames), now=time.monotonic())
            if frames and frames[0].command == "ERROR":
                raise _refused(frames[0], self.settings.versions, self.address)
            if isinstance(protocol.error, VersionMismatchError):
                raise _at(self.address, protocol.error)
            if frames:
                return frames  # CONNECTED; the link reports what is wrong after it
            if protocol.error is not None:
                raise protocol.error
            if deadline.expired:  # `recv` returns available bytes without checking the deadline
                raise ConnectTimeoutError("the broker did not answer CONNECT in time", address=self.address)

    def _check_greeting(self, detected: str | None) -> None:
        if detected == "TLS":
            message = "the broker speaks TLS on this port: write stomp+ssl:// instead of stomp://"
            raise TlsError(message, reason="needs-tls", address=self.address)
        if detected not in (None, "STOMP"):
            raise ConnectError(
                f"the peer speaks {detected} on this port, not STOMP, whose port is usually 61613", address=self.address
            )


def _refused(frame: Frame, versions: Sequence[Version], address: str) -> ConnectError:
    message, mismatch = explain_refusal(frame, versions)
    if mismatch is not None:
        return _at(address, mismatch)
    return ConnectRefusedError(f"the broker refused the connection: {message}", frame=frame, address=address)


def _at(address: str, error: VersionMismatchError) -> VersionMismatchError:
    """Return the error with the address, which the protocol object does not know."""
    return VersionMismatchError(str(error), offered=error.offered, supported=error.supported, address=address)
