"""pytest fixtures: a broker, a connection to it and a fault proxy in front of it, new for each test; simulated worlds;
and real brokers.

The real ones (`stomp_activemq`, `stomp_artemis`, `stomp_rabbitmq`) are started once in a session, by the first test
that asks; each has a fixture of options, to be overridden with `scope="session"`. Where one cannot be had, its tests
are skipped with every reason, or fail if `STOMPY_REQUIRE_BROKERS` names it.

Installed with the package, pytest finds them automatically, in every run: so the fixtures import
their modules when a test asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from stompy.broker.broker import Broker
    from stompy.connection.connection import Connection
    from stompy.testing.brokers import RunningBroker
    from stompy.testing.faults import FaultPlan
    from stompy.testing.proxy import FaultProxy
    from stompy.testing.worker import RunningWorker
    from stompy.worker.worker import Worker


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that repeats a simulation."""
    parser.getgroup("stomp").addoption(
        "--stomp-seed", type=int, metavar="SEED", help="the only seed that tests with stomp_simulate run"
    )


@pytest.fixture
def stomp_simulate(pytestconfig: pytest.Config) -> Callable[..., None]:
    """`stompy.testing.simulate`, which runs one seed alone with the option `--stomp-seed`."""
    from stompy.testing.simulation import simulate

    seed = pytestconfig.getoption("--stomp-seed")
    if seed is None:
        return simulate
    return lambda program, **options: simulate(program, **{**options, "first": seed, "seeds": 1})


@pytest.fixture
def stomp_broker_options() -> dict[str, Any]:
    """Arguments of the broker of `stomp_broker`; override this fixture to set them."""
    return {}


@pytest.fixture
def stomp_faults() -> FaultPlan:
    """The frame faults of `stomp_proxy` and `stomp_connection`; none until the test adds one."""
    from stompy.testing.faults import FaultPlan

    return FaultPlan()


@pytest.fixture
def stomp_broker(stomp_broker_options: dict[str, Any]) -> Iterator[Broker]:
    """An embedded broker on a free port of this machine, with empty queues."""
    from stompy.broker.broker import Broker

    with Broker(**stomp_broker_options) as broker:
        yield broker


@pytest.fixture
def stomp_connection(
    stomp_broker: Broker, stomp_broker_options: dict[str, Any], request: pytest.FixtureRequest
) -> Iterator[Connection]:
    """A connection to `stomp_broker`; if the broker no longer answers, it is abandoned after a second.

    If the broker has users, it logs in as the first one, whose passcode must not be given as a hash. If the test uses
    `stomp_faults`, it goes through `stomp_proxy`.
    """
    from stompy.connection.connecting import connect
    from stompy.link.settings import Timeouts

    login, user = next(iter((stomp_broker_options.get("users") or {}).items()), (None, None))
    passcode = getattr(user, "passcode", user)  # a `User` holds it
    end = request.getfixturevalue("stomp_proxy") if "stomp_faults" in request.fixturenames else stomp_broker
    with connect(end.url, login=login, passcode=passcode, timeouts=Timeouts(close=1.0)) as connection:
        yield connection


@pytest.fixture
def stomp_proxy(stomp_broker: Broker, request: pytest.FixtureRequest) -> Iterator[FaultProxy]:
    """A proxy in front of `stomp_broker`: the faults that the test sets apply to clients of `stomp_proxy.url`."""
    from stompy.testing.proxy import FaultProxy

    faults = request.getfixturevalue("stomp_faults") if "stomp_faults" in request.fixturenames else None
    with FaultProxy(stomp_broker.url, faults=faults) as proxy:
        yield proxy


@pytest.fixture
def stomp_worker(stomp_broker: Broker) -> Iterator[Callable[[Worker], RunningWorker]]:
    """A function that runs a `stompy.Worker` on `stomp_broker`, not on its own broker, until the end of the test."""
    from stompy.testing.worker import RunningWorker

    running: list[RunningWorker] = []

    def run(worker: Worker) -> RunningWorker:
        running.append(RunningWorker(worker, stomp_broker))
        return running[-1]

    yield run
    for each in running:
        each.close()


@pytest.fixture(scope="session")
def stomp_activemq_options() -> dict[str, Any]:
    """Settings of `stomp_activemq`, as fields of `BrokerSettings`; override this fixture to set them."""
    return {}


@pytest.fixture(scope="session")
def stomp_activemq(stomp_activemq_options: dict[str, Any]) -> Iterator[RunningBroker]:
    """ActiveMQ Classic, for the whole session: `stompy.connect(stomp_activemq.url())`."""
    yield from _real("activemq", stomp_activemq_options)


@pytest.fixture(scope="session")
def stomp_artemis_options() -> dict[str, Any]:
    """Settings of `stomp_artemis`, as fields of `BrokerSettings`; override this fixture to set them."""
    return {}


@pytest.fixture(scope="session")
def stomp_artemis(stomp_artemis_options: dict[str, Any]) -> Iterator[RunningBroker]:
    """Artemis, for the whole session: `stompy.connect(stomp_artemis.url())`."""
    yield from _real("artemis", stomp_artemis_options)


@pytest.fixture(scope="session")
def stomp_rabbitmq_options() -> dict[str, Any]:
    """Settings of `stomp_rabbitmq`, as fields of `BrokerSettings`; override this fixture to set them."""
    return {}


@pytest.fixture(scope="session")
def stomp_rabbitmq(stomp_rabbitmq_options: dict[str, Any]) -> Iterator[RunningBroker]:
    """RabbitMQ with its STOMP plugins, for the whole session: `stompy.connect(stomp_rabbitmq.url())`."""
    yield from _real("rabbitmq4", stomp_rabbitmq_options)


def _real(kind: str, options: dict[str, Any]) -> Iterator[RunningBroker]:
    from stompy.testing.containers import broker_or_skip

    with broker_or_skip(kind, **options) as broker:
        yield broker
