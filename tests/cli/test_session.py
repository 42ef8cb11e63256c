from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stompy.broker import Broker, BrokerLimits
from stompy.cli import options, session
from stompy.cli.exits import Exit, Failure
from stompy.connection.connection import Closing, Connection
from stompy.connection.link_manager import Connector
from stompy.deadline import Deadline
from stompy.errors import BrokerError, ConnectionLostError, ConnectRefusedError, NotConnectedError
from tests.support.ports import reserved_port
from tests.support.proxies import LittleProxy


def arguments(*argv: str) -> argparse.Namespace:
    parser = options.CommandParser()
    options.add_connection_options(parser)
    parsed: argparse.Namespace = parser.parse_args(argv)
    return parsed


def use(work: Callable[[Connection], None], *argv: str) -> None:
    with session.session(arguments(*argv)) as conn:
        work(conn)


@pytest.fixture
def guarded() -> Iterator[Broker]:
    with Broker(users={"ann": "sesame"}) as broker:
        yield broker


def with_user(broker: Broker, user: str) -> str:
    return broker.url.replace("//", f"//{user}@")


def test_the_address_comes_from_the_option_before_the_environment(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOMPY_URL", "stomp://127.0.0.1:1")
    with session.session(arguments("--url", broker.url)) as conn:
        assert conn.connected


def test_the_address_comes_from_the_environment(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPY_URL", f"stomp://127.0.0.1:1,{broker.url}")
    with session.session(arguments()) as conn:
        assert broker.url.endswith(conn.address)


def test_several_addresses_may_be_given(broker: Broker) -> None:
    with session.session(arguments("--url", "stomp://127.0.0.1:1", "--url", broker.url)) as conn:
        assert conn.connected


def test_a_failover_address_is_taken_without_its_reconnecting(broker: Broker) -> None:
    def lose_the_broker(conn: Connection) -> None:
        broker.close()
        conn.subscribe("/queue/a")

    with pytest.raises(ConnectionLostError):
        use(lose_the_broker, "--url", f"failover:({broker.url})")


def test_the_options_reach_the_broker(broker: Broker) -> None:
    given = arguments("--url", broker.url, "--versions", "1.0,1.1", "--heartbeat", "2,3", "--vhost", "v")
    with session.session(given) as conn:
        assert (conn.version, conn.heartbeat) == ("1.1", (2.0, 3.0))


@pytest.mark.parametrize("login_in_url", [True, False])
def test_the_passcode_of_the_environment_goes_with_either_login(
    guarded: Broker, monkeypatch: pytest.MonkeyPatch, *, login_in_url: bool
) -> None:
    monkeypatch.setenv("STOMPY_PASSCODE", "sesame")
    argv = ["--url", with_user(guarded, "ann")] if login_in_url else ["--url", guarded.url, "--login", "ann"]
    with session.session(arguments(*argv)) as conn:
        assert conn.connected


def test_the_passcode_of_the_address_comes_before_that_of_the_environment(
    guarded: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOMPY_PASSCODE", "wrong")
    with session.session(arguments("--url", with_user(guarded, "ann:sesame"))) as conn:
        assert conn.connected


def test_a_passcode_file_comes_before_the_address(guarded: Broker, tmp_path: Path) -> None:
    file = tmp_path / "passcode"
    file.write_text("sesame\n", encoding="utf-8")
    given = arguments("--url", with_user(guarded, "ann:wrong"), "--passcode-file", str(file))
    with session.session(given) as conn:
        assert conn.connected


def test_another_login_does_not_get_the_passcode_of_the_address(guarded: Broker) -> None:
    given = arguments("--url", with_user(guarded, "bob:sesame"), "--login", "ann")
    with pytest.raises(ConnectRefusedError), session.session(given):
        pytest.fail("the passcode of one login went out with another")


def test_the_end_is_confirmed_also_after_many_receipts(broker: Broker) -> None:
    with session.session(arguments("--url", broker.url)) as conn:
        for _ in range(500):
            conn.send_async("/queue/a", b"")
        conn.flush()
    assert broker.stats().sessions == 0


def test_an_end_that_is_not_confirmed_is_a_failure(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang_up(closing: Closing, **settings: Any) -> None:
        closing.abandon()
        closing._links.join(Deadline(5))

    def send(conn: Connection) -> None:
        conn.send("/queue/a", b"", confirm=True)
        monkeypatch.setattr(Closing, "close", hang_up)

    with pytest.raises(Failure, match="did not confirm the end of the session") as caught:
        use(send, "--url", broker.url)
    assert caught.value.code is Exit.CONNECTION


def test_a_refusal_behind_the_last_frame_is_told() -> None:
    def send_two(conn: Connection) -> None:
        conn.send("/queue/a", b"1")
        conn.send("/queue/a", b"2")

    with Broker(limits=BrokerLimits(max_queue_messages=1)) as broker:
        with pytest.raises(BrokerError, match="full"):
            use(send_two, "--url", broker.url)
        assert broker.depth("/queue/a") == 1


def test_an_error_in_the_block_is_not_hidden_by_disconnecting(broker: Broker) -> None:
    kept: list[Connection] = []

    def fail(conn: Connection) -> None:
        kept.append(conn)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use(fail, "--url", broker.url)
    with pytest.raises(NotConnectedError):
        kept[0].send("/queue/a")


def test_an_acknowledgement_that_comes_too_late_names_the_lost_link(broker: Broker) -> None:
    def acknowledge_too_late(conn: Connection) -> None:
        conn.send("/queue/a", b"")
        message = conn.subscribe("/queue/a", ack="client").receive(timeout=5)
        broker.close()
        with pytest.raises(ConnectionLostError):
            conn.subscribe("/queue/b")
        message.ack()

    with pytest.raises(ConnectionLostError):
        use(acknowledge_too_late, "--url", broker.url)


def test_a_proxy_comes_from_the_option_before_the_environment(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with LittleProxy("http", login="ann:pr0xy") as guarded, LittleProxy("socks5") as free:
        monkeypatch.setenv("STOMPY_PROXY", guarded.url_with_login)
        use(lambda conn: None, "--url", broker.url)
        use(lambda conn: None, "--url", broker.url, "--proxy", free.url)
        assert (len(guarded.asked), len(free.asked)) == (1, 1)


def test_a_broker_that_starts_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is started by the second attempt, which comes soon."""
    seen: list[str | None] = []
    real = Connector.open

    with reserved_port() as port, contextlib.ExitStack() as stack:

        def open_late(self: Connector, deadline: Deadline) -> Any:
            attempts.append(1)
            if len(attempts) == 2:
                stack.enter_context(Broker(port=port))
            return real(self, deadline)

        attempts: list[int] = []
        monkeypatch.setattr(Connector, "open", open_late)
        use(lambda conn: seen.append(conn.server), "--url", f"stomp://127.0.0.1:{port}", "--start-timeout", "20")
    assert seen[0] is not None
    assert len(attempts) >= 2


def test_without_waiting_one_attempt_is_made() -> None:
    with reserved_port() as port, pytest.raises(Failure, match="refused") as raised:
        use(lambda conn: None, "--url", f"stomp://127.0.0.1:{port}")
    assert raised.value.code == Exit.CONNECTION
    with pytest.raises(SystemExit):
        arguments("--start-timeout", "0")
