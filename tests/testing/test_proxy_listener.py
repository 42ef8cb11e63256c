from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from stompy.deadline import Deadline
from stompy.errors import ConfigurationError
from stompy.testing.proxy_loop import READ, ProxyEventLoop, ProxyListener
from tests.testing.conftest import WITHIN, until

Dial = Callable[[int], socket.socket]


class Guarded:
    def __init__(self) -> None:
        self.entered: list[socket.socket] = []
        self.listener = ProxyListener("127.0.0.1", 0, window=4_096, enter=self.entered.append)
        self.loop = ProxyEventLoop("stompy-proxy-test", after_turn=lambda: None)
        self.listener.join(self.loop)
        self.loop.start()

    def close(self) -> None:
        self.loop.stop()
        assert self.loop.join_until(Deadline(WITHIN))
        for sock in self.entered:
            sock.close()


@pytest.fixture
def guarded(no_descriptor_left: None) -> Iterator[Guarded]:
    made = Guarded()
    yield made
    made.close()


def test_clients_come_in(guarded: Guarded, dial: Dial) -> None:
    socks = [dial(guarded.listener.port) for _ in range(3)]
    until(lambda: len(guarded.entered) == 3)
    assert {sock.getpeername() for sock in guarded.entered} == {sock.getsockname() for sock in socks}


def test_the_window_is_that_of_each_connection(guarded: Guarded, dial: Dial) -> None:
    dial(guarded.listener.port)
    until(lambda: guarded.entered)
    assert guarded.entered[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 2 * 4_096


def test_who_dials_is_refused_until_it_listens_again_on_the_same_port(guarded: Guarded, dial: Dial) -> None:
    port = guarded.listener.port
    first = dial(port)
    until(lambda: guarded.entered)
    for _ in range(3):
        for _ in range(2):
            guarded.loop.call(guarded.listener.refuse)
            with pytest.raises(ConnectionRefusedError):
                dial(port)
        for _ in range(2):
            guarded.loop.call(guarded.listener.listen)
            before = len(guarded.entered)
            dial(port)
            until(lambda before=before: len(guarded.entered) > before)  # type: ignore[misc]
    assert len(guarded.entered) == 7
    guarded.entered[0].sendall(b"x")
    assert first.recv(1) == b"x"
    assert guarded.listener.port == port


def test_a_port_in_use_cannot_be_listened_on(guarded: Guarded) -> None:
    with pytest.raises(ConfigurationError, match="in use"):
        ProxyListener("127.0.0.1", guarded.listener.port, window=None, enter=guarded.entered.append)


@pytest.mark.parametrize("host", ["192.0.2.1", "no address"])
def test_an_address_of_somebody_else_cannot_be_listened_on(host: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot listen"):
        ProxyListener(host, 0, window=None, enter=lambda sock: None)


def test_a_port_that_somebody_has_for_a_moment_is_waited_for(
    guarded: Guarded, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind, failures = guarded.listener._bind, [OSError(), OSError()]

    def taken(port: int) -> socket.socket:
        if failures:
            raise failures.pop()
        return bind(port)

    monkeypatch.setattr(guarded.listener, "_bind", taken)
    guarded.loop.call(guarded.listener.refuse)
    guarded.loop.call(guarded.listener.listen)
    dial(guarded.listener.port)
    until(lambda: guarded.entered)


@pytest.mark.parametrize("error", [BlockingIOError(), ConnectionAbortedError(), OSError(24, "too many open files")])
def test_a_client_that_cannot_be_accepted_ends_nothing(error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            raise error

    entered: list[socket.socket] = []
    listener = ProxyListener("127.0.0.1", 0, window=None, enter=entered.append)
    with Broken() as broken:
        monkeypatch.setattr(listener, "_sock", broken)
        listener.ready(broken, READ, 0.0)
        monkeypatch.undo()
    listener.close()
    assert entered == []


@pytest.mark.usefixtures("no_descriptor_left")
def test_a_listener_without_a_loop_can_be_closed() -> None:
    listener = ProxyListener("127.0.0.1", 0, window=None, enter=lambda sock: None)
    listener.close()
    assert listener.closed
