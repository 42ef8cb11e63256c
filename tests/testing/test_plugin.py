"""The fixtures, in test runs of their own."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TOP = Path(__file__).parents[2]
INSTALLED = any(point.value == "stompy.testing.plugin" for point in entry_points(group="pytest11"))
"""Whether pytest finds the fixtures by itself; from the source tree it gets an option."""

USE = """
import stompy
from stompy.testing.faults import Drop
from stompy.testing.listener import RecordingListener


def test_a_message_goes_round(stomp_broker, stomp_connection):
    stomp_connection.send("/queue/a", "hello", confirm=True)
    assert stomp_broker.depth("/queue/a") == 1
    assert stomp_connection.subscribe("/queue/a").receive(timeout=5).text == "hello"


def test_an_offer_expires(stomp_broker, stomp_connection):
    stomp_connection.send("/queue/offers", "ten percent off", expires=3600, confirm=True)
    stomp_broker.clock.advance(3601)
    assert stomp_broker.depth("/queue/offers") == 0


def test_a_worker_comes_back(stomp_broker, stomp_connection):
    stomp_broker.pause("/queue/orders")
    stomp_connection.send("/queue/orders", "42", confirm=True)
    (message,) = stomp_broker.browse("/queue/orders")
    assert message.text == "42"
    stomp_broker.resume("/queue/orders")
    stomp_broker.move("/queue/orders", "/queue/later")
    stomp_broker.kill(stomp_broker.connections()[0])
    assert stomp_broker.purge("/queue/later") == 1


def test_each_test_has_a_fresh_broker(stomp_broker):
    assert stomp_broker.stats().messages_in == 0
    assert stomp_broker.stats().sessions_total == 0


def test_a_fault_of_the_broker(stomp_connection, stomp_faults):
    stomp_faults.add(Drop("SEND", nth=1))
    stomp_connection.send("/queue/a", "lost")
    stomp_faults.await_strikes()


def test_a_fault_of_the_network(stomp_proxy):
    listener = RecordingListener()
    with stompy.connect(stomp_proxy.url, reconnect=True, listeners=[listener]):
        stomp_proxy.cut("rst")
        listener.wait_for("connected", count=2)


def test_a_broker_that_is_gone_at_the_end(stomp_broker, stomp_connection, stomp_proxy):
    stomp_broker.close()


def test_a_delay_that_nobody_released(stomp_connection, stomp_faults):
    from stompy.testing.faults import Delay
    stomp_faults.add(Delay("RECEIPT"))
    stomp_connection.send_async("/queue/a", "x")
    stomp_faults.await_strikes()


def test_no_thread_is_left():
    import threading
    for thread in threading.enumerate():
        if thread.name.startswith("stompy-"):
            thread.join(10)  # on its way out, where a disconnect ran out of time
            assert not thread.is_alive(), thread
"""

USERS = """
import pytest
from stompy.broker import User


@pytest.fixture(params=["secret", User(passcode="secret")])
def stomp_broker_options(request):
    return {"users": {"ann": request.param, "bob": "x"}}


def test_the_connection_is_that_of_the_first_user(stomp_connection):
    stomp_connection.send("/queue/a", "x", confirm=True)
"""

UNRELATED = """
import sys


def test_nothing_of_ours_is_here_but_the_plugin():
    ours = {name for name in sys.modules if name.partition(".")[0] == "stompy"}
    package = {"stompy", "stompy.errors", "stompy.exports", "stompy.installed", "stompy.printable", "stompy.world"}
    assert ours <= package | {"stompy.testing", "stompy.testing.plugin"}
    assert not {"tenacity", "sqlite3"} & set(sys.modules)
"""

OPTIONS = """
import pytest
import stompy


@pytest.fixture
def stomp_broker_options():
    return {"versions": ["1.1"], "like": "rabbitmq"}


def test_the_broker_has_the_options(stomp_connection):
    assert stomp_connection.version == "1.1"
    assert stomp_connection.dialect == "rabbitmq"
"""


@pytest.fixture(autouse=True)
def source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TOP))


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(source)
    plugin = [] if INSTALLED else ["-p", "stompy.testing.plugin"]
    return pytester.runpytest_subprocess(*plugin, *options, "-p", "no:cacheprovider", "-W", "error", timeout=50)


def test_the_fixtures_serve_a_users_test(pytester: pytest.Pytester) -> None:
    run(pytester, USE).assert_outcomes(passed=9)


def test_a_broker_with_users_lets_the_connection_in(pytester: pytest.Pytester) -> None:
    run(pytester, USERS).assert_outcomes(passed=2)


def test_a_run_that_does_not_use_the_fixtures_imports_nothing(pytester: pytest.Pytester) -> None:
    run(pytester, UNRELATED).assert_outcomes(passed=1)


def test_the_broker_takes_options(pytester: pytest.Pytester) -> None:
    run(pytester, OPTIONS).assert_outcomes(passed=1)


SIMULATED = """
import stompy


def program(simulation):
    assert simulation.url
    raise LookupError("of each seed")


def test_fails(stomp_simulate):
    stomp_simulate(program, seeds=3)
"""


def test_an_option_repeats_one_seed_of_a_simulation(pytester: pytest.Pytester) -> None:
    run(pytester, SIMULATED).stdout.fnmatch_lines(["*seed 0: LookupError: of each seed"])
    run(pytester, SIMULATED, "--stomp-seed", "4711").stdout.fnmatch_lines(["*seed 4711: LookupError: of each seed"])


REAL = """
import pytest
import stompy
from stompy.testing import containers
from stompy.testing.containers import start_broker

asked = []


@pytest.fixture(autouse=True, scope="session")
def no_real_one():
    def start(kind, **options):
        asked.append((kind, options))
        return start_broker("embedded")
    patch = pytest.MonkeyPatch()
    patch.setattr(containers, "start_broker", start)
    yield
    patch.undo()


@pytest.fixture(scope="session")
def stomp_artemis_options():
    return {"users": {"ann": "secret"}}


def test_each_is_started(stomp_activemq, stomp_artemis, stomp_rabbitmq):
    assert asked == [("activemq", {}), ("artemis", {"users": {"ann": "secret"}}), ("rabbitmq4", {})]
    with stompy.connect(stomp_activemq.url()) as conn:
        conn.send("/queue/a", "hello", confirm=True)


def test_it_is_the_same_for_the_whole_session(stomp_activemq):
    assert len(asked) == 3
    with stompy.connect(stomp_activemq.url()) as conn:
        assert conn.subscribe("/queue/a").receive(timeout=5).text == "hello"
"""

ABSENT = """
def test_it(stomp_activemq):
    raise AssertionError("there is none")
"""


def test_the_real_brokers_serve_a_whole_session(pytester: pytest.Pytester) -> None:
    run(pytester, REAL).assert_outcomes(passed=2)


def test_a_real_broker_that_cannot_be_had_skips_with_every_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    for name in ("STOMPY_ACTIVEMQ_IMAGE", "STOMPY_BROKERS_FROM", "STOMPY_REQUIRE_BROKERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-rs")
    skipped = run(pytester, ABSENT)
    skipped.assert_outcomes(skipped=1)
    skipped.stdout.fnmatch_lines(["*official: docker cannot be reached*"])


def test_a_real_broker_that_is_required_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    monkeypatch.setenv("STOMPY_REQUIRE_BROKERS", "activemq")
    monkeypatch.setenv("STOMPY_BROKERS_FROM", "official")
    failed = run(pytester, ABSENT)
    failed.assert_outcomes(errors=1)
    failed.stdout.fnmatch_lines(["*the activemq broker is required: official: docker cannot*"])
