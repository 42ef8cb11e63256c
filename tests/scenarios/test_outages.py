"""The broker is killed, restarted, paused: how a link ends, what comes back, what was kept."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

import stompy
from tests.scenarios.acts import REFUSED, SOON, Recorder, left, seen, send_all, texts
from tests.scenarios.conftest import Connect, Expect
from tests.support.candidates import Candidate
from tests.support.durable import make_queues
from tests.support.peer import until

pytestmark = [pytest.mark.broker, pytest.mark.once, pytest.mark.timeout(180)]

BACK_WITHIN = 90.0
BROKER_THREADS = {"stompy-broker-acceptor", "stompy-broker-timer"}


@pytest.fixture
def no_thread_left_behind() -> Iterator[None]:
    """As everywhere, except for the embedded broker's own threads: started again here, it serves later tests."""
    before = set(threading.enumerate())
    yield
    until(lambda: {thread.name for thread in set(threading.enumerate()) - before} <= BROKER_THREADS)


PATIENT = stompy.Reconnect(backoff=stompy.Backoff(longest=0.5))


def stored(connect: Connect, queue: str, case: str) -> bool:
    """Send one message of each kind; return whether the broker can be asked to keep one."""
    connection = connect()
    send_all(connection, f"{queue}.{case}", ["default"])
    try:
        send_all(connection, f"{queue}.{case}", ["persistent"], persistent=True)
    except stompy.ConfigurationError:
        return False
    with contextlib.suppress(stompy.ConfigurationError):
        send_all(connection, f"{queue}.{case}", ["transient"], persistent=False)
    connection.close()
    return True


@pytest.mark.scenario("kill, restart, persistence")
@pytest.mark.parametrize("how", ["kill", "restart"])
def test_a_broker_that_goes_and_comes_back(
    candidate: Candidate, connect: Connect, queue: str, expect: Expect, how: str
) -> None:
    make_queues(candidate.broker, candidate.url, f"{queue}.{how}", **candidate.options)
    asked = stored(connect, queue, how)
    lone, patient = Recorder(), Recorder()
    single = connect(listeners=[lone])
    lasting = connect(listeners=[patient], reconnect=PATIENT, timeouts=stompy.Timeouts(send=BACK_WITHIN))
    subscription = lasting.subscribe(f"{queue}.replayed")
    if how == "kill":
        candidate.broker.kill()
    else:
        candidate.broker.restart()
    assert lone.over.wait(SOON)
    assert not single.connected
    if how == "kill":
        candidate.broker.start()
    until(lambda: len(patient.connected) == 2, "the next session", within=BACK_WITHIN)
    # The next sender finds the subscription there already.
    send_all(lasting, f"{queue}.replayed", ["back"])
    assert texts(subscription, 1) == ["back"]
    errors = [frame.command for frame in lone.errors]
    expect(f"{how}-link", " ".join([*errors, "closed"]), *lone.errors)
    kept = seen(left(connect(), f"{queue}.{how}"))
    expect(f"{how}-kept", f"{kept}{'' if asked else f'; persistent: {REFUSED}'}")


@pytest.mark.scenario("pause")
def test_a_paused_broker_misses_its_beats(candidate: Candidate, connect: Connect, queue: str, expect: Expect) -> None:
    heard = Recorder()
    connection = connect(heartbeat=(0, 0.5), listeners=[heard], timeouts=stompy.Timeouts(close=1.0))
    quiet = connect()
    candidate.broker.pause()
    try:
        receipt = quiet.send_async(queue, "x")
        with pytest.raises(stompy.ReceiptTimeoutError):
            receipt.result(0.5)
        assert heard.over.wait(SOON)
    finally:
        candidate.broker.unpause()
    receipt.result(SOON)
    assert quiet.connected
    assert not connection.connected
    assert isinstance(heard.reasons[0], stompy.HeartbeatTimeoutError)
    expect("pause", "HeartbeatTimeoutError; then the RECEIPT")
    assert seen(left(connect(), queue)) == "x"
