"""One connection through a proxy, as raw sockets see it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from stompy.errors import ConfigurationError
from stompy.testing import proxied
from stompy.testing.proxied import Direction, Ending, ProxyLink
from stompy.testing.proxy import FaultProxy
from tests.testing.conftest import WITHIN, Upstream, fill, read, reset, rest, until

Dial = Callable[[int], socket.socket]


class Linked:
    """A connection through the proxy, and its three parties."""

    def __init__(self, proxy: FaultProxy, dial: Dial, upstream: Upstream) -> None:
        self.proxy = proxy
        self.client = dial(proxy.port)
        self.broker = upstream.accept()
        self.link: ProxyLink = proxy.links[-1]
        proxy.await_that(lambda proxy: self.link.state == "open", timeout=WITHIN)

    def ends(self, direction: Direction) -> tuple[socket.socket, socket.socket]:
        """Return who sends and who receives."""
        return (self.client, self.broker) if direction == "up" else (self.broker, self.client)

    def await_state(self, state: str) -> None:
        self.proxy.await_that(lambda proxy: self.link.state == state, timeout=WITHIN)


@pytest.fixture
def proxy(no_descriptor_left: None, upstream: Upstream) -> Iterator[FaultProxy]:
    with FaultProxy(upstream.address, window=16_384) as made:
        yield made


@pytest.fixture
def linked(proxy: FaultProxy, dial: Dial, upstream: Upstream) -> Linked:
    return Linked(proxy, dial, upstream)


def send_forever(sock: socket.socket) -> None:
    while True:
        sock.sendall(b"into the void")


both = pytest.mark.parametrize("direction", ["up", "down"])


@both
def test_bytes_are_forwarded_counted_and_recorded(linked: Linked, direction: Direction) -> None:
    sender, receiver = linked.ends(direction)
    sender.sendall(b"hello")
    assert read(receiver, 5) == b"hello"
    linked.proxy.await_that(lambda proxy: linked.link.forwarded(direction) == 5, timeout=WITHIN)
    assert linked.link.recorded(direction) == b"hello"
    assert f"{direction}=5" in repr(linked.link)


@both
def test_a_large_body_arrives_whole(linked: Linked, direction: Direction) -> None:
    sender, receiver = linked.ends(direction)
    data = bytes(range(256)) * 256
    for _ in range(8):
        sender.sendall(data)
        assert read(receiver, len(data)) == data
    assert linked.link.recorded(direction) == data[:16_384]


@both
def test_the_end_of_one_direction_leaves_the_other(linked: Linked, direction: Direction) -> None:
    sender, receiver = linked.ends(direction)
    sender.sendall(b"last")
    sender.shutdown(socket.SHUT_WR)
    assert rest(receiver) == b"last"
    receiver.sendall(b"answer")
    receiver.shutdown(socket.SHUT_WR)
    assert rest(sender) == b"answer"
    linked.await_state("closed")


@both
def test_a_reset_is_passed_on(linked: Linked, direction: Direction) -> None:
    sender, receiver = linked.ends(direction)
    reset(sender)
    with pytest.raises(ConnectionResetError):
        receiver.recv(1)
    linked.await_state("closed")


def test_a_cut_in_order_ends_both_streams(linked: Linked) -> None:
    linked.client.sendall(b"up")
    assert read(linked.broker, 2) == b"up"
    linked.link.cut()
    assert not linked.link.running
    assert (rest(linked.client), rest(linked.broker)) == (b"", b"")
    assert linked.link.state == "ending"
    linked.client.close()
    linked.broker.close()
    linked.await_state("closed")
    linked.link.cut()


def test_a_cut_in_order_tolerates_who_goes_on_sending_for_a_while(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxied, "LINGER", 0.05)
    linked.link.cut()
    assert rest(linked.client) == b""
    linked.await_state("closed")
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        send_forever(linked.client)


def test_a_reset_cut_resets_both_at_once(linked: Linked) -> None:
    linked.link.cut("rst")
    assert linked.link.state == "closed"
    for sock in (linked.client, linked.broker):
        with pytest.raises(ConnectionResetError):
            sock.recv(1)


def test_a_reset_ends_an_ending_in_order(linked: Linked) -> None:
    linked.link.cut()
    linked.link.cut("rst")
    assert linked.link.closed


def test_an_unknown_ending_is_refused(linked: Linked) -> None:
    with pytest.raises(ConfigurationError):
        linked.link.cut("bye")  # type: ignore[arg-type]


@both
@pytest.mark.parametrize("ending", ["fin", "rst"])
@pytest.mark.parametrize("size", [0, 1, 2, 999, 1_000])
def test_exactly_so_many_bytes_go_through(linked: Linked, direction: Direction, ending: Ending, size: int) -> None:
    sender, receiver = linked.ends(direction)
    sender.sendall(b"before")
    read(receiver, 6)
    linked.link.cut_after(size, direction=direction, ending=ending)
    if size:
        sender.sendall(bytes(range(250)) * 4)
    got = b""
    try:
        while data := receiver.recv(100):
            got += data
    except ConnectionResetError:
        assert ending == "rst"
    assert linked.link.forwarded(direction) == 6 + size
    assert got == (bytes(range(250)) * 4)[:size]


@both
def test_a_stalled_direction_fills_the_senders_window_and_goes_on_later(linked: Linked, direction: Direction) -> None:
    sender, receiver = linked.ends(direction)
    linked.link.stall(direction)
    for sock in (sender, receiver):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
    written = fill(sender)
    assert 0 < written < 16 * 1024 * 1024
    assert linked.link.forwarded(direction) == 0
    receiver.sendall(b"the other way")
    assert read(sender, 13) == b"the other way"
    linked.link.resume(direction)
    assert len(read(receiver, written)) == written


@both
def test_a_stall_holds_back_the_end_of_the_stream_too(linked: Linked, direction: Direction) -> None:
    sender, receiver = linked.ends(direction)
    linked.link.stall()
    sender.sendall(b"x")
    sender.shutdown(socket.SHUT_WR)
    receiver.setblocking(False)
    with pytest.raises(BlockingIOError):
        receiver.recv(1)
    receiver.settimeout(WITHIN)
    linked.link.heal()
    assert rest(receiver) == b"x"


def test_a_stalled_connection_can_be_cut(linked: Linked) -> None:
    linked.link.stall()
    linked.client.sendall(b"x" * 1_000)
    linked.link.cut()
    assert (rest(linked.client), rest(linked.broker)) == (b"", b"")


@both
def test_chopped_throttled_and_late_bytes_are_the_same_bytes(linked: Linked, direction: Direction) -> None:
    sender, receiver = linked.ends(direction)
    data = bytes(range(256)) * 4
    switches: list[Callable[[], None]] = [
        linked.link.chop,
        lambda: linked.link.throttle(50_000),
        lambda: linked.link.delay(0.005),
        linked.link.heal,
    ]
    for switch in switches:
        switch()
        sender.sendall(data)
        assert read(receiver, len(data)) == data


def test_chopped_bytes_arrive_one_by_one(linked: Linked) -> None:
    linked.link.chop(direction="up")
    linked.link.throttle(4, direction="up")  # so that a reader who is late finds no two of them
    linked.client.sendall(b"abc")
    assert [linked.broker.recv(10) for _ in range(3)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("ending", ["fin", "rst"])
def test_a_black_hole_says_nothing_and_can_be_cut(proxy: FaultProxy, dial: Dial, ending: Ending) -> None:
    proxy.black_hole()
    client = dial(proxy.port)
    client.sendall(b"hello?")
    proxy.await_that(lambda proxy: proxy.running, timeout=WITHIN)
    (link,) = proxy.running
    assert link.state == "black-hole"
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv(1)
    client.settimeout(WITHIN)
    link.cut(ending)
    try:
        assert client.recv(1) == b""
    except ConnectionResetError:
        assert ending == "rst"


def test_who_leaves_a_black_hole_is_let_go(proxy: FaultProxy, dial: Dial) -> None:
    proxy.black_hole()
    client = dial(proxy.port)
    proxy.await_that(lambda proxy: proxy.running, timeout=WITHIN)
    client.close()
    proxy.await_that(lambda proxy: not proxy.running, timeout=WITHIN)
    assert proxy.links[0].closed


def test_who_comes_while_the_broker_is_away_is_reset(proxy: FaultProxy, dial: Dial, upstream: Upstream) -> None:
    upstream.listener.close()
    with pytest.raises(ConnectionResetError):
        dial(proxy.port).recv(1)
    until(lambda: proxy.links[0].closed)
