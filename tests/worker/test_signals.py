"""Signals at any place of the code that starts a worker and waits for its end."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

import stompy
from stompy import threads
from stompy.broker import Broker
from stompy.worker import service, worker
from tests.support.seed import SEED_SETTING, chance
from tests.support.strikes import Strike

SAMPLE = 40
WITHIN = (worker.__file__, service.__file__)


@pytest.fixture
def outside() -> Iterator[object]:
    """The handler of SIGTERM before the worker runs and after it."""

    def ignore(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGTERM, ignore)
    yield ignore
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("times", [1, 2])
def test_a_worker_returns_its_code_wherever_a_signal_comes(
    broker: Broker, outside: object, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "SAME_WITHIN", 0.0)
    codes = []

    def run() -> None:
        worker = stompy.Worker(broker.url, concurrency=1, max_seconds=0.02)
        worker.add(print, "/queue/a")
        codes.append(worker.run())

    def deliver() -> None:
        for _ in range(times):
            signal.raise_signal(signal.SIGTERM)

    for _ in range(2):  # CPython 3.13 does not trace instructions yet in the first code that is to be traced
        count = Strike(None, within=WITHIN)
        count.run(run)
    print(SEED_SETTING)
    for place in sorted(chance("signals", times).sample(range(count.places), min(SAMPLE, count.places))):
        strike = Strike(place, deliver, within=WITHIN)
        strike.run(run)
        assert strike.raised is None, strike.where
        assert codes[-1] in (0, 128 + signal.SIGTERM)[:times], strike.where
        assert signal.getsignal(signal.SIGTERM) is outside, strike.where
    assert len(codes) > SAMPLE / 2
