"""Connections over WebSocket."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from stompy.compat import log as log
from stompy.compat.connect import ARGUMENTS, StompConnection12, signature
from stompy.compat.connect import BaseConnection as BaseConnection
from stompy.compat.exception import *  # noqa: F403 - programs import them from here
from stompy.compat.protocol import Protocol12 as Protocol12
from stompy.compat.transport import BaseTransport as BaseTransport
from stompy.compat.transport import HostAndPort, Transport
from stompy.compat.utils import *  # noqa: F403 - programs import them from here
from stompy.frames.grammar import Version
from stompy.protocol.rules import subprotocols
from stompy.transport.address import host_port, parse_addresses
from stompy.transport.base import Dialer
from stompy.transport.websocket.endpoints import WebSocketDialer
from stompy.transport.websocket.handshake import WebSocketOptions

_SIGNATURE = inspect.Signature(
    [
        *inspect.signature(Transport.__init__).parameters.values(),
        *(
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
            for name, default in (("ws_path", None), ("header", None), ("binary_mode", False))
        ),
    ]
)


class WSTransport(Transport):
    """A transport over WebSocket, with TLS for the hosts of `set_ssl`; see `Transport`.

    Args:
        ws_path: path and query of the address.
        header: HTTP headers, as a mapping or as a list of `"name: value"`.
        binary_mode: whether to send binary messages instead of text.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = _SIGNATURE.bind(self, *args, **kwargs).arguments
        self.ws_path: str | None = given.pop("ws_path", None)
        self.header: Mapping[str, str] | Sequence[str] | None = given.pop("header", None)
        self.binary_mode: bool = given.pop("binary_mode", False)
        Transport.__init__(**given)

    __init__.__signature__ = _SIGNATURE  # type: ignore[attr-defined]

    def _dialer(self, host_and_port: HostAndPort) -> Dialer:
        scheme = "ws" if self.get_ssl(host_and_port) is None else "wss"
        path = (self.ws_path or "").removeprefix("/")
        (address,) = parse_addresses([f"{scheme}://{host_port(*host_and_port)}/{path}"])
        return WebSocketDialer(
            self._host_dialer(host_and_port),
            host=address.authority,
            target=address.target,
            subprotocols=subprotocols([Version.V1_2]),
            options=WebSocketOptions(headers=_mapping(self.header), text=not self.binary_mode),
        )


def _mapping(header: Mapping[str, str] | Sequence[str] | None) -> Mapping[str, str]:
    if header is None or isinstance(header, Mapping):
        return header or {}
    pairs = (line.partition(":") for line in header)
    return {name.strip(): value.strip() for name, _, value in pairs}


_CONNECTION_SIGNATURE = signature(WSTransport, [*ARGUMENTS, "ws", "ws_path", "header", "binary_mode"])


class WSStompConnection(StompConnection12):
    """A STOMP 1.2 connection over WebSocket; the arguments are those of `WSTransport` and `Protocol11`.

    Args:
        ws: ignored.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._initialize(WSTransport, _CONNECTION_SIGNATURE.bind(self, *args, **kwargs))

    __init__.__signature__ = _CONNECTION_SIGNATURE  # type: ignore[attr-defined]
