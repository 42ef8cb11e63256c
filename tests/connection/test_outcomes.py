"""The outcomes that calls report are compared with what the peer has read, under random cuts, stops and refusals."""

from __future__ import annotations

import contextlib
import gc
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

import stompy
from stompy import locks
from stompy.deadline import Deadline
from stompy.errors import ConnectionLostError, SessionError, StompTimeoutError
from stompy.frames.frame import Frame
from stompy.frames.grammar import grammar_of
from stompy.frames.parser import Parser
from stompy.transport.base import Transport
from stompy.transport.unix import UnixListener
from tests.connection.conftest import QUICK
from tests.support.options import chosen
from tests.support.peer import WITHIN, Peer
from tests.support.receipts import outcome_of
from tests.support.seed import SEED_SETTING, chance

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets, whose buffers are small")

SIZES = (1, 1_000, 30_000, 70_000, 400_000)
"""Bytes of bodies: some overflow a batch, some the kernel's buffers."""


class Destroyer(threading.Thread):
    """A broker that reads, stops reading, cuts and refuses at random, and notes every frame that it has read whole."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        super().__init__(name="test-destroyer", daemon=True)
        self._listener = UnixListener(folder / "s")
        self.url = f"stomp+unix://{folder / 's'}"
        self._draw = draw
        self.received: set[str] = set()
        self.refused: set[str] = set()
        self.failure: BaseException | None = None
        self.harmless = False
        """Whether from now on every session is only served."""

    def run(self) -> None:
        try:
            while (transport := self._listener.accept()) is not None:
                with contextlib.closing(transport), contextlib.suppress(ConnectionLostError):
                    self._serve(transport)
        except BaseException as error:
            self.failure = error

    def _serve(self, transport: Transport) -> None:
        draw = self._draw
        peer = Peer(transport)
        try:
            peer.greet()
        except AssertionError:
            return  # the connection was closed meanwhile
        parser = Parser(grammar_of(peer.version))
        cut_at, refuse_at = (draw.choice((10**9, draw.randrange(most))) for most in (3 * 10**6, 40))
        stop_at = draw.randrange(500_000)
        read = sends = 0
        while True:
            try:
                data = transport.recv(Deadline(0.05))
            except StompTimeoutError:
                continue
            if not data:
                return
            read += len(data)
            for frame in parser.feed(data):
                sends += self._note(frame)
                if frame.command == "SEND" and sends == refuse_at and not self.harmless:
                    self.refused.add(frame.headers["n"])
                    named = {"receipt-id": frame.headers["receipt"]} if "receipt" in frame.headers else {}
                    headers = {"message": "no", "n": frame.headers["n"], **named}
                    transport.sendall(peer.encoded("ERROR", headers), 1.0)
                    self._drain(transport, parser)
                    return
                if "receipt" in frame.headers:
                    transport.sendall(peer.encoded("RECEIPT", {"receipt-id": frame.headers["receipt"]}), 1.0)
            if read >= stop_at and not self.harmless:
                stop_at += draw.randrange(2_000_000)
                time.sleep(draw.uniform(0.0, 0.15))
            if read >= cut_at and not self.harmless:
                if draw.random() < 0.5:
                    transport.shutdown_write()
                    self._drain(transport, parser)
                return

    def _note(self, frame: Frame) -> bool:
        if frame.command != "SEND":
            return False
        self.received.add(frame.headers["n"])
        return True

    def _drain(self, transport: Transport, parser: Parser) -> None:
        """Read what is on its way to the end."""
        with contextlib.suppress(ConnectionLostError, StompTimeoutError):
            while data := transport.recv(Deadline(WITHIN)):
                for frame in parser.feed(data):
                    self._note(frame)

    def close(self) -> None:
        self._listener.close()
        self.join(WITHIN)
        assert not self.is_alive()


class Struck(BaseException):
    """Raised by a signal handler in the middle of a call."""


Guard = Callable[[], contextlib.AbstractContextManager[None]]


class Author:
    """Makes random calls in one thread, and notes what each said of its frames."""

    def __init__(self, conn: stompy.Connection, name: str, draw: random.Random, guard: Guard) -> None:
        self._conn = conn
        self._name = name
        self._draw = draw
        self._guard = guard
        self.claims: list[tuple[str, str, str]] = []
        """Frame, outcome, and the call that said so."""
        self.receipts: list[tuple[str, stompy.Receipt]] = []
        self._sent: list[str] = []

    def work(self, calls: int) -> None:
        """Make so many calls."""
        for _ in range(calls):
            call = self._draw.choice(
                (self._send, self._send, self._confirm, self._batch, self._batch, self._request, self._flush)
            )
            with contextlib.suppress(Struck), self._guard():
                call()

    def _new(self) -> str:
        self._sent.append(f"{self._name}-{len(self._sent)}")
        return self._sent[-1]

    @contextlib.contextmanager
    def _claiming(self, what: str, frames: Callable[[], list[str]]) -> Iterator[None]:
        try:
            yield
        except SessionError as error:
            concerned = frames()
            several = what.startswith("flush") or len(concerned) > 1  # a flush speaks for frames of other calls too
            if several and error.outcome == "rejected" and isinstance(error, stompy.BrokerError):
                concerned = [error.frame.headers["n"]]
            self.claims += [(frame, error.outcome, f"{what}: {error!r}") for frame in concerned]
        except (stompy.NotConnectedError, StompTimeoutError):
            pass

    def _timeout(self) -> float:
        return self._draw.choice((0.01, 0.05, 0.2))

    def _body(self) -> bytes:
        return b"x" * self._draw.choice(SIZES)

    def _send(self) -> str:
        number = self._new()
        with self._claiming("send", lambda: [number]):
            if self._draw.random() < 0.5:
                self._conn.send("/queue/a", self._body(), headers={"n": number}, timeout=self._timeout())
            else:
                receipt = self._conn.send_async(
                    "/queue/a", self._body(), headers={"n": number}, timeout=self._timeout()
                )
                self.receipts.append((number, receipt))
                if self._draw.random() < 0.3:
                    receipt.result(self._timeout())
        return number

    def _confirm(self) -> str:
        number = self._new()
        with self._claiming("confirm", lambda: [number]):
            self._conn.send("/queue/a", self._body(), headers={"n": number}, confirm=True, timeout=self._timeout())
            self.claims.append((number, "confirmed", "confirm"))
        return number

    def _request(self) -> str:
        number = self._new()
        with self._claiming("request", lambda: [number]):
            self._conn.request("/queue/a", self._body(), headers={"n": number}, timeout=self._timeout())
        return number

    def _flush(self) -> None:
        with self._claiming("flush of all", lambda: list(self._sent)):
            self._conn.flush(timeout=self._timeout())

    def _batch(self) -> None:
        sent: list[str] = []
        with self._claiming("batch", lambda: sent), self._conn.batch():
            for _ in range(self._draw.randrange(1, 6)):
                sent.append(self._draw.choice((self._send, self._send, self._confirm, self._request))())
                if self._draw.random() < 0.3:
                    with self._claiming("flush", lambda: list(sent)):
                        self._conn.flush(timeout=self._timeout())


@pytest.fixture
def struck() -> Iterator[Guard]:
    """Return a guard: a signal now and then raises in the main thread, in the middle of what runs under it."""
    armed, over = [False], threading.Event()

    def strike(number: int, frame: FrameType | None) -> None:
        if armed[0]:
            armed[0] = False
            raise Struck

    def send_signals() -> None:
        pause = chance("strikes")
        while not over.wait(pause.uniform(0.005, 0.05)):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    @contextlib.contextmanager
    def guard() -> Iterator[None]:
        gc.disable()  # its callbacks, such as Hypothesis has one, would swallow what is raised in them
        try:
            armed[0] = True
            yield
        finally:
            armed[0] = False
            gc.enable()

    before = signal.signal(signal.SIGUSR1, strike)
    thread = threading.Thread(target=send_signals, name="test-signals")
    thread.start()
    yield guard
    over.set()
    thread.join(WITHIN)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("resend", [False, True])
@pytest.mark.parametrize("turn", range(20 if chosen.long else 2))
def test_what_a_call_says_of_its_frames_is_true(
    tmp_path: Path, turn: int, *, resend: bool, struck: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(SEED_SETTING)
    monkeypatch.setattr(locks, "checked", False)  # as in a program: the checked ones are written in Python
    broker = Destroyer(tmp_path, chance("broker", turn, resend))
    broker.start()
    with contextlib.closing(broker):
        conn = stompy.connect(
            broker.url,
            reconnect=replace(QUICK, resend_unconfirmed=resend),
            heartbeat=(0, 0),
            timeouts=stompy.Timeouts(send=0.2, receipt=0.3),
        )
        authors = [
            Author(conn, f"{who}", chance("author", who, turn, resend), struck if not who else contextlib.nullcontext)
            for who in range(3)
        ]
        threads = [threading.Thread(target=author.work, args=(50,), name="test-author") for author in authors[1:]]
        for thread in threads:
            thread.start()
        authors[0].work(50)  # in the main thread, which signals strike
        for thread in threads:
            thread.join(WITHIN)
            assert not thread.is_alive()
        broker.harmless = True
        conn.close()
    if broker.failure is not None:
        raise broker.failure
    claims = [claim for author in authors for claim in author.claims]
    claims += [(frame, outcome_of(receipt), "receipt") for author in authors for frame, receipt in author.receipts]
    assert [claim for claim in claims if claim[1] == "not-sent" and claim[0] in broker.received] == []
    assert [claim for claim in claims if claim[1] == "confirmed" and claim[0] not in broker.received] == []
    assert [claim for claim in claims if claim[1] == "rejected" and claim[0] not in broker.refused] == []
    assert "confirmed" in {outcome for _, outcome, _ in claims}
