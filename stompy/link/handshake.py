"""Opening a session: dial, CONNECT, CONNECTED, in the caller's thread and under one deadline."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stompy.deadline import Deadline
from stompy.dialects.brokers import leniency_of
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
from stompy.frames.grammar import Leniency, Version
from stompy.link.settings import Credentials, LinkSettings
from stompy.protocol.client import ClientProtocol, explain_refusal
from stompy.protocol.heartbeat import HeartbeatOffer, HeartbeatRateLimit
from stompy.secret import Secret, revealed, strip_tracebacks
from stompy.transport.base import Dialer, Transport
from stompy.transport.diagnosis import GREETING_SIZE, detect_protocol

_LOG = logging.getLogger("stompy.link")

_NOBODY = Credentials()

_LAST_WORDS = 1.0
"""Seconds for a broker's reason, where CONNECT could not be sent."""


@dataclass(frozen=True, slots=True)
class OpenedSession:
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


def open_session(
    dialer: Dialer, settings: LinkSettings, deadline: Deadline, credentials: Credentials = _NOBODY
) -> OpenedSession:
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
        heartbeat=HeartbeatOffer.from_seconds(*settings.heartbeat),
        leniency=settings.leniency or Leniency.NONE,
        leniency_for=leniency_of if settings.leniency is None else None,
        limits=settings.limits,
        max_subscriptions=settings.max_subscriptions,
        max_transactions=settings.max_transactions,
    )
    host = settings.vhost if settings.vhost is not None else dialer.host
    request = _connect_frame(protocol, host, settings.headers, credentials)
    transport = dialer.dial(deadline)
    try:
        listening = _Listening(transport, protocol, settings, dialer.address)
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
    return OpenedSession(transport, protocol, frames[0], frames[1:], dialer.address)


@dataclass(frozen=True, slots=True)
class _Listening:
    """Where the answer to CONNECT comes from."""

    transport: Transport
    protocol: ClientProtocol
    settings: LinkSettings
    address: str

    def first_frames(self, deadline: Deadline) -> list[Frame]:
        """Return CONNECTED and what came with it."""
        protocol, start = self.protocol, b""
        meter = HeartbeatRateLimit(self.settings.max_eol_rate, time.monotonic())
        while True:
            data = self.transport.recv(deadline)
            if not data:
                hint = "" if start else "; is this the right port, with or without TLS?"
                raise ConnectError(f"the broker closed the connection before CONNECTED{hint}", address=self.address)
            if len(start) < GREETING_SIZE:
                start += data[: GREETING_SIZE - len(start)]
                self._check_greeting(detect_protocol(start))
            frames = protocol.receive(data)
            meter.check(protocol.parser.line_ends, frames=len(frames), now=time.monotonic())
            if frames and frames[0].command == "ERROR":
                raise _refused(frames[0], self.settings.versions, self.address)
            if isinstance(protocol.error, VersionMismatch):
                error = protocol.error
                raise VersionMismatch(
                    str(error), offered=error.offered, supported=error.supported, address=self.address
                )
            if frames:
                return frames  # CONNECTED; an offence or an ERROR behind it is the link's to report
            if protocol.error is not None:
                raise protocol.error
            if deadline.expired:  # bytes that are there already come without a look at the clock
                raise ConnectTimeout("the broker did not answer CONNECT in time", address=self.address)

    def _check_greeting(self, spoken: str | None) -> None:
        if spoken == "TLS":
            message = "the broker speaks TLS on this port: write stomp+ssl:// instead of stomp://"
            raise TlsError(message, reason="needs-tls", address=self.address)
        if spoken not in (None, "STOMP"):
            raise ConnectError(f"the peer speaks {spoken} on this port, not STOMP", address=self.address)


def _send(transport: Transport, request: Secret[bytes], listening: _Listening, deadline: Deadline) -> None:
    try:
        _say(transport, request, deadline)
    except SendTimeout:
        raise
    except ConnectionLost:
        # Who refuses us says why and closes (TLS 1.3: a client certificate): the reason lies before the end.
        with contextlib.suppress(StompTimeout, ConnectionLost, ProtocolError):
            listening.first_frames(deadline.sooner(_LAST_WORDS))
        raise


def _connect_frame(
    protocol: ClientProtocol, host: str, headers: Mapping[str, str], credentials: Credentials
) -> Secret[bytes]:
    try:
        login, passcode = credentials.login, credentials.passcode
        return Secret(protocol.connect(host=host, login=login, passcode=revealed(passcode), headers=headers))
    except BaseException as error:
        failure = error
    raise strip_tracebacks(failure)  # the frames on the way down held the passcode


def _say(transport: Transport, request: Secret[bytes], deadline: Deadline) -> None:
    try:
        transport.sendall(request.reveal(), deadline)
        return
    except BaseException as error:
        failure = error
    raise strip_tracebacks(failure)


def _refused(frame: Frame, versions: Sequence[Version], address: str) -> ConnectError:
    words, mismatch = explain_refusal(frame, versions)
    if mismatch is not None:
        return VersionMismatch(str(mismatch), offered=mismatch.offered, supported=mismatch.supported, address=address)
    return ConnectRefused(f"the broker refused the connection: {words}", frame=frame, address=address)
