"""No error shows a passcode: not in its text, not by the local variables of our frames, not by what an error holds."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits, User, hash_passcode
from stompy.compat.connect import StompConnection11, StompConnection12
from tests.support.ports import reserved_port
from tests.test_secret import MARK

OURS = str(Path(stompy.__file__).parent)
UNPAIRED = f"{MARK}\ud800"


def frames_of_ours(error: BaseException) -> str:
    """Return what is shown of the frames that are not of the tests, with their local variables."""
    summary = traceback.TracebackException.from_exception(error, capture_locals=True)
    found, waiting, seen = [], [summary], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        found += [str(frame.locals) for frame in one.stack if frame.filename.startswith((OURS, "<"))]
        waiting += filter(None, (one.__cause__, one.__context__))
    return "\n".join(found)


def held_by(error: BaseException) -> str:
    """Return what the errors that led to this one hold, also those that a traceback leaves out."""
    found: list[str] = []
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        found += [str(one), repr(one.args), repr(vars(one)), repr(getattr(one, "object", None))]
        waiting += (one.__cause__, one.__context__)
    return "\n".join(found)


def refuse_memory(*arguments: object, **options: object) -> bytes:
    raise MemoryError


@pytest.fixture
def nobody() -> Any:
    with reserved_port() as port:
        yield port


CALLS: dict[str, Callable[[int], object]] = {
    "connect(headers=), refused": lambda port: stompy.connect(f"stomp://127.0.0.1:{port}", headers={"passcode": MARK}),
    "connect(headers=), wrong option": lambda port: stompy.connect(
        headers={"passcode": MARK}, timeouts=stompy.Timeouts(connect=-1)
    ),
    "connect(headers=), unpaired": lambda port: stompy.connect(in_memory(), headers={"passcode": UNPAIRED}),
    "connect(headers=), wrong value": lambda port: stompy.connect(headers={"passcode": [MARK]}),
    "connect(passcode=), unpaired": lambda port: stompy.connect(in_memory(), login="ann", passcode=UNPAIRED),
    "connect(url)": lambda port: stompy.connect(f"stomp://ann:{MARK}%ff%fe@host:x"),
    "WebSocketOptions": lambda port: stompy.WebSocketOptions(headers={"Authorization": MARK, "Bad\n": MARK}),
    "WebSocketOptions, unpaired": lambda port: stompy.WebSocketOptions(headers={"Authorization": UNPAIRED}),
    "WebSocketOptions, no mapping": lambda port: stompy.WebSocketOptions(headers=[MARK]),  # type: ignore[arg-type]
    "Broker(users=), wrong option": lambda port: Broker(users={"ann": MARK}, limits=BrokerLimits(prefetch=-1)),
    "Broker(users=), wrong place": lambda port: Broker(users={"ann": MARK}, unix="x", ws=True),
    "Broker(users=), wrong user": lambda port: Broker(users={"ann": MARK.encode()}),  # type: ignore[dict-item]
    "User, wrong right": lambda port: User(passcode=MARK, read="all"),  # type: ignore[arg-type]
    "User, both": lambda port: User(passcode=MARK, passcode_hash="scrypt"),
    "hash_passcode, memory": lambda port: hash_passcode(MARK),
    "hash_passcode, bytes": lambda port: hash_passcode(MARK.encode()),  # type: ignore[arg-type]
    "compat, refused": lambda port: compat(port).connect("ann", MARK, wait=True),
    "compat, by name": lambda port: compat(port).connect(username="ann", passcode=MARK, wait=True),
    "compat, as a header": lambda port: compat(port).connect(headers={"passcode": MARK}, wait=True),
    "compat, no argument": lambda port: compat(port).connect("ann", MARK, unknown=None, wait=MARK, other=[MARK]),
}


def in_memory() -> str:
    """Return the address of a broker that runs until the end of the test."""
    return BROKERS[-1].url


BROKERS: list[Broker] = []


def compat(port: int) -> StompConnection12:
    """Return a connection that nobody accepts."""
    made: StompConnection12 = StompConnection12([("127.0.0.1", port)], reconnect_attempts_max=1)
    return made


@pytest.mark.parametrize("name", CALLS)
def test_no_error_shows_a_passcode(name: str, nobody: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.endswith("memory"):
        monkeypatch.setattr(hashlib, "scrypt", refuse_memory)
    with Broker() as broker:
        BROKERS.append(broker)
        try:
            with pytest.raises(Exception) as caught:  # noqa: PT011 - each has its own
                CALLS[name](nobody)
        finally:
            BROKERS.remove(broker)
    assert MARK not in frames_of_ours(caught.value)
    assert MARK not in held_by(caught.value)


@pytest.mark.parametrize("kind", [StompConnection11, StompConnection12])
def test_the_compat_connection_that_the_broker_does_not_understand(kind: type[StompConnection12]) -> None:
    with Broker() as broker:
        connection = kind([("127.0.0.1", int(broker.url.rpartition(":")[2]))])
        with pytest.raises(Exception) as caught:  # noqa: PT011
            connection.connect("ann", UNPAIRED, wait=True)
        connection.transport.disconnect_socket()
    assert MARK not in frames_of_ours(caught.value)
    assert MARK not in held_by(caught.value)


def test_the_check_sees_what_it_looks_for() -> None:
    code = compile(f"x = {MARK!r}; raise LookupError", "<string>", "exec")
    with pytest.raises(LookupError) as caught:
        exec(code, {}, {})
    assert MARK in frames_of_ours(caught.value)
    assert MARK in held_by(UnicodeEncodeError("utf-8", MARK, 0, 1, "x"))
