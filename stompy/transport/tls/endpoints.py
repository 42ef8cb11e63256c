"""Dialer and listener for TLS."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING

from stompy.errors import (
    ClientCertificateRefusedError,
    ConfigurationError,
    ConnectionLostError,
    ConnectTimeoutError,
    SendTimeoutError,
    StompTimeoutError,
    TlsError,
)
from stompy.transport.tls.context import client_context
from stompy.transport.tls.diagnosis import explain, own_certificate_refused, peer_chain
from stompy.transport.tls.options import Tls
from stompy.transport.tls.transport import TlsTransport

if TYPE_CHECKING:
    from stompy.deadline import Deadline
    from stompy.transport.base import UnderlyingDialer, UnderlyingListener

_LOG = logging.getLogger("stompy.transport")


class TlsDialer:
    """Connects with TLS.

    Args:
        dialer: makes the connections below TLS.
        tls: the settings; an `ssl.SSLContext` is used unchanged, except that renegotiation is switched off.
    """

    def __init__(self, dialer: UnderlyingDialer, tls: Tls | ssl.SSLContext) -> None:
        self._dialer = dialer
        self._tls = tls

    @property
    def address(self) -> str:
        """The host and the port."""
        return self._dialer.address

    @property
    def host(self) -> str:
        """The host as given."""
        return self._dialer.host

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
        name = self._server_name()
        underlying = self._dialer.dial(deadline)
        try:
            return self._with_handshake(TlsTransport(underlying, context, server_name=name), name, deadline)
        except ValueError as error:
            underlying.close()
            raise ConfigurationError(f"not a valid name of a TLS server: {name!r}") from error
        except BaseException:
            underlying.close()
            raise

    def _server_name(self) -> str:
        own = self._tls.server_name if isinstance(self._tls, Tls) else None
        # Certificates and SNI have neither the trailing dot of a name nor the zone of an IPv6 address.
        return own or self.host.partition("%")[0].removesuffix(".")

    def _with_handshake(self, transport: TlsTransport, name: str, deadline: Deadline) -> TlsTransport:
        try:
            transport.do_handshake(deadline)
        except ssl.SSLError as error:
            refused = own_certificate_refused(error)
            if refused is not None:
                raise ClientCertificateRefusedError(refused, address=self.address) from error
            reason, message = explain(error, wanted=name, chain=peer_chain(transport.tls), start=transport.start)
            raise TlsError(message, reason=reason, address=self.address) from error
        except (StompTimeoutError, SendTimeoutError) as error:
            message = "the peer did not finish the TLS handshake in time; does it speak TLS on this port?"
            raise ConnectTimeoutError(message, address=self.address) from error
        except ConnectionLostError as error:
            raise TlsError(f"in the TLS handshake: {error}", reason="closed", address=self.address) from error
        return transport

    def __repr__(self) -> str:
        return f"<TlsDialer {self.address}>"


class TlsListener:
    """Accepts TLS connections; the first calls of `recv` on each do its handshake.

    Args:
        listener: accepts the connections below TLS; the `TlsListener` then owns it.
        context: the result of `stompy.transport.tls.context.server_context`.
    """

    def __init__(self, listener: UnderlyingListener, context: ssl.SSLContext) -> None:
        self._listener = listener
        self._context = context

    @property
    def address(self) -> tuple[str, int] | str:
        """The address that it listens on."""
        return self._listener.address

    def accept(self) -> TlsTransport | None:
        """Return the next connection; `None` after the listener was closed."""
        underlying = self._listener.accept()
        return None if underlying is None else TlsTransport(underlying, self._context, server_side=True)

    def close(self) -> None:
        """Stop listening; from any thread."""
        self._listener.close()

    def __repr__(self) -> str:
        return f"<TlsListener over {self._listener!r}>"
