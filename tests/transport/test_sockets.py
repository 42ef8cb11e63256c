from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from stompy.deadline import Deadline
from stompy.errors import ConnectionLostError, SendTimeoutError
from stompy.transport import sockets
from stompy.transport.sockets import DescriptorUse, SocketTransport
from stompy.transport.tcp import TcpDialer, TcpListener, TcpTransport
from tests.transport.conftest import ample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.transport.conftest import Calling


@pytest.fixture(params=["_by_poll", "_by_selector"])
def each_wait(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait by each system call that the platform may have."""
    if not hasattr(sockets, request.param):
        pytest.skip("not on this platform")
    monkeypatch.setattr(sockets, "_wait_once", getattr(sockets, request.param))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        yield one, other


@pytest.mark.usefixtures("each_wait")
class TestWaiting:
    def test_bytes_make_readable(self, ends: tuple[socket.socket, socket.socket]) -> None:
        one, other = ends
        assert not sockets.wait_readable(one.fileno(), deadline=Deadline(0))
        other.send(b"x")
        assert sockets.wait_readable(one.fileno(), deadline=None)

    def test_the_end_makes_readable(self, ends: tuple[socket.socket, socket.socket]) -> None:
        one, other = ends
        other.close()
        assert sockets.wait_readable(one.fileno(), deadline=None)

    def test_any_of_several_makes_readable(self, ends: tuple[socket.socket, socket.socket]) -> None:
        one, other = ends
        one.send(b"x")
        assert sockets.wait_readable(one.fileno(), other.fileno(), deadline=Deadline(None))

    def test_room_makes_writable(self, ends: tuple[socket.socket, socket.socket]) -> None:
        one, _ = ends
        assert sockets.wait_writable(one.fileno(), deadline=None)
        with contextlib.suppress(BlockingIOError):
            while True:
                one.send(b"x" * 65_536)
        assert not sockets.wait_writable(one.fileno(), deadline=Deadline(0.001))

    def test_a_deadline_longer_than_one_system_call_may_take_is_waited_for_in_parts(
        self, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = ends
        parts: list[float] = []

        def wait_once(fds: Sequence[int], *, writing: bool, seconds: float) -> bool:
            parts.append(seconds)
            if len(parts) == 3:
                other.send(b"x")
            return really_wait(fds, writing=writing, seconds=seconds)

        really_wait = sockets._wait_once
        monkeypatch.setattr(sockets, "_LONGEST_WAIT", 0.001)
        monkeypatch.setattr(sockets, "_wait_once", wait_once)
        assert sockets.wait_readable(one.fileno(), deadline=Deadline(3600))
        assert parts == [0.001] * 3

    def test_a_deadline_of_many_years_does_not_overflow(self, ends: tuple[socket.socket, socket.socket]) -> None:
        one, other = ends
        other.send(b"x")
        assert sockets.wait_readable(one.fileno(), deadline=Deadline(1e12))


@pytest.fixture
def released() -> list[str]:
    return []


@pytest.fixture
def use(released: list[str]) -> DescriptorUse:
    return DescriptorUse(lambda: released.append("released"))


def leave(use: DescriptorUse, user: str) -> None:
    use.users.discard(user)
    use.left()


def test_an_idle_descriptor_is_released_at_once(use: DescriptorUse, released: list[str]) -> None:
    use.close()
    assert released == ["released"]


def test_the_last_user_to_leave_releases_it(use: DescriptorUse, released: list[str]) -> None:
    assert use.enter("a")
    assert use.enter("b")
    use.close()
    leave(use, "a")
    assert released == []
    leave(use, "b")
    assert released == ["released"]


def test_an_open_descriptor_is_not_released_by_its_users(use: DescriptorUse, released: list[str]) -> None:
    assert use.enter("a")
    leave(use, "a")
    assert released == []
    assert not use.closed


def test_a_closed_descriptor_cannot_be_entered(use: DescriptorUse) -> None:
    assert use.enter("a")
    use.close()
    assert use.closed
    assert not use.enter("b")
    leave(use, "a")
    assert not use.enter("b")


def test_it_is_released_once_only(use: DescriptorUse, released: list[str]) -> None:
    use.close()
    use.close()
    assert released == ["released"]


@pytest.fixture
def paired() -> Iterator[tuple[SocketTransport, socket.socket]]:
    """A transport over one end of a pair of sockets, and the other end."""
    ours, theirs = socket.socketpair()
    transport = SocketTransport(ours, peer="peer")
    with theirs:
        yield transport, theirs
    transport.close()


class TestTransport:
    def test_send_tells_how_much_the_kernel_took(self, paired: tuple[SocketTransport, socket.socket]) -> None:
        transport, peer = paired
        assert transport.send(b"hello", ample()) == 5
        assert peer.recv(10) == b"hello"
        sent = transport.send(bytes(1 << 24), ample())
        assert 0 < sent < 1 << 24
        received = 0
        while received < sent:
            received += len(peer.recv(1 << 20))
        assert received == sent

    def test_send_waits_for_room_until_its_deadline(self, paired: tuple[SocketTransport, socket.socket]) -> None:
        transport, _ = paired
        fill(transport)
        with pytest.raises(SendTimeoutError) as caught:
            transport.send(b"x", Deadline(0.01))
        assert caught.value.outcome == "not-sent"

    def test_send_goes_on_when_there_is_room(
        self, paired: tuple[SocketTransport, socket.socket], calling: Calling
    ) -> None:
        transport, peer = paired
        fill(transport)
        writer = calling(lambda: transport.send(b"x", ample()))
        writer.until_blocked()
        while peer.recv(1 << 20)[-1:] != b"x":
            pass
        assert writer.result() == 1

    def test_shutdown_and_close_end_send(self, paired: tuple[SocketTransport, socket.socket], calling: Calling) -> None:
        transport, _ = paired
        fill(transport)
        writer = calling(lambda: transport.send(b"x", ample()))
        writer.until_blocked()
        transport.shutdown()
        with pytest.raises(ConnectionLostError, match="was shut down") as caught:
            writer.result()
        assert caught.value.outcome == "not-sent"
        transport.close()
        with pytest.raises(ConnectionLostError, match="is closed"):
            transport.send(b"x", ample())

    def test_a_reset_that_meets_our_own_shutdown_is_the_end(self) -> None:
        class Racing(socket.socket):
            def recv(self, size: int, flags: int = 0) -> bytes:
                transport.shutdown()
                raise ConnectionResetError(errno.ECONNRESET, "x")

        transport = SocketTransport(Racing(), peer="peer")
        assert transport.recv() == b""
        transport.close()

    def test_a_broken_pipe_that_meets_our_own_shutdown_is_reported_as_that(self) -> None:
        class Racing(socket.socket):
            def send(self, data: Any, flags: int = 0) -> int:
                transport.shutdown()
                raise BrokenPipeError(errno.EPIPE, "x")

        transport = SocketTransport(Racing(), peer="peer")
        with pytest.raises(ConnectionLostError, match="connection to peer was shut down"):
            transport.sendall(b"x", ample())
        transport.close()

    def test_the_descriptor_is_kept_while_a_thread_is_inside(
        self, dialed: tuple[TcpTransport, socket.socket], calling: Calling, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        transport, _ = dialed
        inside, go_on = threading.Event(), threading.Event()

        def wait_readable(fd: int, *, deadline: Deadline | None) -> bool:
            inside.set()
            return go_on.wait(20)

        monkeypatch.setattr(sockets, "wait_readable", wait_readable)
        reader = calling(transport.recv)
        assert inside.wait(20)
        transport.close()
        kept = transport._sock.fileno()
        go_on.set()
        assert reader.result() == b""
        assert kept != -1
        assert transport._sock.fileno() == -1

    def test_closing_threads_never_touch_a_strangers_descriptor(
        self, raw_server: socket.socket, calling: Calling
    ) -> None:
        # Released numbers are given again at once to the next pair: a thread that polls, reads, writes or shuts down a
        # released number would meet the bytes of that stranger.
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for _ in range(60):
                transport = TcpDialer(*raw_server.getsockname()).dial(ample())
                peer, _ = raw_server.accept()
                reader = calling(transport.recv)
                writer = calling(partial(transport.sendall, bytes(1 << 23), ample()))
                closers = [calling(transport.close), calling(transport.shutdown)]
                stranger, friend = socket.socketpair()
                with peer, stranger, friend:
                    friend.sendall(b"not yours")
                    assert reader.result() == b""
                    for closer in closers:
                        closer.result()
                    with pytest.raises(ConnectionLostError):
                        writer.result()
                    assert stranger.recv(100) == b"not yours"
                    stranger.sendall(b"fine")
                    assert friend.recv(100) == b"fine"
        finally:
            sys.setswitchinterval(before)

    def test_a_program_with_the_default_sigpipe_survives_a_broken_connection(self) -> None:
        program = """
import signal, socket
from stompy.deadline import Deadline
from stompy.errors import ConnectionLostError
from stompy.transport.sockets import SocketTransport
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
ours, theirs = socket.socketpair()
theirs.close()
transport = SocketTransport(ours, peer="peer")
try:
    transport.sendall(b"x", Deadline(5))
except ConnectionLostError as error:
    print(error.outcome)
transport.close()
"""
        if not hasattr(socket, "MSG_NOSIGNAL"):
            pytest.skip("this platform has no way to send without the signal")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False, env=environment
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "not-sent\n", "")


def fill(transport: SocketTransport) -> None:
    """Send until the kernel has no more room."""
    try:
        while True:
            transport.send(bytes(1 << 20), Deadline(0))
    except SendTimeoutError:
        return


class TestListener:
    def test_a_machine_out_of_descriptors_does_not_end_it(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        faults = [OSError(errno.EMFILE, "x"), ConnectionAbortedError(errno.ECONNABORTED, "x")]

        class Short(socket.socket):
            def accept(self) -> Any:
                if faults:
                    raise faults.pop(0)
                return super().accept()

        monkeypatch.setattr(sockets, "_ACCEPT_PAUSE", 0.001)
        monkeypatch.setattr(socket, "socket", Short)
        listener = TcpListener()
        dialed = TcpDialer(*listener.address).dial(ample())
        with caplog.at_level(logging.WARNING, logger="stompy.transport"):
            accepted = listener.accept()
        assert accepted is not None
        assert [record.message for record in caplog.records] == [
            f"cannot accept on 127.0.0.1:{listener.address[1]}: too many open files in this process"
        ]
        for each in (dialed, accepted, listener):
            each.close()

    def test_close_ends_the_pause_of_a_refused_accept(self, calling: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
        class Broken(socket.socket):
            def accept(self) -> Any:
                raise OSError(errno.EMFILE, "x")

        monkeypatch.setattr(sockets, "_ACCEPT_PAUSE", 3600)
        monkeypatch.setattr(socket, "socket", Broken)
        listener = TcpListener()
        waiting = calling(listener.accept)
        waiting.until_blocked()
        listener.close()
        assert waiting.result() is None


@pytest.fixture(params=["c", "socket"])
def each_send(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write what is taken at once by the C library, and where that cannot be reached."""
    if request.param == "c" and sockets.held_send() is None:
        pytest.skip("not on this platform")
    if request.param == "socket":
        monkeypatch.setattr(sockets, "held_send", lambda: None)


@pytest.mark.usefixtures("each_send")
class TestWritingAtOnce:
    def test_small_frames_are_written_whole(self, ends: tuple[socket.socket, socket.socket]) -> None:
        writer = SocketTransport(ends[0], peer="other")
        assert writer.send_held(b"one\0two") == 7
        assert ends[1].recv(100) == b"one\0two"

    def test_of_more_than_there_is_room_for_a_part_is_written(self, ends: tuple[socket.socket, socket.socket]) -> None:
        writer = SocketTransport(ends[0], peer="other")
        data = bytes(range(256)) * 20_000
        sent = writer.send_held(data)
        assert 0 < sent < len(data)
        assert writer.send_held(data[sent:]) == 0
        received = b""
        while len(received) < sent:
            received += ends[1].recv(1 << 20)
        assert received == data[:sent]

    def test_nothing_is_written_when_the_stream_has_ended(self, ends: tuple[socket.socket, socket.socket]) -> None:
        writer = SocketTransport(ends[0], peer="other")
        ends[1].close()
        assert writer.send_held(b"x") == 0
        with pytest.raises(ConnectionLostError):
            writer.sendall(b"x", ample())
        writer.close()
        assert writer.send_held(b"x") == 0
