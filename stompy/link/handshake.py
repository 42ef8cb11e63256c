"""Opening a session: dial, CONNECT, CONNECTED, in the caller's thread and under one deadline."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from stompy.deadline import Deadline
from stompy.errors import (
    ConnectError,
    ConnectionLost,
    ConnectRefused,
    ConnectTimeout,
    ProtocolError,
    SendTimeout,
    StompTimeout,
    TlsError,
    VersionMismatch,
)
from stompy.frames.frame import Frame
from stompy.frames.version import Version
from stompy.link.settings import LinkSettings
from stompy.protocol.client import ClientProtocol, refusal
from stompy.transport.base import Dialer, Transport

_LOG = logging.getLogger("stompy.link")

_TLS_ALERT = b"\x15\x03"
"""How the answer of a TLS server to a STOMP frame begins; no STOMP frame does."""

_LAST_WORDS = 1.0
"""Seconds for a broker's reason, where CONNECT could not be sent."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A session that has just begun.

    Attributes:
        transport: open.
        protocol: in the state CONNECTED.
        connected: the CONNECTED frame.
        early: frames that came in the same read behind it.
        address: for messages.
    """

    transport: Transport
    protocol: ClientProtocol
    connected: Frame
    early: list[Frame]
    address: str


def open_session(dialer: Dialer, settings: LinkSettings, deadline: Deadline) -> Opened:
    """Dial and shake hands.

    Raises:
        ConnectError: nobody answers, or the stream ended before CONNECTED.
        ConnectTimeout: the deadline passed first.
        ConnectRefused: the broker answered ERROR, with its words.
        TlsError: one side speaks TLS and the other does not, or there is no session to be had.
        VersionMismatch: no version in common.
        LocalProtocolError: CONNECT cannot be written (a line end in the login, say); nothing was sent.
    """
    protocol = ClientProtocol(
        versions=settings.versions,
        heartbeat=settings.heartbeat,
        leniency=settings.leniency,
        leniency_for=settings.leniency_for,
        limits=settings.limits,
    )
    request = protocol.connect(
        host=settings.vhost if settings.vhost is not None else dialer.host,
        login=settings.login,
        passcode=settings.passcode,
        headers=settings.headers,
    )
    transport = dialer.dial(deadline)
    try:
        listening = _Listening(transport, protocol, settings.versions, dialer.address)
        _send(transport, request, listening, deadline)
        _LOG.debug("> CONNECT to %s", dialer.address)
        frames = listening.first_frames(deadline)
    except ConnectError:
        transport.close()
        raise
    except (StompTimeout, SendTimeout) as error:
        transport.close()
        raise ConnectTimeout("the broker did not answer CONNECT in time", address=dialer.address) from error
    except (ConnectionLost, ProtocolError) as error:
        transport.close()
        raise ConnectError(f"before CONNECTED: {error}", address=dialer.address) from error
    except BaseException:
        transport.close()
        raise
    _LOG.debug("< %r", frames[0])
    return Opened(transport, protocol, frames[0], frames[1:], dialer.address)


@dataclass(frozen=True, slots=True)
class _Listening:
    """Where the answer to CONNECT comes from."""

    transport: Transport
    protocol: ClientProtocol
    versions: Sequence[Version]
    address: str

    def first_frames(self, deadline: Deadline) -> list[Frame]:
        """Return CONNECTED and what came with it."""
        protocol, first = self.protocol, True
        while True:
            data = self.transport.recv(deadline)
            if not data:
                raise ConnectError("the broker closed the connection before CONNECTED", address=self.address)
            if first and data.startswith(_TLS_ALERT):
                message = "the broker speaks TLS on this port: write stomp+ssl:// instead of stomp://"
                raise TlsError(message, reason="needs-tls", address=self.address)
            first = False
            frames = protocol.receive(data)
            if frames and frames[0].command == "ERROR":
                raise _refused(frames[0], self.versions, self.address)
            if isinstance(protocol.error, VersionMismatch):
                error = protocol.error
                raise VersionMismatch(
                    str(error), offered=error.offered, supported=error.supported, address=self.address
                )
            if frames:
                return frames  # CONNECTED; an offence or an ERROR behind it is the link's to report
            if protocol.error is not None:
                raise protocol.error


def _send(transport: Transport, request: bytes, listening: _Listening, deadline: Deadline) -> None:
    try:
        transport.sendall(request, deadline)
    except SendTimeout:
        raise
    except ConnectionLost:
        # Who refuses us says why and closes (TLS 1.3: a client certificate): the reason lies before the end.
        with contextlib.suppress(StompTimeout, ConnectionLost, ProtocolError):
            listening.first_frames(deadline.sooner(_LAST_WORDS))
        raise


def _refused(frame: Frame, versions: Sequence[Version], address: str) -> ConnectError:
    words, mismatch = refusal(frame, versions)
    if mismatch is not None:
        return VersionMismatch(str(mismatch), offered=mismatch.offered, supported=mismatch.supported, address=address)
    return ConnectRefused(f"the broker refused the connection: {words}", frame=frame, address=address)
