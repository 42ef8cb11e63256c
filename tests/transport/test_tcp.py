from __future__ import annotations

import errno
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

import pytest

from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, ConnectError, ConnectionLostError, ConnectTimeoutError
from stompy.transport import sockets, tcp
from stompy.transport.tcp import TcpDialer, TcpTransport, resolve
from tests.transport.conftest import ample

if TYPE_CHECKING:
    from tests.transport.conftest import Calling

Answer = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]


def ipv4(host: str, port: int = 61613) -> Answer:
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))


def name_service(monkeypatch: pytest.MonkeyPatch, *answers: Answer, fault: Exception | None = None) -> list[str]:
    """Let every name have `answers`; return the list of threads that will have asked."""
    threads: list[str] = []

    def getaddrinfo(host: str, port: int, **options: int) -> list[Answer]:
        if options.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "not a number")
        threads.append(threading.current_thread().name)
        if fault is not None:
            raise fault
        return list(answers)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return threads


@pytest.mark.parametrize(("host", "text"), [("127.0.0.1", "127.0.0.1:7"), ("::1", "[::1]:7")])
def test_a_number_needs_no_name_service(host: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*args: object, **options: object) -> None:
        pytest.fail("a thread was made")

    monkeypatch.setattr(threading, "Thread", no_thread)
    assert [str(endpoint) for endpoint in resolve(host, 7, deadline=Deadline(0))] == [text]


def test_a_name_is_looked_up_in_a_thread_that_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = name_service(monkeypatch, ipv4("127.0.0.9"))
    assert [str(endpoint) for endpoint in resolve("b.example", 61613, deadline=Deadline(20))] == ["127.0.0.9:61613"]
    assert threads == ["stompy-resolver"]
    assert not [thread for thread in threading.enumerate() if thread.name == "stompy-resolver"]


def test_answers_keep_their_order_and_come_once(monkeypatch: pytest.MonkeyPatch) -> None:
    name_service(monkeypatch, ipv4("127.0.0.2"), ipv4("127.0.0.1"), ipv4("127.0.0.2"))
    found = resolve("b.example", 61613, deadline=Deadline(None))
    assert [endpoint.sockaddr[0] for endpoint in found] == ["127.0.0.2", "127.0.0.1"]


def test_a_name_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    name_service(monkeypatch, fault=socket.gaierror(socket.EAI_NONAME, "x"))
    with pytest.raises(ConnectError, match=r"^b\.example:61613: host name not found: b\.example$") as caught:
        resolve("b.example", 61613, deadline=Deadline(20))
    assert caught.value.address == "b.example:61613"
    assert isinstance(caught.value.__cause__, socket.gaierror)


def test_a_name_without_an_address_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    name_service(monkeypatch)
    with pytest.raises(ConnectError, match=r"the host name has no address: b\.example"):
        resolve("b.example", 61613, deadline=Deadline(20))


def test_a_lookup_that_hangs_ends_by_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def getaddrinfo(host: str, port: int, **options: int) -> list[Answer]:
        if options.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "not a number")
        gate.wait(20)
        return [ipv4("127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    try:
        with pytest.raises(ConnectTimeoutError, match=r"the lookup of the host name b\.example took longer"):
            resolve("b.example", 61613, deadline=Deadline(0.02))
    finally:
        gate.set()


@pytest.mark.parametrize("host", ["", "a b", "a..b", "127.0.0.1\0b", "x" * 64 + ".example"])
def test_what_cannot_be_a_host_name_is_refused(host: str) -> None:
    with pytest.raises(ConfigurationError, match="not a usable host name"):
        resolve(host, 61613, deadline=Deadline(20))


def test_the_real_name_service_is_asked() -> None:
    assert {endpoint.sockaddr[0] for endpoint in resolve("localhost", 1, deadline=Deadline(20))} <= {"127.0.0.1", "::1"}
    with pytest.raises(ConnectError, match=r"no-such-host\.invalid"):
        resolve("no-such-host.invalid", 1, deadline=Deadline(20))


RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    peer.close()


def names(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Let every name have `hosts` as its addresses."""

    def getaddrinfo(host: str, port: int, **options: int) -> list[Any]:
        return [
            (socket.AF_INET6, 1, 6, "", (host, port, 0, 0)) if ":" in host else (socket.AF_INET, 1, 6, "", (host, port))
            for host in hosts
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


class TestTransport:
    def test_small_writes_leave_at_once_and_silence_is_probed(self, dialed: tuple[TcpTransport, socket.socket]) -> None:
        sock = dialed[0]._sock
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.gettimeout() == 0

    def test_a_reset_ends_recv(self, dialed: tuple[TcpTransport, socket.socket]) -> None:
        transport, peer = dialed
        reset(peer)
        with pytest.raises(ConnectionLostError, match="connection reset by the peer") as caught:
            transport.recv(ample())
        assert transport.peer in str(caught.value)
        assert isinstance(caught.value.__cause__, ConnectionResetError)

    def test_a_reset_wakes_a_blocked_recv(self, dialed: tuple[TcpTransport, socket.socket], calling: Calling) -> None:
        transport, peer = dialed
        reader = calling(transport.recv)
        reader.until_blocked()
        reset(peer)
        with pytest.raises(ConnectionLostError):
            reader.result()

    def test_a_reset_wakes_a_blocked_sendall(
        self, dialed: tuple[TcpTransport, socket.socket], calling: Calling
    ) -> None:
        transport, peer = dialed
        writer = calling(lambda: transport.sendall(bytes(1 << 24), ample()))
        writer.until_blocked()
        reset(peer)
        with pytest.raises(ConnectionLostError) as caught:
            writer.result()
        assert caught.value.outcome == "unknown"

    def test_sendall_after_a_reset_sent_nothing(self, dialed: tuple[TcpTransport, socket.socket]) -> None:
        transport, peer = dialed
        reset(peer)
        with pytest.raises(ConnectionLostError):
            transport.recv(ample())
        with pytest.raises(ConnectionLostError) as caught:
            transport.sendall(b"x", ample())
        assert caught.value.outcome == "not-sent"

    def test_shutdown_after_a_reset_is_quiet(self, dialed: tuple[TcpTransport, socket.socket]) -> None:
        transport, peer = dialed
        reset(peer)
        transport.shutdown_write()
        transport.shutdown()
        assert transport.recv() == b""

    def test_its_state_shows(self, dialed: tuple[TcpTransport, socket.socket]) -> None:
        transport, _ = dialed
        assert repr(transport) == f"<TcpTransport {transport.peer} open>"
        transport.shutdown()
        assert repr(transport) == f"<TcpTransport {transport.peer} shut down>"
        transport.close()
        assert repr(transport) == f"<TcpTransport {transport.peer} closed>"


class TestDialer:
    def test_a_refused_port_is_said_plainly(self, free_port: int) -> None:
        with pytest.raises(ConnectError, match=f"^127.0.0.1:{free_port}: connection refused$") as caught:
            TcpDialer("127.0.0.1", free_port).dial(ample())
        assert caught.value.address == f"127.0.0.1:{free_port}"
        assert isinstance(caught.value.__cause__, ConnectionRefusedError)
        assert not isinstance(caught.value, ConnectTimeoutError)

    def test_a_name_that_cannot_be_found_is_a_connect_error(self) -> None:
        with pytest.raises(ConnectError, match=r"no-such-host\.invalid"):
            TcpDialer("no-such-host.invalid", 61613).dial(ample())

    def test_the_next_address_is_tried_when_one_refuses(
        self, raw_server: socket.socket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        port = raw_server.getsockname()[1]
        names(monkeypatch, "127.0.0.2", "127.0.0.1")
        transport = TcpDialer("b.example", port).dial(ample())
        assert transport.peer == f"127.0.0.1:{port}"
        transport.close()

    def test_every_address_that_refused_is_named(self, free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        names(monkeypatch, "127.0.0.2", "127.0.0.1")
        with pytest.raises(ConnectError) as caught:
            TcpDialer("b.example", free_port).dial(ample())
        assert str(caught.value) == (
            f"b.example:{free_port}: 127.0.0.2:{free_port} connection refused; 127.0.0.1:{free_port} connection refused"
        )

    def test_a_silent_address_leaves_time_for_the_others(
        self, raw_server: socket.socket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        port = raw_server.getsockname()[1]
        names(monkeypatch, "127.0.0.3", "127.0.0.2", "127.0.0.1")
        budgets = black_hole(monkeypatch, "127.0.0.3", "127.0.0.2")
        transport = TcpDialer("b.example", port).dial(Deadline(90))
        assert transport.peer == f"127.0.0.1:{port}"
        transport.close()
        # A third of the 90 seconds, then half of what was left (none was used up here).
        assert [round(seconds, -1) for seconds in budgets] == [30, 40]

    def test_without_a_limit_every_address_has_all_the_time_it_wants(
        self, raw_server: socket.socket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names(monkeypatch, "127.0.0.2", "127.0.0.1")
        budgets = black_hole(monkeypatch, "127.0.0.2")
        TcpDialer("b.example", raw_server.getsockname()[1]).dial(Deadline(None)).close()
        assert budgets == [float("inf")]

    def test_silence_to_the_end_is_a_timeout(self, free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        names(monkeypatch, "127.0.0.2", "127.0.0.1")
        black_hole(monkeypatch, "127.0.0.1")
        with pytest.raises(ConnectTimeoutError) as caught:
            TcpDialer("b.example", free_port).dial(ample())
        assert str(caught.value) == (
            f"b.example:{free_port}: 127.0.0.2:{free_port} connection refused; 127.0.0.1:{free_port} no answer in time"
        )

    def test_a_full_backlog_ends_by_the_deadline(self) -> None:
        # The kernel drops the SYNs for a listener whose queue is full: the nearest thing to a black hole on a loopback.
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen(0)
            waiting = []
            dialer = TcpDialer(*server.getsockname())

            def fill_the_queue() -> None:
                for _ in range(20):
                    waiting.append(dialer.dial(Deadline(0.2)))

            try:
                with pytest.raises(ConnectTimeoutError, match="no answer in time"):
                    fill_the_queue()
            finally:
                for transport in waiting:
                    transport.close()

    def test_a_connection_to_itself_counts_as_refused(self, free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        class OwnPort(socket.socket):
            def connect_ex(self, address: Any) -> int:
                self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self.bind(address)  # what the kernel does by chance
                return super().connect_ex(address)

        monkeypatch.setattr(socket, "socket", OwnPort)
        with pytest.raises(ConnectError, match="connection refused"):
            TcpDialer("127.0.0.1", free_port).dial(ample())

    def test_an_address_family_that_is_missing_is_one_failure_among_others(
        self, raw_server: socket.socket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_ipv6(family: int, kind: int) -> socket.socket:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "x")
            return real(family, kind)

        real = socket.socket
        names(monkeypatch, "::1", "127.0.0.1")
        monkeypatch.setattr(socket, "socket", no_ipv6)
        TcpDialer("b.example", raw_server.getsockname()[1]).dial(ample()).close()

    @pytest.mark.parametrize("port", [0, -1, 65536])
    def test_a_port_that_cannot_be_is_refused(self, port: int) -> None:
        with pytest.raises(ConfigurationError, match="from 1 to 65535"):
            TcpDialer("h", port)

    def test_it_names_its_address(self) -> None:
        dialer = TcpDialer("::1", 61613)
        assert dialer.address == "[::1]:61613"
        assert dialer.host == "::1"
        assert repr(dialer) == "<TcpDialer [::1]:61613>"


def black_hole(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> list[float]:
    """Let connections to `hosts` get no answer until their time is over, without taking it; return the times."""
    budgets: list[float] = []
    swallowed: set[int] = set()

    class Silent(socket.socket):
        def connect_ex(self, address: Any) -> int:
            if address[0] in hosts:
                swallowed.add(self.fileno())
                return errno.EINPROGRESS
            swallowed.discard(self.fileno())
            return super().connect_ex(address)

    def wait_writable(fd: int, *, deadline: Deadline) -> bool:
        if fd not in swallowed:
            return really_wait(fd, deadline=deadline)
        remaining = deadline.remaining()
        budgets.append(float("inf") if remaining is None else remaining)
        return False

    really_wait = sockets.wait_writable
    monkeypatch.setattr(socket, "socket", Silent)
    monkeypatch.setattr(tcp, "wait_writable", wait_writable)
    return budgets
