"""How a broker of a kind is chosen, when it is ready, and what is said when there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

import stompy
from stompy.errors import ConfigurationError, NotConnectedError
from stompy.testing import containers
from stompy.testing.brokers import BrokerSettings, BrokerUnavailableError, RunningBroker
from stompy.testing.containers import (
    ActiveMQContainer,
    ArtemisContainer,
    ContainerBroker,
    NetworkBroker,
    RabbitMQStompContainer,
    find_image,
    start_broker,
)
from tests.support import process_brokers
from tests.support.local_brokers import LocalBroker
from tests.support.process_brokers import ProcessBroker
from tests.testing.toys import CONNECTED, TOY, Toy

docker = pytest.importorskip("docker")


class Machine:
    """What can be had on a machine, and what was started there."""

    def __init__(self) -> None:
        self.absent: dict[str, str] = {}
        self.started: list[str] = []


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()

    def start(self: RunningBroker) -> None:
        if reason := made.absent.get(self.flavour):
            raise BrokerUnavailableError(self.kind, (f"{self.flavour}: {reason}",))
        made.started.append(self.flavour)

    for broker in (ContainerBroker, LocalBroker, ProcessBroker):
        monkeypatch.setattr(broker, "start", start)
    monkeypatch.setattr(process_brokers, "missing_process", lambda kind: made.absent.get("process"))
    monkeypatch.delenv(containers.FROM_VARIABLE, raising=False)
    return made


def test_the_official_image_comes_first(machine: Machine) -> None:
    assert start_broker("activemq").flavour == "official"
    assert machine.started == ["official"]


def test_what_does_not_start_gives_way_to_the_next_source(machine: Machine) -> None:
    machine.absent["official"] = "cannot be pulled"
    assert start_broker("activemq").flavour == "local"
    machine.absent["local"] = "was not built"
    assert start_broker("activemq").flavour == "process"


def test_where_there_is_none_every_reason_is_told(machine: Machine) -> None:
    machine.absent = {"official": "cannot be pulled", "local": "did not start", "process": "no Java"}
    with pytest.raises(BrokerUnavailableError) as caught:
        start_broker("activemq")
    assert caught.value.kind == "activemq"
    assert caught.value.reasons == ("official: cannot be pulled", "local: did not start", "process: no Java")


def test_a_variable_chooses_the_ways(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(containers.FROM_VARIABLE, "process, local")
    assert start_broker("activemq").flavour == "process"
    monkeypatch.setenv(containers.FROM_VARIABLE, "local")
    assert start_broker("activemq").flavour == "local"
    monkeypatch.setenv(containers.FROM_VARIABLE, "locally")
    with pytest.raises(ConfigurationError, match="STOMPY_BROKERS_FROM holds locally"):
        start_broker("activemq")
    monkeypatch.setenv(containers.FROM_VARIABLE, "")
    assert start_broker("activemq").flavour == "official"


@pytest.mark.usefixtures("machine")
def test_a_variable_says_that_no_real_broker_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(containers.FROM_VARIABLE, "none")
    with pytest.raises(BrokerUnavailableError, match="STOMPY_BROKERS_FROM is none"):
        start_broker("activemq")


@pytest.mark.usefixtures("machine")
def test_what_makes_no_sense_is_told_before_anything_is_tried(machine: Machine) -> None:
    with pytest.raises(ConfigurationError, match="no such kind of broker: 'kafka'"):
        start_broker("kafka")
    with pytest.raises(ConfigurationError, match="no such option of a broker: volume"):
        start_broker("activemq", volume=11)
    with pytest.raises(ConfigurationError, match="Artemis has no setting 'advisories'"):
        start_broker("artemis", advisories=False)
    assert machine.started == []


def test_an_embedded_broker_stands_in_for_another() -> None:
    with start_broker("like-rabbitmq", users={"ann": "sesame"}) as broker:
        assert broker.server.startswith("RabbitMQ/")
    with pytest.raises(ConfigurationError, match="kafka"):
        start_broker("like-kafka")


@pytest.mark.broker
def test_the_embedded_broker_is_one_of_them() -> None:
    with start_broker("embedded", users={"ann": "secret"}, attempts=1) as broker:
        assert (broker.kind, broker.flavour) == ("embedded", "embedded")
        with stompy.connect(broker.url(login="ann")) as conn:
            conn.send("/queue/a", "x", confirm=True)


@pytest.mark.parametrize(
    ("made", "kind"),
    [(ActiveMQContainer, "activemq"), (ArtemisContainer, "artemis"), (RabbitMQStompContainer, "rabbitmq4")],
)
def test_each_class_is_of_its_kind(made: type[ContainerBroker], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = made(users={"ann": "secret"})  # type: ignore[call-arg]
    assert (broker.kind, broker.flavour, broker.login, broker.image) == (kind, "official", "ann", None)
    monkeypatch.setenv(f"STOMPY_{kind.upper()}_IMAGE", "own:7")
    assert made().image == "own:7"  # type: ignore[call-arg]
    assert made("given:1").image == "given:1"  # type: ignore[call-arg, arg-type]


def test_a_class_refuses_a_wrong_setting_at_once() -> None:
    with pytest.raises(ConfigurationError):
        RabbitMQStompContainer(advisories=False)


# When a broker is ready

REFUSED = b"ERROR\nmessage:not you\n\n\0"
Making = Callable[..., Toy]


class Bare(NetworkBroker):
    """Nothing but ports."""

    flavour = "bare"

    def __init__(self, settings: BrokerSettings, ports: dict[str, int]) -> None:
        super().__init__(TOY, settings)
        self.ports = ports
        self.dead = False
        self.done: list[str] = []

    def start(self) -> None:
        self.done.append("start")
        self._await_ready()

    def close(self) -> None:
        self.done.append("close")

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


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "_START_TIMEOUT", 0.5)
    monkeypatch.setattr(containers, "_ASK_TIMEOUT", 0.5)


def test_it_is_ready_once_connect_is_answered(toy: Making) -> None:
    broker = Bare(BrokerSettings(), {"stomp": toy(b"", b"", CONNECTED).port})
    with broker as entered:
        assert entered is broker
        assert (broker.server, broker.version) == ("Toy/1.2.3 (for tests)", "1.2.3")
    assert broker.done == ["start", "close"]


def test_it_is_ready_once_every_user_may_come_in(toy: Making) -> None:
    served = toy(CONNECTED, REFUSED, CONNECTED, CONNECTED)
    Bare(BrokerSettings(users={"ann": "secret", "bob": "other"}), {"stomp": served.port}).start()
    logins = [heard.partition(b"login:")[2].partition(b"\n")[0] for heard in served.heard]
    assert logins == [b"ann", b"bob"] * 2


def test_a_refusal_may_pass(toy: Making) -> None:
    broker = Bare(BrokerSettings(), {"stomp": toy(REFUSED, REFUSED, CONNECTED).port})
    broker.start()
    assert broker.version == "1.2.3"


@pytest.mark.usefixtures("impatient")
def test_a_refusal_that_stays_is_told_with_the_log(toy: Making) -> None:
    with pytest.raises(BrokerUnavailableError) as caught:
        Bare(BrokerSettings(), {"stomp": toy(REFUSED).port}).start()
    assert "bare: it was not ready in time: " in str(caught.value)
    assert "not you" in str(caught.value)
    assert "last" in str(caught.value)
    assert "java.Stack" not in str(caught.value)


@pytest.mark.usefixtures("impatient")
def test_it_is_not_ready_before_its_other_connectors(toy: Making) -> None:
    broker = Bare(BrokerSettings(tls=True), {"stomp": toy().port, "stomp+ssl": toy(b"").port})
    with pytest.raises(BrokerUnavailableError, match="was not ready in time"):
        broker.start()


def test_one_that_dies_is_not_waited_for() -> None:
    broker = Bare(BrokerSettings(), {})
    broker.dead = True
    with pytest.raises(BrokerUnavailableError, match="it died"):
        broker.start()


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


# Images


class Client:
    """What is used of a docker client, over a set of images and one of those that can be pulled."""

    def __init__(self, here: set[str], pullable: set[str]) -> None:
        self.here, self.pullable = here, pullable
        self.images = self.api = self
        self.pulled: list[str] = []
        self.pings = 0

    def ping(self) -> None:
        self.pings += 1

    def close(self) -> None: ...

    def get(self, name: str) -> None:
        if name not in self.here:
            raise docker.errors.ImageNotFound(f"no {name} here")

    def pull(self, name: str, *, stream: bool, decode: bool) -> Iterator[dict[str, str]]:
        assert stream
        assert decode
        self.pulled.append(name)
        yield {"status": "pulling"}
        if name not in self.pullable:
            yield {"error": f"{name} is unknown"}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    made = Client(set(), set())
    monkeypatch.setattr(docker, "from_env", lambda **settings: made)
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")  # no socket of this machine's is looked for
    monkeypatch.delenv(containers.PULL_LIMIT_VARIABLE, raising=False)
    forget()
    yield made
    forget()


def forget() -> None:
    for cached in (containers.docker_missing, find_image):
        cached.cache_clear()


def test_an_official_image_that_is_here_is_not_pulled(client: Client) -> None:
    client.here.add("toy/former:1")
    client.pullable.add("toy/official:1")
    assert find_image(TOY.images) == "toy/former:1"
    assert client.pulled == []


def test_an_official_image_is_pulled_once_under_the_first_name_that_works(client: Client) -> None:
    client.pullable.add("toy/former:1")
    assert find_image(TOY.images) == "toy/former:1"
    assert find_image(TOY.images) == "toy/former:1"
    assert client.pulled == ["toy/official:1", "toy/former:1"]


def test_every_name_that_failed_is_told(client: Client) -> None:
    with pytest.raises(LookupError, match=r"toy/official:1 is unknown.*toy/former:1 is unknown"):
        find_image(TOY.images)


def test_a_pull_is_given_up_in_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.pullable.add("toy/official:1")
    monkeypatch.setenv(containers.PULL_LIMIT_VARIABLE, "0.0000001")
    with pytest.raises(LookupError, match="not pulled within"):
        find_image(TOY.images)


def test_a_pull_may_be_forbidden(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(containers.PULL_LIMIT_VARIABLE, "0")
    with pytest.raises(LookupError, match="forbids to pull"):
        find_image(("own:1",))
    assert client.pulled == []


def test_docker_that_does_not_answer_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert "docker cannot be reached" in (containers.docker_missing() or "")
    forget()


def test_the_extra_that_is_not_installed_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    monkeypatch.setitem(sys.modules, "docker", None)
    assert "stompy-client[testing] is not installed" in (containers.docker_missing() or "")
    forget()


def test_docker_is_asked_once(client: Client) -> None:
    assert (containers.docker_missing(), containers.docker_missing(), client.pings) == (None, None, 1)
