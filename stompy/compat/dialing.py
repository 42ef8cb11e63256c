"""Opening the network connection to a host, with the options of stomp.py."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from stompy.deadline import Deadline
from stompy.errors import TlsError
from stompy.transport.base import Transport
from stompy.transport.tcp import TcpDialer, TcpOptions

if TYPE_CHECKING:
    import ssl


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


def dial(
    host_and_port: tuple[str, int], options: TcpOptions, ssl_params: dict[str, Any] | None, deadline: Deadline
) -> Transport:
    """Return an open connection, over TLS if there are settings for it.

    Raises:
        ConfigurationError: a setting cannot be used.
        ConnectError: the host cannot be reached, or its certificate was rejected.
    """
    tcp = TcpDialer(host_and_port[0], int(host_and_port[1]), options=options)
    if ssl_params is None:
        return tcp.dial(deadline)
    # Imported late, as `ssl` is slow to import.
    from stompy.transport.tls.endpoints import TlsDialer

    transport = TlsDialer(tcp, _context(ssl_params)).dial(deadline)
    validator = ssl_params["cert_validator"]
    if validator is not None:
        ok, reason = validator(transport.tls.getpeercert(), host_and_port[0])
        if not ok:
            transport.close()
            message = f"the certificate was rejected by cert_validator: {reason}"
            raise TlsError(message, reason="untrusted", address=tcp.address)
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
