from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, ConnectError, ConnectTimeout
from stompy.transport.resolve import resolve

Answer = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]


def ipv4(host: str, port: int = 61613) -> Answer:
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))


def name_service(monkeypatch: pytest.MonkeyPatch, *answers: Answer, fault: Exception | None = None) -> list[str]:
    """Let every name have `answers`; return the list of threads that will have asked."""
    threads: list[str] = []

    def getaddrinfo(host: str, port: int, **options: int) -> list[Answer]:
        if options.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "not a number")
        threads.append(threading.current_thread().name)
        if fault is not None:
            raise fault
        return list(answers)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return threads


@pytest.mark.parametrize(("host", "text"), [("127.0.0.1", "127.0.0.1:7"), ("::1", "[::1]:7")])
def test_a_number_needs_no_name_service(host: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*args: object, **options: object) -> None:
        pytest.fail("a thread was made")

    monkeypatch.setattr(threading, "Thread", no_thread)
    assert [str(endpoint) for endpoint in resolve(host, 7, deadline=Deadline(0))] == [text]


def test_a_name_is_looked_up_in_a_thread_that_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = name_service(monkeypatch, ipv4("127.0.0.9"))
    assert [str(endpoint) for endpoint in resolve("b.example", 61613, deadline=Deadline(20))] == ["127.0.0.9:61613"]
    assert threads == ["stompy-resolver"]
    assert not [thread for thread in threading.enumerate() if thread.name == "stompy-resolver"]


def test_answers_keep_their_order_and_come_once(monkeypatch: pytest.MonkeyPatch) -> None:
    name_service(monkeypatch, ipv4("127.0.0.2"), ipv4("127.0.0.1"), ipv4("127.0.0.2"))
    found = resolve("b.example", 61613, deadline=Deadline(None))
    assert [endpoint.sockaddr[0] for endpoint in found] == ["127.0.0.2", "127.0.0.1"]


def test_a_name_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    name_service(monkeypatch, fault=socket.gaierror(socket.EAI_NONAME, "x"))
    with pytest.raises(ConnectError, match=r"^b\.example:61613: host name not found: b\.example$") as caught:
        resolve("b.example", 61613, deadline=Deadline(20))
    assert caught.value.address == "b.example:61613"
    assert isinstance(caught.value.__cause__, socket.gaierror)


def test_a_name_without_an_address_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    name_service(monkeypatch)
    with pytest.raises(ConnectError, match=r"host name without an address: b\.example"):
        resolve("b.example", 61613, deadline=Deadline(20))


def test_a_lookup_that_hangs_ends_by_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def getaddrinfo(host: str, port: int, **options: int) -> list[Answer]:
        if options.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "not a number")
        gate.wait(20)
        return [ipv4("127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    try:
        with pytest.raises(ConnectTimeout, match=r"the lookup of the host name b\.example took longer"):
            resolve("b.example", 61613, deadline=Deadline(0.02))
    finally:
        gate.set()


@pytest.mark.parametrize("host", ["", "a b", "a..b", "127.0.0.1\0b", "x" * 64 + ".example"])
def test_what_cannot_be_a_host_name_is_refused(host: str) -> None:
    with pytest.raises(ConfigurationError, match="not a usable host name"):
        resolve(host, 61613, deadline=Deadline(20))


def test_the_real_name_service_is_asked() -> None:
    assert {endpoint.sockaddr[0] for endpoint in resolve("localhost", 1, deadline=Deadline(20))} <= {"127.0.0.1", "::1"}
    with pytest.raises(ConnectError, match=r"no-such-host\.invalid"):
        resolve("no-such-host.invalid", 1, deadline=Deadline(20))
