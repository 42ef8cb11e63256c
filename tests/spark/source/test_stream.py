from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.spark.datasource import SpoolPart, StompStreamReader, end_on_sigterm
from stompy.spark.option_tables import stream_options
from tests.spark.receiver.helpers import QUEUE, eventually, fill

try:
    import pyspark.sql.streaming.datasource as limits
except ImportError:
    limits = None

needs_limits = pytest.mark.skipif(limits is None, reason="Spark before 4.2 has no admission control")


def reader(url: str = "stomp://localhost:1", folder: str = "/nowhere", **given: str) -> StompStreamReader:
    return StompStreamReader(stream_options({"url": url, "destination": QUEUE, "spooldir": f"{folder}/spool", **given}))


def test_what_travels_to_an_executor_has_no_connection(tmp_path: Path) -> None:
    with Broker() as broker:
        made = reader(broker.url, str(tmp_path))
        made.initialOffset()
        try:
            copy = pickle.loads(pickle.dumps(made))
            assert vars(copy) == {"_options": made._options}
        finally:
            made.stop()


def test_stopping_what_never_ran_does_nothing() -> None:
    reader().stop()


@needs_limits
@pytest.mark.parametrize(
    ("given", "limit"),
    [({}, 2**63 - 1), ({"maxoffsetspertrigger": "5"}, 5)],  # never ReadAllAvailable, by which Trigger.Once is known
)
def test_the_limit_of_the_options_is_reported_to_spark(given: dict[str, str], limit: int) -> None:
    assert reader(**given).getDefaultReadLimit() == limits.ReadMaxRows(limit)


@needs_limits
def test_trigger_once_takes_what_is_there_when_the_queue_counts_as_empty(tmp_path: Path) -> None:
    with Broker() as broker:
        fill(broker.url, range(500))
        made = reader(broker.url, str(tmp_path), idletimeout="1.5", maxoffsetspertrigger="100")
        try:
            # As Spark does: the first call is the one that counts.
            start = made.initialOffset()
            assert made.latestOffset(start, limits.ReadAllAvailable())["next"] == 500
        finally:
            made.stop()


def test_a_part_is_read_from_its_pickled_copy(tmp_path: Path) -> None:
    with Broker() as broker:
        fill(broker.url, range(500))
        made = reader(broker.url, str(tmp_path), numpartitions="3")
        try:
            start = made.initialOffset()
            eventually(lambda: made.latestOffset(start)["next"] == 500)
            parts = made.partitions(start, made.latestOffset(start))
            assert len(parts) == 3
            copy: StompStreamReader = pickle.loads(pickle.dumps(made))
            found: list[int] = []
            for part in parts:
                travelled: SpoolPart = pickle.loads(pickle.dumps(part))
                for batch in copy.read(travelled):
                    found += map(int, batch.column("body").to_pylist())
            assert found == list(range(500))
        finally:
            made.stop()


PROGRAM = """
import os, signal, sys, time
from stompy.spark.datasource import end_on_sigterm

end_on_sigterm()
try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
finally:
    os.kill(os.getpid(), signal.SIGTERM)
    print("the end was clean")
"""


def test_the_process_disconnects_and_a_second_signal_does_not_cut_it_off() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (143, "the end was clean\n"), done.stderr


def test_a_handler_that_is_there_stays() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        end_on_sigterm()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_outside_the_main_thread_nothing_happens() -> None:
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=end_on_sigterm)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
