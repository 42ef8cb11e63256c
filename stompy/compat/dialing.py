"""Opening the network connection to a host, with the options of stomp.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompy.deadline import Deadline
from stompy.errors import TlsError
from stompy.transport.tcp import TcpDialer, TcpOptions, TcpTransport
from stompy.world import socket

if TYPE_CHECKING:
    import ssl

    from stompy.transport.tls.transport import TlsTransport


def tcp_options(keepalive: Any, bind_host_port: tuple[str, int] | None) -> TcpOptions:
    """Return the options for `keepalive`, `True` or a tuple of the system and its values, and a local address."""
    options: dict[str, Any] = {}
    if isinstance(keepalive, tuple):
        # ("linux", idle, interval, probes) or ("mac", interval)
        names = ("idle", "interval", "probes") if keepalive[0] != "mac" else ("interval",)
        values = zip(names, keepalive[1:], strict=False)
        options = {f"keepalive_{name}": value for name, value in values if value is not None}
    if bind_host_port:
        options["source"] = socket.gethostbyname(bind_host_port[0])
        options["source_port"] = bind_host_port[1]
    return TcpOptions(**options)


class HostDialer:
    """Connects to a host, over TLS if there are settings for it.

    Args:
        host_and_port: of the broker.
        options: of TCP.
        ssl_params: as `set_ssl` stores them.
    """

    def __init__(self, host_and_port: tuple[str, int], options: TcpOptions, ssl_params: dict[str, Any] | None) -> None:
        self._tcp = TcpDialer(host_and_port[0], int(host_and_port[1]), options=options)
        self._ssl_params = ssl_params

    @property
    def address(self) -> str:
        """The host and the port."""
        return self._tcp.address

    @property
    def host(self) -> str:
        """The host as given."""
        return self._tcp.host

    def dial(self, deadline: Deadline) -> TcpTransport | TlsTransport:
        """Return an open connection.

        Raises:
            ConfigurationError: a setting cannot be used.
            ConnectError: the host cannot be reached, or its certificate was rejected.
        """
        if self._ssl_params is None:
            return self._tcp.dial(deadline)
        # Imported late, as `ssl` is slow to import.
        from stompy.transport.tls.transport import TlsDialer

        transport = TlsDialer(self._tcp, _context(self._ssl_params)).dial(deadline)
        validator = self._ssl_params["cert_validator"]
        if validator is not None:
            ok, reason = validator(transport.tls.getpeercert(), self.host)
            if not ok:
                transport.close()
                message = f"the certificate was rejected by cert_validator: {reason}"
                raise TlsError(message, reason="untrusted", address=self.address)
        return transport


def _context(params: dict[str, Any]) -> ssl.SSLContext:
    import ssl

    from stompy.transport.tls.context import client_context
    from stompy.transport.tls.options import Tls

    verify, cert = params["verify"], params["cert_file"]
    context = client_context(
        Tls(
            ca=(params["ca_certs"] or None) if verify else None,
            cert=cert or None,
            key=(params["key_file"] or None) if cert else None,
            password=params["password"],
            insecure_skip_verification=not verify,
        )
    )
    if params["ssl_version"] == getattr(ssl, "PROTOCOL_TLSv1_2", None):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context
