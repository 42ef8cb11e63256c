"""Options of TCP: keep-alive, bounds, a source address."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from stompy.errors import ConfigurationError, ConnectError
from stompy.transport.tcp import TcpDialer, TcpOptions

if TYPE_CHECKING:
    pass
from tests.transport.conftest import ample
from tests.transport.test_tcp import names


class TestOptions:
    def test_silence_is_probed_as_the_options_say(self, raw_server: socket.socket) -> None:
        options = TcpOptions(keepalive_idle=7, keepalive_interval=3, keepalive_probes=2, user_timeout=4.5)
        transport = TcpDialer(*raw_server.getsockname(), options=options).dial(ample())
        sock = transport._sock
        for name, value in (
            ("TCP_KEEPIDLE", 7),
            ("TCP_KEEPINTVL", 3),
            ("TCP_KEEPCNT", 2),
            ("TCP_USER_TIMEOUT", 4500),
        ):
            if hasattr(socket, name):
                assert sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        transport.close()

    @pytest.mark.parametrize("on", [True, False])
    def test_probing_may_be_left_out_and_frames_may_share_segments(self, raw_server: socket.socket, on: bool) -> None:
        options = TcpOptions(keepalive=on, nodelay=on)
        transport = TcpDialer(*raw_server.getsockname(), options=options).dial(ample())
        sock = transport._sock
        assert bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)) is on
        assert bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) is on
        transport.close()

    def test_what_the_platform_does_not_have_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("TCP_KEEPIDLE", "TCP_KEEPALIVE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT"):
            monkeypatch.delattr(socket, name, raising=False)
        assert [option for _, option, _ in TcpOptions(user_timeout=3)._socket_options()] == [
            socket.TCP_NODELAY,
            socket.SO_KEEPALIVE,
        ]

    def test_a_connection_comes_from_the_source_given(self, raw_server: socket.socket, free_port: int) -> None:
        options = TcpOptions(source="127.0.0.7", source_port=free_port)
        transport = TcpDialer(*raw_server.getsockname(), options=options).dial(ample())
        peer, address = raw_server.accept()
        assert address == ("127.0.0.7", free_port)
        peer.close()
        transport.close()

    def test_a_source_that_is_not_ours_is_reported(self, raw_server: socket.socket) -> None:
        with pytest.raises(ConnectError, match=r"cannot be reached from 192.0.2.1:0: the address does not exist"):
            TcpDialer(*raw_server.getsockname(), options=TcpOptions(source="192.0.2.1")).dial(ample())

    def test_only_addresses_of_its_family_are_dialed(
        self, raw_server: socket.socket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        port = raw_server.getsockname()[1]
        names(monkeypatch, "::1", "127.0.0.1")
        transport = TcpDialer("b.example", port, options=TcpOptions(source="127.0.0.1")).dial(ample())
        assert transport.peer == f"127.0.0.1:{port}"
        transport.close()
        with pytest.raises(ConnectError, match="is not of the same family as the source address ::1"):
            TcpDialer("127.0.0.1", port, options=TcpOptions(source="::1")).dial(ample())

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"source": "eth0"}, "source must be an IP address"),
            ({"source_port": 5}, "needs a source"),
            ({"source": "127.0.0.1", "source_port": 65536}, "from 0 to 65535"),
            ({"keepalive_idle": 0}, "keepalive_idle must be"),
            ({"keepalive_interval": 1.5}, "keepalive_interval must be"),
            ({"keepalive_probes": True}, "keepalive_probes must be"),
            ({"user_timeout": 0}, "user_timeout must be"),
            ({"user_timeout": float("nan")}, "user_timeout must be"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            TcpOptions(**options)
