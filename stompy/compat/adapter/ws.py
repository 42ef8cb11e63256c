"""Connections over WebSocket."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stompy.compat import log as log
from stompy.compat.connect import BaseConnection, StompConnection12
from stompy.compat.exception import *  # noqa: F403 - programs import them from here
from stompy.compat.protocol import Protocol12
from stompy.compat.transport import BaseTransport as BaseTransport
from stompy.compat.transport import HostAndPort, Transport
from stompy.compat.utils import *  # noqa: F403 - programs import them from here
from stompy.compat.utils import is_eol_default
from stompy.frames.grammar import Version
from stompy.protocol.subprotocols import subprotocols
from stompy.transport.address import host_port, parse_addresses
from stompy.transport.base import Dialer
from stompy.transport.websocket.endpoints import WebSocketDialer
from stompy.transport.websocket.options import WebSocketOptions


class WSTransport(Transport):
    """A transport over WebSocket, with TLS for the hosts of `set_ssl`; see `Transport`.

    Args:
        ws_path: path and query of the address.
        header: HTTP headers, as a mapping or as a list of `"name: value"`.
        binary_mode: whether to send binary messages instead of text.
    """

    def __init__(
        self,
        host_and_ports: list[HostAndPort] | None = None,
        prefer_localhost: bool = True,
        try_loopback_connect: bool = True,
        reconnect_sleep_initial: float = 0.1,
        reconnect_sleep_increase: float = 0.5,
        reconnect_sleep_jitter: float = 0.1,
        reconnect_sleep_max: float = 60.0,
        reconnect_attempts_max: int = 3,
        timeout: float | None = None,
        keepalive: Any = None,
        vhost: str | None = None,
        auto_decode: bool = True,
        encoding: str = "utf-8",
        recv_bytes: int = 1024,
        is_eol_fc: Callable[[bytes], bool] = is_eol_default,
        bind_host_port: HostAndPort | None = None,
        ws_path: str | None = None,
        header: Mapping[str, str] | Sequence[str] | None = None,
        binary_mode: bool = False,
    ) -> None:
        super().__init__(
            host_and_ports,
            prefer_localhost,
            try_loopback_connect,
            reconnect_sleep_initial,
            reconnect_sleep_increase,
            reconnect_sleep_jitter,
            reconnect_sleep_max,
            reconnect_attempts_max,
            timeout,
            keepalive,
            vhost,
            auto_decode,
            encoding,
            recv_bytes,
            is_eol_fc,
            bind_host_port,
        )
        self.ws_path = ws_path
        self.header = header
        self.binary_mode = binary_mode

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


class WSStompConnection(StompConnection12):
    """A STOMP 1.2 connection over WebSocket; the arguments are those of `WSTransport` and `Protocol11`.

    Args:
        ws: ignored.
    """

    def __init__(
        self,
        host_and_ports: list[HostAndPort] | None = None,
        prefer_localhost: bool = True,
        try_loopback_connect: bool = True,
        reconnect_sleep_initial: float = 0.1,
        reconnect_sleep_increase: float = 0.5,
        reconnect_sleep_jitter: float = 0.1,
        reconnect_sleep_max: float = 60.0,
        reconnect_attempts_max: int = 3,
        timeout: float | None = None,
        heartbeats: tuple[int, int] = (0, 0),
        keepalive: Any = None,
        vhost: str | None = None,
        auto_decode: bool = True,
        encoding: str = "utf-8",
        auto_content_length: bool = True,
        heart_beat_receive_scale: float = 1.5,
        bind_host_port: HostAndPort | None = None,
        ws: Any = None,
        ws_path: str | None = None,
        header: Mapping[str, str] | Sequence[str] | None = None,
        binary_mode: bool = False,
    ) -> None:
        transport = WSTransport(
            host_and_ports,
            prefer_localhost,
            try_loopback_connect,
            reconnect_sleep_initial,
            reconnect_sleep_increase,
            reconnect_sleep_jitter,
            reconnect_sleep_max,
            reconnect_attempts_max,
            timeout,
            keepalive,
            vhost,
            auto_decode,
            encoding,
            bind_host_port=bind_host_port,
            ws_path=ws_path,
            header=header,
            binary_mode=binary_mode,
        )
        BaseConnection.__init__(self, transport)
        Protocol12.__init__(self, transport, heartbeats, auto_content_length, heart_beat_receive_scale)
