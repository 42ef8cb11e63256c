"""How a broker of a kind is chosen, and what is said when there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import stompy
from stompy.errors import ConfigurationError
from stompy.testing import containers
from stompy.testing.brokers import images
from stompy.testing.brokers.container import ContainerBroker
from stompy.testing.brokers.running import BrokerUnavailableError
from stompy.testing.containers import (
    KINDS,
    PRODUCTS,
    ActiveMQContainer,
    ArtemisContainer,
    RabbitMQStompContainer,
    start_broker,
)
from tests.support import process_brokers
from tests.support.process_brokers import ProcessBroker

OFFICIAL = "official/image:1"
LOCAL = "local/image:1"


class Machine:
    """What can be had on a machine, and what was started there."""

    def __init__(self) -> None:
        self.docker: str | None = None
        self.official: str | None = OFFICIAL
        self.local: str | None = LOCAL
        self.process: str | None = None
        self.broken: set[str] = set()
        self.started: list[str] = []


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()

    def image(found: Callable[[], str | None], reason: str) -> Callable[[Any], str]:
        def choose(_: object) -> str:
            name = found()
            if name is None:
                raise images.NoImage(reason)
            return name

        return choose

    def start(self: ContainerBroker | ProcessBroker) -> None:
        if self.flavour in made.broken:
            raise BrokerUnavailableError(self.kind, (f"{self.flavour}: did not start",))
        made.started.append(getattr(self, "image", "process"))

    monkeypatch.setattr(images, "docker_missing", lambda: made.docker)
    monkeypatch.setattr(images, "official_image", image(lambda: made.official, "cannot be pulled"))
    monkeypatch.setattr(images, "local_image", image(lambda: made.local, "was not built"))
    monkeypatch.setattr(images, "named_image", lambda name: name)
    monkeypatch.setattr(process_brokers, "missing_process", lambda kind: made.process)
    monkeypatch.setattr(ContainerBroker, "start", start)
    monkeypatch.setattr(ProcessBroker, "start", start)
    monkeypatch.delenv(containers.FROM_VARIABLE, raising=False)
    monkeypatch.delenv("STOMPY_ACTIVEMQ_IMAGE", raising=False)
    return made


def test_the_official_image_comes_first(machine: Machine) -> None:
    broker = start_broker("activemq")
    assert (broker.flavour, machine.started) == ("official", [OFFICIAL])


def test_then_the_image_built_here(machine: Machine) -> None:
    machine.official = None
    assert start_broker("activemq").flavour == "local"
    assert machine.started == [LOCAL]


def test_then_a_process(machine: Machine) -> None:
    machine.docker = "no docker"
    assert start_broker("activemq").flavour == "process"
    assert machine.started == ["process"]


def test_one_that_does_not_start_is_skipped(machine: Machine) -> None:
    machine.broken = {"official"}
    assert start_broker("activemq").flavour == "local"


def test_where_there_is_none_every_reason_is_told(machine: Machine) -> None:
    machine.official, machine.broken, machine.process = None, {"local"}, "no Java"
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
    monkeypatch.setenv("STOMPY_ACTIVEMQ_IMAGE", "own/activemq:7")
    with pytest.raises(BrokerUnavailableError, match="STOMPY_BROKERS_FROM is none"):
        start_broker("activemq")


def test_a_variable_names_the_image(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPY_ACTIVEMQ_IMAGE", "own/activemq:7")
    start_broker("activemq")
    assert machine.started == ["own/activemq:7"]


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


def test_the_kinds_and_their_images() -> None:
    like = ("like-activemq", "like-activemq5", "like-artemis", "like-rabbitmq")
    assert ("embedded", *like, "activemq", "activemq5", "artemis", "rabbitmq3", "rabbitmq4") == KINDS
    assert {kind: product.local_image for kind, product in PRODUCTS.items()} == {
        "activemq": "stompy-test/activemq:6",
        "activemq5": "stompy-test/activemq:5",
        "artemis": "stompy-test/artemis:2",
        "rabbitmq3": "stompy-test/rabbitmq:3",
        "rabbitmq4": "stompy-test/rabbitmq:4",
    }
    # Since 6.2.6 the images of ActiveMQ are named anew; the older name has no newer ones.
    assert PRODUCTS["activemq"].official_images == ("apache/activemq:6.3.1", "apache/activemq-classic:6.1.7")
    assert PRODUCTS["artemis"].official_images == ("apache/artemis:2.57.0", "apache/activemq-artemis:2.44.0")
    assert PRODUCTS["rabbitmq4"].official_images == ("rabbitmq:4",)


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
def test_each_class_takes_the_best_image_of_its_kind(machine: Machine, made: type, kind: str) -> None:
    broker = made(users={"ann": "secret"})
    broker.start()
    assert (broker.kind, broker.flavour, broker.login) == (kind, "official", "ann")
    machine.official = None
    made().start()
    assert machine.started == [OFFICIAL, LOCAL]


def test_a_class_takes_the_image_that_it_is_given(machine: Machine) -> None:
    ActiveMQContainer("own/activemq:7").start()
    assert machine.started == ["own/activemq:7"]


def test_a_class_says_why_there_is_no_image(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.official = machine.local = None
    with pytest.raises(BrokerUnavailableError, match="official: cannot be pulled; local: was not built"):
        ActiveMQContainer().start()
    monkeypatch.setenv(containers.FROM_VARIABLE, "process")
    with pytest.raises(BrokerUnavailableError):
        ActiveMQContainer().start()
    machine.docker = "no docker"
    for broker in (ActiveMQContainer(), ActiveMQContainer("own:1")):
        with pytest.raises(BrokerUnavailableError, match="no docker"):
            broker.start()


def test_a_class_refuses_a_wrong_setting_at_once() -> None:
    with pytest.raises(ConfigurationError):
        RabbitMQStompContainer(advisories=False)
