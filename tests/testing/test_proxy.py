"""The proxy as a whole, before raw sockets and before a real client."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

import stompy
from stompy.broker import Broker
from stompy.errors import ConfigurationError, ConnectError, NotConnectedError, StompTimeoutError
from stompy.testing.listener import RecordingListener
from stompy.testing.proxied import DIRECTIONS, Direction, Ending, ProxyLink
from stompy.testing.proxy import FaultProxy, ProxyStats
from tests.testing.conftest import WITHIN, Upstream, descriptors, read, rest, until

Dial = Callable[[int], socket.socket]
POLICY = stompy.Reconnect(backoff=stompy.Backoff(first=0.001, longest=0.01))


@pytest.fixture
def proxy(no_descriptor_left: None, upstream: Upstream) -> Iterator[FaultProxy]:
    with FaultProxy(upstream.address) as made:
        yield made


def through(proxy: FaultProxy, dial: Dial, upstream: Upstream) -> tuple[socket.socket, socket.socket, ProxyLink]:
    """Return both ends of a new connection, and the connection."""
    client = dial(proxy.port)
    broker = upstream.accept()
    link = proxy.links[-1]
    proxy.await_that(lambda proxy: link.state == "open", timeout=WITHIN)
    return client, broker, link


# By raw sockets


def test_connections_are_numbered_counted_and_remembered(proxy: FaultProxy, dial: Dial, upstream: Upstream) -> None:
    first, _, first_link = through(proxy, dial, upstream)
    _, broker, second_link = through(proxy, dial, upstream)
    first.sendall(b"abc")
    broker.sendall(b"de")
    proxy.await_that(lambda proxy: proxy.stats() == ProxyStats(accepted=2, running=2, up=3, down=2), timeout=WITHIN)
    assert [*proxy.running] == [first_link, second_link]
    assert [link.number for link in proxy.links] == [1, 2]
    first_link.cut("rst")
    assert [*proxy.running] == [second_link]
    assert [*proxy.links] == [first_link, second_link]
    assert proxy.stats() == ProxyStats(accepted=2, running=1, up=3, down=2)


def test_old_connections_are_forgotten_and_their_bytes_are_not(
    proxy: FaultProxy, dial: Dial, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompy.testing.proxy._REMEMBERED", 3)
    stays, _, _ = through(proxy, dial, upstream)
    for _ in range(10):
        client, broker, link = through(proxy, dial, upstream)
        client.sendall(b"abc")
        assert read(broker, 3) == b"abc"
        link.cut("rst")
    through(proxy, dial, upstream)
    assert [link.number for link in proxy.links] == [1, 9, 10, 11, 12]
    assert proxy.stats() == ProxyStats(accepted=12, running=2, up=30, down=0)
    assert stays.fileno() >= 0


def test_a_switch_of_the_proxy_is_for_running_connections_and_those_to_come(
    proxy: FaultProxy, dial: Dial, upstream: Upstream
) -> None:
    running, _, _ = through(proxy, dial, upstream)
    proxy.cut_after(0, direction="down")
    assert rest(running) == b""
    coming = dial(proxy.port)
    assert rest(coming) == b""
    assert rest(upstream.accept()) == b""
    proxy.heal()
    client, broker, _ = through(proxy, dial, upstream)
    broker.sendall(b"sound")
    assert read(client, 5) == b"sound"


def test_upcoming_is_not_for_running_connections(proxy: FaultProxy, dial: Dial, upstream: Upstream) -> None:
    running, broker, _ = through(proxy, dial, upstream)
    proxy.upcoming.cut_after(2, direction="up")
    coming, other, _ = through(proxy, dial, upstream)
    coming.sendall(b"abc")
    assert rest(other) == b"ab"
    running.sendall(b"abc")
    assert read(broker, 3) == b"abc"


def test_faults_may_be_set_before_the_start(upstream: Upstream, dial: Dial) -> None:
    proxy = FaultProxy(upstream.address)
    proxy.upcoming.cut_after(1, direction="up")
    with proxy:
        client, broker, _ = through(proxy, dial, upstream)
        client.sendall(b"abc")
        assert rest(broker) == b"a"


@pytest.mark.parametrize("ending", ["fin", "rst"])
def test_a_cut_is_for_every_running_connection(
    proxy: FaultProxy, dial: Dial, upstream: Upstream, ending: Ending
) -> None:
    clients = [through(proxy, dial, upstream)[0] for _ in range(3)]
    assert proxy.cut(ending) == 3
    for client in clients:
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            assert ending == "rst"
    assert proxy.cut(ending) == 0


def test_who_is_refused_while_running_connections_go_on(proxy: FaultProxy, dial: Dial, upstream: Upstream) -> None:
    client, broker, _ = through(proxy, dial, upstream)
    port = proxy.port
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        dial(port)
    client.sendall(b"still here")
    assert read(broker, 10) == b"still here"
    proxy.listen()
    assert proxy.port == port
    through(proxy, dial, upstream)


def test_a_black_hole_swallows_new_connections_until_it_listens(
    proxy: FaultProxy, dial: Dial, upstream: Upstream
) -> None:
    client, broker, _ = through(proxy, dial, upstream)
    proxy.black_hole()
    dial(proxy.port).sendall(b"hello?")
    proxy.await_that(lambda proxy: len(proxy.running) == 2, timeout=WITHIN)
    broker.sendall(b"x")
    assert read(client, 1) == b"x"
    proxy.listen()
    through(proxy, dial, upstream)
    assert [link.state for link in proxy.running] == ["open", "black-hole", "open"]


def test_healing_accepts_connections_again(proxy: FaultProxy, dial: Dial, upstream: Upstream) -> None:
    proxy.black_hole()
    proxy.refuse()
    proxy.heal()
    through(proxy, dial, upstream)


def test_a_script_decides_about_each_connection(upstream: Upstream, dial: Dial) -> None:
    def script(link: ProxyLink) -> None:
        if link.number == 1:
            link.cut_after(1, direction="up")
        elif link.number == 2:
            link.cut("rst")

    with FaultProxy(upstream.address, on_connection=script) as proxy:
        client, broker, _ = through(proxy, dial, upstream)
        client.sendall(b"abc")
        assert rest(broker) == b"a"
        with pytest.raises(ConnectionResetError):
            dial(proxy.port).recv(1)
        client, broker, _ = through(proxy, dial, upstream)
        client.sendall(b"abc")
        assert read(broker, 3) == b"abc"


def test_a_script_that_fails_resets_the_connection_and_the_proxy_goes_on(
    upstream: Upstream, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    def script(link: ProxyLink) -> None:
        assert link.number > 1, "first"

    with FaultProxy(upstream.address, on_connection=script) as proxy:
        with pytest.raises(ConnectionResetError):
            dial(proxy.port).recv(1)
        through(proxy, dial, upstream)
    assert "on_connection of the proxy failed" in caplog.text


def test_closing_ends_connections_thread_and_port(upstream: Upstream, dial: Dial) -> None:
    before = descriptors()
    proxy = FaultProxy(upstream.address).start()
    port = proxy.port
    assert f"stompy-proxy-{port}" in {thread.name for thread in threading.enumerate()}
    client, broker, _ = through(proxy, dial, upstream)
    proxy.stall()
    client.sendall(b"x")
    proxy.close()
    proxy.close()
    assert f"stompy-proxy-{port}" not in {thread.name for thread in threading.enumerate()}
    for sock in (client, broker):
        with contextlib.suppress(ConnectionResetError):  # closed with bytes unread
            assert sock.recv(10) == b""
        sock.close()
    with pytest.raises(ConnectionRefusedError):
        dial(port)
    until(lambda: descriptors() <= before)
    with pytest.raises(NotConnectedError):
        proxy.stall()
    assert proxy.running == ()
    assert repr(proxy).endswith(" closed>")


def test_a_proxy_that_was_not_started_has_no_port() -> None:
    proxy = FaultProxy("stomp://user:secret@broker.example:7/vh")
    proxy.close()
    for ask in (lambda: proxy.port, lambda: proxy.url, proxy.refuse):
        with pytest.raises(NotConnectedError):
            ask()
    assert repr(proxy) == "<FaultProxy ? -> stomp://broker.example:7/vh new>"


def test_it_is_started_once(proxy: FaultProxy) -> None:
    with pytest.raises(ConfigurationError):
        proxy.start()


def test_its_url_is_the_targets_with_another_place(upstream: Upstream) -> None:
    host, port = upstream.address
    with FaultProxy(f"stomp://user:secret@{host}:{port}/vh") as proxy:
        assert proxy.url == f"stomp://127.0.0.1:{proxy.port}/vh"


@pytest.mark.usefixtures("no_descriptor_left")
def test_what_cannot_be_is_refused(upstream: Upstream) -> None:
    with pytest.raises(ConfigurationError):
        FaultProxy("stomp://a,stomp://b")
    with pytest.raises(ConfigurationError, match="not before a Unix socket"):
        FaultProxy("stomp+unix:///run/broker.sock")
    with pytest.raises(ConfigurationError, match="in use"):
        FaultProxy(upstream.address, port=upstream.address[1]).start()
    with pytest.raises(ConnectError):
        FaultProxy(("no-such-host.invalid", 1)).start()


def test_a_wait_without_a_connection_ends_in_time(proxy: FaultProxy) -> None:
    with pytest.raises(StompTimeoutError, match="FaultProxy"):
        proxy.await_that(lambda proxy: False, timeout=0.01)


@pytest.mark.usefixtures("quick_switches")
def test_what_changes_is_never_missed_by_who_waits(proxy: FaultProxy, dial: Dial, upstream: Upstream) -> None:
    client, broker, link = through(proxy, dial, upstream)
    for number in range(1, 300):
        client.sendall(b"x")
        proxy.await_that(lambda proxy, number=number: link.forwarded("up") == number, timeout=WITHIN)  # type: ignore[misc]
    assert len(read(broker, 299)) == 299


@pytest.mark.usefixtures("quick_switches", "no_descriptor_left")
def test_cuts_from_many_threads_in_the_midst_of_traffic_leave_nothing(upstream: Upstream) -> None:
    lot = random.Random(5)
    for _ in range(20):
        with FaultProxy(upstream.address, on_connection=lambda link: link.chop(100)) as proxy:
            ends = [(socket.create_connection(("127.0.0.1", proxy.port)), upstream.accept()) for _ in range(5)]

            def talk(client: socket.socket) -> None:
                try:
                    for _ in range(100):
                        client.sendall(b"x" * 1_000)
                except OSError:
                    pass

            def disturb(proxy: FaultProxy, seed: int) -> None:
                own = random.Random(seed)
                for _ in range(5):
                    for link in own.sample(proxy.running, k=min(2, len(proxy.running))):
                        link.cut(own.choice(["fin", "rst"]))
                    proxy.cut_after(own.randrange(1_000), direction="up", ending="rst")
                    own.choice([proxy.stall, proxy.resume, proxy.heal, proxy.refuse, proxy.black_hole])()

            threads = [threading.Thread(target=talk, args=(client,)) for client, _ in ends]
            threads += [threading.Thread(target=disturb, args=(proxy, lot.randrange(1_000))) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads[len(ends) :]:
                thread.join(WITHIN)
            proxy.close()
            for thread in threads:
                thread.join(WITHIN)
                assert not thread.is_alive()
            for pair in ends:
                for sock in pair:
                    sock.close()


# The port


def test_who_dials_is_refused_until_it_listens_again_on_the_same_port(
    proxy: FaultProxy, dial: Dial, upstream: Upstream
) -> None:
    port = proxy.port
    first, broker, _ = through(proxy, dial, upstream)
    for _ in range(3):
        for _ in range(2):
            proxy.refuse()
            with pytest.raises(ConnectionRefusedError):
                dial(port)
        for _ in range(2):
            proxy.listen()
            through(proxy, dial, upstream)
    assert proxy.stats().accepted == 7
    first.sendall(b"x")
    assert read(broker, 1) == b"x"
    assert proxy.port == port


@pytest.mark.usefixtures("no_descriptor_left")
@pytest.mark.parametrize("host", ["192.0.2.1", "no address"])
def test_an_address_of_somebody_else_cannot_be_listened_on(upstream: Upstream, host: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot listen"):
        FaultProxy(upstream.address, host=host).start()


def test_a_port_that_somebody_has_for_a_moment_is_waited_for(
    proxy: FaultProxy, dial: Dial, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind, failures = proxy._bind, [OSError(), OSError()]

    def taken(port: int) -> socket.socket:
        if failures:
            raise failures.pop()
        return bind(port)

    monkeypatch.setattr(proxy, "_bind", taken)
    proxy.refuse()
    proxy.listen()
    through(proxy, dial, upstream)
    assert failures == []


@pytest.mark.parametrize("error", [BlockingIOError(), ConnectionAbortedError(), OSError(24, "too many open files")])
def test_a_client_that_cannot_be_accepted_ends_nothing(
    error: OSError, upstream: Upstream, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [error]

    class Broken(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            if errors:
                raise errors.pop()
            return super().accept()

    monkeypatch.setattr(socket, "socket", Broken)
    with FaultProxy(upstream.address) as proxy:
        monkeypatch.undo()
        through(proxy, dial, upstream)
    assert errors == []


@pytest.mark.usefixtures("quick_switches", "no_descriptor_left")
def test_calls_that_meet_the_end_take_effect_or_say_that_it_is_closed(upstream: Upstream) -> None:
    for _ in range(50):
        answers: list[bool] = []

        def ask(proxy: FaultProxy, answers: list[bool]) -> None:
            for _ in range(20):
                try:
                    proxy.chop()
                    answers.append(True)
                except NotConnectedError:
                    answers.append(False)

        with FaultProxy(upstream.address) as proxy:
            threads = [threading.Thread(target=ask, args=(proxy, answers)) for _ in range(3)]
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join(WITHIN)
        assert len(answers) == 60


# By a real client


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


@pytest.fixture
def before(broker: Broker) -> Iterator[FaultProxy]:
    with FaultProxy(broker.url, window=16_384) as made:
        yield made


def test_a_client_does_its_work_byte_by_byte(before: FaultProxy) -> None:
    before.chop()
    with stompy.connect(before.url, timeouts=stompy.Timeouts(receipt=WITHIN)) as conn:
        sub = conn.subscribe("/queue/a", ack="client-individual")
        conn.send("/queue/a", "grüße", confirm=True)
        message = sub.receive(timeout=WITHIN)
        assert message.text == "grüße"
        message.ack()
    assert before.links[0].recorded("up").startswith(b"CONNECT")
    assert before.links[0].recorded("down").startswith(b"CONNECTED")


@pytest.mark.parametrize("ending", ["fin", "rst"])
def test_a_client_that_is_cut_off_is_told(before: FaultProxy, ending: Ending) -> None:
    listener = RecordingListener()
    with stompy.connect(before.url, listeners=[listener]):
        before.cut(ending)
        assert isinstance(listener.wait_for("disconnected", timeout=WITHIN).reason, stompy.ConnectionLostError)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_client_finds_a_stall_by_heart_beats(before: FaultProxy, direction: Direction) -> None:
    listener = RecordingListener()
    with stompy.connect(before.url, heartbeat=(0.5, 0.5), timeouts=stompy.Timeouts(close=0.2), listeners=[listener]):
        before.stall(direction)
        # Downwards the client finds it; upwards the broker does, and says so.
        reason = listener.wait_for("disconnected", timeout=WITHIN).reason
        assert isinstance(reason, stompy.HeartbeatTimeoutError if direction == "down" else stompy.ConnectionLostError)
        assert ("the broker gave up the connection" in str(reason)) == (direction == "up")


def test_a_client_whose_bytes_nobody_takes_times_out(before: FaultProxy) -> None:
    conn = stompy.connect(before.url, heartbeat=(0, 0), timeouts=stompy.Timeouts(send=0.2, close=0.2))
    before.stall("up")
    body = b"x" * (32 * 1024 * 1024)
    with pytest.raises(stompy.SendTimeoutError):
        conn.send("/queue/a", body)
    conn.close()


def test_a_client_gives_a_black_hole_up_in_time(before: FaultProxy) -> None:
    before.black_hole()
    with pytest.raises(stompy.ConnectTimeoutError):
        stompy.connect(before.url, timeouts=stompy.Timeouts(connect=0.05))


def test_a_client_that_is_refused_says_so(before: FaultProxy) -> None:
    before.refuse()
    with pytest.raises(stompy.ConnectError):
        stompy.connect(before.url)
    before.listen()
    stompy.connect(before.url).close()


@pytest.mark.parametrize("size", range(0, 60, 7))
def test_a_client_cut_off_in_its_handshake_says_so(before: FaultProxy, size: int) -> None:
    for direction in DIRECTIONS:
        before.upcoming.cut_after(size, direction=direction)
        with pytest.raises(stompy.ConnectError):
            stompy.connect(before.url, timeouts=stompy.Timeouts(connect=WITHIN))
        before.heal()


def test_a_client_that_reconnects_outlives_cuts_at_random_bytes(broker: Broker) -> None:
    lot = random.Random(11)

    def script(link: ProxyLink) -> None:
        if link.number <= 15:
            direction: Direction = lot.choice(["up", "down"])
            link.cut_after(lot.randint(200, 800), direction=direction, ending=lot.choice(["fin", "rst"]))

    with FaultProxy(broker.url, on_connection=script) as proxy:
        confirmed: set[str] = set()
        with stompy.connect(proxy.url, reconnect=POLICY, timeouts=stompy.Timeouts(receipt=WITHIN)) as conn:
            while proxy.stats().accepted <= 15:
                body = str(len(confirmed))
                try:
                    conn.send("/queue/a", body, confirm=True)
                    confirmed.add(body)
                except stompy.ConnectionLostError:
                    pass
        with stompy.connect(broker.url) as conn:
            sub = conn.subscribe("/queue/a")
            bodies: set[str] = set()
            while confirmed - bodies:
                bodies.add(sub.receive(timeout=WITHIN).text)
