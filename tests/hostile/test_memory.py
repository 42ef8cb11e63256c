"""What hostile clients make the broker keep stays within its budget, and others are served meanwhile.

The broker is a process of its own, whose peak of resident memory is measured. With `-m load` the attacks have their
full size and the broker its default limits; else both are smaller by the same measure.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stompy.deadline import Deadline
from stompy.transport.tcp import TcpDialer
from tests.hostile.clients import HELLO
from tests.support.rawclient import WITHIN, RawClient

MIB = 1024 * 1024
LONG = 60_000
"""Bytes of an id or a name."""

STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Size:
    """How large the attacks are, and what the broker may take."""

    subscriptions: int
    sessions: int
    frames: int
    body: int
    queues: int
    transactions: int
    peak: int
    options: tuple[str, ...]


FULL = Size(
    subscriptions=9_990,
    sessions=4,
    frames=20,
    body=128 * MIB,
    queues=10_000,
    transactions=999,
    peak=600 * 1000 * 1000,
    options=(),
)
SMALL = Size(
    subscriptions=250,
    sessions=4,
    frames=20,
    body=8 * MIB,
    queues=1_000,
    transactions=400,
    peak=110 * MIB,
    options=(f"--max-state-bytes={24 * MIB}", f"--max-session-state-bytes={16 * MIB}", f"--max-body={8 * MIB}"),
)


class Hostile(threading.Thread):
    """Says frames until the broker ends the session; then stays until the test is over, if it can.

    Args:
        port: of the broker.
        frames: what it says.
        tries: how many sessions it may use up before it gives up; each goes on where the last one was ended.
        reads: whether it takes what it is sent.
    """

    def __init__(self, port: int, frames: Iterator[bytes], *, tries: int = 1, reads: bool = False) -> None:
        super().__init__(name="test-hostile", daemon=True)
        self._port = port
        self._frames = frames
        self._tries = tries
        self._reads = reads
        self._over = threading.Event()
        self.done = threading.Event()
        self.heard = b""

    def run(self) -> None:
        for _ in range(self._tries):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), WITHIN) as sock:
                sock.sendall(HELLO)
                sock.recv(65_536)
                if self._all_said(sock):
                    self.done.set()
                    self._over.wait(WITHIN)
                    break
        self.done.set()

    def _all_said(self, sock: socket.socket) -> bool:
        for frame in self._frames:
            try:
                sock.sendall(frame)
            except OSError:
                with contextlib.suppress(OSError):
                    self.heard += sock.recv(65_536)
                return False
            self._read(sock, 0)
            if self._over.is_set():
                return False
        self._read(sock, 0.5)
        return True

    def _read(self, sock: socket.socket, seconds: float) -> None:
        while self._reads and select.select([sock], [], [], seconds)[0] and sock.recv(1 << 20):
            pass

    def leave(self) -> None:
        self._over.set()
        self.join(WITHIN)
        assert not self.is_alive()


def name(number: int) -> bytes:
    return b"%06d" % number + b"x" * LONG


def subscriptions(port: int, size: Size) -> list[Hostile]:
    frame = b"SUBSCRIBE\nid:%b\ndestination:/queue/%d-%b\n\n\0"

    def frames(session: int) -> Iterator[bytes]:
        return (frame % (name(number), session, name(number)) for number in range(size.subscriptions))

    return [Hostile(port, frames(session)) for session in range(size.sessions)]


def unfinished_frames(port: int, size: Size) -> list[Hostile]:
    def frames() -> Iterator[bytes]:
        yield b"SEND\ndestination:/queue/a\ncontent-length:%d\n\n" % size.body
        yield from (b"x" * 65_536 for _ in range(size.body // 65_536))

    return [Hostile(port, frames()) for _ in range(size.frames)]


def queue_names(port: int, size: Size) -> list[Hostile]:
    frames = (b"SEND\ndestination:/queue/%b\n\n\0" % name(number) for number in range(size.queues))
    return [Hostile(port, frames, tries=20)]


def transaction_ids(port: int, size: Size) -> list[Hostile]:
    def frames() -> Iterator[bytes]:
        return (b"BEGIN\ntransaction:%b\n\n\0" % name(number) for number in range(size.transactions))

    return [Hostile(port, frames()) for _ in range(2 * size.sessions)]


def ids_of_deliveries(port: int, size: Size) -> list[Hostile]:
    """A MESSAGE repeats the id of its subscription, and this one waits for its ACK."""

    def frames() -> Iterator[bytes]:
        yield b"SUBSCRIBE\nid:%b\ndestination:/queue/d\nack:client\nprefetch-count:0\n\n\0" % name(0)
        yield from (b"SEND\ndestination:/queue/d\n\n\0" for _ in range(2 * size.queues))

    return [Hostile(port, frames(), reads=True)]


@contextlib.contextmanager
def broker_at(*options: str) -> Iterator[tuple[int, Callable[[], int]]]:
    """Run a broker; yield its port, and what tells the most memory that it has had."""
    command = [sys.executable, "-m", "stompy", "broker", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            status = Path(f"/proc/{process.pid}/status")

            def peak() -> int:
                found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii"))
                assert found is not None
                return int(found[1]) * 1024

            yield int(process.stdout.readline().rpartition(":")[2]), peak
        finally:
            process.kill()


class Friend(RawClient):
    def __init__(self, port: int) -> None:
        super().__init__(TcpDialer("127.0.0.1", port).dial(Deadline(WITHIN)))
        self.connect()

    def is_served(self, number: int) -> None:
        """Use what others may have used up: an id, a name, a transaction, a message."""
        self.subscribe(f"/queue/friend-{number}", id=str(number))
        self.say("BEGIN", {"transaction": "t"})
        self.say("SEND", {"destination": f"/queue/friend-{number}", "transaction": "t"}, b"x" * 10_000)
        self.say("COMMIT", {"transaction": "t"})
        assert len(self.expect("MESSAGE").body) == 10_000
        self.sure("UNSUBSCRIBE", {"id": str(number)})


def check(attack: Callable[[int, Size], list[Hostile]], size: Size, within: float) -> None:
    with broker_at(*size.options) as (port, peak), contextlib.closing(Friend(port)) as friend:
        attackers = attack(port, size)
        for attacker in attackers:
            attacker.start()
        try:
            number, deadline = 0, Deadline(within)
            while not all(attacker.done.wait(0.01) for attacker in attackers):
                assert not deadline.expired, "the attack does not end"
                friend.is_served(number := number + 1)
            friend.is_served(0)
            with contextlib.closing(Friend(port)) as newcomer:
                newcomer.is_served(0)
        finally:
            for attacker in attackers:
                attacker.leave()
        assert peak() <= size.peak, f"{peak() / MIB:.0f} MiB at the peak, {size.peak / MIB:.0f} allowed"
        friend.is_served(-1)
        if attack is not queue_names:  # its queues hold messages, and stay
            for one in range(60):  # what was kept for those who have left is free again
                friend.subscribe("/queue/a", id=f"{one}-{'x' * 10_000}")


ATTACKS = [subscriptions, unfinished_frames, queue_names, transaction_ids, ids_of_deliveries]
measured = pytest.mark.skipif(not STATUS.exists(), reason="the peak of a process's memory is unknown here")


@measured
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_a_client_makes_the_broker_keep_is_bounded(attack: Callable[[int, Size], list[Hostile]]) -> None:
    check(attack, SMALL, 40)


@measured
@pytest.mark.load
@pytest.mark.timeout(300)
@pytest.mark.parametrize("attack", ATTACKS)
def test_at_default_limits_no_attack_takes_600_megabytes(attack: Callable[[int, Size], list[Hostile]]) -> None:
    check(attack, FULL, 240)
