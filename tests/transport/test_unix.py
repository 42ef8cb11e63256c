from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, ConnectError, ConnectTimeoutError
from stompy.transport.unix import UnixDialer, UnixListener
from tests.transport.conftest import Calling, ample


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "broker.sock"


@pytest.fixture
def stale(path: Path) -> Path:
    """A socket that nobody listens on any more."""
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
        gone.listen()
    return path


@pytest.fixture
def busy(path: Path) -> Iterator[Path]:
    """A socket whose queue is full."""
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind(str(path))
        server.listen(0)
        first.connect(str(path))
        yield path


class TestDialer:
    def test_it_names_its_address(self, path: Path) -> None:
        dialer = UnixDialer(path)
        assert (dialer.address, dialer.host) == (f"stomp+unix://{path}", "localhost")

    def test_a_socket_that_is_not_there_is_reported(self, path: Path) -> None:
        with pytest.raises(ConnectError, match="there is no such socket") as caught:
            UnixDialer(path).dial(ample())
        assert caught.value.address == f"stomp+unix://{path}"

    def test_a_socket_without_a_listener_is_reported(self, stale: Path) -> None:
        with pytest.raises(ConnectError, match="no process listens on this socket"):
            UnixDialer(stale).dial(ample())

    def test_what_is_no_socket_is_reported(self, path: Path) -> None:
        path.write_text("notes", encoding="utf-8")
        for place in (path, path.parent):
            with pytest.raises(ConnectError, match="this is not a socket"):
                UnixDialer(place).dial(ample())

    def test_a_full_queue_ends_by_the_deadline(self, busy: Path) -> None:
        with pytest.raises(ConnectTimeoutError, match="queue of the listener is full"):
            UnixDialer(busy).dial(Deadline(0.05))

    def test_a_place_in_the_queue_is_waited_for(self, path: Path, calling: Calling) -> None:
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
            server.bind(str(path))
            server.listen(0)
            first.connect(str(path))
            dialing = calling(lambda: UnixDialer(path).dial(ample()))
            accepted = [server.accept()[0], server.accept()[0]]
            dialing.result().close()
            for peer in accepted:
                peer.close()

    @pytest.mark.parametrize("place", ["", "a\0b", "x" * 200])
    def test_what_cannot_be_a_path_is_refused(self, place: str) -> None:
        with pytest.raises(ConfigurationError, match="Unix socket"):
            UnixDialer(place)

    def test_a_platform_without_them_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(socket, "AF_UNIX")
        with pytest.raises(ConfigurationError, match="this platform has no Unix sockets"):
            UnixDialer("a")


class TestListener:
    def test_the_file_is_for_its_owner_alone(self, path: Path) -> None:
        listener = UnixListener(path)
        found = path.stat().st_mode
        assert stat.S_ISSOCK(found)
        assert stat.S_IMODE(found) == 0o600
        assert listener.address == f"stomp+unix://{path}"
        listener.close()

    def test_others_may_be_let_in(self, path: Path) -> None:
        listener = UnixListener(path, mode=0o660)
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        listener.close()

    @pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users here")
    def test_it_never_stands_open_before_it_has_its_permissions(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        really_chmod, seen = os.chmod, []

        def chmod(place: str, mode: int) -> None:
            seen.append((path.exists(), stat.S_ISSOCK(os.stat(place).st_mode)))
            really_chmod(place, mode)

        monkeypatch.setattr(os, "chmod", chmod)
        UnixListener(path).close()
        assert seen == [(False, True)]

    def test_close_removes_the_file_and_nothing_else_is_left(self, path: Path) -> None:
        listener = UnixListener(path)
        listener.close()
        listener.close()
        assert list(path.parent.iterdir()) == []

    def test_a_file_that_another_listener_has_put_there_stays(self, path: Path) -> None:
        first = UnixListener(path)
        path.unlink()
        second = UnixListener(path)
        first.close()
        assert path.exists()
        UnixDialer(path).dial(ample()).close()
        second.close()

    def test_a_socket_left_by_a_killed_process_is_replaced(self, stale: Path) -> None:
        listener = UnixListener(stale)
        UnixDialer(stale).dial(ample()).close()
        listener.close()

    def test_one_with_a_listener_is_not(self, path: Path, busy: Path) -> None:
        with pytest.raises(ConfigurationError, match="the address is already in use"):
            UnixListener(busy)
        path.unlink()
        first = UnixListener(path)
        with pytest.raises(ConfigurationError, match="the address is already in use"):
            UnixListener(path)
        UnixDialer(path).dial(ample()).close()
        first.close()

    def test_a_file_of_another_kind_is_not(self, path: Path) -> None:
        path.write_text("notes", encoding="utf-8")
        with pytest.raises(ConfigurationError, match="the file exists and is not a socket"):
            UnixListener(path)
        assert path.read_text(encoding="utf-8") == "notes"

    def test_a_folder_that_is_not_there_is_reported(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"cannot listen on .*nowhere"):
            UnixListener(tmp_path / "nowhere" / "s")

    def test_a_failure_leaves_no_file(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(place: str, mode: int) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "chmod", refuse)
        with pytest.raises(ConfigurationError, match="Operation not permitted"):
            UnixListener(path)
        assert list(path.parent.iterdir()) == []

    def test_the_place_is_free_again_for_the_next_one(self, path: Path, calling: Calling) -> None:
        for _ in range(3):
            listener = UnixListener(path)
            accepting = calling(listener.accept)
            UnixDialer(path).dial(ample()).close()
            accepting.result().close()
            listener.close()
