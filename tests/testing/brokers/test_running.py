"""What every broker of another process has: its addresses, and how it is known to be ready."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stompy.errors import ConfigurationError, NotConnectedError
from stompy.testing.brokers import running
from stompy.testing.brokers.running import BrokerSettings, BrokerUnavailableError, NetworkBroker
from tests.testing.brokers.conftest import CONNECTED, Toy, ToyProduct

REFUSED = b"ERROR\nmessage:not you\n\n\0"
Making = Callable[..., Toy]


class Bare(NetworkBroker):
    """Nothing but ports."""

    flavour = "bare"

    def __init__(
        self, settings: BrokerSettings, ports: dict[str, int], *, hosts: tuple[str, ...] = ("127.0.0.1",)
    ) -> None:
        super().__init__(ToyProduct(), settings)
        self.product.start_timeout = 5.0
        self.found = ports
        self.hosts = hosts
        self.dead = False
        self.done: list[str] = []

    def start(self) -> None:
        self.done.append("start")
        self._await_ready(self.hosts)

    def stop(self) -> None:
        self.done.append("stop")

    def shut_down(self) -> None:
        self.done.append("shut_down")

    def kill(self) -> None: ...

    def pause(self) -> None: ...

    def unpause(self) -> None: ...

    def log(self) -> str:
        return "first\n\tat of.a.java.Stack\nlast"

    def _check_alive(self) -> None:
        if self.dead:
            raise self._unavailable("it died")

    def _find_ports(self) -> dict[str, int]:
        return self.found


def test_it_is_ready_once_connect_is_answered(toy: Making) -> None:
    broker = Bare(BrokerSettings(), {"stomp": toy(b"", b"", CONNECTED).port})
    with broker as entered:
        assert entered is broker
        assert (broker.server, broker.version) == ("Toy/1.2.3 (for tests)", "1.2.3")
    assert broker.done == ["start", "stop"]


def test_it_is_ready_once_every_user_may_come_in(toy: Making) -> None:
    served = toy(CONNECTED, REFUSED, CONNECTED, CONNECTED)
    Bare(BrokerSettings(users={"ann": "secret", "bob": "other"}), {"stomp": served.port}).start()
    logins = [heard.partition(b"login:")[2].partition(b"\n\n")[0] for heard in served.heard]
    assert logins == [b"ann\npasscode:secret", b"bob\npasscode:other"] * 2


def test_a_refusal_may_pass(toy: Making) -> None:
    broker = Bare(BrokerSettings(), {"stomp": toy(REFUSED, REFUSED, CONNECTED).port})
    broker.start()
    assert broker.version == "1.2.3"


def test_a_refusal_that_stays_is_told_with_the_log(toy: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_REFUSED", 0.2)
    with pytest.raises(BrokerUnavailableError) as caught:
        Bare(BrokerSettings(), {"stomp": toy(REFUSED).port}).start()
    assert "bare: it was not ready in time; it refused the CONNECT: not you; its log ends:" in str(caught.value)
    assert "last" in str(caught.value)
    assert "java.Stack" not in str(caught.value)


def test_where_nobody_may_come_in_a_refusal_is_enough(toy: Making) -> None:
    Bare(BrokerSettings(users={}), {"stomp": toy(REFUSED).port}).start()


def test_it_is_not_ready_before_its_other_connectors(toy: Making) -> None:
    broker = Bare(BrokerSettings(tls=True), {"stomp": toy().port, "stomp+ssl": toy(b"").port})
    broker.product.start_timeout = 0.5
    with pytest.raises(BrokerUnavailableError, match="was not ready in time"):
        broker.start()


def test_it_is_not_ready_before_all_ports_are_known(toy: Making) -> None:
    broker = Bare(BrokerSettings(tls=True), {"stomp": toy().port})
    broker.product.start_timeout = 0.5
    with pytest.raises(BrokerUnavailableError, match="was not ready in time"):
        broker.start()


def test_one_that_dies_is_not_waited_for() -> None:
    broker = Bare(BrokerSettings(), {})
    broker.dead = True
    with pytest.raises(BrokerUnavailableError, match="it died"):
        broker.start()


def test_the_first_host_that_answers_is_kept_and_the_better_one_preferred(toy: Making) -> None:
    served = toy(b"", CONNECTED)
    first = Bare(BrokerSettings(), {"stomp": served.port}, hosts=("127.0.0.1", "localhost"))
    first.start()
    assert first.host == "127.0.0.1"  # although only the other one answered when it came up
    second = Bare(BrokerSettings(), {"stomp": served.port}, hosts=("host.invalid", "127.0.0.1"))
    second.start()
    assert second.host == "127.0.0.1"


def test_its_addresses() -> None:
    broker = Bare(BrokerSettings(tls=True, users={"ann": "p@ss/1", "bob": "x"}), {})
    broker.ports = {"stomp": 1, "stomp+ssl": 3}
    assert broker.url(login="") == "stomp://127.0.0.1:1"
    assert broker.url(tls=True, login="") == broker.url("stomp+ssl", login="") == "stomp+ssl://127.0.0.1:3"
    assert broker.url() == broker.url(login="ann") == "stomp://ann:p%40ss%2F1@127.0.0.1:1"
    assert broker.url(login="bob") == "stomp://bob:x@127.0.0.1:1"
    assert (broker.login, broker.passcode) == ("ann", "p@ss/1")


def test_what_it_has_not_is_told() -> None:
    broker = Bare(BrokerSettings(), {})
    with pytest.raises(ConfigurationError, match=r"no connector 'stomp\+ssl' \(it has stomp\)"):
        broker.url(tls=True)
    with pytest.raises(NotConnectedError):
        broker.url()
    broker.ports = {"stomp": 1}
    with pytest.raises(ConfigurationError, match="no user 'eve'"):
        broker.url(login="eve")
    with pytest.raises(ConfigurationError, match="has no TLS"):
        _ = broker.ca_file


def test_a_restart_is_in_good_order(toy: Making) -> None:
    broker = Bare(BrokerSettings(), {"stomp": toy().port})
    broker.restart()
    assert broker.done == ["shut_down", "start"]
    assert "Toy/1.2.3" in repr(broker)
