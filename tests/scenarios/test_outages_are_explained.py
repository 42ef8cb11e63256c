"""An outage is explained wherever somebody looks: in the log, in errors, in `stats`, and in the health of a worker."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

import stompy
from stompy.broker import Broker
from stompy.worker.service import HttpEndpoint
from tests.support.certificates import Certificates
from tests.support.ports import reserved_port
from tests.worker.conftest import WITHIN, wait_until

QUICK = stompy.Reconnect(backoff=stompy.Backoff(first=0.01, longest=0.05))
WHEN = r"(in \d\.\d s|is being made)"
"""Of the next attempt: on a slow machine the pause may be over when it is logged."""


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine at which nothing listens, and which no other program gets."""
    with reserved_port() as port:
        yield port


def gone(url: str) -> str:
    return re.escape(url.removeprefix("stomp://")) + ": connection refused"


def logged(caplog: pytest.LogCaptureFixture, pattern: str) -> bool:
    return any(
        record.levelno >= logging.WARNING and re.search(pattern, record.getMessage()) for record in caplog.records
    )


def worker_of(url: str | None, **options: object) -> stompy.Worker:
    worker = stompy.Worker(url, **options)  # type: ignore[arg-type]
    worker.add(lambda message: None, "/queue/a", name="task")
    return worker


def test_a_lost_broker_is_named_with_the_reason_and_the_next_attempt(
    closed_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(port=closed_port) as broker:
        url = broker.url
        connection = stompy.connect(url, reconnect=QUICK)
        assert connection.stats().outage is None
    with connection:
        wait_until(lambda: re.search(rf"{gone(url)}; attempt \d+ {WHEN}", str(connection.stats().outage)))
        with pytest.raises(stompy.ConnectionLostError, match=rf"within 0\.05 s: {gone(url)}") as caught:
            connection.send("/queue/a", "x", timeout=0.05)
        assert caught.value.outcome == "not-sent"
        assert isinstance(caught.value.__cause__, stompy.ConnectError)
        wait_until(lambda: logged(caplog, rf"{gone(url)}; attempt \d+ {WHEN}"))
        with Broker(port=closed_port):
            connection.send("/queue/a", "x", timeout=WITHIN)
            assert connection.stats().outage is None
            wait_until(lambda: logged(caplog, rf"connected again to {gone(url).partition(': ')[0]}, after \d+\.\d s"))


def test_a_connection_that_is_lost_for_good_says_why_to_all(caplog: pytest.LogCaptureFixture) -> None:
    with Broker() as broker:
        url = broker.url
        connection = stompy.connect(
            url, reconnect=stompy.Reconnect(attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01))
        )
    with connection:
        wait_until(lambda: logged(caplog, f"gave up reconnecting: {gone(url)}"))
        with pytest.raises(stompy.ConnectionLostError, match=f"lost for good: {gone(url)}") as caught:
            connection.send("/queue/a", "x", timeout=WITHIN)
        assert isinstance(caught.value.__cause__, stompy.ConnectError)
        assert re.search(gone(url), str(connection.stats().outage))


def test_a_refused_login_is_told_apart(closed_port: int, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(port=closed_port) as broker:
        connection = stompy.connect(broker.url, reconnect=QUICK)
    with connection, Broker(port=closed_port, users={"known": "secret"}):
        wait_until(lambda: logged(caplog, f"gave up reconnecting: 127.0.0.1:{closed_port}: the broker .*refused"))
        with pytest.raises(stompy.ConnectionLostError, match="lost for good") as caught:
            connection.send("/queue/a", "x", timeout=WITHIN)
        assert isinstance(caught.value.__cause__, stompy.ConnectRefusedError)


def test_a_broken_certificate_is_told_apart(
    closed_port: int, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(port=closed_port, tls=certificates.broker_options()) as broker:
        connection = stompy.connect(broker.url, reconnect=QUICK, tls=certificates.client_options())
    expired = stompy.Tls(cert=certificates.expired)
    with connection, Broker(port=closed_port, tls=expired):
        pattern = rf":{closed_port}: .*certificate .*expired"
        wait_until(lambda: logged(caplog, rf"{pattern}.*; attempt \d+ {WHEN}"))
        wait_until(lambda: re.search(pattern, str(connection.stats().outage)))
        with pytest.raises(stompy.ConnectionLostError, match=pattern) as caught:
            connection.send("/queue/a", "x", timeout=0.05)
        assert isinstance(caught.value.__cause__, stompy.TlsError)
        assert caught.value.__cause__.reason == "expired"


def test_a_name_that_is_not_found_is_told_apart(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_name(host: str, *arguments: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_name)
    worker = worker_of("stomp://broker.invalid", timeouts=stompy.Timeouts(start=0.2))
    with pytest.raises(stompy.ConnectError, match=r"broker\.invalid:61613: host name not found: broker\.invalid"):
        worker.start()
    assert logged(caplog, rf"broker.invalid:61613: host name not found: broker.invalid; attempt 2 {WHEN}")


def test_the_first_session_is_waited_for_aloud(closed_port: int, caplog: pytest.LogCaptureFixture) -> None:
    url = f"stomp://127.0.0.1:{closed_port}"
    brokers: list[Broker] = []

    class Starter(stompy.Listener):
        def on_reconnecting(self, *arguments: object) -> None:
            if not brokers:
                brokers.append(Broker(port=closed_port).start())

    with stompy.connect(url, timeouts=stompy.Timeouts(start=WITHIN), reconnect=QUICK, listeners=[Starter()]):
        pass
    brokers[0].close()
    assert logged(caplog, rf"{gone(url)}; attempt 2 {WHEN}")
    assert logged(caplog, rf"connected to 127\.0\.0\.1:{closed_port}, after \d+\.\d s")


def test_a_worker_without_a_broker_says_where_and_why(closed_port: int, caplog: pytest.LogCaptureFixture) -> None:
    url = f"stomp://127.0.0.1:{closed_port}"
    worker = worker_of(url)
    thread = threading.Thread(target=worker.start)
    thread.start()
    try:
        pattern = rf"{gone(url)}; attempt \d+ {WHEN}"
        wait_until(lambda: logged(caplog, f"worker: {pattern}"))
        wait_until(lambda: re.search(gone(url), str(worker.health().outage)))
        assert json.loads(worker.health().as_json())["outage"]
    finally:
        with Broker(port=closed_port):
            thread.join(WITHIN)
            assert worker.health().outage is None
            worker.close()


def test_ready_says_why_a_worker_is_not() -> None:
    with Broker() as broker:
        url = broker.url
        worker = worker_of(url)
        worker.start()
    try:
        endpoint = HttpEndpoint(0, worker.health, "worker")
        endpoint.start()
        wait_until(lambda: re.search(gone(url), str(worker.health().outage)))
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/ready", timeout=WITHIN)
        with caught.value as answer:
            assert answer.code == 503
            assert re.search(gone(url), json.loads(answer.read())["outage"])
        endpoint.stop()
    finally:
        worker.close()


def test_a_worker_says_which_address_it_takes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.delenv("STOMPY_URL", raising=False)
    worker_of(None)
    assert "neither url nor STOMPY_URL is set: the broker is stomp://localhost:61613" in caplog.text
