"""Dialing by TLS: the handshake under the connect deadline, and what it means when there is none."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING, Protocol

from stompy.errors import (
    ClientCertificateRefused,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    SendTimeout,
    StompTimeout,
    TlsError,
)
from stompy.transport.tls.context import client_context
from stompy.transport.tls.diagnosis import explain, own_certificate_refused, peer_chain
from stompy.transport.tls.options import Tls
from stompy.transport.tls.transport import Carrier, TlsTransport

if TYPE_CHECKING:
    from stompy.deadline import Deadline

_LOG = logging.getLogger("stompy.transport")


class CarrierDialer(Protocol):
    """A dialer whose transports TLS can run over."""

    @property
    def address(self) -> str:
        """The address for messages."""
        ...

    @property
    def host(self) -> str:
        """The host name that was asked for."""
        ...

    def dial(self, deadline: Deadline) -> Carrier:
        """Return a new transport."""
        ...


class TlsDialer:
    """Connects by TLS.

    Args:
        dialer: makes the streams below.
        tls: the settings; a context is used as it is, but for a new handshake within a session, which is switched off.
    """

    def __init__(self, dialer: CarrierDialer, tls: Tls | ssl.SSLContext) -> None:
        self._dialer = dialer
        self._tls = tls

    @property
    def address(self) -> str:
        """Host and port."""
        return self._dialer.address

    @property
    def host(self) -> str:
        """The host as it was given."""
        return self._dialer.host

    def dial(self, deadline: Deadline) -> TlsTransport:
        """Return a new session.

        Raises:
            ConfigurationError: a file of the settings cannot be used; nothing was sent.
            ConnectError: nobody answers there; `TlsError` if there is no TLS session to be had.
            ConnectTimeout: the deadline passed first.
        """
        context = client_context(self._tls)
        if not context.check_hostname:
            what = "host name" if context.verify_mode else "certificate"
            _LOG.warning("%s: TLS does not check the broker's %s; anybody can pose as the broker", self.address, what)
        name = self._server_name()
        carrier = self._dialer.dial(deadline)
        try:
            return self._shaken(TlsTransport(carrier, context, server_name=name), name, deadline)
        except ValueError as error:
            carrier.close()
            raise ConfigurationError(f"not a name that a TLS server can have: {name!r}") from error
        except BaseException:
            carrier.close()
            raise

    def _server_name(self) -> str:
        own = self._tls.server_name if isinstance(self._tls, Tls) else None
        # Certificates and SNI know neither the dot of a full name nor the zone of an IPv6 address.
        return own or self.host.partition("%")[0].removesuffix(".")

    def _shaken(self, transport: TlsTransport, name: str, deadline: Deadline) -> TlsTransport:
        try:
            transport.shake_hands(deadline)
        except ssl.SSLError as error:
            refused = own_certificate_refused(error)
            if refused is not None:
                raise ClientCertificateRefused(refused, address=self.address) from error
            reason, words = explain(error, wanted=name, chain=peer_chain(transport.tls), start=transport.start)
            raise TlsError(words, reason=reason, address=self.address) from error
        except (StompTimeout, SendTimeout) as error:
            message = "the peer did not finish the TLS handshake in time; does it speak TLS on this port?"
            raise ConnectTimeout(message, address=self.address) from error
        except ConnectionLost as error:
            raise TlsError(f"in the TLS handshake: {error}", reason="closed", address=self.address) from error
        return transport

    def __repr__(self) -> str:
        return f"<TlsDialer {self.address}>"


class CarrierListener(Protocol):
    """A listener whose transports TLS can run over."""

    @property
    def address(self) -> tuple[str, int] | str:
        """Where it listens."""
        ...

    def accept(self) -> Carrier | None:
        """Wait for the next dialer."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class TlsListener:
    """Listens for TLS clients; the handshake of each is done by who reads from it.

    Args:
        listener: accepts the streams below; owned by this one from here on.
        context: of `stompy.transport.tls.context.server_context`.
    """

    def __init__(self, listener: CarrierListener, context: ssl.SSLContext) -> None:
        self._listener = listener
        self._context = context

    @property
    def address(self) -> tuple[str, int] | str:
        """Where it listens."""
        return self._listener.address

    def accept(self) -> TlsTransport | None:
        """Wait for the next dialer; `None` once the listener is closed."""
        carrier = self._listener.accept()
        return None if carrier is None else TlsTransport(carrier, self._context, server_side=True)

    def close(self) -> None:
        """Stop listening; from any thread."""
        self._listener.close()

    def __repr__(self) -> str:
        return f"<TlsListener over {self._listener!r}>"
