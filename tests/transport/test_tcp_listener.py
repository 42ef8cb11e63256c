"""TCP listeners, and descriptors that are closed."""

from __future__ import annotations

import errno
import gc
import pathlib
import socket
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, ConnectError, ConnectTimeoutError
from stompy.transport import sockets
from stompy.transport.tcp import TcpDialer, TcpListener

if TYPE_CHECKING:
    from tests.transport.conftest import Calling
from tests.transport.conftest import ample
from tests.transport.test_tcp import black_hole

DESCRIPTORS = pathlib.Path("/proc/self/fd")


def open_descriptors() -> int:
    gc.collect()
    return len(list(DESCRIPTORS.iterdir()))


class TestListener:
    def test_port_0_is_a_free_port(self) -> None:
        one, other = TcpListener(), TcpListener("127.0.0.1", 0)
        assert one.address[0] == "127.0.0.1"
        assert one.address[1] not in (0, other.address[1])
        one.close()
        other.close()

    def test_ipv6(self) -> None:
        try:
            listener = TcpListener("::1")
        except ConfigurationError:
            pytest.skip("no IPv6 loopback here")
        dialed = TcpDialer(*listener.address).dial(ample())
        accepted = listener.accept()
        assert accepted is not None
        assert accepted.peer.startswith("[::1]:")
        assert dialed.peer == f"[::1]:{listener.address[1]}"
        for each in (dialed, accepted, listener):
            each.close()

    def test_a_name_may_be_listened_on(self) -> None:
        listener = TcpListener("localhost")
        TcpDialer("localhost", listener.address[1]).dial(ample()).close()
        listener.close()

    def test_a_port_in_use_is_said_plainly(self, raw_server: socket.socket) -> None:
        port = raw_server.getsockname()[1]
        with pytest.raises(
            ConfigurationError, match=f"^cannot listen on 127.0.0.1:{port}: the address is already in use$"
        ):
            TcpListener("127.0.0.1", port)

    def test_a_port_is_free_again_while_old_connections_linger(self) -> None:
        listener = TcpListener()
        dialed, accepted = TcpDialer(*listener.address).dial(ample()), listener.accept()
        assert accepted is not None
        accepted.close()  # the side that closes first keeps the port in TIME_WAIT
        assert dialed.recv(ample()) == b""
        dialed.close()
        listener.close()
        TcpListener(*listener.address).close()

    @pytest.mark.parametrize(
        ("host", "port", "message"),
        [
            ("127.0.0.1", 65536, "from 0 to 65535"),
            ("127.0.0.1", -1, "from 0 to 65535"),
            ("192.0.2.1", 0, "does not exist on this machine"),
            ("no-such-host.invalid", 0, "no-such-host.invalid"),
            ("a..b", 0, "not a usable host name"),
        ],
    )
    def test_what_cannot_be_listened_on_is_refused(self, host: str, port: int, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            TcpListener(host, port)

    def test_dialers_are_refused_once_it_is_closed(self) -> None:
        listener = TcpListener()
        listener.close()
        with pytest.raises(ConnectError, match="connection refused"):
            TcpDialer(*listener.address).dial(ample())

    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only once the last accept has left")
    def test_dialers_are_refused_before_the_last_accept_has_left(
        self, calling: Calling, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inside, go_on = threading.Event(), threading.Event()

        def wait_readable(*fds: int, deadline: Deadline | None) -> bool:
            inside.set()
            return go_on.wait(20)

        monkeypatch.setattr(sockets, "wait_readable", wait_readable)
        listener = TcpListener()
        waiting = calling(listener.accept)
        try:
            assert inside.wait(20)
            listener.close()
            with pytest.raises(ConnectError, match="connection refused"):
                TcpDialer(*listener.address).dial(ample())
        finally:
            go_on.set()
        assert waiting.result() is None


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="descriptors cannot be counted here")
class TestDescriptors:
    def test_a_closed_meeting_leaves_none(self, calling: Calling) -> None:
        before = open_descriptors()
        listener = TcpListener()
        waiting = calling(listener.accept)
        dialed = TcpDialer(*listener.address).dial(ample())
        accepted = waiting.result()
        last_accept = calling(listener.accept)
        last_accept.until_blocked()
        reader = calling(dialed.recv)
        reader.until_blocked()
        listener.close()
        for end in (dialed, accepted):
            end.shutdown()
            end.close()
        reader.result()
        last_accept.result()
        assert open_descriptors() == before

    def test_failed_dials_leave_none(self, free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        before = open_descriptors()
        with pytest.raises(ConnectError):
            TcpDialer("127.0.0.1", free_port).dial(ample())
        black_hole(monkeypatch, "127.0.0.1")
        with pytest.raises(ConnectTimeoutError):
            TcpDialer("127.0.0.1", free_port).dial(ample())
        assert open_descriptors() == before

    def test_failed_listeners_leave_none(self, raw_server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
        def none_left(*args: object) -> tuple[socket.socket, socket.socket]:
            raise OSError(errno.EMFILE, "x")

        before = open_descriptors()
        with pytest.raises(ConfigurationError):
            TcpListener("127.0.0.1", raw_server.getsockname()[1])
        monkeypatch.setattr(socket, "socketpair", none_left)
        with pytest.raises(ConfigurationError, match="too many open files"):
            TcpListener()
        assert open_descriptors() == before

    def test_a_forgotten_transport_is_warned_about(self, raw_server: socket.socket) -> None:
        before = open_descriptors()
        transports = [TcpDialer(*raw_server.getsockname()).dial(ample())]
        peer, _ = raw_server.accept()
        peer.close()
        with pytest.warns(ResourceWarning, match="unclosed"):
            transports.clear()
        assert open_descriptors() == before
